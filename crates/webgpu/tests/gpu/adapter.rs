//! The adapter that tests run on, and graphs on it.

use std::sync::Arc;

use cpu::Cpu;
use engine::devices::Accelerators;
use engine::{CompileOptions, CompiledModel, Device, InferenceSession, Model, Placement};
use graph::{DeviceRef, Graph};
use perihelion_webgpu::ADAPTERS;
use tensor::{Allocator, Buffer, DeviceSpec, HostAllocator, Tensor};

/// The host of the devices.
pub(crate) fn cpu() -> Arc<dyn Device> {
    Arc::new(Cpu::new(1))
}

fn is_there() -> bool {
    testdata::has_gpu((ADAPTERS.count() == 0).then(|| ADAPTERS.absence()))
}

/// Opens the first adapter, if there is one.
pub(crate) fn adapter() -> Option<Arc<dyn Device>> {
    is_there().then(|| ADAPTERS.open(0, cpu()).unwrap())
}

/// Opens the first adapter, if there is one, with the least limits that any has.
pub(crate) fn least_adapter() -> Option<Arc<dyn Device>> {
    is_there().then(|| ADAPTERS.open_with_least_limits(0, cpu()).unwrap())
}

/// Has all nodes run on the adapter that have kernels there.
pub(crate) fn on_adapter() -> CompileOptions {
    let placement = Placement::On(DeviceSpec::accelerator(0).expect("a number"));
    CompileOptions { placement, ..CompileOptions::default() }
}

/// Whether the host computes nothing of a model that the adapter should.
pub(crate) fn is_there_alone(compiled: &CompiledModel) -> bool {
    !compiled.to_string().contains("(host: ")
}

/// Compiles a graph of which the host computes nothing.
pub(crate) fn compile_there(session: &InferenceSession, graph: &Graph) -> CompiledModel {
    let compiled = session.compile_with(graph, &on_adapter()).unwrap();
    assert!(is_there_alone(&compiled), "{compiled}");
    compiled
}

/// Brings a value to the host or the adapter.
pub(crate) fn brought(value: &Tensor, place: DeviceRef, device: &dyn Device) -> Buffer {
    let allocator: &dyn Allocator = match place {
        DeviceRef::Cpu => &HostAllocator,
        DeviceRef::Gpu(_) => device.allocator(),
    };
    Buffer::from_tensor(value).to(allocator).unwrap()
}

/// Where a result differs from the CPU's in a bit, if it does. One NaN is as good as another.
pub(crate) fn difference(got: &Tensor, expected: &Tensor) -> Option<String> {
    if got.bytes() == expected.bytes() {
        return None;
    }
    let pairs = got.to_f64_vec().into_iter().zip(expected.to_f64_vec()).enumerate();
    let others = pairs.filter(|(_, (got, expected))| {
        got.to_bits() != expected.to_bits() && !(got.is_nan() && expected.is_nan())
    });
    let others: Vec<(usize, (f64, f64))> = others.collect();
    let (i, (got, expected)) = others.first()?;
    Some(format!("{} elements differ: [{i}] is {got:e}, the CPU has {expected:e}", others.len()))
}

/// Brings inputs to where a model wants them.
pub(crate) fn placed(model: &Model, inputs: &[Tensor], device: &dyn Device) -> Vec<Buffer> {
    let places = model.input_devices();
    inputs.iter().zip(places).map(|(input, place)| brought(input, place, device)).collect()
}
