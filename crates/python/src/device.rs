//! Devices as Python's class `Device` holds them.

use std::sync::{Arc, OnceLock};

use perihelion::driver::{self, DeviceSpec};
use pyo3::prelude::*;

use crate::error::{driver_error, load_error};
use crate::running::detached;

/// A place where models run.
#[pyclass(frozen, module = "perihelion._perihelion")]
#[derive(Clone)]
pub(crate) struct Device(pub(crate) Arc<dyn driver::Device>);

#[pymethods]
impl Device {
    #[getter]
    fn id(&self) -> i32 {
        self.0.id()
    }

    #[getter]
    fn label(&self) -> &'static str {
        self.0.label()
    }

    #[getter]
    fn api(&self) -> &str {
        self.0.api()
    }

    #[getter]
    fn is_host(&self) -> bool {
        self.0.is_host()
    }

    #[getter]
    fn is_compatible(&self) -> bool {
        self.0.is_compatible()
    }

    /// Free and total memory in bytes, where they are known.
    #[getter]
    fn stats(&self) -> Option<(u64, u64)> {
        self.0.stats().map(|stats| (stats.free_memory, stats.total_memory))
    }

    #[getter]
    fn model_name(&self) -> String {
        self.0.model_name()
    }

    #[getter]
    fn max_single_alloc_size(&self) -> u64 {
        self.0.max_single_alloc_size()
    }

    #[getter]
    fn architecture_name(&self) -> PyResult<String> {
        self.0.architecture_name().map_err(load_error)
    }

    fn can_access(&self, other: &Device) -> bool {
        self.0.can_access(&*other.0)
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.synchronize())?.map_err(load_error)
    }
}

/// The host: the same device each time, so that sessions share its threads.
#[pyfunction]
pub(crate) fn cpu() -> Device {
    static CPU: OnceLock<Arc<dyn driver::Device>> = OnceLock::new();
    Device(Arc::clone(CPU.get_or_init(driver::cpu)))
}

/// An accelerator, counted from 0.
#[pyfunction]
pub(crate) fn accelerator(id: i32) -> PyResult<Device> {
    driver::accelerator(id).map(Device).map_err(driver_error)
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
    Ok(devices.into_iter().map(|device| if device.is_host() { cpu() } else { Device(device) }).collect())
}

fn specs(ids: &[i32]) -> PyResult<Vec<DeviceSpec>> {
    let spec = |&id| if id == -1 { Ok(DeviceSpec::cpu()) } else { DeviceSpec::accelerator(id) };
    ids.iter().map(spec).collect::<Result<_, _>>().map_err(driver_error)
}
