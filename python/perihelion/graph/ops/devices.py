"""Work that several devices share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perihelion.driver import Device

from ..type import DeviceRef
from ..value import (
    BufferValueLike,
    TensorValue,
    TensorValueLike,
    _current,
    _native,
    _native_data,
    _to_buffer,
    _wrap_tensor,
)

__all__ = [
    "allgather",
    "distributed_broadcast",
    "distributed_scatter",
    "parallel",
    "shard_and_stack",
    "transfer_to",
]


def transfer_to(x: TensorValueLike, device: Device | DeviceRef) -> TensorValue:
    """The tensor on a device; itself if it is there."""
    graph = _current()
    native = graph._native.transfer_to(_native("x", x), DeviceRef.from_device(device)._native)
    return _wrap_tensor(native, graph)


def allgather(
    inputs: Iterable[TensorValueLike], signal_buffers: Iterable[BufferValueLike], axis: int = 0
) -> list[TensorValue]:
    """The tensors of all devices one after another, on each device.

    Args:
        inputs: one on each device.
        signal_buffers: a buffer of uint8 on each device.
        axis: along which axis.

    Raises:
        ValueError: there is more than one device: one can take part so far.
    """
    return _collective("allgather", inputs, signal_buffers, axis)


def distributed_broadcast(
    input: TensorValueLike, signal_buffers: Iterable[BufferValueLike]
) -> list[TensorValue]:
    """The tensor on the device of each signal buffer; see `allgather`."""
    return _collective("distributed_broadcast", [input], signal_buffers)


def distributed_scatter(
    input_chunks: Iterable[TensorValueLike], signal_buffers: Iterable[BufferValueLike]
) -> list[TensorValue]:
    """Each of the tensors, which lie on one device, on the device of its signal buffer; see `allgather`."""
    return _collective("distributed_scatter", input_chunks, signal_buffers)


def shard_and_stack(
    inputs: Iterable[TensorValueLike], devices: Iterable[Device | DeviceRef], axis: int = 0
) -> list[TensorValue]:
    """Each tensor divided among devices along an axis, and the parts of a device stacked: [inputs, ..] on each.

    Args:
        inputs: tensors of one type.
        devices: as many as parts.
        axis: along which axis the tensors are divided.
    """
    graph = _current()
    refs = [DeviceRef.from_device(device)._native for device in devices]
    parts = graph._native.shard_and_stack([_native_data("inputs", value) for value in inputs], refs, axis)
    return [_wrap_tensor(part, graph) for part in parts]


def parallel(inputs: Iterable[TensorValue], body: Callable[[TensorValue], TensorValue]) -> list[TensorValue]:
    """Calls a function with each tensor and returns the results. The calls do not wait for each other.

    Args:
        inputs: one for each call.
        body: the function.
    """
    return [body(value) for value in inputs]


def _collective(
    function: str,
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    axis: int = 0,
) -> list[TensorValue]:
    graph = _current()
    values = [_native_data("inputs", value) for value in inputs]
    signals = [_to_buffer("signal_buffers", buffer)._native for buffer in signal_buffers]
    results = graph._native.collective(function, values, signals, axis)
    return [_wrap_tensor(result, graph) for result in results]
