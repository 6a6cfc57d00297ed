//! Convolutions as kernels of the device.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Call, Kernel, NodeTypes, Operand, PackError, PackedWeight, View};
use graph::Type;
use graph::ops::{self, FilterLayout, ImageLayout};
use tensor::{AlignedBytes, Bytes, DType, Tensor};

use super::{Cpu, kernel};
use crate::Pool;
use crate::kernels::conv::{
    self as kernels, Conv, DEPTHWISE_VARIANTS, Depthwise, DepthwiseKernel, FilterForm, Geometry,
    PackedFilter, Side,
};
use crate::kernels::floats::{self, is_float};
use crate::kernels::matmul;
use crate::kernels::operands::view;
use crate::kernels::variant::Variant;

/// A convolution of f32, or of halves by way of f32.
pub(super) fn conv(cpu: &Cpu, op: &ops::Conv, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let (variant, depthwise) = (cpu.pick(matmul::VARIANTS), cpu.pick(DEPTHWISE_VARIANTS));
    let (op, form, pool) = (op.clone(), form(cpu, op), Arc::clone(&cpu.pool));
    if is_float(dtype) { kernel(ConvKernel { op, form, dtype, variant, depthwise, pool }) } else { None }
}

/// The layout of the filter of a convolution.
pub(super) fn packing(cpu: &Cpu, op: &ops::Conv, node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let (filter, layout) = (node.inputs[position], op.filter_layout);
    if position != 1 || !is_float(filter.dtype) {
        return None;
    }
    let size = |axis: usize| filter.shape[axis].as_static();
    let (channels, results) = (layout.channel_axis(filter.rank()), layout.result_axis(filter.rank()));
    let depthwise = op.groups > 1 && size(channels) == Some(1) && size(results) == Some(op.groups);
    (!depthwise).then(|| form(cpu, op).to_string())
}

/// Brings a filter into panels.
pub(super) fn pack(layout: &str, filter: &Tensor) -> Result<PackedWeight, PackError> {
    let packed = PackedFilter::pack(layout.parse::<FilterForm>()?, filter)?;
    Ok(PackedWeight { layout: layout.to_string(), bytes: packed.bytes(), data: Arc::new(packed) })
}

/// The panels of a filter.
pub(super) fn save(weight: &PackedWeight) -> Result<Bytes, String> {
    let filter: &PackedFilter =
        weight.data.downcast_ref().ok_or_else(|| format!("{} is not a layout of the CPU", weight.layout))?;
    Ok(filter.saved().clone())
}

/// A filter of saved panels, used where they lie.
pub(super) fn load(layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let filter = PackedFilter::from_panels(layout.parse()?, &shape, bytes)?;
    Ok(PackedWeight { layout: layout.to_string(), bytes: filter.bytes(), data: Arc::new(filter) })
}

fn form(cpu: &Cpu, op: &ops::Conv) -> FilterForm {
    let (rows, columns) = matmul::tile_size(cpu.pick(matmul::VARIANTS).name);
    let (side, width) = match op.layout {
        ImageLayout::ChannelsLast => (Side::Right, columns),
        ImageLayout::ChannelsFirst => (Side::Left, rows),
    };
    FilterForm { side, width, stored: op.filter_layout, groups: op.groups }
}

struct ConvKernel {
    op: ops::Conv,
    form: FilterForm,
    dtype: DType,
    variant: &'static Variant<matmul::Kernel>,
    depthwise: &'static Variant<DepthwiseKernel>,
    pool: Arc<Pool>,
}

impl Kernel for ConvKernel {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.op.clone()).name(), self.dtype, self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (shape, x) = (x.shape, floats::read(x));
        let bias = (call.inputs.len() > 2).then(|| floats::read(view(&call, 2)));
        let result = &mut call.outputs[0];
        let filter = match &call.inputs[1] {
            Operand::Packed(packed) => match packed.data.downcast_ref::<PackedFilter>() {
                Some(filter) => Cow::Borrowed(filter),
                None => panic!("a filter in the layout {}, which is not the CPU's", packed.layout),
            },
            Operand::View(filter) => {
                let window = self.op.filter_layout.spatial(&filter.shape);
                let geometry = Geometry::new(&self.op, &shape, window, &result.shape);
                if geometry.is_depthwise() {
                    let filter = self.taps(&geometry, *filter);
                    let (geometry, bias) = (&geometry, bias.as_deref());
                    let conv = Depthwise { geometry, x: &x, filter: &filter, bias };
                    floats::write(result, |out| kernels::depthwise(self.depthwise, &self.pool, &conv, out));
                    return Ok(());
                }
                Cow::Owned(PackedFilter::pack(self.form, &tensor(*filter)?)?)
            }
            Operand::InResult | Operand::Buffer(_) => panic!("a filter is a value to read"),
        };
        let geometry = &Geometry::new(&self.op, &shape, filter.window(), &result.shape);
        let conv = Conv { geometry, x: &x, filter: &filter, bias: bias.as_deref() };
        floats::write(result, |out| kernels::conv(self.variant, &self.pool, &conv, out));
        Ok(())
    }
}

impl ConvKernel {
    /// The filters of single channels, in the order that the layout of the images asks for.
    fn taps<'m>(&self, geometry: &Geometry, filter: View<'m>) -> Cow<'m, [f32]> {
        let values = floats::read(filter);
        let (rows, columns) = match self.op.filter_layout {
            FilterLayout::Rscf => (geometry.taps(), geometry.groups),
            FilterLayout::Fcrs => (geometry.groups, geometry.taps()),
        };
        if geometry.channels_last == (self.op.filter_layout == FilterLayout::Rscf) {
            return values;
        }
        Cow::Owned((0..columns * rows).map(|i| values[i % rows * columns + i / rows]).collect())
    }
}

/// A copy of an operand.
fn tensor(view: View<'_>) -> Result<Tensor, String> {
    let bytes = AlignedBytes::try_copy_of(view.bytes).map_err(|error| error.to_string())?;
    let bytes = Bytes::new(bytes);
    Tensor::from_bytes(view.dtype, view.shape, bytes).map_err(|error| error.to_string())
}
