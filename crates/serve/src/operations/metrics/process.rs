//! Figures of the process, under the names that all clients of Prometheus use. They come from `/proc`, so there are none
//! on other systems than Linux.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Linux counts times of processes in hundredths of a second, on all its processors.
const TICKS: f64 = 100.0;
const KIB: f64 = 1024.0;

/// Appends the families that are known.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{file}")).unwrap_or_default();
    let (stat, status, limits) = (read("self/stat"), read("self/status"), read("self/limits"));
    if let Some(seconds) = cpu_seconds(&stat) {
        let (name, help) = ("process_cpu_seconds", "Time that processors worked for the process");
        ConstCounter::new(seconds).encode(encoder.encode_descriptor(
            name,
            help,
            None,
            MetricType::Counter,
        )?)?;
    }
    // The folder is open while its files are counted.
    let open = std::fs::read_dir("/proc/self/fd").map(|files| files.count().saturating_sub(1) as f64);
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory that the process holds", memory(&status, "VmRSS:")),
        ("process_virtual_memory_bytes", "Addresses that the process uses", memory(&status, "VmSize:")),
        ("process_open_fds", "Open files and connections", open.ok()),
        ("process_max_fds", "Most open files and connections", max_files(&limits)),
        ("process_start_time_seconds", "Start, in seconds since 1970", start_time(&stat, &read("stat"))),
    ] {
        if let Some(value) = value {
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)?;
        }
    }
    Ok(())
}

/// A field of `/proc/self/stat` by its number in the manual. The second, a name, may have blanks and brackets.
fn field(stat: &str, number: usize) -> Option<f64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(number - 3)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS)
}

/// When the system started, and how long after that the process did.
fn start_time(stat: &str, system: &str) -> Option<f64> {
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    Some(boot + field(stat, 22)? / TICKS)
}

fn memory(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * KIB)
}

fn max_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_files_of_the_system() {
        let stat =
            "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 1000 200 18446744073709551615";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(start_time(stat, "cpu 1 2\nbtime 1000\n"), Some(1123.45));
        assert_eq!(memory("Name:\tperi\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2048.0 * 1024.0));
        let limits =
            |soft: &str| format!("Limit  Soft Limit  Hard Limit\nMax open files   {soft}   4096  files\n");
        assert_eq!(max_files(&limits("1024")), Some(1024.0));
        assert_eq!(max_files(&limits("unlimited")), Some(f64::INFINITY));
        assert_eq!((cpu_seconds(""), start_time("", ""), memory("", "VmRSS:")), (None, None, None));
    }
}
