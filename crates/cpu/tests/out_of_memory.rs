//! Weights whose packed form finds no memory are refused, and so are calls; the process goes on.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::sync::Arc;

use engine::{Device, InferenceSession, PackError};
use graph::Graph;
use perihelion_cpu::Cpu;
use tensor::{Buffer, DType, Tensor};

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

/// Lets this process map no more than some MiB beyond what it has.
///
/// An allocator may hold up to 64 MiB in reserve, so an allocation that must fail is larger by that much.
fn limit_memory(mebibytes: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: asks for a number.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let bytes = pages * page_size + (mebibytes << 20);
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit lives until the call returns.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Packing 64 MiB ends with an error that names the memory asked for.
fn check(layout: &str, weight: &Tensor) {
    let cpu = Cpu::new(1);
    limit_memory(16);
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
fn weights_to_round_to_8_bits_are_refused() {
    limited("weights_to_round_to_8_bits_are_refused", || {
        check("panel16.bf16.scaled_f8e4m3", &Tensor::zeros(DType::F32, [4096, 4096]));
    });
}

#[test]
fn weights_of_gptq_are_refused() {
    limited("weights_of_gptq_are_refused", || {
        check("gptq.128", &Tensor::zeros(DType::U8, [66 * 128, 8192]));
    });
}

/// Executes a graph that needs more memory than there is for what is not in its plan.
fn check_call(text: &str, x: &Tensor, mebibytes: u64) {
    let session = InferenceSession::new([Arc::new(Cpu::new(1)) as Arc<dyn Device>]).unwrap();
    let model = session.load(&Graph::parse(text).unwrap(), &()).unwrap();
    let x = Buffer::from_tensor(x);
    limit_memory(mebibytes);
    let error = model.execute(&[x]).map(drop).unwrap_err().to_string();
    assert!(error.contains("the system refused ") && error.contains(" bytes of memory"), "{error}");
}

#[test]
fn operands_to_widen_are_refused() {
    limited("operands_to_widen_are_refused", || {
        let text = "graph g(%x: f16[1, 4096, 4096, 1]) {
            %y = max_pool2d(%x) {window = [2048, 2048], strides = [2048, 2048]} return %y }";
        check_call(text, &Tensor::zeros(DType::F16, [1, 4096, 4096, 1]), 16);
    });
}

#[test]
fn keys_to_sort_are_refused() {
    limited("keys_to_sort_are_refused", || {
        // The result takes 128 MiB, the keys take 256 MiB.
        let text = "graph g(%x: u8[16777216]) { %y = argsort(%x) {axis = 0} return %y }";
        check_call(text, &Tensor::zeros(DType::U8, [1 << 24]), 160);
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
