"""Compiling and executing graphs."""

from perihelion import __version__

from .api import (
    AssertLevel,
    CompiledModel,
    CustomExtensionsType,
    DebugConfig,
    GPUProfilingMode,
    InferenceSession,
    InputType,
    LogLevel,
    Model,
    PrintStyle,
    SplitKReductionPrecision,
    TensorSpec,
)

__all__ = [
    "AssertLevel",
    "CompiledModel",
    "CustomExtensionsType",
    "DebugConfig",
    "GPUProfilingMode",
    "InferenceSession",
    "InputType",
    "LogLevel",
    "Model",
    "PrintStyle",
    "SplitKReductionPrecision",
    "TensorSpec",
    "__version__",
]
