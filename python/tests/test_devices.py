"""Devices of this machine."""

from __future__ import annotations

import pickle

import pytest

from perihelion import driver
from perihelion.driver import CPU, Accelerator, Device, DeviceSpec


def test_the_cpu_is_one_device() -> None:
    assert CPU() == CPU(5) == Device.cpu()
    assert len({CPU(), CPU(3)}) == 1
    cpu = CPU()
    assert (cpu.id, cpu.label, cpu.api, cpu.is_host, cpu.is_compatible) == (0, "cpu", "cpu", True, True)
    assert (str(cpu), repr(cpu)) == ("cpu:0", "Device(type=cpu,id=0)")
    assert cpu.can_access(CPU()) and cpu != "cpu:0"
    assert cpu.stats["total_memory"] >= cpu.stats["free_memory"] > 0
    assert cpu.max_single_alloc_size == cpu.stats["total_memory"]
    assert cpu.model_name
    cpu.synchronize()
    cpu.default_stream.synchronize()
    assert cpu.default_stream.device == cpu
    with pytest.raises(ValueError, match="no architecture name"):
        cpu.architecture_name
    with pytest.raises(TypeError, match="CPU"):
        Device()
    assert pickle.loads(pickle.dumps(cpu)) == cpu


def test_specs_are_values() -> None:
    assert DeviceSpec.cpu() == DeviceSpec(-1, "cpu")
    assert DeviceSpec.accelerator() == DeviceSpec(0, "gpu")
    assert len({DeviceSpec.cpu(), DeviceSpec(-1)}) == 1
    with pytest.raises(ValueError, match="got id -1"):
        DeviceSpec.accelerator(-1)
    with pytest.raises(ValueError, match="expected 'cpu' or 'gpu'"):
        DeviceSpec(0, "tpu")
    with pytest.raises(AttributeError):
        DeviceSpec.cpu().id = 3


def test_devices_are_found_and_loaded() -> None:
    count = driver.accelerator_count()
    specs = driver.scan_available_devices()
    assert specs == ([DeviceSpec.accelerator(i) for i in range(count)] or [DeviceSpec.cpu()])
    assert driver.devices_exist([DeviceSpec.cpu(), DeviceSpec.cpu(3)])
    assert not driver.devices_exist([DeviceSpec.accelerator(count)])
    assert driver.load_devices([DeviceSpec.cpu(), DeviceSpec.cpu(7)]) == [CPU(), CPU()]
    assert driver.accelerator_api() == ("cpu" if count == 0 else Accelerator().api)


def test_absent_accelerators_are_counted() -> None:
    absent = driver.accelerator_count()
    with pytest.raises(ValueError, match=f"gpu:{absent} is not available: found "):
        Accelerator(absent)
    with pytest.raises(ValueError, match="found "):
        driver.load_devices([DeviceSpec.accelerator(absent)])
