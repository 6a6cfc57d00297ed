"""Elements and slices by their indices."""

from __future__ import annotations

from ..dim import Dim, DimLike
from ..value import TensorValue, TensorValueLike, _current, _native, _native_data, _wrap_tensor

__all__ = [
    "gather",
    "gather_nd",
    "masked_scatter",
    "nonzero",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_mul",
]


def gather(input: TensorValueLike, indices: TensorValueLike, axis: int) -> TensorValue:
    """Slices of an axis by index: [a.., n, b..] and [i..] to [a.., i.., b..]."""
    graph = _current()
    native = graph._native.gather(_native("input", input), _native_data("indices", indices), axis)
    return _wrap_tensor(native, graph)


def gather_nd(input: TensorValueLike, indices: TensorValueLike, batch_dims: int = 0) -> TensorValue:
    """Slices at tuples of indices, which are the last axis of `indices`.

    Args:
        input: [b.., n_0, .., n_k, s..].
        indices: [b.., i.., k].
        batch_dims: how many axes `b` both have.
    """
    graph = _current()
    native = graph._native.gather_nd(_native("input", input), _native_data("indices", indices), batch_dims)
    return _wrap_tensor(native, graph)


def nonzero(x: TensorValueLike, out_dim: DimLike) -> TensorValue:
    """The indices of the elements that are not 0: int64 [out_dim, rank].

    Args:
        x: numbers or truth values.
        out_dim: how many there are; a new symbol gets the number by this.
    """
    graph = _current()
    return _wrap_tensor(graph._native.nonzero(_native("x", x), Dim(out_dim)._native), graph)


def masked_scatter(
    input: TensorValueLike, mask: TensorValueLike, updates: TensorValueLike, out_dim: DimLike
) -> TensorValue:
    """The tensor with the elements of `updates`, one after another, where the mask is true.

    Args:
        input: the tensor.
        mask: truth values, broadcast to `input`.
        updates: at least as many elements as places.
        out_dim: a new symbol for the number of places.
    """
    graph = _current()
    native = graph._native.masked_scatter(
        _native("input", input), _native_data("mask", mask), _native_data("updates", updates), str(out_dim)
    )
    return _wrap_tensor(native, graph)


def scatter(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """The tensor where `updates` replaces elements at indices of an axis, one after another."""
    return _scatter("set", input, updates, indices, axis)


def scatter_add(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """The tensor where `updates` is added to elements at indices of an axis, one after another."""
    return _scatter("add", input, updates, indices, axis)


def scatter_max(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """The tensor with the larger of elements and `updates` at indices of an axis, one after another."""
    return _scatter("max", input, updates, indices, axis)


def scatter_min(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """The tensor with the smaller of elements and `updates` at indices of an axis, one after another."""
    return _scatter("min", input, updates, indices, axis)


def scatter_mul(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """The tensor where elements are multiplied with `updates` at indices of an axis, one after another."""
    return _scatter("mul", input, updates, indices, axis)


def scatter_nd(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """The tensor where `updates` replaces elements at tuples of indices, the last axis of `indices`."""
    return _scatter("set", input, updates, indices)


def scatter_nd_add(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """The tensor where `updates` is added to elements at tuples of indices, the last axis of `indices`."""
    return _scatter("add", input, updates, indices)


def scatter_nd_max(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """The tensor with the larger of elements and `updates` at tuples of indices, the last axis of `indices`."""
    return _scatter("max", input, updates, indices)


def scatter_nd_min(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """The tensor with the smaller of elements and `updates` at tuples of indices, the last axis of `indices`."""
    return _scatter("min", input, updates, indices)


def scatter_nd_mul(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """The tensor where elements are multiplied with `updates` at tuples of indices, the last axis of `indices`."""
    return _scatter("mul", input, updates, indices)


def _scatter(
    kind: str, x: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int | None = None
) -> TensorValue:
    """Without an axis, indices are tuples."""
    graph = _current()
    operands = _native("input", x), _native_data("updates", updates), _native_data("indices", indices)
    return _wrap_tensor(graph._native.scatter(kind, *operands, axis), graph)
