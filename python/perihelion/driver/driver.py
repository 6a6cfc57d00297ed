"""The devices of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perihelion import _perihelion
from perihelion._tracebacks import shorten, shorten_methods

__all__ = [
    "CPU",
    "Accelerator",
    "Device",
    "DeviceSpec",
    "DeviceStream",
    "accelerator_api",
    "accelerator_count",
    "devices_exist",
    "load_devices",
    "scan_available_devices",
]


class Device:
    """A place where models run: the CPU, or an accelerator. Make one with `CPU()` or `Accelerator()`.

    >>> CPU() == Device.cpu()
    True
    >>> str(CPU())
    'cpu:0'
    """

    __slots__ = ("_native",)
    _native: _perihelion.Device

    def __init__(self) -> None:
        raise TypeError("make a device with CPU() or Accelerator()")

    @staticmethod
    def cpu(id: int = -1) -> CPU:
        """The CPU."""
        return CPU(id)

    @property
    def id(self) -> int:
        """The number among devices of its kind; 0 for the CPU."""
        return self._native.id

    @property
    def label(self) -> str:
        """The kind of device: "cpu" or "gpu"."""
        return self._native.label

    @property
    def api(self) -> str:
        """How the device is driven: "cpu", "vulkan", "metal" or "dx12"."""
        return self._native.api

    @property
    def is_host(self) -> bool:
        """Whether this is the CPU."""
        return self._native.is_host

    @property
    def is_compatible(self) -> bool:
        """Whether models run on it."""
        return self._native.is_compatible

    @property
    def stats(self) -> Mapping[str, Any]:
        """`free_memory` and `total_memory` in bytes; empty where they are unknown."""
        stats = self._native.stats
        return {} if stats is None else {"free_memory": stats[0], "total_memory": stats[1]}

    @property
    def model_name(self) -> str:
        """The name that its maker gave to the processor, or its architecture if the system does not know."""
        return self._native.model_name

    @property
    def max_single_alloc_size(self) -> int:
        """The most bytes that one buffer can have; 0 if that is unknown."""
        return self._native.max_single_alloc_size

    @property
    def architecture_name(self) -> str:
        """The name of an accelerator's driver; empty if the system does not tell.

        Raises:
            ValueError: on the CPU, which has none.
        """
        return self._native.architecture_name

    @property
    def default_stream(self) -> DeviceStream:
        """The stream that the device's work goes through."""
        return DeviceStream(self)

    def can_access(self, other: Device) -> bool:
        """Whether this device reads the memory of another without a copy."""
        return self._native.can_access(other._native)

    def synchronize(self) -> None:
        """Waits until the device has done all it was asked to do."""
        self._native.synchronize()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.label, self.id) == (other.label, other.id)

    def __hash__(self) -> int:
        return hash((self.label, self.id))

    def __str__(self) -> str:
        return f"{self.label}:{self.id}"

    def __repr__(self) -> str:
        return f"Device(type={self.label},id={self.id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (CPU, ()) if self.is_host else (Accelerator, (self.id,))


class CPU(Device):
    """The CPU. There is one, whatever the id.

    >>> CPU(3).id
    0
    """

    __slots__ = ()

    def __init__(self, id: int = -1) -> None:
        self._native = _perihelion.cpu()


class Accelerator(Device):
    """A GPU, driven through Vulkan, Metal or DirectX 12, counted from 0; -1 is the first.

    Raises:
        ValueError: it is not there, with the number of those that are, and why there are no more.
    """

    __slots__ = ()

    def __init__(self, id: int = -1) -> None:
        self._native = _perihelion.accelerator(0 if id == -1 else id)


class DeviceStream:
    """The order in which a device does its work."""

    __slots__ = ("device",)

    def __init__(self, device: Device) -> None:
        self.device = device

    def synchronize(self) -> None:
        """Waits until the work of the stream is done."""
        self.device.synchronize()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceStream) and self.device == other.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"DeviceStream({self.device})"


@dataclass(frozen=True)
class DeviceSpec:
    """A device by kind and number, whether it is there or not.

    >>> DeviceSpec.accelerator(1)
    DeviceSpec(id=1, device_type='gpu')
    """

    id: int
    device_type: Literal["cpu", "gpu"] = "cpu"

    def __post_init__(self) -> None:
        if self.device_type not in ("cpu", "gpu"):
            raise ValueError(f"device_type: got {self.device_type!r}, expected 'cpu' or 'gpu'")
        if self.device_type == "gpu" and self.id < 0:
            raise ValueError(f"accelerators count from 0, got id {self.id}")

    @staticmethod
    def cpu(id: int = -1) -> DeviceSpec:
        """The CPU."""
        return DeviceSpec(id, "cpu")

    @staticmethod
    def accelerator(id: int = 0) -> DeviceSpec:
        """An accelerator, counted from 0."""
        return DeviceSpec(id, "gpu")


def accelerator_count() -> int:
    """How many accelerators can be used."""
    return _perihelion.accelerator_count()


def accelerator_api() -> str:
    """How accelerators are driven: "vulkan", "metal" or "dx12"; "cpu" if there are none."""
    return Accelerator().api if accelerator_count() else "cpu"


def scan_available_devices() -> list[DeviceSpec]:
    """Every accelerator; without any, the CPU."""
    return [_from_id(id) for id in _perihelion.scan_available_devices()]


def devices_exist(devices: list[DeviceSpec]) -> bool:
    """Whether `load_devices` can open all of them. The CPU is always there.

    >>> devices_exist([DeviceSpec.cpu()])
    True
    """
    return _perihelion.devices_exist([_to_id(spec) for spec in devices])


def load_devices(device_specs: Sequence[DeviceSpec]) -> list[Device]:
    """Opens devices, in this order.

    Raises:
        ValueError: one is not there, with the number of those that are, and why there are no more.
    """
    return [_wrap(native) for native in _perihelion.load_devices([_to_id(spec) for spec in device_specs])]


def _wrap(native: _perihelion.Device) -> Device:
    """The device that a native handle stands for."""
    device = object.__new__(CPU if native.is_host else Accelerator)
    device._native = native
    return device


def _to_id(spec: DeviceSpec) -> int:
    return -1 if spec.device_type == "cpu" else spec.id


def _from_id(id: int) -> DeviceSpec:
    return DeviceSpec.cpu() if id == -1 else DeviceSpec.accelerator(id)


shorten(globals(), ["devices_exist", "load_devices"])
shorten_methods(Accelerator)
shorten_methods(DeviceSpec, ["__post_init__"])
