//! Weights whose packed form finds no memory are refused; the process goes on.
#![cfg(target_os = "linux")]

use std::process::Command;

use engine::{Device, PackError};
use perihelion_cpu::Cpu;
use tensor::{DType, Tensor};

/// Says that a process is the one that [`limited`] starts.
const CHILD: &str = "PERIHELION_TEST_LIMITED";

/// Runs the body in a process of its own, which runs the test of this name alone.
fn limited(test: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test]).env(CHILD, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{output:?}");
}

/// Lets this process map no more than 16 MiB beyond what it has.
fn limit_memory() {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: asks for a number.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let bytes = pages * page_size + (16 << 20);
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit lives until the call returns.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Packing 64 MiB ends with an error that names the memory asked for.
fn check(layout: &str, weight: &Tensor) {
    let cpu = Cpu::new(1);
    limit_memory();
    let error = cpu.pack(layout, weight).err().expect("there is not that much memory");
    assert!(matches!(error, PackError::OutOfMemory { bytes } if bytes >= 64 << 20), "{error}");
}

#[test]
fn filters_are_refused() {
    limited("filters_are_refused", || {
        check("filter.left.16.fcrs.1", &Tensor::zeros(DType::F32, [64, 64, 64, 64]));
    });
}

#[test]
fn views_to_copy_are_refused() {
    limited("views_to_copy_are_refused", || {
        check("panel16.f32", &Tensor::zeros(DType::F32, [4096, 4096]).permute(&[1, 0]));
    });
}

#[test]
fn experts_of_another_dtype_are_refused() {
    limited("experts_of_another_dtype_are_refused", || {
        check("panel16.bf16", &Tensor::zeros(DType::F8E4M3, [8, 2048, 4096]));
    });
}
