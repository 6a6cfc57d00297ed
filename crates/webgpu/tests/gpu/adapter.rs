//! The adapter that tests run on.

use std::env;
use std::sync::Arc;

use cpu::Cpu;
use engine::Device;
use engine::devices::Accelerators;
use perihelion_webgpu::ADAPTERS;

/// The host of the devices.
pub(crate) fn cpu() -> Arc<dyn Device> {
    Arc::new(Cpu::new(1))
}

/// Whether there is an adapter. There must be one where the environment asks for the software driver.
fn is_there() -> bool {
    let is_there = ADAPTERS.count() > 0;
    if !is_there {
        let absence = ADAPTERS.absence();
        assert!(env::var_os("PERIHELION_ACCELERATOR").is_none(), "{absence}");
        eprintln!("skipped: {absence}");
    }
    is_there
}

/// The first adapter; none where the test is skipped.
pub(crate) fn adapter() -> Option<Arc<dyn Device>> {
    is_there().then(|| ADAPTERS.open(0, cpu()).unwrap())
}

/// The first adapter with the least limits that any has.
pub(crate) fn least_adapter() -> Option<Arc<dyn Device>> {
    is_there().then(|| ADAPTERS.open_with_least_limits(0, cpu()).unwrap())
}
