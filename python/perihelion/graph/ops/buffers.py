"""Creating, reading and writing buffers, and showing values."""

from __future__ import annotations

from collections.abc import Iterable

from ..type import BufferType
from ..value import (
    BufferValue,
    BufferValueLike,
    HasTensorValue,
    SliceIndex,
    TensorValue,
    TensorValueLike,
    _current,
    _indices,
    _native_data,
    _to_buffer,
    _wrap,
    _wrap_tensor,
)
from .make import _like

__all__ = ["buffer_create", "buffer_load", "buffer_store", "buffer_store_slice", "print"]


def buffer_create(type: BufferType) -> BufferValue:
    """A buffer of the graph itself, full of zeros.

    Each run of this op makes a new one, which lives until its last use: within a loop, one for each round.

    Args:
        type: dtype, shape and device of the buffer.

    Raises:
        ValueError: the type is not a buffer's.

    >>> from perihelion.dtype import DType
    >>> from perihelion.graph import BufferType, DeviceRef, Graph, ops
    >>> with Graph("g") as graph:
    ...     state = ops.buffer_create(BufferType(DType.float32, [2], DeviceRef.CPU()))
    ...     state[0] = 3
    ...     graph.output(state[...])
    """
    graph = _current()
    return BufferValue(_wrap(graph._native.create_buffer(type._native), graph))


def buffer_load(x: BufferValueLike) -> TensorValue:
    """The contents of a buffer at this point of the graph."""
    graph = _current()
    return _wrap_tensor(graph._native.unary("load", _to_buffer("x", x)._native), graph)


def buffer_store(destination: BufferValueLike, source: TensorValueLike) -> None:
    """Overwrites a buffer with a tensor of its type, or with a number."""
    buffer = _to_buffer("destination", destination)
    if isinstance(source, (TensorValue, HasTensorValue)):
        _current()._native.store(buffer._native, _native_data("source", source))
    else:
        buffer_store_slice(buffer, source, [...])


def buffer_store_slice(
    destination: BufferValueLike, source: TensorValueLike, indices: Iterable[SliceIndex]
) -> None:
    """Overwrites a slice of a buffer with a tensor, which is broadcast, or a number."""
    buffer = _to_buffer("destination", destination)
    value = _like(buffer, source)
    _current()._native.store_slice(buffer._native, _indices(buffer, indices), value)


def print(value: str | TensorValueLike, label: str = "debug_tensor") -> None:
    """Shows a value or a text when the model comes past, as the session's print options say.

    Args:
        value: a tensor or a text.
        label: what it is called.
    """
    graph = _current()
    if isinstance(value, str):
        graph._native.print_text(value, label)
    else:
        graph._native.print(_native_data("value", value), label)
