"""Functions of each element, and of each pair of elements."""

from __future__ import annotations

from perihelion.dtype import DType

from ..value import TensorValue, TensorValueLike, _binary, _current, _native, _operand, _unary, _wrap_tensor
from .along import _extreme

__all__ = [
    "abs",
    "acos",
    "add",
    "atanh",
    "cast",
    "ceil",
    "cos",
    "div",
    "equal",
    "erf",
    "exp",
    "floor",
    "floor_div",
    "gelu",
    "greater",
    "greater_equal",
    "is_inf",
    "is_nan",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "max",
    "min",
    "mod",
    "mul",
    "negate",
    "not_equal",
    "pow",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sqrt",
    "sub",
    "tanh",
    "trunc",
    "where",
]


def add(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The sum of each pair of elements; shapes broadcast."""
    return _binary("add", lhs, rhs)


def sub(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The difference of each pair of elements."""
    return _binary("sub", lhs, rhs)


def mul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The product of each pair of elements; for matrix products, see `matmul`."""
    return _binary("mul", lhs, rhs)


def div(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The quotient of each pair of elements; of two integers it is a float64."""
    return _binary("div", lhs, rhs)


def floor_div(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The quotient of each pair of elements, rounded down."""
    return _binary("floor_div", lhs, rhs)


def mod(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The remainder of each pair of elements, with the sign of the divisor."""
    return _binary("rem", lhs, rhs)


def pow(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The power of each pair of elements."""
    return _binary("pow", lhs, rhs)


def equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether the elements of each pair are equal."""
    return _binary("equal", lhs, rhs)


def not_equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether the elements of each pair differ; NaN differs from everything."""
    return _binary("not_equal", lhs, rhs)


def greater(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether the left element of each pair is greater."""
    return _binary("greater", lhs, rhs)


def greater_equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether the left element of each pair is at least the right one."""
    return _binary("greater_equal", lhs, rhs)


def logical_and(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether both elements of each pair are true."""
    return _binary("logical_and", lhs, rhs)


def logical_or(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether an element of each pair is true."""
    return _binary("logical_or", lhs, rhs)


def logical_xor(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether exactly one element of each pair is true."""
    return _binary("logical_xor", lhs, rhs)


def abs(x: TensorValueLike) -> TensorValue:
    """The magnitude of each element."""
    return _unary("abs", x)


def exp(x: TensorValueLike) -> TensorValue:
    """e to the power of each element."""
    return _unary("exp", x)


def erf(x: TensorValueLike) -> TensorValue:
    """The error function of each element."""
    return _unary("erf", x)


def log(x: TensorValueLike) -> TensorValue:
    """The natural logarithm of each element."""
    return _unary("log", x)


def log1p(x: TensorValueLike) -> TensorValue:
    """`log(1 + x)` of each element, also exact near 0."""
    return _unary("log1p", x)


def sqrt(x: TensorValueLike) -> TensorValue:
    """The square root of each element."""
    return _unary("sqrt", x)


def rsqrt(x: TensorValueLike) -> TensorValue:
    """`1 / sqrt(x)` of each element."""
    return _unary("rsqrt", x)


def sin(x: TensorValueLike) -> TensorValue:
    """The sine of each element, in radians."""
    return _unary("sin", x)


def cos(x: TensorValueLike) -> TensorValue:
    """The cosine of each element, in radians."""
    return _unary("cos", x)


def tanh(x: TensorValueLike) -> TensorValue:
    """The hyperbolic tangent of each element."""
    return _unary("tanh", x)


def atanh(x: TensorValueLike) -> TensorValue:
    """The inverse of `tanh` for each element."""
    return _unary("atanh", x)


def acos(x: TensorValueLike) -> TensorValue:
    """The inverse of `cos` for each element."""
    return _unary("acos", x)


def ceil(x: TensorValueLike) -> TensorValue:
    """Each element rounded up."""
    return _unary("ceil", x)


def floor(x: TensorValueLike) -> TensorValue:
    """Each element rounded down."""
    return _unary("floor", x)


def round(x: TensorValueLike) -> TensorValue:
    """Each element rounded, halves to the even number."""
    return _unary("round", x)


def trunc(x: TensorValueLike) -> TensorValue:
    """Each element rounded towards 0."""
    return _unary("trunc", x)


def negate(x: TensorValueLike) -> TensorValue:
    """Each element with the other sign."""
    return _unary("negate", x)


def relu(x: TensorValueLike) -> TensorValue:
    """Each element, or 0 if it is negative."""
    return _unary("relu", x)


def sigmoid(x: TensorValueLike) -> TensorValue:
    """`1 / (1 + exp(-x))` of each element."""
    return _unary("sigmoid", x)


def silu(x: TensorValueLike) -> TensorValue:
    """`x * sigmoid(x)` of each element."""
    return _unary("silu", x)


def is_nan(x: TensorValueLike) -> TensorValue:
    """Whether each element is NaN."""
    return _unary("is_nan", x)


def is_inf(x: TensorValueLike) -> TensorValue:
    """Whether each element is infinite."""
    return _unary("is_inf", x)


def logical_not(x: TensorValueLike) -> TensorValue:
    """The opposite of each truth value."""
    return _unary("logical_not", x)


def gelu(x: TensorValueLike, approximate: str = "none") -> TensorValue:
    """The Gaussian error linear unit of each element.

    Args:
        x: floats.
        approximate: "none" for the function itself, "tanh" or "quick" for an approximation.
    """
    graph = _current()
    return _wrap_tensor(graph._native.gelu(_native("x", x), approximate), graph)


def min(x: TensorValueLike, y: TensorValueLike | None = None, /, axis: int | None = None) -> TensorValue:
    """The smaller element of each pair, or the smallest along an axis, which stays with size 1.

    Args:
        x: a tensor.
        y: another tensor or a number; without it, an axis is reduced.
        axis: which one; the last if not given.
    """
    return _extreme("min", x, y, axis)


def max(x: TensorValueLike, y: TensorValueLike | None = None, /, axis: int | None = None) -> TensorValue:
    """The larger element of each pair, or the largest along an axis, which stays with size 1; see `min`."""
    return _extreme("max", x, y, axis)


def where(condition: TensorValueLike, x: TensorValueLike, y: TensorValueLike) -> TensorValue:
    """The elements of `x` where `condition` is true, else those of `y`; shapes broadcast."""
    graph = _current()
    native = graph._native.select(_native("condition", condition), _operand("x", x), _operand("y", y))
    return _wrap_tensor(native, graph)


def cast(x: TensorValueLike, dtype: DType) -> TensorValue:
    """Each element in another dtype."""
    graph = _current()
    return _wrap_tensor(graph._native.cast(_native("x", x), DType(dtype).value), graph)
