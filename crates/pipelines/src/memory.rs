//! How much memory a model will take, and how much there is, before anything is loaded.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::memory_plan::Fitting;

/// Bytes that a model, its cache and one step need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Packed weights, and those used as stored.
    pub weights: u64,
    /// The KV cache.
    pub cache: u64,
    /// Bytes that this process may still take.
    pub available: u64,
}

/// A model that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfMemory {
    /// Not even the weights fit.
    #[error("the weights need {} and {} of memory is free: take a smaller model or a smaller quantization", Bytes(*weights), Bytes(*available))]
    Weights {
        /// Bytes of weights.
        weights: u64,
        /// Bytes free.
        available: u64,
    },
    /// The weights fit and the cache does not.
    #[error(
        "{}, and {} of memory is free: ask for fewer tokens or fewer sequences at once",
        needs(*weights, *cache, *tokens), Bytes(*available)
    )]
    Cache {
        /// Bytes of weights; 0 where they are loaded already.
        weights: u64,
        /// Bytes of cache.
        cache: u64,
        /// Tokens the cache was to hold.
        tokens: usize,
        /// Bytes free.
        available: u64,
    },
    /// The weights fit and leave nothing for a cache.
    #[error(
        "the weights need {}, and leave no room for a cache in the {} of {} free that may be used: raise gpu_memory_utilization, or take a smaller model or a smaller quantization",
        Bytes(*weights), Bytes(*usable), Bytes(*available)
    )]
    NoRoom {
        /// Bytes of weights.
        weights: u64,
        /// Bytes that may be used.
        usable: u64,
        /// Bytes free.
        available: u64,
    },
    /// A configuration asks for more than fits.
    #[error(
        "the weights need {} and the cache for {batch} {} of {length} tokens {}, but {} of the {} free may be used: {fitting}",
        Bytes(*weights), if *batch == 1 { "sequence" } else { "sequences" }, Bytes(*cache), Bytes(*usable), Bytes(*available)
    )]
    Settings {
        /// Bytes of weights.
        weights: u64,
        /// Bytes of cache.
        cache: u64,
        /// Tokens of a sequence.
        length: usize,
        /// Sequences at once.
        batch: usize,
        /// Bytes that may be used.
        usable: u64,
        /// Bytes free.
        available: u64,
        /// What would fit.
        fitting: Fitting,
    },
}

impl MemoryNeed {
    /// Says no where the need exceeds what is available.
    ///
    /// # Errors
    /// With the numbers, and what to change.
    pub fn check(&self, tokens: usize) -> Result<(), OutOfMemory> {
        let MemoryNeed { weights, cache, available } = *self;
        if weights > available {
            return Err(OutOfMemory::Weights { weights, available });
        }
        if cache > available - weights {
            return Err(OutOfMemory::Cache { weights, cache, tokens, available });
        }
        Ok(())
    }
}

/// Bytes that this process may still take: what the machine has available, or less where a control group
/// (a container) limits it. `None` where the system does not say.
pub fn available() -> Option<u64> {
    let machine = machine_available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(group_folders(&groups).iter().filter_map(|folder| group_available(folder)).fold(machine, u64::min))
}

/// Bytes that the control groups around this process (a container) allow it; `None` without a limit.
pub fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = |folder: &PathBuf| fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok();
    group_folders(&groups).iter().filter_map(limit).min()
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn machine_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The folder of the process's control group (version 2) and of each group around it.
fn group_folders(groups: &str) -> Vec<PathBuf> {
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    root.join(path).ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_path_buf).collect()
}

/// What a control group's limit leaves; `None` without a limit.
fn group_available(folder: &Path) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    // Pages of files count as used but are given back under pressure.
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
}

/// What a cache needs, and weights that are not loaded yet.
fn needs(weights: u64, cache: u64, tokens: usize) -> String {
    match weights {
        0 => format!("the cache for {tokens} tokens needs {}", Bytes(cache)),
        _ => format!("the weights need {}, the cache for {tokens} tokens {}", Bytes(weights), Bytes(cache)),
    }
}

/// A number of bytes in words, such as `1.46 GiB`.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"];
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while size >= 1024.0 && unit + 1 < units.len() {
            size /= 1024.0;
            unit += 1;
        }
        write!(f, "{size:.2} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_does_not_fit() {
        let need = MemoryNeed { weights: 3 << 30, cache: 2 << 30, available: 4 << 30 };
        assert_eq!(
            need.check(4096).unwrap_err().to_string(),
            "the weights need 3.00 GiB, the cache for 4096 tokens 2.00 GiB, and 4.00 GiB of memory is free: \
             ask for fewer tokens or fewer sequences at once"
        );
        let need = MemoryNeed { weights: 5 << 30, ..need };
        assert!(need.check(1).unwrap_err().to_string().starts_with("the weights need 5.00 GiB and 4.00 GiB"));
        let loaded = MemoryNeed { weights: 0, ..need };
        let refusal = MemoryNeed { available: 1 << 30, ..loaded }.check(1).unwrap_err().to_string();
        assert!(refusal.starts_with("the cache for 1 tokens needs "), "{refusal}");
        assert!(MemoryNeed { available: 7 << 30, ..need }.check(1).is_ok());
    }

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(machine_available("MemTotal: 9 kB\nMemAvailable:   24012 kB\n"), Some(24012 * 1024));
        assert_eq!(machine_available("MemTotal: 9 kB\n"), None);
        let folders = group_folders("1:cpu:/x\n0::/user/app\n");
        let expected = ["/sys/fs/cgroup/user/app", "/sys/fs/cgroup/user", "/sys/fs/cgroup"];
        assert_eq!(folders, expected.map(PathBuf::from));
        assert_eq!(group_folders("0::/"), [PathBuf::from("/sys/fs/cgroup")]);
        assert!(group_folders("1:cpu:/x\n").is_empty());
    }
}
