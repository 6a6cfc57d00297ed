"""The sum of tensors on several devices, of which each gets a share."""

from __future__ import annotations

from collections.abc import Iterable

from ..value import BufferValueLike, TensorValue, TensorValueLike
from .devices import _collective

__all__ = ["sum"]


def sum(
    inputs: Iterable[TensorValueLike], signal_buffers: Iterable[BufferValueLike], axis: int = 0
) -> list[TensorValue]:
    """The sum of tensors of one type, a share of it along an axis on each of their devices; see `ops.allgather`."""
    return _collective("reducescatter_sum", inputs, signal_buffers, axis)
