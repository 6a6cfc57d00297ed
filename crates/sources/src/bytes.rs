//! Numbers of bytes in words.

use std::fmt;

/// A number of bytes in words, such as `1.46 GiB`.
#[derive(Debug, Clone, Copy)]
pub struct MemoryBytes(pub u64);

impl fmt::Display for MemoryBytes {
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
    fn bytes_have_the_largest_unit_that_fits() {
        let shown = [0, 1 << 10, 3 << 29, 1 << 50].map(|bytes| MemoryBytes(bytes).to_string());
        assert_eq!(shown, ["0.00 KiB", "1.00 KiB", "1.50 GiB", "1024.00 TiB"]);
    }
}
