"""Sizes of axes: numbers, symbols, and expressions of both."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Union

import numpy as np

from perihelion import _perihelion

__all__ = ["AlgebraicDim", "Dim", "DimLike", "StaticDim", "SymbolicDim"]


class Dim:
    """The size of an axis: a number, a symbol that gets its number when a model is called, or an expression of both.

    Expressions are equal if they are equal for all sizes. Ints and strs stand for dims in arithmetic and comparisons.

    Args:
        value: an integer, an identifier, or a dim, which is given back.

    Raises:
        ValueError: a str is not an identifier, or an integer has more than 64 bits.

    >>> Dim(4), Dim("n")
    (Dim(4), Dim('n'))
    >>> (Dim("n") + 1) * 2 == 2 * Dim("n") + 2
    True
    """

    __slots__ = ("_native",)
    _native: _perihelion.Dim

    def __new__(cls, value: DimLike) -> Dim:
        if isinstance(value, Dim):
            return value
        if isinstance(value, str):
            return _wrap(_perihelion.Dim.symbol(value))
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            number = int(value)
            if not -(2**63) <= number < 2**63:
                raise ValueError(f"value: got {number}, expected an integer of 64 bits")
            return _wrap(_perihelion.Dim.number(number))
        raise TypeError(f"value: got {type(value).__name__}, expected an int, a str or a Dim")

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbols in the dim, each once."""
        for symbol in dict.fromkeys(self._native.symbols):
            dim = Dim(symbol)
            assert isinstance(dim, SymbolicDim)
            yield dim

    def __add__(self, other: DimLike) -> Dim:
        return _combine(self, other, operator.add)

    def __radd__(self, other: DimLike) -> Dim:
        return _combine(other, self, operator.add)

    def __sub__(self, other: DimLike) -> Dim:
        return _combine(self, other, operator.sub)

    def __rsub__(self, other: DimLike) -> Dim:
        return _combine(other, self, operator.sub)

    def __mul__(self, other: DimLike) -> Dim:
        return _combine(self, other, operator.mul)

    def __rmul__(self, other: DimLike) -> Dim:
        return _combine(other, self, operator.mul)

    def __floordiv__(self, other: DimLike) -> Dim:
        return _combine(self, other, operator.floordiv)

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return _combine(other, self, operator.floordiv)

    def __neg__(self) -> Dim:
        return _combine(0, self, operator.sub)

    def __int__(self) -> int:
        raise TypeError(f"{self!r} has no number before a model is called")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self._native == other._native
        if isinstance(other, str):
            return self._native.as_symbol == other
        return isinstance(other, (int, np.integer)) and self._native.as_number == other

    def __hash__(self) -> int:
        return hash(self._native)

    def __str__(self) -> str:
        return str(self._native)

    def __repr__(self) -> str:
        return f"Dim({self})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_parse, (str(self),))


DimLike = Union[int, str, Dim, np.integer]
"""A dim, or an integer or identifier that stands for one."""


class StaticDim(Dim):
    """A size that is a number."""

    __slots__ = ()

    @property
    def dim(self) -> int:
        """The number."""
        number = self._native.as_number
        assert number is not None
        return number

    def __int__(self) -> int:
        return self.dim

    def __hash__(self) -> int:
        return hash(self.dim)

    def __lt__(self, other: int | StaticDim) -> bool:
        return self.dim < int(other)

    def __le__(self, other: int | StaticDim) -> bool:
        return self.dim <= int(other)

    def __gt__(self, other: int | StaticDim) -> bool:
        return self.dim > int(other)

    def __ge__(self, other: int | StaticDim) -> bool:
        return self.dim >= int(other)

    __eq__ = Dim.__eq__


class SymbolicDim(Dim):
    """A size that gets its number when a model is called."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name of the symbol."""
        return str(self._native)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Dim({self.name!r})"

    __eq__ = Dim.__eq__


class AlgebraicDim(Dim):
    """A size that is an expression of symbols and numbers."""

    __slots__ = ()


def _wrap(native: _perihelion.Dim) -> Dim:
    """The dim that a native one stands for."""
    kind: type[Dim] = AlgebraicDim
    if native.as_number is not None:
        kind = StaticDim
    elif native.as_symbol is not None:
        kind = SymbolicDim
    dim = object.__new__(kind)
    dim._native = native
    return dim


_NATIVE = {
    operator.add: _perihelion.Dim.add,
    operator.sub: _perihelion.Dim.sub,
    operator.mul: _perihelion.Dim.mul,
    operator.floordiv: _perihelion.Dim.floor_div,
}


def _combine(lhs: DimLike, rhs: DimLike, function: Callable[[Any, Any], Any]) -> Dim:
    if not isinstance(lhs, (Dim, int, str, np.integer)) or not isinstance(rhs, (Dim, int, str, np.integer)):
        return NotImplemented
    lhs, rhs = Dim(lhs), Dim(rhs)
    if isinstance(lhs, StaticDim) and isinstance(rhs, StaticDim):
        return Dim(function(lhs.dim, rhs.dim))
    return _wrap(_NATIVE[function](lhs._native, rhs._native))


def _parse(text: str) -> Dim:
    """The dim of its text."""
    return _wrap(_perihelion.Dim.parse(text))
