//! Names of devices: where an array lies, and what can be asked for.

use std::fmt;

use crate::Error;

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceType {
    /// The host.
    Cpu,
    /// An accelerator.
    Gpu,
}

/// A device by kind and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceSpec {
    id: i32,
    device_type: DeviceType,
}

impl DeviceSpec {
    /// The host; its id is -1.
    pub const fn cpu() -> DeviceSpec {
        DeviceSpec { id: -1, device_type: DeviceType::Cpu }
    }

    /// An accelerator, counted from 0.
    ///
    /// # Errors
    /// If the id is negative.
    pub fn accelerator(id: i32) -> Result<DeviceSpec, Error> {
        match id {
            0.. => Ok(DeviceSpec { id, device_type: DeviceType::Gpu }),
            _ => Err(Error::Device(format!("accelerators count from 0, got id {id}"))),
        }
    }

    /// The number among devices of its kind; -1 for the host, which is one.
    pub const fn id(self) -> i32 {
        self.id
    }

    /// The kind.
    pub const fn device_type(self) -> DeviceType {
        self.device_type
    }

    /// Whether this is the host.
    pub const fn is_host(self) -> bool {
        matches!(self.device_type, DeviceType::Cpu)
    }
}

impl DeviceType {
    /// `cpu` or `gpu`.
    pub const fn label(self) -> &'static str {
        match self {
            DeviceType::Cpu => "cpu",
            DeviceType::Gpu => "gpu",
        }
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// `cpu`, `gpu:0`.
impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device_type {
            DeviceType::Cpu => f.write_str("cpu"),
            DeviceType::Gpu => write!(f, "gpu:{}", self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        assert_eq!((DeviceSpec::cpu().to_string(), DeviceSpec::cpu().id()), ("cpu".to_string(), -1));
        assert_eq!(DeviceSpec::accelerator(1).unwrap().to_string(), "gpu:1");
        assert_eq!(
            DeviceSpec::accelerator(-1).unwrap_err().to_string(),
            "accelerators count from 0, got id -1"
        );
    }
}
