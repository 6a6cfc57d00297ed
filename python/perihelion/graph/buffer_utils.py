"""Buffers in other dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

from perihelion._tracebacks import shorten
from perihelion.driver import Buffer, Device, DLPackArray
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
    new_dtype = DType(new_dtype)
    if tensor.dtype is new_dtype:
        return tensor
    type = TensorType(tensor.dtype, tensor.shape, DeviceRef.CPU())
    graph = Graph("cast", lambda x: ops.cast(x, new_dtype), [type])
    return (session or InferenceSession()).load(graph).execute(tensor)[0]


def cast_dlpack_to(
    raw_tensor: DLPackArray,
    old_dtype: DType,
    new_dtype: DType,
    device: Device | None = None,
    session: InferenceSession | None = None,
) -> Buffer:
    """An array, taken as one of `old_dtype`, with its elements in another dtype; see `cast_tensor_to`.

    Args:
        raw_tensor: the array.
        old_dtype: what its bytes are.
        new_dtype: of the result.
        device: where the result is; the CPU if not given.
        session: what to run on; a new one if not given.
    """
    tensor = Buffer.from_dlpack(raw_tensor)
    tensor = tensor if tensor.dtype is DType(old_dtype) else tensor.view(old_dtype)
    result = cast_tensor_to(tensor, new_dtype, session)
    return result if device is None else result.to(device)


@overload
def cast_tensors_to(
    tensors: Sequence[Buffer] | None, new_dtype: DType, session: InferenceSession | None = None
) -> list[Buffer]: ...


@overload
def cast_tensors_to(
    tensors: Mapping[str, Buffer], new_dtype: DType, session: InferenceSession | None = None
) -> dict[str, Buffer]: ...


def cast_tensors_to(
    tensors: Sequence[Buffer] | Mapping[str, Buffer] | None,
    new_dtype: DType,
    session: InferenceSession | None = None,
) -> list[Buffer] | dict[str, Buffer]:
    """Each of the buffers in another dtype, as a list, or by the names of a mapping; see `cast_tensor_to`."""
    session = session or InferenceSession()
    if isinstance(tensors, Mapping):
        return {name: cast_tensor_to(tensor, new_dtype, session) for name, tensor in tensors.items()}
    return [cast_tensor_to(tensor, new_dtype, session) for tensor in tensors or ()]


shorten(globals(), __all__)
