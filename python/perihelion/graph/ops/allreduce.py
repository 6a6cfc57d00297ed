"""The sum of tensors on several devices."""

from __future__ import annotations

from collections.abc import Iterable

from ..value import BufferValueLike, TensorValue, TensorValueLike
from .devices import _collective

__all__ = ["sum"]


def sum(inputs: Iterable[TensorValueLike], signal_buffers: Iterable[BufferValueLike]) -> list[TensorValue]:
    """The sum of tensors of one type, on each of their devices; see `ops.allgather`."""
    return _collective("allreduce_sum", inputs, signal_buffers)
