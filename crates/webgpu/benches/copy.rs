//! Copies memory of the first GPU to other memory there: bytes read and written per second, the best of some runs.
//!
//! `cargo bench -p perihelion-webgpu --bench copy -- [BYTES]`; 4 GB by default, in pieces as large as the adapter allows.

use std::sync::Arc;
use std::time::Instant;

use cpu::Cpu;
use engine::Device;
use engine::devices::Accelerators;
use perihelion_webgpu::ADAPTERS;
use tensor::{Allocation, FarMemory};

/// Bytes to copy by default: far more than the caches of any GPU hold.
const BYTES: usize = 4_000_000_000;
const RUNS: usize = 10;

fn main() {
    let bytes = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(BYTES);
    assert!(ADAPTERS.count() > 0, "{}", ADAPTERS.absence());
    let device = ADAPTERS.open(0, Arc::new(Cpu::new(1))).expect("the first adapter opens");
    let driver = device.architecture_name().expect("adapters have a driver");
    let largest = device.max_single_alloc_size();
    println!("{}, {driver}, buffers of up to {:.2} GB", device.model_name(), largest as f64 / 1e9);
    // Ranges of copies are whole words.
    let piece = (largest as usize).min(bytes) / 4 * 4;
    let sizes = (0..bytes).step_by(piece).map(|start| piece.min(bytes - start));
    let pairs: Vec<_> = sizes.map(|size| [memory(&*device, size), memory(&*device, size)]).collect();
    copy(&*device, &pairs); // The first run fills the memory with zeros.
    let best = (0..RUNS).map(|_| copy(&*device, &pairs)).fold(f64::INFINITY, f64::min);
    println!("copy of {:.2} GB: {:.1} GB/s read and written", bytes as f64 / 1e9, 2e-9 * bytes as f64 / best);
}

fn memory(device: &dyn Device, bytes: usize) -> Arc<dyn FarMemory> {
    match device.allocator().allocate(bytes).expect("memory for the copy; give fewer bytes") {
        Allocation::Far(memory) => memory,
        Allocation::Host(_) => unreachable!("adapters have memory of their own"),
    }
}

/// Copies the first memory of each pair to the second; gives the seconds until all is done.
fn copy(device: &dyn Device, pairs: &[[Arc<dyn FarMemory>; 2]]) -> f64 {
    device.synchronize().expect("the device works");
    let start = Instant::now();
    for [from, to] in pairs {
        to.copy(&**from, &[[0, 0, from.len()]]).expect("the device copies");
    }
    device.synchronize().expect("the device works");
    start.elapsed().as_secs_f64()
}
