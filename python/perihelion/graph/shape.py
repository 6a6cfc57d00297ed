"""Shapes: lists of dims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

from .dim import Dim, DimLike, StaticDim, SymbolicDim

__all__ = ["Shape", "ShapeLike"]


class Shape(list[Dim]):
    """The sizes of the axes of a tensor, outermost first.

    >>> Shape(["n", 4])
    [Dim('n'), Dim(4)]
    """

    def __init__(self, dims: ShapeLike = ()) -> None:
        super().__init__(Dim(dim) for dim in dims)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    @property
    def static_dims(self) -> list[int]:
        """The sizes that are numbers."""
        return [dim.dim for dim in self if isinstance(dim, StaticDim)]

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbols in the sizes, each once."""
        return dict.fromkeys(symbol for dim in self for symbol in dim.parameters)

    @staticmethod
    def is_static(shape: ShapeLike) -> bool:
        """Whether every size is a number.

        >>> Shape.is_static([2, "n"])
        False
        """
        return all(isinstance(dim, StaticDim) for dim in Shape(shape))


ShapeLike = Union[Iterable[DimLike], Shape]
"""The sizes of axes, as dims or as what stands for them."""
