"""Devices, and buffers in their memory."""

from perihelion import __version__

from .buffer import Buffer, DLPackArray, load_max_buffer
from .driver import (
    CPU,
    Accelerator,
    Device,
    DeviceSpec,
    DeviceStream,
    accelerator_api,
    accelerator_count,
    devices_exist,
    load_devices,
    scan_available_devices,
)

__all__ = [
    "CPU",
    "Accelerator",
    "Buffer",
    "DLPackArray",
    "Device",
    "DeviceSpec",
    "DeviceStream",
    "__version__",
    "accelerator_api",
    "accelerator_count",
    "devices_exist",
    "load_devices",
    "load_max_buffer",
    "scan_available_devices",
]
