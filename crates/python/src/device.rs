//! Devices as Python's class `Device` holds them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use perihelion::driver::{self, DeviceSpec};
use pyo3::prelude::*;

use crate::error::{driver_error, load_error};
use crate::owned::Owned;
use crate::running::detached;

/// A place where models run.
#[pyclass(frozen, module = "perihelion._perihelion")]
#[derive(Clone)]
pub(crate) struct Device {
    is_host: bool,
    owned: Owned<Arc<dyn driver::Device>>,
}

#[pymethods]
impl Device {
    #[getter]
    fn id(&self) -> PyResult<i32> {
        Ok(self.get()?.id())
    }

    #[getter]
    fn label(&self) -> PyResult<&'static str> {
        Ok(self.get()?.label())
    }

    #[getter]
    fn api(&self) -> PyResult<String> {
        Ok(self.get()?.api().to_string())
    }

    #[getter]
    fn is_host(&self) -> PyResult<bool> {
        Ok(self.get()?.is_host())
    }

    #[getter]
    fn is_compatible(&self) -> PyResult<bool> {
        Ok(self.get()?.is_compatible())
    }

    /// Free and total memory in bytes, where they are known.
    #[getter]
    fn stats(&self) -> PyResult<Option<(u64, u64)>> {
        Ok(self.get()?.stats().map(|stats| (stats.free_memory, stats.total_memory)))
    }

    #[getter]
    fn model_name(&self) -> PyResult<String> {
        Ok(self.get()?.model_name())
    }

    #[getter]
    fn max_single_alloc_size(&self) -> PyResult<u64> {
        Ok(self.get()?.max_single_alloc_size())
    }

    #[getter]
    fn architecture_name(&self) -> PyResult<String> {
        self.get()?.architecture_name().map_err(load_error)
    }

    fn can_access(&self, other: &Device) -> PyResult<bool> {
        Ok(self.get()?.can_access(&*other.get()?))
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let device = self.get()?;
        detached(py, || device.synchronize())?.map_err(load_error)
    }
}

impl Device {
    pub(crate) fn new(device: Arc<dyn driver::Device>) -> Device {
        Device { is_host: device.is_host(), owned: Owned::new("the device", device) }
    }

    /// The device. In a forked process, a CPU of its parent stands for its own.
    pub(crate) fn get(&self) -> PyResult<Arc<dyn driver::Device>> {
        if self.is_host && !self.owned.is_ours() { cpu().get() } else { self.owned.get().cloned() }
    }
}

/// The host: the same device each time, so that sessions share its threads.
#[pyfunction]
pub(crate) fn cpu() -> Device {
    static CPU: Mutex<Option<Device>> = Mutex::new(None);
    let mut cpu = CPU.lock().unwrap_or_else(PoisonError::into_inner);
    match &*cpu {
        Some(device) if device.owned.is_ours() => device.clone(),
        _ => cpu.insert(Device::new(driver::cpu())).clone(),
    }
}

/// An accelerator, counted from 0: the same device each time, as buffers ask for theirs.
#[pyfunction]
pub(crate) fn accelerator(id: i32) -> PyResult<Device> {
    static OPEN: Mutex<BTreeMap<i32, Device>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    match open.get(&id) {
        Some(device) if device.owned.is_ours() => Ok(device.clone()),
        _ => {
            let device = driver::accelerator(id).map(Device::new).map_err(driver_error)?;
            open.insert(id, device.clone());
            Ok(device)
        }
    }
}

#[pyfunction]
pub(crate) fn accelerator_count() -> usize {
    driver::accelerator_count()
}

/// The ids of all accelerators; without any, -1 for the host.
#[pyfunction]
pub(crate) fn scan_available_devices() -> Vec<i32> {
    driver::scan_available_devices().into_iter().map(DeviceSpec::id).collect()
}

/// Whether devices can be opened: -1 is the host, other ids are accelerators.
#[pyfunction]
pub(crate) fn devices_exist(ids: Vec<i32>) -> PyResult<bool> {
    Ok(driver::devices_exist(&specs(&ids)?))
}

/// Opens devices: -1 is the host, other ids are accelerators.
#[pyfunction]
pub(crate) fn load_devices(ids: Vec<i32>) -> PyResult<Vec<Device>> {
    let devices = driver::load_devices(&specs(&ids)?).map_err(driver_error)?;
    Ok(devices.into_iter().map(|device| if device.is_host() { cpu() } else { Device::new(device) }).collect())
}

fn specs(ids: &[i32]) -> PyResult<Vec<DeviceSpec>> {
    let spec = |&id| if id == -1 { Ok(DeviceSpec::cpu()) } else { DeviceSpec::accelerator(id) };
    ids.iter().map(spec).collect::<Result<_, _>>().map_err(driver_error)
}
