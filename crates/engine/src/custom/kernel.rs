//! Ops of libraries as kernels, on any device whose memory is the host's.

use std::sync::Arc;

use extensions::{Argument, Array, ArrayMut, Guards, ParameterKind};
use graph::ops::{Attribute, Attributes};
use graph::{Op, Type};
use tensor::{Bytes, DeviceSpec, MappedFile, Tensor};

use super::Extensions;
use crate::host::DeviceStats;
use crate::{
    AssertLevel, Device, Error, Kernel, KernelCall, NodeTypes, Operand, PackError, PackedWeight, Target,
};

/// What stands between a device's target and the extensions that a plan needs.
const WITH: &str = " with ";

impl Extensions {
    /// A device that runs these ops too; itself if there are none.
    pub(crate) fn on(&self, device: &Arc<dyn Device>, assert_level: AssertLevel) -> Arc<dyn Device> {
        let device = Arc::clone(device);
        if self.libraries.is_empty() {
            return device;
        }
        Arc::new(Extended { device, extensions: self.clone(), assert_level })
    }
}

/// A device that also runs the ops of libraries.
struct Extended {
    device: Arc<dyn Device>,
    extensions: Extensions,
    assert_level: AssertLevel,
}

impl Device for Extended {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn spec(&self) -> DeviceSpec {
        self.device.spec()
    }

    fn api(&self) -> &str {
        self.device.api()
    }

    fn is_compatible(&self) -> bool {
        self.device.is_compatible()
    }

    fn stats(&self) -> Option<DeviceStats> {
        self.device.stats()
    }

    fn model_name(&self) -> String {
        self.device.model_name()
    }

    fn max_single_alloc_size(&self) -> u64 {
        self.device.max_single_alloc_size()
    }

    fn can_access(&self, other: &dyn Device) -> bool {
        self.device.can_access(other)
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.device.synchronize()
    }

    fn architecture_name(&self) -> Result<String, Error> {
        self.device.architecture_name()
    }

    fn target(&self) -> String {
        format!("{}{WITH}{}", self.device.target(), self.extensions.describe())
    }

    fn chosen_target(&self) -> Option<&Target> {
        self.device.chosen_target()
    }

    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        let Op::Custom(custom) = node.op else { return self.device.kernel(node) };
        let op = self.extensions.op(&custom.op)?.clone();
        let arguments = arguments(&op, &custom.parameters);
        let guards = guards(self.assert_level);
        Some(Arc::new(CustomKernel { op, arguments, guards, device: Arc::clone(&self.device) }))
    }

    fn packing(&self, node: &NodeTypes<'_>, position: usize) -> Option<String> {
        match node.op {
            Op::Custom(_) => None,
            _ => self.device.packing(node, position),
        }
    }

    fn pack(&self, layout: &str, weight: &Tensor) -> Result<PackedWeight, PackError> {
        self.device.pack(layout, weight)
    }

    fn packed_bytes(&self, layout: &str, ty: &Type) -> Option<usize> {
        self.device.packed_bytes(layout, ty)
    }

    fn file_of(&self, weight: &PackedWeight) -> Option<Arc<MappedFile>> {
        self.device.file_of(weight)
    }

    fn finish_packing(&self, weight: &PackedWeight) {
        self.device.finish_packing(weight);
    }

    fn save_packed(&self, weight: &PackedWeight) -> Result<Bytes, String> {
        self.device.save_packed(weight)
    }

    fn load_packed(&self, layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
        self.device.load_packed(layout, ty, bytes)
    }

    fn threads(&self) -> usize {
        self.device.threads()
    }

    fn marker(&self) -> Option<&dyn crate::Marker> {
        self.device.marker()
    }

    fn parallel_for(&self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        self.device.parallel_for(chunks, body);
    }
}

/// The target of the device alone, and the names and versions of the extensions that are needed besides: each kind of
/// machine has other libraries of them, of other digests.
pub(crate) fn split_target(target: &str) -> (&str, Vec<&str>) {
    let (device, needed) = target.split_once(WITH).unwrap_or((target, ""));
    let needed = needed.split(", ").filter(|needed| !needed.is_empty());
    (device, needed.map(|needed| needed.rsplit_once(" (").map_or(needed, |(label, _)| label)).collect())
}

/// An op of a library, with its parameters.
struct CustomKernel {
    op: extensions::Op,
    arguments: Vec<(String, Argument)>,
    guards: Guards,
    device: Arc<dyn Device>,
}

impl Kernel for CustomKernel {
    fn name(&self) -> String {
        format!("{}[{}]", self.op.signature().name, self.op.library())
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let mut operands: Vec<extensions::Operand<'_>> = call.inputs.iter_mut().map(lend).collect();
        let results = call.outputs.iter_mut();
        let mut results: Vec<ArrayMut<'_>> = results
            .map(|view| ArrayMut { dtype: view.dtype, shape: *view.shape, bytes: view.bytes })
            .collect();
        let parallel = |chunks: usize, body: &(dyn Fn(usize) + Sync)| self.device.parallel_for(chunks, body);
        self.op.run(&self.arguments, &mut operands, &mut results, &parallel, self.guards)
    }
}

/// Whether to watch what ops write: at the highest level, and in builds for finding faults.
fn guards(level: AssertLevel) -> Guards {
    if cfg!(debug_assertions) || level == AssertLevel::All { Guards::On } else { Guards::Off }
}

fn lend<'m>(operand: &'m mut Operand<'_>) -> extensions::Operand<'m> {
    match operand {
        Operand::View(view) => {
            extensions::Operand::Read(Array { dtype: view.dtype, shape: *view.shape, bytes: view.bytes })
        }
        Operand::Buffer(view) => {
            extensions::Operand::Write(ArrayMut { dtype: view.dtype, shape: *view.shape, bytes: view.bytes })
        }
        Operand::InResult | Operand::Packed(_) => unreachable!("this kernel asks for neither"),
    }
}

/// Parameters as the library wants them: a whole number may stand for a number.
pub(super) fn arguments(op: &extensions::Op, parameters: &Attributes) -> Vec<(String, Argument)> {
    let is_float = |name: &str| {
        let mut declared = op.signature().parameters.iter();
        declared.any(|parameter| parameter.name == name && parameter.kind == ParameterKind::Float)
    };
    let argument = |(name, value): (&str, &Attribute)| {
        let argument = match value {
            Attribute::Bool(value) => Argument::Bool(*value),
            Attribute::Int(value) if is_float(name) => Argument::Float(*value as f64),
            Attribute::Int(value) => Argument::Int(*value),
            Attribute::Float(value) => Argument::Float(*value),
            Attribute::Text(value) => Argument::Text(value.clone()),
            Attribute::DType(value) => Argument::DType(*value),
            Attribute::Ints(values) => Argument::Ints(values.clone()),
            other => unreachable!("checked: {other} is no parameter"),
        };
        (name.to_string(), argument)
    };
    parameters.iter().map(argument).collect()
}
