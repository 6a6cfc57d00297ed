"""Reductions along an axis, which stays with size 1."""

from __future__ import annotations

from ..value import TensorValue, TensorValueLike, _along
from .along import argmax, argmin, mean, prod, sum

__all__ = ["argmax", "argmin", "max", "mean", "min", "prod", "sum"]


def min(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The smallest element along an axis."""
    return _along("reduce_min", x, axis)


def max(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The largest element along an axis."""
    return _along("reduce_max", x, axis)
