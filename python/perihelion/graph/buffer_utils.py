"""Buffers in other dtypes."""

from __future__ import annotations

from collections.abc import Mapping

from perihelion._tracebacks import shorten
from perihelion.driver import Buffer, DLPackArray
from perihelion.dtype import DType
from perihelion.engine import InferenceSession

from . import ops
from .graph import Graph
from .type import DeviceRef, TensorType

__all__ = ["cast_dlpack_to", "cast_tensor_to", "cast_tensors_to"]


def cast_tensor_to(tensor: Buffer, new_dtype: DType, session: InferenceSession | None = None) -> Buffer:
    """A buffer with its elements in another dtype; itself if it has the dtype.

    Args:
        tensor: the buffer.
        new_dtype: of the result.
        session: what to run on; a new one if not given.

    >>> import numpy as np
    >>> cast_tensor_to(Buffer.from_numpy(np.array([1.5], np.float32)), DType.int8).to_numpy()
    array([1], dtype=int8)
    """
    if tensor.dtype is new_dtype:
        return tensor
    type = TensorType(tensor.dtype, tensor.shape, DeviceRef.CPU())
    graph = Graph("cast", lambda x: ops.cast(x, new_dtype), [type])
    return (session or InferenceSession()).load(graph).execute(tensor)[0]


def cast_dlpack_to(
    raw_tensor: DLPackArray, old_dtype: DType, new_dtype: DType, session: InferenceSession | None = None
) -> Buffer:
    """An array, taken as one of `old_dtype`, with its elements in another dtype; see `cast_tensor_to`."""
    tensor = Buffer.from_dlpack(raw_tensor)
    return cast_tensor_to(tensor if tensor.dtype is old_dtype else tensor.view(old_dtype), new_dtype, session)


def cast_tensors_to(
    tensors: Mapping[str, Buffer], new_dtype: DType, session: InferenceSession | None = None
) -> dict[str, Buffer]:
    """Each of the buffers in another dtype; see `cast_tensor_to`."""
    session = session or InferenceSession()
    return {name: cast_tensor_to(tensor, new_dtype, session) for name, tensor in tensors.items()}


shorten(globals(), __all__)
