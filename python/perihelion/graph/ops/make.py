"""Values that ops make of nothing: constants, sequences, windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from perihelion import _perihelion
from perihelion.driver import Device, DLPackArray
from perihelion.dtype import DType

from ..dim import Dim, DimLike, StaticDim
from ..type import DeviceRef, TensorType
from ..value import (
    HasTensorValue,
    TensorValue,
    TensorValueLike,
    Value,
    _current,
    _operand,
    _to_native_buffer,
    _to_tensor,
    _wrap_tensor,
)

__all__ = ["constant", "constant_external", "hann_window", "range"]


def constant(value: Any, dtype: DType | None = None, device: Device | DeviceRef | None = None) -> TensorValue:
    """A value that is known now.

    Args:
        value: an array, a number, or nested lists of numbers.
        dtype: of the elements; that of an array or a number of NumPy if not given.
        device: where the constant is; the CPU for an array, if not given.

    Raises:
        ValueError: the dtype cannot hold a number, lists differ in length, or a number has no dtype or device.
        TypeError: the elements of the dtype are smaller than a byte.

    >>> from perihelion.graph import Graph
    >>> with Graph("g"):
    ...     constant([[1, 2], [3, 4]], DType.int32, DeviceRef.CPU()).shape
    [Dim(2), Dim(2)]
    """
    dtype = None if dtype is None else DType(dtype)
    if dtype is not None and dtype.size_in_bits < 8:
        raise TypeError(f"constant: {dtype!r} is smaller than a byte")
    if isinstance(value, np.generic) and dtype is None:
        value = np.asarray(value)
    is_array = isinstance(value, DLPackArray)
    if not is_array and (dtype is None or device is None):
        raise ValueError("constant: a number takes a dtype and a device")
    if isinstance(value, (list, tuple)):
        value = np.array(value)
    operand: Any = _to_native_buffer(value) if isinstance(value, DLPackArray) else _operand("value", value)
    code = None if dtype is None else dtype.value
    graph = _current()
    tensor = _wrap_tensor(graph._native.constant(operand, code), graph)
    return tensor if device is None else tensor.to(device)


def constant_external(name: str, type: TensorType, align: int | None = None) -> TensorValue:
    """A value that comes from `weights_registry` when a model is made.

    Args:
        name: what the registry calls it.
        type: of the value.
        align: of the value in memory, in bytes; any will do.
    """
    graph = _current()
    return _wrap_tensor(graph._native.weight(name, type._native), graph)


def range(
    start: TensorValueLike,
    stop: TensorValueLike,
    step: TensorValueLike = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType,
    device: Device | DeviceRef,
) -> TensorValue:
    """`start`, `start + step` and so on before `stop`: `ceil((stop - start) / step)` elements, as NumPy's `arange`.

    Args:
        start: the first: a number, a dim, or a tensor without axes.
        stop: the one that ends them.
        step: the distance.
        out_dim: how many there are, if an end is a tensor; a new symbol gets the number by this.
        dtype: of the elements.
        device: where they are.

    Raises:
        ValueError: an end is a tensor and there is no `out_dim`, the step is 0 or leads away from `stop`, or the
            numbers do not fit the dtype.
    """
    dtype = DType(dtype)
    ends = [Dim(end) if isinstance(end, (Dim, str)) else end for end in (start, stop, step)]
    ends = [end.dim if isinstance(end, StaticDim) else end for end in ends]
    if not any(isinstance(end, (Dim, Value, HasTensorValue)) for end in ends):
        graph = _current()
        if all(isinstance(end, (int, np.integer)) for end in ends):
            begun, ended, by = (int(one) for one in ends)  # type: ignore[arg-type]
            if max(abs(begun), abs(ended), abs(by)) > 2**64:
                raise ValueError(f"range: got {begun}, {ended} and {by}, expected integers of 64 bits")
            native = graph._native.range_of_integers(begun, ended, by, dtype.value)
        else:
            low, high, gap = (float(one) for one in ends)  # type: ignore[arg-type]
            native = graph._native.range(low, high, gap, dtype.value)
        sequence = _wrap_tensor(native, graph)
        sequence = sequence if out_dim is None else sequence.rebind([out_dim])
    elif isinstance(ends[1], Dim) and (ends[0], ends[2]) == (0, 1):
        size = ends[1] if out_dim is None else Dim(out_dim)
        graph = _current()
        sequence = _wrap_tensor(graph._native.range_to(size._native, dtype.value), graph)
    else:
        if out_dim is None:
            raise ValueError("range: ends that are tensors take an out_dim")
        begin, end, increment = (_scalar(value, dtype.name) for value in ends)
        graph = _current()
        native = graph._native.range_of(begin, end, increment, Dim(out_dim)._native)
        sequence = _wrap_tensor(native, graph)
    return sequence.to(device)


def hann_window(
    window_length: int, device: Device | DeviceRef, periodic: bool = True, dtype: DType = DType.float32
) -> TensorValue:
    """Hann's window: `(1 - cos(2 * pi * i / n)) / 2`.

    Args:
        window_length: the number of elements.
        device: where they are.
        periodic: whether `n` is the length, as for spectra, and not one less, as for filters.
        dtype: of the elements.
    """
    graph = _current()
    return _wrap_tensor(graph._native.hann_window(window_length, periodic, DType(dtype).value), graph).to(device)


def _like(x: Value, value: TensorValueLike) -> _perihelion.GraphValue:
    """A tensor as it is, a number in the dtype of `x`."""
    operand = _operand("value", value)
    if isinstance(operand, _perihelion.GraphValue):
        return operand
    graph = _current()
    return _wrap_tensor(graph._native.like(x._native, operand), graph)._native


def _scalar(value: Any, dtype: str) -> _perihelion.GraphValue:
    """A tensor without axes in a dtype: a tensor or dim that is cast to it, or a number."""
    if isinstance(value, (int, float, np.generic)):
        return constant(value, DType[dtype], DeviceRef.CPU())._native
    return _to_tensor("value", value).cast(DType[dtype])._native
