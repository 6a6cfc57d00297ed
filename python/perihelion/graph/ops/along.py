"""Functions along an axis: reductions, norms, sorting."""

from __future__ import annotations

from ..value import (
    TensorValue,
    TensorValueLike,
    _along,
    _binary,
    _current,
    _native,
    _native_data,
    _wrap_tensor,
)

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "bottom_k",
    "cumsum",
    "group_norm",
    "layer_norm",
    "logsoftmax",
    "mean",
    "prod",
    "rms_norm",
    "softmax",
    "sum",
    "top_k",
]


def sum(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The sum along an axis, which stays with size 1, in the dtype of `x`: of truth values, how many are true (int64)."""
    return _along("sum", x, axis)


def mean(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The mean along an axis, which stays with size 1, in the dtype of `x`: means of integers are rounded towards 0."""
    return _along("mean", x, axis)


def prod(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The product along an axis, which stays with size 1."""
    return _along("prod", x, axis)


def argmin(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The index (int64) of the first smallest element along an axis, which stays with size 1."""
    return _along("argmin", x, axis)


def argmax(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The index (int64) of the first largest element along an axis, which stays with size 1."""
    return _along("argmax", x, axis)


def softmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """`exp(x) / sum(exp(x))` along an axis."""
    return _along("softmax", value, axis)


def logsoftmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """The logarithm of `softmax` along an axis."""
    return _along("logsoftmax", value, axis)


def layer_norm(
    input: TensorValueLike, gamma: TensorValueLike, beta: TensorValueLike, epsilon: float
) -> TensorValue:
    """Mean 0 and variance 1 along the last axis, times `gamma`, plus `beta`.

    Args:
        input: floats [.., n].
        gamma: [n].
        beta: [n].
        epsilon: added to the variance.

    Raises:
        ValueError: `epsilon` is not above 0, or shapes do not fit.
    """
    _expect_positive("layer_norm", epsilon)
    graph = _current()
    native = graph._native.layer_norm(
        _native("input", input), _native_data("gamma", gamma), _native_data("beta", beta), epsilon
    )
    return _wrap_tensor(native, graph)


def rms_norm(
    input: TensorValueLike,
    weight: TensorValueLike,
    epsilon: float,
    weight_offset: float = 0.0,
    multiply_before_cast: bool = False,
) -> TensorValue:
    """`x / sqrt(mean(x * x) + epsilon)` along the last axis, times the weight.

    Args:
        input: floats [.., n].
        weight: [n].
        epsilon: added to the mean square.
        weight_offset: added to the weight.
        multiply_before_cast: whether the weight multiplies before the result is cast to a dtype of 16 bits.

    Raises:
        ValueError: `epsilon` is not above 0, or shapes do not fit.
    """
    _expect_positive("rms_norm", epsilon)
    graph = _current()
    native = graph._native.rms_norm(
        _native("input", input),
        _native_data("weight", weight),
        epsilon,
        weight_offset,
        not multiply_before_cast,
    )
    return _wrap_tensor(native, graph)


def group_norm(
    input: TensorValueLike, gamma: TensorValueLike, beta: TensorValueLike, num_groups: int, epsilon: float
) -> TensorValue:
    """Mean 0 and variance 1 in each group of channels, times `gamma`, plus `beta`.

    Args:
        input: floats [batch, channels, ..].
        gamma: [channels].
        beta: [channels].
        num_groups: divides the channels.
        epsilon: added to the variance.

    Raises:
        ValueError: `epsilon` is not above 0, or shapes do not fit.
    """
    _expect_positive("group_norm", epsilon)
    graph = _current()
    native = graph._native.group_norm(
        _native("input", input), _native_data("gamma", gamma), _native_data("beta", beta), num_groups, epsilon
    )
    return _wrap_tensor(native, graph)


def cumsum(x: TensorValueLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> TensorValue:
    """Running sums along an axis.

    Args:
        x: numbers.
        axis: which one.
        exclusive: whether an element is left out of its own sum.
        reverse: whether sums start at the end.
    """
    graph = _current()
    return _wrap_tensor(graph._native.cumsum(_native("x", x), axis, exclusive, reverse), graph)


def argsort(x: TensorValueLike, ascending: bool = True) -> TensorValue:
    """The indices (int64) that sort a tensor of one axis. Equal elements keep their order; NaN is above all numbers.

    Raises:
        ValueError: the tensor has another rank.
    """
    tensor = TensorValue(x)
    if tensor.rank != 1:
        raise ValueError(f"argsort: x is {tensor.type!r}, expected 1 axis")
    return _along("argsort" if ascending else "argsort_descending", tensor, 0)


def top_k(input: TensorValueLike, k: int, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The largest elements along an axis, from the largest down, and their indices (int64)."""
    return _top_k(input, k, axis, smallest=False)


def bottom_k(input: TensorValueLike, k: int, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The smallest elements along an axis, from the smallest up, and their indices (int64)."""
    return _top_k(input, k, axis, smallest=True)


def _expect_positive(op: str, epsilon: float) -> None:
    if not epsilon > 0:
        raise ValueError(f"{op}: epsilon is {epsilon}, expected a number above 0")


def _top_k(x: TensorValueLike, k: int, axis: int, smallest: bool) -> tuple[TensorValue, TensorValue]:
    graph = _current()
    values, indices = graph._native.top_k(_native("input", x), k, axis, smallest)
    return _wrap_tensor(values, graph), _wrap_tensor(indices, graph)


def _extreme(kind: str, x: TensorValueLike, y: TensorValueLike | None, axis: int | None) -> TensorValue:
    if y is None:
        return _along(f"reduce_{kind}", x, -1 if axis is None else axis)
    if axis is not None:
        raise ValueError(f"{kind}: got two operands and axis {axis}, expected one of the two")
    return _binary(kind, x, y)
