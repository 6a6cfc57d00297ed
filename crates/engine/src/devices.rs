//! Which devices there are, and why others are not: found through the file system, opened by their crates.
//!
//! The engine names no device. A door says how its host device and its accelerators are made, in a [`Platform`], and
//! asks that.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
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
        let count = self.accelerator_count();
        if spec.is_host() || (spec.id() as usize) < count {
            return None;
        }
        let why = match self.accelerators {
            Some(_) if count > 0 => "counted from 0".to_string(),
            Some(accelerators) => accelerators.absence(),
            None => {
                let support = "this build has no accelerator support";
                match Probe::of_system().absence() {
                    Some(absence) => format!("{absence}, and {support}"),
                    None => support.to_string(),
                }
            }
        };
        let found = if self.accelerators.is_some() { count } else { Probe::of_system().nodes.len() };
        let plural = if found == 1 { "" } else { "s" };
        Some(format!("{spec} is not available: found {found} accelerator{plural}; {why}"))
    }
}

/// What the file system tells of NVIDIA accelerators.
struct Probe {
    /// Whether the driver is loaded.
    driver: bool,
    /// Display controllers of theirs on the PCI bus.
    on_bus: usize,
    /// The device files, which each stand for one.
    nodes: Vec<PathBuf>,
    /// A device file that this process may not open.
    forbidden: Option<PathBuf>,
}

impl Probe {
    fn of_system() -> Probe {
        Probe::under(Path::new("/"))
    }

    fn under(root: &Path) -> Probe {
        let mut nodes = entries(&root.join("dev"));
        nodes.retain(|path| {
            let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("nvidia"));
            number
                .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        });
        nodes.sort();
        let control = root.join("dev/nvidiactl");
        let is_forbidden = |path: &&PathBuf| {
            File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let forbidden = [control].iter().chain(&nodes).find(is_forbidden).cloned();
        Probe {
            driver: root.join("proc/driver/nvidia/version").exists(),
            on_bus: entries(&root.join("sys/bus/pci/devices"))
                .iter()
                .filter(|path| is_nvidia_display(path))
                .count(),
            nodes,
            forbidden,
        }
    }

    /// Why no accelerator can be used, if so.
    fn absence(&self) -> Option<String> {
        match self {
            Probe { driver: false, on_bus: 0, .. } => {
                Some("no NVIDIA driver is loaded, and no NVIDIA device is on the PCI bus".to_string())
            }
            Probe { driver: false, on_bus, .. } => Some(format!(
                "no NVIDIA driver is loaded (no /proc/driver/nvidia/version), but the PCI bus has devices: {on_bus}"
            )),
            Probe { nodes, .. } if nodes.is_empty() => {
                Some("an NVIDIA driver is loaded, but there is no device file /dev/nvidia0".to_string())
            }
            Probe { forbidden: Some(path), .. } => Some(format!("no permission to open {}", path.display())),
            Probe { .. } => None,
        }
    }
}

/// Whether the PCI device is a display controller or an accelerator of NVIDIA's.
fn is_nvidia_display(device: &Path) -> bool {
    let field = |name| fs::read_to_string(device.join(name)).unwrap_or_default();
    field("vendor").trim() == "0x10de" && field("class").trim().starts_with("0x03")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
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
        assert!(error.starts_with("gpu:0 is not available: found "), "{error}");
        assert!(error.ends_with("this build has no accelerator support"), "{error}");
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

    /// A system with some of the files that a driver makes.
    fn system(name: &str, files: &[(&str, &str)]) -> Probe {
        let root = std::env::temp_dir().join(format!("perihelion-devices-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let probe = Probe::under(&root);
        let _ = fs::remove_dir_all(root);
        probe
    }

    #[test]
    fn absence_has_a_reason() {
        let check = |probe: Probe, found: usize, why: Option<&str>| {
            assert_eq!((probe.nodes.len(), probe.absence().as_deref()), (found, why));
        };
        let bus = ("sys/bus/pci/devices/0/vendor", "0x10de\n");
        let class = ("sys/bus/pci/devices/0/class", "0x030200\n");
        let driver = ("proc/driver/nvidia/version", "");
        check(
            system("none", &[]),
            0,
            Some("no NVIDIA driver is loaded, and no NVIDIA device is on the PCI bus"),
        );
        check(
            system("bus", &[bus, class]),
            0,
            Some(
                "no NVIDIA driver is loaded (no /proc/driver/nvidia/version), but the PCI bus has devices: 1",
            ),
        );
        check(
            system("driver", &[bus, class, driver, ("dev/nvidiactl", "")]),
            0,
            Some("an NVIDIA driver is loaded, but there is no device file /dev/nvidia0"),
        );
        check(system("node", &[driver, ("dev/nvidia0", ""), ("dev/nvidia-uvm", "")]), 1, None);
        let forbidden = Some(PathBuf::from("/dev/nvidiactl"));
        let probe = Probe { forbidden, ..system("forbidden", &[driver, ("dev/nvidia1", "")]) };
        check(probe, 1, Some("no permission to open /dev/nvidiactl"));
    }
}
