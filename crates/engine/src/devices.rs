//! Which devices there are, and why others are not: found and opened by their crates.
//!
//! The engine names no device. A door says how its host device and its accelerators are made, in a [`Platform`], and
//! asks that.

use std::sync::Arc;

use tensor::{DeviceSpec, Error};

use crate::Device;
pub use crate::host::{DeviceStats, host_stats};

/// The accelerators that a device crate can open.
pub trait Accelerators: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// What was looked for and what was found, in one line: why there are none.
    fn absence(&self) -> String;

    /// Opens one, counted from 0, with the host that packs its weights.
    ///
    /// # Errors
    /// If it is not there or cannot be used.
    fn open(&self, id: usize, host: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error>;
}

/// The devices that a door can make.
#[derive(Clone, Copy)]
pub struct Platform {
    host: fn() -> Arc<dyn Device>,
    accelerators: Option<&'static dyn Accelerators>,
}

impl Platform {
    /// A host, and no accelerators.
    pub const fn new(host: fn() -> Arc<dyn Device>) -> Platform {
        Platform { host, accelerators: None }
    }

    /// With accelerators in addition to the host.
    pub const fn with_accelerators(self, accelerators: &'static dyn Accelerators) -> Platform {
        Platform { accelerators: Some(accelerators), ..self }
    }

    /// How many accelerators can be opened.
    pub fn accelerator_count(&self) -> usize {
        self.accelerators.map_or(0, |accelerators| accelerators.count())
    }

    /// Why there are no accelerators, if there are none.
    pub fn absence(&self) -> Option<String> {
        match self.accelerators {
            None => Some("this build drives none".to_string()),
            Some(accelerators) => (accelerators.count() == 0).then(|| accelerators.absence()),
        }
    }

    /// Every accelerator; without any, the host.
    pub fn scan_available_devices(&self) -> Vec<DeviceSpec> {
        let accelerators: Vec<DeviceSpec> = (0..self.accelerator_count())
            .filter_map(|id| DeviceSpec::accelerator(i32::try_from(id).ok()?).ok())
            .collect();
        if accelerators.is_empty() { vec![DeviceSpec::cpu()] } else { accelerators }
    }

    /// Whether all of them can be opened. The host always can.
    pub fn devices_exist(&self, specs: &[DeviceSpec]) -> bool {
        specs.iter().all(|spec| self.missing(*spec).is_none())
    }

    /// Opens devices, in this order. One that is named twice is opened once.
    ///
    /// # Errors
    /// If one is not there, with the number of those that are, and why there are no more.
    pub fn load_devices(&self, specs: &[DeviceSpec]) -> Result<Vec<Arc<dyn Device>>, Error> {
        if let Some(message) = specs.iter().find_map(|spec| self.missing(*spec)) {
            return Err(Error::Device(message));
        }
        let host = (self.host)();
        let mut opened: Vec<(DeviceSpec, Arc<dyn Device>)> = Vec::with_capacity(specs.len());
        for &spec in specs {
            let known = opened.iter().find(|(other, _)| *other == spec).map(|(_, device)| Arc::clone(device));
            let device = match (known, self.accelerators) {
                (Some(device), _) => device,
                (None, Some(accelerators)) if !spec.is_host() => {
                    accelerators.open(spec.id() as usize, Arc::clone(&host))?
                }
                (None, _) => Arc::clone(&host),
            };
            opened.push((spec, device));
        }
        Ok(opened.into_iter().map(|(_, device)| device).collect())
    }

    /// Why a device cannot be opened, if so.
    fn missing(&self, spec: DeviceSpec) -> Option<String> {
        if spec.is_host() {
            return None;
        }
        let count = self.accelerator_count();
        if (spec.id() as usize) < count {
            return None;
        }
        let why = self.absence().unwrap_or_else(|| "counted from 0".to_string());
        let plural = if count == 1 { "" } else { "s" };
        Some(format!("{spec} is not available: found {count} accelerator{plural}; {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReferenceDevice;

    const HOST_ONLY: Platform = Platform::new(|| Arc::new(ReferenceDevice));

    /// So many accelerators.
    struct Several(usize);

    impl Accelerators for Several {
        fn count(&self) -> usize {
            self.0
        }

        fn absence(&self) -> String {
            "no loader of Vulkan".to_string()
        }

        fn open(&self, id: usize, host: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
            assert!(id < self.0 && host.is_host(), "only those that exist are opened");
            Ok(Arc::new(ReferenceDevice))
        }
    }

    fn gpu(id: i32) -> DeviceSpec {
        DeviceSpec::accelerator(id).unwrap()
    }

    #[test]
    fn the_host_is_always_there() {
        let host = DeviceSpec::cpu();
        assert_eq!((HOST_ONLY.accelerator_count(), HOST_ONLY.scan_available_devices()), (0, vec![host]));
        assert!(HOST_ONLY.devices_exist(&[host, host]) && !HOST_ONLY.devices_exist(&[host, gpu(0)]));
        let devices = HOST_ONLY.load_devices(&[host, host]).unwrap();
        assert!(devices.len() == 2 && Arc::ptr_eq(&devices[0], &devices[1]));
        let error = HOST_ONLY.load_devices(&[host, gpu(0)]).err().unwrap().to_string();
        assert_eq!(error, "gpu:0 is not available: found 0 accelerators; this build drives none");
    }

    /// Accelerators that nobody may look for.
    struct Unasked;

    impl Accelerators for Unasked {
        fn count(&self) -> usize {
            panic!("looked for accelerators")
        }

        fn absence(&self) -> String {
            panic!("looked for accelerators")
        }

        fn open(&self, _: usize, _: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
            panic!("looked for accelerators")
        }
    }

    #[test]
    fn nobody_looks_for_accelerators_where_the_host_alone_is_named() {
        let platform = HOST_ONLY.with_accelerators(&Unasked);
        let host = DeviceSpec::cpu();
        assert!(platform.devices_exist(&[host]));
        assert!(platform.load_devices(&[host]).unwrap()[0].is_host());
    }

    #[test]
    fn accelerators_are_counted_and_opened() {
        let platform = HOST_ONLY.with_accelerators(&Several(2));
        assert_eq!(platform.scan_available_devices(), [gpu(0), gpu(1)]);
        assert_eq!(platform.load_devices(&[gpu(1), DeviceSpec::cpu()]).unwrap().len(), 2);
        let error = platform.load_devices(&[gpu(2)]).err().unwrap().to_string();
        assert_eq!(error, "gpu:2 is not available: found 2 accelerators; counted from 0");
        let error =
            HOST_ONLY.with_accelerators(&Several(0)).load_devices(&[gpu(0)]).err().unwrap().to_string();
        assert_eq!(error, "gpu:0 is not available: found 0 accelerators; no loader of Vulkan");
    }
}
