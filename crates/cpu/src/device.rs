//! The CPU as a device: which kernel computes which op.

use std::sync::Arc;

use engine::{Device, Kernel, Marker, NodeTypes, PackError, PackedWeight, Target};
use graph::{Op, Type};
use tensor::{Bytes, MappedFile, Tensor};

use crate::kernels::linear::{self, PackedMatrix, weights};
use crate::kernels::matmul::{self, attention};
use crate::kernels::non_maximum_suppression::NonMaximumSuppressionKernel;
use crate::kernels::{
    arg_reduce, arg_sort, attention as paged_attention, axis_maps, band_part, binary, causal_conv, concat,
    conv, conv_transpose, convert, copy, cumsum, dequantize, embedding, fold, fourier, fp8, gated_delta_rule,
    gather, generate, gptq, group_norm, kv_cache, log_softmax, masked, norm, pool2d, program, ragged, reduce,
    region, resize, roi_align, rope, scatter, select, selective_scan, slice, softmax, top_k, top_positions,
    transpose, unary,
};
use crate::nvtx::Nvtx;
use crate::targets::{self, ChosenTarget, PlannedKernel};
use crate::{Cpu, InstructionSet};

impl Device for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn is_compatible(&self) -> bool {
        self.is_here()
    }

    fn target(&self) -> String {
        self.compiles_for().to_string()
    }

    fn runs_target(&self, target: &str) -> bool {
        target.parse().is_ok_and(|target| targets::covers(&self.compiles_for(), &target))
    }

    fn targets(&self) -> Vec<Target> {
        targets::all()
    }

    fn for_target(&self, target: &Target) -> Option<Arc<dyn Device>> {
        if !targets::all().contains(target) {
            return None;
        }
        let is_here = self.is_here() && targets::covers(&self.compiles_for(), target);
        let limit = if is_here { targets::limit(target) } else { InstructionSet::Portable };
        let chosen = Some(ChosenTarget { target: target.clone(), is_here });
        Some(Arc::new(Cpu { pool: Arc::clone(&self.pool), limit, chosen }))
    }

    fn chosen_target(&self) -> Option<&Target> {
        self.chosen.as_ref().map(|chosen| &chosen.target)
    }

    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        if let Some(ChosenTarget { target, is_here: false }) = &self.chosen {
            let here = Cpu { pool: Arc::clone(&self.pool), limit: self.limit, chosen: None };
            let target = target.clone();
            return here.kernel(node).and_then(|planned| kernel(PlannedKernel { kernel: planned, target }));
        }
        let pool = || Arc::clone(&self.pool);
        let dtype = node.inputs.first().or(node.outputs.first()).map(|ty| ty.dtype)?;
        match node.op {
            // Values, which plans hold rather than compute; what the engine does itself; what libraries compute.
            Op::Constant(_) | Op::Weight(_) | Op::Print(_) | Op::Custom(_) => None,
            Op::Unary(function) => Some(unary::kernel(self, *function, dtype)?),
            Op::Binary(function) => Some(binary::kernel(self, *function, dtype, like_result(node).next())?),
            Op::Select(_) => {
                // The condition of a selection among truth values has their type too.
                let in_place = like_result(node).find(|&position| position > 0);
                let width = node.outputs[0].dtype.block().bytes;
                kernel(select::SelectKernel { in_place, width, pool: pool() })
            }
            // The reference packs floats of less than a byte.
            Op::Cast(cast) if cast.to.is_sub_byte() => None,
            Op::Cast(cast) => kernel(convert::CastKernel { from: dtype, to: cast.to, pool: pool() }),
            Op::Elementwise(op) => program::kernel(self, op, node.inputs, like_result(node).next()),
            Op::Reduce(op) => reduce::kernel(self, op.kind, op.axis, dtype),
            Op::ArgReduce(op) => arg_reduce::kernel(self, op.kind, op.axis, dtype),
            Op::Softmax(op) => softmax::kernel_for(self, op.axis, node),
            Op::LayerNorm(norm) => norm::layer_kernel(self, norm.eps),
            Op::RmsNorm(norm) => norm::rms_kernel(self, norm.eps),
            Op::MatMul(_) => matmul::kernel_for(self, dtype),
            Op::SplitMatMul(op) => matmul::split_kernel(self, dtype, op.chunk),
            Op::Attention(op) => attention::attention_kernel(self, op.scale, false),
            Op::Linear(op) => linear::kernel_for(self, op, node),
            Op::ExpertLinear(op) => linear::expert_kernel(self, *op, node),
            Op::Fp8Product(op) => fp8::product(self, *op),
            Op::Gather(op) => kernel(gather::GatherKernel { axis: op.axis, pool: pool() }),
            Op::Embedding(_) => kernel(embedding::EmbeddingKernel { dtype, pool: pool() }),
            Op::Concat(op) => kernel(concat::ConcatKernel { axis: op.axis, pool: pool() }),
            Op::Split(op) => kernel(slice::SplitKernel { axis: op.axis, pool: pool() }),
            Op::Slice(slice) => kernel(slice::SliceKernel { slice: *slice, pool: pool() }),
            Op::Reshape(_) => kernel(copy::CopyKernel { op: "reshape", in_place: true, pool: pool() }),
            Op::Transpose(op) => kernel(transpose::TransposeKernel { order: op.order.clone(), pool: pool() }),
            Op::Broadcast(_) => kernel(transpose::BroadcastKernel { pool: pool() }),
            Op::TopK(op) => top_k::kernel(self, *op, dtype, node.settings.top_k),
            Op::ArgSort(op) => arg_sort::kernel(*op, dtype, &self.pool),
            Op::CumSum(op) => cumsum::kernel(*op, dtype, &self.pool),
            Op::Pad(op) => kernel(axis_maps::PadKernel { op: op.clone(), pool: pool() }),
            Op::Tile(_) => kernel(axis_maps::TileKernel { pool: pool() }),
            Op::RepeatInterleave(op) => {
                kernel(axis_maps::RepeatInterleaveKernel { op: op.clone(), pool: pool() })
            }
            Op::Flip(op) => kernel(axis_maps::FlipKernel { op: op.clone(), pool: pool() }),
            Op::BandPart(op) => kernel(band_part::BandPartKernel { op: *op, pool: pool() }),
            Op::GatherNd(op) => kernel(scatter::GatherNdKernel { batch_dims: op.batch_dims, pool: pool() }),
            Op::Scatter(op) => {
                scatter::kernel(node.op.name(), op.kind, scatter::Place::Axis(op.axis), dtype, &self.pool)
            }
            Op::ScatterNd(op) => {
                scatter::kernel(node.op.name(), op.kind, scatter::Place::Tuples, dtype, &self.pool)
            }
            Op::MaskedScatter(op) => kernel(masked::MaskedScatterKernel { op: op.clone(), pool: pool() }),
            Op::NonZero(op) => masked::nonzero(op, dtype, &self.pool),
            Op::Range(op) => generate::range(op, dtype, &self.pool),
            Op::Random(op) => kernel(generate::RandomKernel { op: op.clone(), pool: pool() }),
            Op::DynamicSlice(op) => kernel(region::DynamicSliceKernel { op: op.clone(), pool: pool() }),
            Op::CreateBuffer(_) => kernel(copy::ZerosKernel { pool: pool() }),
            Op::Load(_) => kernel(copy::CopyKernel { op: "load", in_place: false, pool: pool() }),
            Op::Store(_) => kernel(copy::StoreKernel { pool: pool() }),
            Op::LoadSlice(op) => kernel(region::LoadSliceKernel { steps: op.steps.clone(), pool: pool() }),
            Op::StoreSlice(op) => kernel(region::StoreSliceKernel { steps: op.steps.clone(), pool: pool() }),
            Op::RaggedPositions(_) => kernel(ragged::RaggedPositionsKernel),
            Op::RopeTable(op) => rope::table_kernel(self, op.scale),
            Op::Rope(op) => rope::kernel_for(self, op.style),
            Op::KvStore(op) => kv_cache::store_kernel(self, op.layer),
            Op::LatentStore(op) => kv_cache::store_rows_kernel(self, op.layer),
            Op::PagedAttention(op) => paged_attention::kernel_for(self, op, node.inputs[1].dtype),
            Op::TopPositions(op) => top_positions::kernel_for(self, op, node.inputs[2].dtype),
            Op::RaggedAttention(op) => attention::attention_kernel(self, op.scale, true),
            Op::CausalConv(op) => causal_conv::kernel(self, op.layer),
            Op::SelectiveScan(op) => selective_scan::kernel(self, op.layer),
            Op::GatedDeltaRule(op) => gated_delta_rule::kernel(self, *op),
            Op::ShapeToTensor(_) => kernel(copy::ShapeKernel),
            // A view, what the engine runs itself, and what needs another device.
            Op::Transfer(_) | Op::Rebind(_) | Op::Cond(_) | Op::While(_) | Op::Call(_) => None,
            Op::Conv(op) => conv::kernel_for(self, op, node),
            Op::ConvTranspose(op) => conv_transpose::kernel(self, op, dtype),
            Op::Fold(op) => fold::kernel(self, op, dtype),
            Op::Pool2d(op) => pool2d::kernel(self, op, dtype),
            Op::Resize(op) => resize::kernel(self, op, dtype),
            Op::RoiAlign(op) => roi_align::kernel(self, op, dtype),
            Op::NonMaximumSuppression(op) => {
                kernel(NonMaximumSuppressionKernel { centered: op.centered, pool: pool() })
            }
            Op::GroupNorm(op) => group_norm::kernel(self, *op),
            Op::LogSoftmax(op) => log_softmax::kernel(self, op.axis, dtype),
            Op::Irfft(op) => fourier::kernel(self, op),
            Op::Dequantize(op) => {
                kernel(dequantize::DequantizeKernel { encoding: op.encoding, pool: pool() })
            }
            Op::QMatMul(op) => linear::qmatmul(self, op.encoding, node.settings.exact_activations),
            Op::GptqMatMul(op) => gptq::kernel_for(self, *op, node.settings.exact_activations),
        }
    }

    fn parallel_for(&self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        self.pool.run(chunks, body);
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn with_threads(&self, threads: usize) -> Option<Arc<dyn Device>> {
        Some(Arc::new(Cpu { chosen: self.chosen.clone(), ..Cpu::with_instruction_set(threads, self.limit) }))
    }

    fn own_products(&self) -> Option<&'static str> {
        self.find(linear::ROUNDING_VARIANTS).map(|variant| variant.name)
    }

    fn limited_to(&self, instruction_set: &str) -> Result<Option<Arc<dyn Device>>, String> {
        let limit = InstructionSet::named(instruction_set)
            .ok_or_else(|| InstructionSet::ALL.iter().map(|set| set.name()).collect::<Vec<_>>().join(", "))?;
        let (pool, limit) = (Arc::clone(&self.pool), limit.min(self.limit));
        Ok(Some(Arc::new(Cpu { pool, limit, chosen: self.chosen.clone() })))
    }

    fn marker(&self) -> Option<&dyn Marker> {
        Nvtx::installed().map(|nvtx| nvtx as &dyn Marker)
    }

    fn packing(&self, node: &NodeTypes<'_>, position: usize) -> Option<String> {
        match node.op {
            Op::MatMul(_) => matmul::packing(node, position),
            Op::Linear(op) => linear::packing(op, node, position),
            Op::ExpertLinear(_) => linear::expert_packing(node, position),
            Op::QMatMul(op) => (position == 1).then(|| weights::layout(op.encoding)),
            Op::GptqMatMul(op) => gptq::packing(*op, position),
            Op::Conv(conv) => conv::packing(self, conv, node, position),
            Op::Fp8Product(op) => fp8::packing(*op, node, position),
            _ => None,
        }
    }

    fn pack(&self, layout: &str, weight: &Tensor) -> Result<PackedWeight, PackError> {
        match layout {
            fp8::LAYOUT => fp8::pack(&self.pool, weight),
            weights::COLUMNS => weights::pack_columns(&self.pool, weight),
            layout if layout.starts_with("filter.") => conv::pack(layout, weight),
            layout if layout.starts_with(gptq::LAYOUT) => gptq::pack(&self.pool, layout, weight),
            layout => weights::pack(&self.pool, layout, weight),
        }
    }

    fn packed_bytes(&self, layout: &str, ty: &Type) -> Option<usize> {
        let shape = ty.static_shape()?;
        match layout {
            weights::COLUMNS => match *shape.dims() {
                [k, n] => PackedMatrix::bytes_of(ty.dtype, &[n, k]),
                _ => None,
            },
            layout if layout.starts_with("panel16.") && layout != fp8::LAYOUT => {
                PackedMatrix::bytes_of(ty.dtype, shape.dims())
            }
            _ => None,
        }
    }

    fn file_of(&self, weight: &PackedWeight) -> Option<Arc<MappedFile>> {
        weight.data.downcast_ref::<PackedMatrix>()?.file()
    }

    fn finish_packing(&self, weight: &PackedWeight) {
        if let Some(matrix) = weight.data.downcast_ref::<PackedMatrix>() {
            // If the file changed, `file_of` still gives it, and calls find that out.
            let _ = matrix.packed_bytes(&self.pool);
        }
    }

    fn save_packed(&self, weight: &PackedWeight) -> Result<Bytes, String> {
        match &weight.layout[..] {
            fp8::LAYOUT => fp8::save(&self.pool, weight),
            layout if layout.starts_with("filter.") => conv::save(weight),
            _ => weights::save(&self.pool, weight),
        }
    }

    fn load_packed(&self, layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
        match layout {
            fp8::LAYOUT => fp8::load(ty, bytes),
            weights::COLUMNS => weights::load_columns(ty, bytes),
            layout if layout.starts_with("filter.") => conv::load(layout, ty, bytes),
            layout if layout.starts_with(gptq::LAYOUT) => gptq::load(layout, ty, bytes),
            layout => weights::load(layout, ty, bytes),
        }
    }
}

fn kernel(kernel: impl Kernel + 'static) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(kernel))
}

/// The operands of the result's very type.
fn like_result(node: &NodeTypes<'_>) -> impl Iterator<Item = usize> {
    let alike = |ty: &Type| {
        node.outputs.first().is_some_and(|result| ty.shape == result.shape && ty.dtype == result.dtype)
    };
    (0..node.inputs.len()).filter(move |&position| alike(node.inputs[position]))
}
