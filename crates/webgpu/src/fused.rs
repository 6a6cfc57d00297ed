//! The functions `fused` and `fused_4` of shaders, `a * b + c` rounded once: the builtin `fma` if the adapter rounds it once,
//! else exact software in f64, if the adapter has f64.
//!
//! WGSL lets `fma` round twice, and lavapipe does. A last bit of a sum then rounds an input of the next layer to another code.

use std::sync::Arc;

use engine::{FarBytes, Segment};
use tensor::{DType, Error, FarMemory};

use crate::gpu::{DOUBLES, Gpu};
use crate::memory::WebGpuAllocator;
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// For adapters that round `fma` once, or have no f64.
const BUILTIN: &str = "
fn fused(a: f32, b: f32, c: f32) -> f32 { return fma(a, b, c); }
fn fused_4(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>) -> vec4<f32> { return fma(a, b, c); }
";
/// For adapters that round `fma` twice.
const EXACT: &str = include_str!("kernels/fused.wgsl");

/// A shader that writes the builtin sums of triples.
const PROBE: &str = "
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) i: u32) { set_y(i, fma(x(3u * i), x(3u * i + 1u), x(3u * i + 2u))); }
";

/// The text of the functions for an adapter, which computes some sums to find out whether it rounds once.
///
/// # Errors
/// If the adapter cannot compute.
pub(crate) fn functions(gpu: &Arc<Gpu>) -> Result<&'static str, Error> {
    // Products less what they are rounded to: 0 if they are rounded.
    let factors = [[1.1f32, 1.3], [1.0 + f32::EPSILON, 1.0 + f32::EPSILON], [0.3, -7e9], [1e-9, 3e5]];
    let triples = factors.map(|[a, b]| [a, b, -(a * b)]);
    let sums = triples.map(|[a, b, c]| a.mul_add(b, c));
    let rounds_once = sums_of(gpu, triples.as_flattened(), sums.len())? == words(&sums);
    let has_doubles = gpu.device.features().contains(DOUBLES);
    Ok(if rounds_once || !has_doubles { BUILTIN } else { EXACT })
}

/// What the adapter's `fma` gives for triples.
fn sums_of(gpu: &Arc<Gpu>, triples: &[f32], count: usize) -> Result<Vec<u8>, Error> {
    let allocator = WebGpuAllocator(Arc::clone(gpu));
    let (input, output) = (words(triples), vec![0; 4 * count]);
    let place = |bytes: &[u8]| {
        let memory = allocator.memory(bytes.len())?;
        memory.write(&[(0, bytes)])?;
        Ok(FarBytes { memory: Arc::new(memory), start: 0, len: bytes.len() })
    };
    let (x, y) = (place(&input)?, place(&output)?);
    let bindings = [("x", DType::F32, Access::Memory), ("y", DType::F32, Access::Memory)];
    let shader = Shader::new("fused.probe", &bindings, &[], &[], PROBE);
    let mut recorder = Recorder::new(gpu);
    let recorded = recorder.dispatch(&shader, &[Place::Memory(&x), Place::Memory(&y)], &[], 1, 1);
    recorded.map_err(Error::Device)?;
    let launched = recorder.finish().and_then(|recording| recording.launch());
    launched.map_err(|error| Error::Device(error.to_string()))?;
    let mut sums = output;
    y.memory.read(0, &mut sums)?;
    Ok(sums)
}

fn words(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}
