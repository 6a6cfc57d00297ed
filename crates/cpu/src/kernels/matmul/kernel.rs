//! Products of batches of matrices as kernels of the device.

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall, NodeTypes, Operand};
use tensor::{DType, Element, Shape, bf16, f16};

use super::{MatmulShape, Matrix, TileKernel, VARIANTS, Wide, matmul_exact, matmul_split, matmul_with};
use crate::kernels::linear::{self, weights};
use crate::kernels::operands::{elements, elements_mut, view};
use crate::variant::Variant;
use crate::vec::Scalar;
use crate::{Cpu, Pool};

/// Products of batches of matrices.
pub(crate) fn kernel_for(cpu: &Cpu, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let (variant, packed) = (cpu.pick(VARIANTS), cpu.pick(linear::VARIANTS));
    let pool = Arc::clone(&cpu.pool);
    match dtype {
        DType::F32 => Some(Arc::new(MatMulKernel { dtype, run: multiply::<f32>, variant, packed, pool })),
        DType::F16 => Some(Arc::new(MatMulKernel { dtype, run: multiply::<f16>, variant, packed, pool })),
        DType::BF16 => Some(Arc::new(MatMulKernel { dtype, run: multiply::<bf16>, variant, packed, pool })),
        DType::F64 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<f64>, pool })),
        DType::U8 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<u8>, pool })),
        DType::I8 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<i8>, pool })),
        DType::U16 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<u16>, pool })),
        DType::I16 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<i16>, pool })),
        DType::U32 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<u32>, pool })),
        DType::I32 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<i32>, pool })),
        DType::U64 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<u64>, pool })),
        DType::I64 => Some(Arc::new(ExactKernel { dtype, run: multiply_exact::<i64>, pool })),
        _ => None,
    }
}

/// Products of halves whose partial sums are halves.
pub(crate) fn split_kernel(cpu: &Cpu, dtype: DType, chunk: usize) -> Option<Arc<dyn Kernel>> {
    let (variant, pool) = (cpu.pick(VARIANTS), Arc::clone(&cpu.pool));
    match dtype {
        DType::F16 => Some(Arc::new(SplitKernel { dtype, chunk, run: multiply_split::<f16>, variant, pool })),
        DType::BF16 => {
            Some(Arc::new(SplitKernel { dtype, chunk, run: multiply_split::<bf16>, variant, pool }))
        }
        _ => None,
    }
}

/// The layout of the right side of a product.
pub(crate) fn packing(node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let right = node.inputs[position];
    (position == 1 && right.dtype == DType::F32 && right.rank() == 2).then(|| weights::COLUMNS.to_string())
}

type Multiply = fn(&Variant<TileKernel>, &Pool, KernelCall<'_, '_>);

struct MatMulKernel {
    dtype: DType,
    run: Multiply,
    variant: &'static Variant<TileKernel>,
    /// For a right side in panels.
    packed: &'static Variant<linear::Functions>,
    pool: Arc<Pool>,
}

impl Kernel for MatMulKernel {
    fn name(&self) -> String {
        format!("matmul[{}].{}", self.dtype, self.variant.name)
    }

    /// What the right side may need that comes in panels.
    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        match (self.dtype, inputs[0].split_last()) {
            (DType::F32, Some((&k, rows))) if inputs[1].rank() == 2 => {
                linear::scratch_bytes_for(rows.iter().product(), k, [DType::F32].into_iter(), false)
            }
            _ => 0,
        }
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        match &call.inputs[1] {
            // Sums run as without panels, so that they have the same bits.
            Operand::Packed(right) => {
                let (right, x) = (weights::packed_matrix(right), elements(view(&call, 0).bytes));
                let out = elements_mut(call.outputs[0].bytes);
                linear::multiply_matrix(&self.packed.run, &self.pool, right, &x, false, out, call.scratch);
            }
            _ => (self.run)(self.variant, &self.pool, call),
        }
        Ok(())
    }
}

fn multiply<T: Element + Scalar>(variant: &Variant<TileKernel>, pool: &Pool, call: KernelCall<'_, '_>) {
    with_sides::<T>(call, |shape, a, b, _, out| matmul_with(variant, pool, shape, a, b, elements_mut(out)));
}

/// Products of halves, some of the inner axis at a time.
struct SplitKernel {
    dtype: DType,
    chunk: usize,
    run: fn(&SplitKernel, KernelCall<'_, '_>),
    variant: &'static Variant<TileKernel>,
    pool: Arc<Pool>,
}

impl Kernel for SplitKernel {
    fn name(&self) -> String {
        format!("split_matmul[{}, {}].{}", self.dtype, self.chunk, self.variant.name)
    }

    fn scratch(&self, _inputs: &[Shape], outputs: &[Shape]) -> usize {
        outputs[0].elements().saturating_mul(2 * size_of::<f32>())
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        (self.run)(self, call);
        Ok(())
    }
}

fn multiply_split<T: Element + Scalar>(kernel: &SplitKernel, call: KernelCall<'_, '_>) {
    let SplitKernel { variant, pool, chunk, .. } = kernel;
    with_sides::<T>(call, |shape, a, b, scratch, out| {
        let (scratch, out) = (elements_mut(scratch), elements_mut(out));
        matmul_split(variant, pool, shape, (a, b), *chunk, scratch, out);
    });
}

/// Products of f64 and of integers.
struct ExactKernel {
    dtype: DType,
    run: fn(&Pool, KernelCall<'_, '_>),
    pool: Arc<Pool>,
}

impl Kernel for ExactKernel {
    fn name(&self) -> String {
        format!("matmul[{}].portable", self.dtype)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        (self.run)(&self.pool, call);
        Ok(())
    }
}

fn multiply_exact<T: Wide>(pool: &Pool, call: KernelCall<'_, '_>) {
    with_sides::<T>(call, |shape, a, b, _, out| matmul_exact(pool, shape, a, b, elements_mut(out)));
}

/// Hands the sizes and the two sides of a product to `multiply`, with the scratch and the bytes of the result.
fn with_sides<T: Pod>(
    call: KernelCall<'_, '_>,
    multiply: impl FnOnce(MatmulShape<'_>, Matrix<'_, T>, Matrix<'_, T>, &mut [u8], &mut [u8]),
) {
    let (a, b) = (view(&call, 0), view(&call, 1));
    let result = &mut call.outputs[0];
    let (batch, sizes) = result.shape.split_at(result.shape.rank() - 2);
    let shape = MatmulShape { batch, m: sizes[0], k: a.shape[a.shape.rank() - 1], n: sizes[1] };
    let (strides_a, strides_b) = (strides(a.shape, batch), strides(b.shape, batch));
    let (a, b) = (elements(a.bytes), elements(b.bytes));
    let a = Matrix { data: &a, strides: &strides_a };
    let b = Matrix { data: &b, strides: &strides_b };
    multiply(shape, a, b, call.scratch, result.bytes);
}

/// The strides of a row-major operand whose batch axes are repeated to fill `batch`.
pub(crate) fn strides(shape: &Shape, batch: &[usize]) -> Vec<usize> {
    let own = shape.row_major_strides();
    let missing = batch.len() + 2 - shape.rank();
    let stride = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if axis + 2 >= shape.rank() || shape[axis] != 1 => own[axis] as usize,
        _ => 0,
    };
    (0..batch.len() + 2).map(stride).collect()
}
