"""Values of graphs: what ops take and give."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Union, runtime_checkable

import numpy as np

from perihelion import _perihelion
from perihelion.driver import Buffer, Device, DLPackArray
from perihelion.dtype import DType

from .dim import Dim, DimLike, StaticDim
from .shape import Shape, ShapeLike
from .type import BufferType, DeviceRef, TensorType, Type, _wrap as _wrap_type

if TYPE_CHECKING:
    from .graph import Graph

__all__ = [
    "BufferValue",
    "BufferValueLike",
    "HasBufferValue",
    "HasTensorValue",
    "Numeric",
    "SliceIndex",
    "StrongTensorValueLike",
    "TensorValue",
    "TensorValueLike",
    "Value",
]

_GRAPHS: ContextVar[tuple[Graph, ...]] = ContextVar("perihelion.graph.graphs", default=())
"""The graphs whose `with` blocks and functions run, the innermost last."""

_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def _current() -> Graph:
    """The graph that ops go to. They come from the place outside of this package that is running."""
    graphs = _GRAPHS.get()
    if not graphs:
        raise LookupError("ops need a graph: call them within `with Graph(...):` or a function of a graph")
    graph = graphs[-1]
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    graph._native.set_location(frame.f_code.co_filename, frame.f_lineno)
    return graph


class Value:
    """A value of a graph: a `TensorValue` or a `BufferValue`."""

    __slots__ = ("_graph", "_native")
    _native: _perihelion.GraphValue
    _graph: Graph

    def __init__(self) -> None:
        raise TypeError("make a value with the inputs of a Graph and the functions of ops")

    @property
    def type(self) -> Type:
        """The dtype, shape and device."""
        return _wrap_type(self._native.type)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.type.rank

    @property
    def device(self) -> DeviceRef:
        """Where the value is."""
        return self.type.device

    @property
    def tensor(self) -> TensorValue:
        """The value itself, if it is a tensor.

        Raises:
            TypeError: it is a buffer.
        """
        raise TypeError(f"got {self!r}, expected a tensor")

    @property
    def buffer(self) -> BufferValue:
        """The value itself, if it is a buffer.

        Raises:
            TypeError: it is a tensor.
        """
        raise TypeError(f"got {self!r}, expected a buffer")

    def __repr__(self) -> str:
        type = self.type
        return f"{self.__class__.__name__}(dtype={type.dtype!r}, shape={type.shape}, device={type.device})"


class TensorValue(Value):
    """A tensor of a graph: an input, or the result of an op.

    Operators broadcast, and comparisons give tensors. A number takes the dtype of the tensor.

    Args:
        value: a tensor, an object that stands for one, or an array, which becomes a constant of the current graph.

    >>> from perihelion.graph import Graph
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as graph:
    ...     x = graph.inputs[0].tensor
    ...     (x[:, 0] + 1).type
    TensorType(dtype=float32, shape=[Dim('n')], device=cpu:0)
    """

    __slots__ = ()

    def __init__(self, value: TensorValueLike) -> None:
        tensor = _to_tensor("value", value)
        self._native, self._graph = tensor._native, tensor._graph

    @property
    def type(self) -> TensorType:
        """The dtype, shape and device."""
        return super().type.as_tensor()

    @property
    def tensor(self) -> TensorValue:
        """The value itself."""
        return self

    @property
    def T(self) -> TensorValue:
        """The tensor with its last two axes swapped."""
        return ops.transpose(self, -1, -2)

    def __tensorvalue__(self) -> TensorValue:
        return self

    def reshape(self, shape: ShapeLike) -> TensorValue:
        """See `ops.reshape`."""
        return ops.reshape(self, shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> TensorValue:
        """See `ops.flatten`."""
        return ops.flatten(self, start_dim, end_dim)

    def broadcast_to(self, shape: ShapeLike) -> TensorValue:
        """See `ops.broadcast_to`."""
        return ops.broadcast_to(self, shape)

    def cast(self, dtype: DType) -> TensorValue:
        """See `ops.cast`."""
        return ops.cast(self, dtype)

    def rebind(self, shape: ShapeLike, message: str = "") -> TensorValue:
        """See `ops.rebind`."""
        return ops.rebind(self, shape, message)

    def permute(self, dims: Sequence[int]) -> TensorValue:
        """See `ops.permute`."""
        return ops.permute(self, dims)

    def transpose(self, dim_1: int, dim_2: int) -> TensorValue:
        """See `ops.transpose`."""
        return ops.transpose(self, dim_1, dim_2)

    def to(self, device: Device | DeviceRef) -> TensorValue:
        """See `ops.transfer_to`."""
        return ops.transfer_to(self, device)

    def print(self, label: str = "debug_tensor") -> None:
        """See `ops.print`."""
        ops.print(self, label)

    def argmax(self, axis: int = -1) -> TensorValue:
        """See `ops.argmax`."""
        return ops.argmax(self, axis)

    def max(self, axis: int = -1) -> TensorValue:
        """The largest element along an axis, which stays with size 1."""
        return _along("reduce_max", self, axis)

    def mean(self, axis: int = -1) -> TensorValue:
        """See `ops.mean`."""
        return ops.mean(self, axis)

    def min(self, axis: int = -1) -> TensorValue:
        """The smallest element along an axis, which stays with size 1."""
        return _along("reduce_min", self, axis)

    def stdev(self, axis: int = -1) -> TensorValue:
        """The square root of `var`."""
        return _along("standard_deviation", self, axis)

    def var(self, axis: int = -1) -> TensorValue:
        """The mean of the squared distances from the mean along an axis, which stays with size 1."""
        return _along("variance", self, axis)

    def __getitem__(self, index: Any) -> TensorValue:
        return ops.slice_tensor(self, _listed(index))

    __iter__ = None
    __contains__ = None

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is neither true nor false before a model runs: in a graph, use ops.where or ops.cond instead of "
            "if, & | ~ instead of and, or, not, and ops.max or ops.min instead of max or min"
        )

    def __hash__(self) -> int:
        return hash(self._native)

    def __eq__(self, other: object) -> TensorValue:  # type: ignore[override]
        return _binary("equal", self, other)

    def __ne__(self, other: object) -> TensorValue:  # type: ignore[override]
        return _binary("not_equal", self, other)

    def __lt__(self, other: TensorValueLike) -> TensorValue:
        return _binary("less", self, other)

    def __le__(self, other: TensorValueLike) -> TensorValue:
        return _binary("less_equal", self, other)

    def __gt__(self, other: TensorValueLike) -> TensorValue:
        return _binary("greater", self, other)

    def __ge__(self, other: TensorValueLike) -> TensorValue:
        return _binary("greater_equal", self, other)

    def __neg__(self) -> TensorValue:
        return _unary("negate", self)

    def __invert__(self) -> TensorValue:
        return _unary("logical_not", self)

    def __abs__(self) -> TensorValue:
        return _unary("abs", self)

    def __round__(self, ndigits: None = None) -> TensorValue:
        return _unary("round", self)

    def __add__(self, other: TensorValueLike) -> TensorValue:
        return _binary("add", self, other)

    def __radd__(self, other: TensorValueLike) -> TensorValue:
        return _binary("add", other, self)

    def __sub__(self, other: TensorValueLike) -> TensorValue:
        return _binary("sub", self, other)

    def __rsub__(self, other: TensorValueLike) -> TensorValue:
        return _binary("sub", other, self)

    def __mul__(self, other: TensorValueLike) -> TensorValue:
        return _binary("mul", self, other)

    def __rmul__(self, other: TensorValueLike) -> TensorValue:
        return _binary("mul", other, self)

    def __truediv__(self, other: TensorValueLike) -> TensorValue:
        return _binary("div", self, other)

    def __rtruediv__(self, other: TensorValueLike) -> TensorValue:
        return _binary("div", other, self)

    def __floordiv__(self, other: TensorValueLike) -> TensorValue:
        return _binary("floor_div", self, other)

    def __rfloordiv__(self, other: TensorValueLike) -> TensorValue:
        return _binary("floor_div", other, self)

    def __mod__(self, other: TensorValueLike) -> TensorValue:
        return _binary("rem", self, other)

    def __rmod__(self, other: TensorValueLike) -> TensorValue:
        return _binary("rem", other, self)

    def __divmod__(self, other: TensorValueLike) -> tuple[TensorValue, TensorValue]:
        return _binary("floor_div", self, other), _binary("rem", self, other)

    def __rdivmod__(self, other: TensorValueLike) -> tuple[TensorValue, TensorValue]:
        return _binary("floor_div", other, self), _binary("rem", other, self)

    def __pow__(self, other: TensorValueLike) -> TensorValue:
        return _binary("pow", self, other)

    def __rpow__(self, other: TensorValueLike) -> TensorValue:
        return _binary("pow", other, self)

    def __matmul__(self, other: TensorValueLike) -> TensorValue:
        return _binary("matmul", self, other)

    def __rmatmul__(self, other: TensorValueLike) -> TensorValue:
        return _binary("matmul", other, self)

    def __and__(self, other: TensorValueLike) -> TensorValue:
        return _binary("logical_and", self, other)

    def __rand__(self, other: TensorValueLike) -> TensorValue:
        return _binary("logical_and", other, self)

    def __or__(self, other: TensorValueLike) -> TensorValue:
        return _binary("logical_or", self, other)

    def __ror__(self, other: TensorValueLike) -> TensorValue:
        return _binary("logical_or", other, self)

    def __xor__(self, other: TensorValueLike) -> TensorValue:
        return _binary("logical_xor", self, other)

    def __rxor__(self, other: TensorValueLike) -> TensorValue:
        return _binary("logical_xor", other, self)

    # NumPy's arrays leave binary operators to us.
    __array_ufunc__ = None


class BufferValue(Value):
    """A buffer of a graph, which ops read and write in program order.

    `buffer[...]` loads its contents, `buffer[i:j] = x` stores a tensor in a slice of it.
    """

    __slots__ = ()

    def __init__(self, value: BufferValueLike) -> None:
        buffer = _to_buffer("value", value)
        self._native, self._graph = buffer._native, buffer._graph

    @property
    def type(self) -> BufferType:
        """The dtype, shape and device."""
        return super().type.as_buffer()

    @property
    def buffer(self) -> BufferValue:
        """The value itself."""
        return self

    def __buffervalue__(self) -> BufferValue:
        return self

    def __getitem__(self, index: Any) -> TensorValue:
        if index is Ellipsis:
            return ops.buffer_load(self)
        indices = _indices(self, _listed(index))
        graph = _current()
        return _wrap_tensor(graph._native.load_slice(self._native, indices), graph)

    def __setitem__(self, index: Any, value: TensorValueLike) -> None:
        if index is Ellipsis:
            ops.buffer_store(self, value)
        else:
            ops.buffer_store_slice(self, value, _listed(index))

    __iter__ = None
    __contains__ = None

    def print(self, label: str = "debug_buffer") -> None:
        """Shows the contents when the model comes past; see `ops.print`."""
        ops.print(self[...], label)


@runtime_checkable
class HasTensorValue(Protocol):
    """An object that stands for a tensor of a graph."""

    def __tensorvalue__(self) -> TensorValue: ...


@runtime_checkable
class HasBufferValue(Protocol):
    """An object that stands for a buffer of a graph."""

    def __buffervalue__(self) -> BufferValue: ...


Numeric = Union[int, float, bool, np.generic]
"""A number."""

StrongTensorValueLike = Union[Value, TensorValue, HasTensorValue, Dim, Shape]
"""A tensor of a graph, or what stands for one."""

TensorValueLike = Union[StrongTensorValueLike, Numeric, DLPackArray]
"""The operands of ops: tensors; also numbers and arrays, if another operand is a tensor."""

BufferValueLike = Union[Value, BufferValue, HasBufferValue]
"""A buffer of a graph, or what stands for one."""

SliceIndex = Union[TensorValue, int, slice, tuple[slice, DimLike], EllipsisType, None]
"""An index: an integer, a tensor without axes, a slice, a slice of tensors with its size, `...` or `None`."""


def _wrap(native: _perihelion.GraphValue, graph: Graph) -> Value:
    """The value that a native one stands for."""
    is_buffer = native.type[0]
    value: Value = object.__new__(BufferValue if is_buffer else TensorValue)
    value._native, value._graph = native, graph
    return value


def _wrap_tensor(native: _perihelion.GraphValue, graph: Graph) -> TensorValue:
    value = object.__new__(TensorValue)
    value._native, value._graph = native, graph
    return value


def _to_tensor(parameter: str, value: object) -> TensorValue:
    """The tensor that an object stands for; an array is a constant."""
    if isinstance(value, TensorValue):
        return value
    if isinstance(value, (Dim, Shape)):
        sizes = ops.shape_to_tensor([value] if isinstance(value, Dim) else value)
        return sizes.reshape(()) if isinstance(value, Dim) else sizes
    if isinstance(value, HasTensorValue):
        return value.__tensorvalue__()
    if isinstance(value, DLPackArray):
        return ops.constant(value)
    raise _unexpected(parameter, value, "a TensorValue")


def _native(parameter: str, value: object) -> _perihelion.GraphValue:
    """The native tensor of an object; numbers and arrays are refused."""
    if isinstance(value, TensorValue):
        return value._native
    if isinstance(value, (Dim, Shape, HasTensorValue)):
        return _to_tensor(parameter, value)._native
    raise _unexpected(parameter, value, "a TensorValue")


def _native_data(parameter: str, value: object) -> _perihelion.GraphValue:
    """The native tensor of an object; an array is a constant."""
    return _to_tensor(parameter, value)._native


def _operand(parameter: str, value: object) -> _perihelion._Operand:
    """A native tensor, a number or a native buffer."""
    if isinstance(value, TensorValue):
        return value._native
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, np.generic):
        number: bool | int | float = value.item()
        return number
    if isinstance(value, (Dim, Shape, HasTensorValue)):
        return _to_tensor(parameter, value)._native
    if isinstance(value, DLPackArray):
        return _to_native_buffer(value)
    raise _unexpected(parameter, value, "a TensorValue, a number or an array")


def _to_native_buffer(array: DLPackArray) -> _perihelion.Buffer:
    if isinstance(array, np.ndarray):
        return Buffer.from_numpy(array)._native
    return Buffer.from_dlpack(array)._native


def _to_buffer(parameter: str, value: object) -> BufferValue:
    if isinstance(value, BufferValue):
        return value
    if isinstance(value, HasBufferValue):
        return value.__buffervalue__()
    raise _unexpected(parameter, value, "a BufferValue")


def _binary(function: str, lhs: object, rhs: object) -> TensorValue:
    """A function of two operands, one of which must be a value of a graph."""
    x, y = _operand("lhs", lhs), _operand("rhs", rhs)
    if not isinstance(x, _perihelion.GraphValue) and not isinstance(y, _perihelion.GraphValue):
        raise _unexpected("lhs, rhs", lhs, "a TensorValue among them")
    graph = _current()
    return _wrap_tensor(graph._native.binary(function, x, y), graph)


def _unary(function: str, x: object) -> TensorValue:
    """A function of each element."""
    graph = _current()
    return _wrap_tensor(graph._native.unary(function, _native("x", x)), graph)


def _along(function: str, x: object, axis: int) -> TensorValue:
    """A function along an axis."""
    graph = _current()
    return _wrap_tensor(graph._native.along(function, _native("x", x), axis), graph)


def _indices(value: Value, indices: Iterable[Any]) -> list[_perihelion._Index]:
    """Indices into a value as the native module takes them."""
    indices = list(indices)
    if any(isinstance(end, Dim) for index in indices if isinstance(index, slice) for end in _ends(index)):
        sizes = iter(value.shape)
        left = value.rank - sum(index is not None and index is not Ellipsis for index in indices)
        indices = [_with_numbers(index, sizes, left) for index in indices]
    return [_index(index) for index in indices]


def _with_numbers(index: Any, sizes: Iterator[Dim], left: int) -> Any:
    """An index without dims as ends: with their numbers, or as a slice of tensors with its size.

    Args:
        index: of one axis, or `...` for as many as are left.
        sizes: of the axes from this one on.
        left: how many axes `...` stands for.
    """
    if index is None:
        return index
    if index is Ellipsis:
        for _ in range(left):
            next(sizes)
        return index
    size = next(sizes)
    if not isinstance(index, slice):
        return index
    if not any(isinstance(end, Dim) and not isinstance(end, StaticDim) for end in _ends(index)):
        return slice(*(int(end) if isinstance(end, Dim) else end for end in _ends(index)))
    start, stop = index.start or 0, size if index.stop is None else index.stop
    return slice(start, stop, index.step), Dim(stop) - start


def _index(index: Any) -> _perihelion._Index:
    if isinstance(index, TensorValue):
        return index._native
    if isinstance(index, HasTensorValue):
        return index.__tensorvalue__()._native
    if isinstance(index, tuple) and len(index) == 2:
        span, size = index
        ends = [None if end is None else _end(end) for end in _ends(span)]
        return slice(*ends), Dim(size)._native
    if isinstance(index, slice):
        start, stop, step = (int(end) if isinstance(end, np.integer) else end for end in _ends(index))
        return slice(start, stop, step)
    return int(index) if isinstance(index, (Dim, np.integer)) else index


def _ends(index: slice) -> tuple[Any, Any, Any]:
    return index.start, index.stop, index.step


def _end(end: Any) -> _perihelion.GraphValue:
    """An end of a slice as a tensor."""
    if isinstance(end, (int, np.integer)):
        return ops.constant(int(end), DType.int64, DeviceRef.CPU())._native
    return _native("index", end)


def _listed(index: Any) -> tuple[Any, ...]:
    """The indices within `[]`. A slice and a dim are one slice with its size, and not indices of two axes."""
    if isinstance(index, tuple):
        is_span = len(index) == 2 and isinstance(index[0], slice) and isinstance(index[1], (str, Dim))
        return (index,) if is_span else index
    return (index,)


def _unexpected(parameter: str, value: object, expected: str) -> TypeError:
    return TypeError(f"{parameter}: got {type(value).__name__}, expected {expected}")


from . import ops  # noqa: E402  At the end, since ops are functions of values.
