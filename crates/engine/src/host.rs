//! The processor and memory of the host.

/// The memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// What can be had without pressing others out.
    pub free_memory: u64,
    /// All there is.
    pub total_memory: u64,
}

impl DeviceStats {
    /// So much memory, of which so much is free.
    pub const fn new(free_memory: u64, total_memory: u64) -> DeviceStats {
        DeviceStats { free_memory, total_memory }
    }
}

/// The memory of the host, where the system tells it.
#[cfg(target_os = "linux")]
pub fn host_stats() -> Option<DeviceStats> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The memory of the host, where the system tells it.
#[cfg(not(target_os = "linux"))]
pub fn host_stats() -> Option<DeviceStats> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory_specifics(sysinfo::MemoryRefreshKind::nothing().with_ram());
    let total_memory = system.total_memory();
    // On macOS, `available_memory` would count memory that programs are using.
    let free_memory = total_memory.saturating_sub(system.used_memory());
    (total_memory > 0).then_some(DeviceStats { free_memory, total_memory })
}

/// The name of the processor, if the system knows it.
pub(crate) fn processor_name() -> Option<String> {
    parse_cpuinfo(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn parse_cpuinfo(text: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut names = lines.filter(|(key, _)| key.trim() == "model name").map(|(_, name)| name.trim());
    names.find(|name| !name.is_empty()).map(str::to_string)
}

#[cfg(target_os = "linux")]
fn parse_meminfo(text: &str) -> Option<DeviceStats> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(DeviceStats { free_memory: bytes("MemAvailable")?, total_memory: bytes("MemTotal")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_host_is_known() {
        let stats = host_stats().unwrap();
        assert!(0 < stats.free_memory && stats.free_memory <= stats.total_memory, "{stats:?}");
    }

    #[test]
    fn the_first_processor_names_them_all() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2:1\n\nprocessor\t: 1\nmodel name\t: Other\n";
        assert_eq!(parse_cpuinfo(text).as_deref(), Some("Some CPU @ 2:1"));
        assert_eq!(parse_cpuinfo("model name\t: \nBogoMIPS\t: 50.00"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn damaged_meminfo_says_nothing() {
        let text = "MemTotal:       16 kB\nMemFree:  1 kB\nMemAvailable:    8 kB\n";
        assert_eq!(parse_meminfo(text), Some(DeviceStats { free_memory: 8192, total_memory: 16384 }));
        assert_eq!(parse_meminfo("MemTotal: much kB"), None);
    }
}
