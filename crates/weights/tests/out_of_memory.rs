//! Records that find no memory once they are decompressed are refused; the process goes on.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

use perihelion_weights::{Error, Weights};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// The file to read, in a process of its own with 120 MB of addresses.
const CHILD: &str = "PERIHELION_TEST_LIMITED";

#[test]
fn records_beyond_the_memory_are_refused() {
    if let Some(path) = std::env::var_os(CHILD) {
        let error = Weights::open(Path::new(&path)).expect_err("there is not that much memory");
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        return assert!(
            error.to_string().contains("the system refused 134217728 bytes of memory"),
            "{error}"
        );
    }
    let path = std::env::temp_dir().join(format!("perihelion-out-of-memory-{}.bin", std::process::id()));
    // Files may decompress to eight times their size.
    write_archive(&path, 128 << 20, 20 << 20);
    let script = "ulimit -v 120000; exec \"$0\" --exact records_beyond_the_memory_are_refused";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap());
    let output = command.env(CHILD, &path).env("MALLOC_ARENA_MAX", "1").output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{output:?}");
}

/// An archive with a compressed pickle of zeros, and a record that is not.
fn write_archive(path: &Path, inflated: usize, stored: usize) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let records = [
        ("archive/data.pkl", inflated, CompressionMethod::Deflated),
        ("archive/data/0", stored, CompressionMethod::Stored),
    ];
    for (name, size, method) in records {
        zip.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(&vec![0; size]).unwrap();
    }
    zip.finish().unwrap();
}
