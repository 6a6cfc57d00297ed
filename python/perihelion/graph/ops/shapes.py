"""Other shapes for the same elements, and parts and joins of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from perihelion import _perihelion

from ..dim import Dim, DimLike, StaticDim
from ..shape import Shape, ShapeLike
from ..value import (
    SliceIndex,
    TensorValue,
    TensorValueLike,
    _along,
    _current,
    _indices,
    _native,
    _native_data,
    _wrap_tensor,
)
from .make import _like

__all__ = [
    "as_interleaved_complex",
    "band_part",
    "broadcast_to",
    "chunk",
    "concat",
    "flatten",
    "pad",
    "permute",
    "rebind",
    "repeat_interleave",
    "reshape",
    "shape_to_tensor",
    "slice_tensor",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unsqueeze",
]


def reshape(x: TensorValueLike, shape: ShapeLike) -> TensorValue:
    """The same elements under another shape. A size of -1 is the one that is left.

    Raises:
        ValueError: the shapes are not known to have the same number of elements.
    """
    graph = _current()
    return _wrap_tensor(graph._native.reshape(_native("x", x), _dims(shape)), graph)


def flatten(x: TensorValueLike, start_dim: int = 0, end_dim: int = -1) -> TensorValue:
    """The axes from `start_dim` to `end_dim` as one."""
    graph = _current()
    return _wrap_tensor(graph._native.flatten(_native("x", x), start_dim, end_dim), graph)


def squeeze(x: TensorValueLike, axis: int) -> TensorValue:
    """The tensor without an axis, of size 1."""
    return _along("squeeze", x, axis)


def unsqueeze(x: TensorValueLike, axis: int) -> TensorValue:
    """The tensor with a new axis of size 1, which is then axis `axis`."""
    return _along("unsqueeze", x, axis)


def permute(x: TensorValueLike, dims: Sequence[int]) -> TensorValue:
    """The tensor with axis `dims[i]` as axis `i`."""
    graph = _current()
    return _wrap_tensor(graph._native.permute(_native("x", x), list(dims)), graph)


def transpose(x: TensorValueLike, axis_1: int, axis_2: int) -> TensorValue:
    """The tensor with two axes swapped."""
    graph = _current()
    return _wrap_tensor(graph._native.swap_axes(_native("x", x), axis_1, axis_2), graph)


def broadcast_to(
    x: TensorValueLike, shape: ShapeLike, out_dims: Iterable[DimLike] | None = None
) -> TensorValue:
    """The tensor repeated along axes where it has size 1 or none.

    Args:
        x: the tensor.
        shape: of the result.
        out_dims: other names for the sizes, which are checked when the model runs.
    """
    graph = _current()
    result = _wrap_tensor(graph._native.broadcast_to(_native("x", x), _dims(shape)), graph)
    return result if out_dims is None else rebind(result, out_dims)


def rebind(x: TensorValueLike, shape: ShapeLike, message: str = "", layout: None = None) -> TensorValue:
    """The tensor under sizes that are checked when the model runs. New symbols get their numbers by this.

    Args:
        x: the tensor.
        shape: what the shape is.
        message: for the error of a call where it is another.
        layout: has no effect.

    Raises:
        ValueError: it can never be the shape.
    """
    graph = _current()
    return _wrap_tensor(graph._native.rebind(_native("x", x), _dims(shape), message or None), graph)


def concat(vals: Iterable[TensorValueLike], axis: int = 0) -> TensorValue:
    """Tensors one after another along an axis.

    Raises:
        IndexError: there is no such axis.
        ValueError: the tensors do not fit, or there are none.
    """
    graph = _current()
    return _wrap_tensor(graph._native.concat([_native_data("vals", value) for value in vals], axis), graph)


def stack(vals: Iterable[TensorValueLike], axis: int = 0) -> TensorValue:
    """Tensors of one type one after another along a new axis."""
    graph = _current()
    return _wrap_tensor(graph._native.stack([_native_data("vals", value) for value in vals], axis), graph)


def split(x: TensorValueLike, split_sizes: Sequence[int | Dim], axis: int = 0) -> list[TensorValue]:
    """Parts of a tensor along an axis. Their sizes sum to the size of the axis."""
    graph = _current()
    parts = graph._native.split(_native("x", x), _dims(split_sizes), axis)
    return [_wrap_tensor(part, graph) for part in parts]


def chunk(x: TensorValueLike, chunks: int, axis: int = 0) -> list[TensorValue]:
    """So many parts of a tensor of the same size along an axis, which must divide."""
    graph = _current()
    return [_wrap_tensor(part, graph) for part in graph._native.chunk(_native("x", x), chunks, axis)]


def tile(x: TensorValueLike, repeats: Iterable[DimLike]) -> TensorValue:
    """The tensor again and again, along each axis so many times.

    Raises:
        ValueError: a number of repeats is below 1, or there is not one for each axis.
    """
    dims = Shape(repeats)
    if any(isinstance(dim, StaticDim) and dim.dim < 1 for dim in dims):
        raise ValueError(f"tile: repeats is {dims}, expected at least 1")
    graph = _current()
    return _wrap_tensor(graph._native.tile(_native("x", x), _dims(dims)), graph)


def repeat_interleave(
    x: TensorValueLike,
    repeats: int | TensorValue,
    axis: int | None = None,
    out_dim: DimLike | None = None,
) -> TensorValue:
    """Each element of an axis several times in a row.

    Args:
        x: the tensor.
        repeats: how many times: a number, or a tensor with one for each element.
        axis: which one; the tensor is flattened if not given.
        out_dim: the size of the axis of the result, if `repeats` is a tensor.

    Raises:
        ValueError: `repeats` is a tensor without `out_dim`, or a number below 1.
    """
    tensor = TensorValue(x) if axis is not None else flatten(x)
    along = 0 if axis is None else axis
    if isinstance(repeats, (int, np.integer)):
        if repeats < 1:
            raise ValueError(f"repeat_interleave: repeats is {repeats}, expected at least 1")
        graph = _current()
        return _wrap_tensor(graph._native.repeat_interleave(tensor._native, repeats, along), graph)
    if out_dim is None:
        raise ValueError("repeat_interleave: repeats that are a tensor take an out_dim")
    counts, size = _native_data("repeats", repeats), Dim(out_dim)._native
    graph = _current()
    return _wrap_tensor(graph._native.repeat_interleave_by(tensor._native, counts, along, size), graph)


def pad(
    input: TensorValueLike, paddings: Iterable[int], mode: str = "constant", value: TensorValueLike = 0
) -> TensorValue:
    """The tensor with more elements around it.

    Args:
        input: the tensor.
        paddings: elements to add before and after each axis: `[before_0, after_0, before_1, …]`.
        mode: "constant" for `value`, "reflect" for elements that are mirrored at the ends, "edge" for the outermost.
        value: what "constant" pads with.
    """
    sizes = list(paddings)
    x = TensorValue(input)
    if mode not in ("constant", "reflect", "edge"):
        raise ValueError(f"mode: got {mode!r}, expected constant, reflect or edge")
    if len(sizes) != 2 * x.rank:
        raise ValueError(f"pad: got {len(sizes)} paddings of {x.rank} axes, expected two for each")
    pairs = list(zip(sizes[::2], sizes[1::2]))
    if min(sizes, default=0) < 0:
        raise ValueError(f"pad: got the paddings {sizes}, expected at least 0")
    fill = _like(x, value) if mode == "constant" else None
    graph = _current()
    return _wrap_tensor(graph._native.pad(x._native, pairs, mode, fill), graph)


def slice_tensor(x: TensorValueLike, indices: Iterable[SliceIndex]) -> TensorValue:
    """A part of a tensor, as `x[indices]`.

    Args:
        x: the tensor.
        indices: integers, tensors of one integer, slices, `...`, `None`, and `(slice(start, stop), size)` for ends
            that are tensors.
    """
    tensor = TensorValue(x)
    graph = _current()
    return _wrap_tensor(graph._native.slice_tensor(tensor._native, _indices(tensor, indices)), graph)


def shape_to_tensor(shape: ShapeLike) -> TensorValue:
    """Sizes as a tensor, int64 on the CPU."""
    graph = _current()
    return _wrap_tensor(graph._native.shape_to_tensor(_dims(shape)), graph)


def band_part(
    x: TensorValueLike, num_lower: int | None = None, num_upper: int | None = None, exclude: bool = False
) -> TensorValue:
    """Matrices with zeros outside of a band around the diagonal.

    Args:
        x: [.., rows, columns].
        num_lower: diagonals of the band below the main one; all if not given, or -1.
        num_upper: diagonals of the band above the main one; all if not given, or -1.
        exclude: whether the zeros are in the band instead.
    """
    num_lower, num_upper = (None if number == -1 else number for number in (num_lower, num_upper))
    graph = _current()
    return _wrap_tensor(graph._native.band_part(_native("x", x), num_lower, num_upper, exclude), graph)


def as_interleaved_complex(x: TensorValueLike) -> TensorValue:
    """Pairs of neighbors of the last axis as real and imaginary parts: [.., 2 * n] to [.., n, 2]."""
    graph = _current()
    return _wrap_tensor(graph._native.unary("as_interleaved_complex", _native("x", x)), graph)


def _dims(shape: Iterable[Any]) -> list[_perihelion.Dim]:
    return [dim._native for dim in Shape(shape)]
