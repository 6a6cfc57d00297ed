"""Graphs: built in Python, compiled by `perihelion.engine`."""

from perihelion._tracebacks import shorten_methods

from . import ops
from .dim import AlgebraicDim, Dim, DimLike, StaticDim, SymbolicDim
from .graph import (
    DevicePlacementPolicy,
    Graph,
    KernelLibrary,
    Module,
    default_custom_extensions,
    default_custom_extensions_scope,
)
from .quantization import BlockParameters, QuantizationConfig, QuantizationEncoding
from .shape import Shape, ShapeLike
from .type import (
    BufferType,
    ConvInputLayout,
    DeviceKind,
    DeviceRef,
    FilterLayout,
    TensorType,
    Type,
)
from .value import (
    BufferValue,
    BufferValueLike,
    HasBufferValue,
    HasTensorValue,
    TensorValue,
    TensorValueLike,
    Value,
)
from .weight import Segment, ShardingStrategy, Weight

__all__ = [
    "AlgebraicDim",
    "BlockParameters",
    "BufferType",
    "BufferValue",
    "BufferValueLike",
    "ConvInputLayout",
    "DeviceKind",
    "DevicePlacementPolicy",
    "DeviceRef",
    "Dim",
    "DimLike",
    "FilterLayout",
    "Graph",
    "HasBufferValue",
    "HasTensorValue",
    "KernelLibrary",
    "Module",
    "QuantizationConfig",
    "QuantizationEncoding",
    "Segment",
    "Shape",
    "ShapeLike",
    "ShardingStrategy",
    "StaticDim",
    "SymbolicDim",
    "TensorType",
    "TensorValue",
    "TensorValueLike",
    "Type",
    "Value",
    "Weight",
    "default_custom_extensions",
    "default_custom_extensions_scope",
    "ops",
]

for _class in (DeviceRef, Dim, Shape, Type, TensorType, BufferType, TensorValue, BufferValue, Weight, Graph):
    shorten_methods(_class)
