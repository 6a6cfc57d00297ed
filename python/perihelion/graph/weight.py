"""Weights: tensors of a graph that get their values by name when a model is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from perihelion import _perihelion
from perihelion.dtype import DType

from .dim import StaticDim
from .quantization import QuantizationEncoding
from .shape import Shape, ShapeLike
from .type import DeviceRef, TensorType
from .value import TensorValue, _current

if TYPE_CHECKING:
    from .graph import Graph

__all__ = [
    "Segment",
    "ShardingStrategy",
    "Weight",
    "axiswise_sharding_strategy",
    "col_sharding_strategy",
    "gate_up_sharding_strategy",
    "head_aware_col_sharding_strategy",
    "replicate_sharding_strategy",
    "row_sharding_strategy",
    "segmented_sharding_strategy",
    "stacked_qkv_sharding_strategy",
]


class Weight(TensorValue):
    """A tensor that gets its value by name when a model is made. It joins a graph when an op of the graph uses it.

    Args:
        name: what `weights_registry` calls it.
        dtype: of the elements; `uint8` for quantized weights, which are bytes.
        shape: the sizes of the axes.
        device: where it is used.
        quantization_encoding: how the bytes hold elements, if they are quantized.
        align: of the value in memory, in bytes; any will do.
        sharding_strategy: how `shard` divides it among devices.

    >>> Weight("w", DType.float32, [2, 3], DeviceRef.CPU())
    Weight(name='w', dtype=float32, shape=[Dim(2), Dim(3)], device=cpu:0)
    """

    __slots__ = ("_made_by", "_sharding", "_type", "align", "name", "quantization_encoding", "shard_idx")
    name: str
    quantization_encoding: QuantizationEncoding | None
    align: int | None
    shard_idx: int | None

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        device: DeviceRef,
        quantization_encoding: QuantizationEncoding | None = None,
        align: int | None = None,
        sharding_strategy: ShardingStrategy | None = None,
    ) -> None:
        self.name = name
        self._type = TensorType(dtype, shape, device)
        self.quantization_encoding = quantization_encoding
        self.align = align
        self._sharding = sharding_strategy
        self.shard_idx = None
        # The weight that this is a shard of, and what cuts it.
        self._made_by: Callable[[], TensorValue] | None = None

    @property
    def type(self) -> TensorType:
        """The dtype, shape and device."""
        return self._type

    @property
    def original_dtype_and_shape(self) -> tuple[DType, Shape]:
        """The dtype and shape of the elements, also if the weight is stored as quantized bytes."""
        encoding = self.quantization_encoding
        if encoding is None or not encoding.is_gguf:
            return self.dtype, self.shape
        *outer, last = self.shape
        return DType.float32, Shape([*outer, last // encoding.block_size * encoding.elements_per_block])

    @property
    def sharding_strategy(self) -> ShardingStrategy | None:
        """How `shard` divides the weight among devices."""
        return self._sharding

    @sharding_strategy.setter
    def sharding_strategy(self, strategy: ShardingStrategy) -> None:
        self._sharding = strategy

    def shard(self, devices: Iterable[DeviceRef]) -> list[Weight]:
        """The parts of the weight that devices hold, as `sharding_strategy` divides it.

        Raises:
            ValueError: `sharding_strategy` is not set, or does not fit the weight.
        """
        devices = list(devices)
        if self._sharding is None:
            raise ValueError(f"weight {self.name!r} has no sharding_strategy")
        return [self._shard(self._sharding, i, device, len(devices)) for i, device in enumerate(devices)]

    def _shard(self, strategy: ShardingStrategy, index: int, device: DeviceRef, count: int) -> Weight:
        cut = strategy._cut(self, index, count)
        sizes = [dim.dim for dim in self.shape if isinstance(dim, StaticDim)]
        if cut is not None:
            axis, ranges = cut
            sizes[axis] = sum(stop - start for start, stop in ranges)
        name = f"{self.name}[{index}]"
        shard = Weight(name, self.dtype, sizes, device, self.quantization_encoding, self.align)
        shard.shard_idx = index
        shard._made_by = lambda: _take(self, cut).to(device)
        return shard

    @property
    def _native(self) -> _perihelion.GraphValue:  # type: ignore[override]
        return self._in_graph()._native

    @property
    def _graph(self) -> Graph:  # type: ignore[override]
        return self._in_graph()._graph

    def _in_graph(self) -> TensorValue:
        try:
            graph = _current()
        except LookupError as error:
            raise ValueError(f"weight {self.name!r} is used outside of a graph") from error
        return self._made_by() if self._made_by is not None else graph.add_weight(self)

    def __repr__(self) -> str:
        type = self._type
        return f"Weight(name={self.name!r}, dtype={type.dtype!r}, shape={type.shape}, device={type.device})"


_Cut = tuple[int, list[tuple[int, int]]]


def _take(weight: Weight, cut: _Cut | None) -> TensorValue:
    """The runs of an axis, one after another."""
    from . import ops

    whole = weight._in_graph()
    if cut is None:
        return whole
    axis, ranges = cut
    before = (slice(None),) * axis
    parts = [whole[before + (slice(start, stop),)] for start, stop in ranges]
    return parts[0] if len(parts) == 1 else ops.concat(parts, axis)


class Segment:
    """A part of an axis that is divided among devices in units: elements, or heads.

    >>> Segment.head_aware(4, 8).size
    32
    """

    __slots__ = ("num_heads", "num_units", "unit")
    num_units: int
    unit: int
    num_heads: int | None
    """How many heads there are, if they stay whole."""

    def __init__(self) -> None:
        raise TypeError("make a segment with Segment.even or Segment.head_aware")

    @staticmethod
    def even(size: int) -> Segment:
        """A segment of elements, which are divided evenly."""
        return Segment._of(size, 1, None)

    @staticmethod
    def head_aware(num_heads: int, head_dim: int) -> Segment:
        """A segment of heads, which stay whole."""
        return Segment._of(num_heads, head_dim, num_heads)

    @staticmethod
    def _of(num_units: int, unit: int, num_heads: int | None) -> Segment:
        segment = object.__new__(Segment)
        segment.num_units, segment.unit, segment.num_heads = num_units, unit, num_heads
        return segment

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.num_units * self.unit

    def __repr__(self) -> str:
        return f"Segment({self.num_units} x {self.unit})"


class ShardingStrategy:
    """How a weight is divided among devices. Where it does not divide evenly, the first devices get one more.

    >>> ShardingStrategy.rowwise(2).is_rowwise
    True
    """

    __slots__ = ("_arguments", "_kind", "num_devices")
    num_devices: int
    _kind: str
    _arguments: tuple[Any, ...]

    def __init__(self) -> None:
        raise TypeError("make a strategy with ShardingStrategy.rowwise and others")

    @staticmethod
    def _of(kind: str, num_devices: int, *arguments: Any) -> ShardingStrategy:
        strategy = object.__new__(ShardingStrategy)
        strategy._kind, strategy.num_devices, strategy._arguments = kind, num_devices, arguments
        return strategy

    @staticmethod
    def rowwise(num_devices: int) -> ShardingStrategy:
        """Runs of rows."""
        return ShardingStrategy._of("rowwise", num_devices, 0)

    @staticmethod
    def columnwise(num_devices: int) -> ShardingStrategy:
        """Runs of columns."""
        return ShardingStrategy._of("columnwise", num_devices, 1)

    @staticmethod
    def axiswise(axis: int, num_devices: int) -> ShardingStrategy:
        """Runs of an axis."""
        return ShardingStrategy._of("axiswise", num_devices, axis)

    @staticmethod
    def replicate(num_devices: int) -> ShardingStrategy:
        """The whole weight on each device."""
        return ShardingStrategy._of("replicate", num_devices)

    @staticmethod
    def stacked_qkv(
        num_devices: int, num_heads: int, head_dim: int, num_kv_heads: int | None = None
    ) -> ShardingStrategy:
        """Rows of queries, keys and values, each divided by heads."""
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return ShardingStrategy._of("stacked_qkv", num_devices, num_heads, kv_heads, head_dim)

    @staticmethod
    def head_aware_columnwise(num_devices: int, num_heads: int, head_dim: int) -> ShardingStrategy:
        """Runs of columns in whole heads."""
        return ShardingStrategy._of("head_aware_columnwise", num_devices, 1, num_heads, head_dim)

    @staticmethod
    def tensor_parallel(num_devices: int) -> ShardingStrategy:
        """A module whose layers are divided, each as its own strategy says."""
        return ShardingStrategy._of("tensor_parallel", num_devices)

    @staticmethod
    def expert_parallel(num_devices: int) -> ShardingStrategy:
        """A module whose experts are divided among the devices."""
        return ShardingStrategy._of("expert_parallel", num_devices)

    @staticmethod
    def gate_up(num_devices: int, axis: int = 2) -> ShardingStrategy:
        """Gate and up projections along one axis, each divided."""
        return ShardingStrategy._of("gate_up", num_devices, axis)

    @staticmethod
    def segmented(num_devices: int, segments: Sequence[Segment], axis: int = 0) -> ShardingStrategy:
        """Segments along one axis, each divided."""
        return ShardingStrategy._of("segmented", num_devices, axis, list(segments))

    def _is(self, kind: str) -> bool:
        return self._kind == kind

    @property
    def is_rowwise(self) -> bool:
        """Whether this is `rowwise`."""
        return self._is("rowwise")

    @property
    def is_colwise(self) -> bool:
        """Whether this is `columnwise`."""
        return self._is("columnwise")

    @property
    def is_axiswise(self) -> bool:
        """Whether this is `axiswise`."""
        return self._is("axiswise")

    @property
    def is_replicate(self) -> bool:
        """Whether this is `replicate`."""
        return self._is("replicate")

    @property
    def is_stacked_qkv(self) -> bool:
        """Whether this is `stacked_qkv`."""
        return self._is("stacked_qkv")

    @property
    def is_head_aware_colwise(self) -> bool:
        """Whether this is `head_aware_columnwise`."""
        return self._is("head_aware_columnwise")

    @property
    def is_tensor_parallel(self) -> bool:
        """Whether this is `tensor_parallel`."""
        return self._is("tensor_parallel")

    @property
    def is_expert_parallel(self) -> bool:
        """Whether this is `expert_parallel`."""
        return self._is("expert_parallel")

    @property
    def is_gate_up(self) -> bool:
        """Whether this is `gate_up`."""
        return self._is("gate_up")

    @property
    def is_segmented(self) -> bool:
        """Whether this is `segmented`."""
        return self._is("segmented")

    @property
    def sharded_axis(self) -> int | None:
        """The axis that is divided; `None` if the weight is not."""
        if self._kind in ("replicate", "tensor_parallel", "expert_parallel"):
            return None
        return 0 if self.is_stacked_qkv else self._arguments[0]

    def __call__(self, weight: Weight, i: int) -> TensorValue:
        """The part of a weight that device `i` holds, as a tensor of the current graph."""
        return _take(weight, self._cut(weight, i, self.num_devices))

    def _cut(self, weight: Weight, index: int, count: int) -> _Cut | None:
        """The axis and the runs of it that a device holds; `None` if it holds all."""
        if not Shape.is_static(weight.shape):
            raise ValueError(
                f"weight {weight.name!r} has the shape {weight.shape}, expected numbers to divide"
            )
        arguments = self._arguments
        if self.is_segmented:
            axis, segments = arguments
            arguments = (axis, [(segment.num_units, segment.unit) for segment in segments])
        return _perihelion.shard(self._kind, arguments, weight.shape.static_dims, index, count)

    def __repr__(self) -> str:
        arguments = "".join(f", {argument}" for argument in self._arguments)
        return f"ShardingStrategy({self._kind}, num_devices={self.num_devices}{arguments})"


def row_sharding_strategy(weight: Weight, i: int, num_devices: int) -> TensorValue:
    """The rows of a weight that device `i` holds; see `ShardingStrategy.rowwise`."""
    return ShardingStrategy.rowwise(num_devices)(weight, i)


def col_sharding_strategy(weight: Weight, i: int, num_devices: int) -> TensorValue:
    """The columns of a weight that device `i` holds; see `ShardingStrategy.columnwise`."""
    return ShardingStrategy.columnwise(num_devices)(weight, i)


def axiswise_sharding_strategy(weight: Weight, i: int, num_devices: int, axis: int) -> TensorValue:
    """The run of an axis that device `i` holds; see `ShardingStrategy.axiswise`."""
    return ShardingStrategy.axiswise(axis, num_devices)(weight, i)


def replicate_sharding_strategy(weight: Weight, i: int, num_devices: int) -> TensorValue:
    """The whole weight; see `ShardingStrategy.replicate`."""
    return ShardingStrategy.replicate(num_devices)(weight, i)


def head_aware_col_sharding_strategy(
    weight: Weight, i: int, num_devices: int, num_heads: int, head_dim: int
) -> TensorValue:
    """The columns, in whole heads, that device `i` holds; see `ShardingStrategy.head_aware_columnwise`."""
    return ShardingStrategy.head_aware_columnwise(num_devices, num_heads, head_dim)(weight, i)


def stacked_qkv_sharding_strategy(
    weight: Weight, i: int, num_devices: int, num_heads: int, head_dim: int, num_kv_heads: int | None = None
) -> TensorValue:
    """The rows of queries, keys and values that device `i` holds; see `ShardingStrategy.stacked_qkv`."""
    return ShardingStrategy.stacked_qkv(num_devices, num_heads, head_dim, num_kv_heads)(weight, i)


def gate_up_sharding_strategy(weight: Weight, i: int, num_devices: int, axis: int = 2) -> TensorValue:
    """The parts of gate and up projections that device `i` holds; see `ShardingStrategy.gate_up`."""
    return ShardingStrategy.gate_up(num_devices, axis)(weight, i)


def segmented_sharding_strategy(
    weight: Weight, i: int, num_devices: int, axis: int, segments: Sequence[Segment]
) -> TensorValue:
    """The part of each segment that device `i` holds; see `ShardingStrategy.segmented`."""
    return ShardingStrategy.segmented(num_devices, segments, axis)(weight, i)
