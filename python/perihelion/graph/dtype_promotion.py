"""The dtype that operands have in common."""

from __future__ import annotations

from .value import TensorValue, TensorValueLike, _current, _operand, _wrap_tensor

__all__ = ["promote_weak_dtypes"]


def promote_weak_dtypes(x: TensorValueLike, y: TensorValueLike) -> tuple[TensorValue, TensorValue]:
    """Two operands as tensors of one dtype: one of theirs that holds both, or the tensor's if the other is a number.

    Raises:
        ValueError: no dtype of the two holds both, or neither is a tensor.

    >>> from perihelion.dtype import DType
    >>> from perihelion.graph import DeviceRef, Graph, TensorType
    >>> with Graph("g", input_types=[TensorType(DType.int32, [], DeviceRef.CPU())]) as graph:
    ...     [value.dtype for value in promote_weak_dtypes(graph.inputs[0], 2)]
    [int32, int32]
    """
    graph = _current()
    first, second = graph._native.promote(_operand("x", x), _operand("y", y))
    return _wrap_tensor(first, graph), _wrap_tensor(second, graph)
