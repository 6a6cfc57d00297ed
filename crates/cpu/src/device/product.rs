//! Matrix products as kernels of the device.

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::Pod;
use engine::{Call, Kernel, NodeTypes, Operand, PackedWeight};
use graph::Type;
use graph::ops::{self, Unary};
use tensor::{AlignedBytes, Bytes, DType, Element, Shape, Tensor, bf16, f16};

use super::{Cpu, kernel};
use crate::Pool;
use crate::kernels::linear::{self, Activation, Epilogue, Norm, PackedMatrix};
use crate::kernels::matmul::attention::{self, AttentionInputs, AttentionShape, Bias, Item};
use crate::kernels::matmul::{self, MatmulShape, Matrix};
use crate::kernels::operands::{elements, elements_mut, view};
use crate::kernels::ragged::check_offsets;
use crate::kernels::softmax;
use crate::kernels::strided::Strided;
use crate::kernels::variant::Variant;
use crate::vec::Scalar;

/// The layout of a right matrix `f32[k, n]` of a product: panels of 16 of its columns, as those of a linear layer's
/// weight `[n, k]`.
pub(super) const COLUMNS: &str = "columns16.f32";

/// Products of batches of matrices.
pub(super) fn matmul(cpu: &Cpu, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let (variant, packed) = (cpu.pick(matmul::VARIANTS), cpu.pick(linear::VARIANTS));
    let pool = Arc::clone(&cpu.pool);
    match dtype {
        DType::F32 => kernel(MatMulKernel { dtype, run: multiply::<f32>, variant, packed, pool }),
        DType::F16 => kernel(MatMulKernel { dtype, run: multiply::<f16>, variant, packed, pool }),
        DType::BF16 => kernel(MatMulKernel { dtype, run: multiply::<bf16>, variant, packed, pool }),
        DType::F64 => kernel(ExactKernel { dtype, run: multiply_exact::<f64>, pool }),
        DType::U8 => kernel(ExactKernel { dtype, run: multiply_exact::<u8>, pool }),
        DType::I8 => kernel(ExactKernel { dtype, run: multiply_exact::<i8>, pool }),
        DType::U16 => kernel(ExactKernel { dtype, run: multiply_exact::<u16>, pool }),
        DType::I16 => kernel(ExactKernel { dtype, run: multiply_exact::<i16>, pool }),
        DType::U32 => kernel(ExactKernel { dtype, run: multiply_exact::<u32>, pool }),
        DType::I32 => kernel(ExactKernel { dtype, run: multiply_exact::<i32>, pool }),
        DType::U64 => kernel(ExactKernel { dtype, run: multiply_exact::<u64>, pool }),
        DType::I64 => kernel(ExactKernel { dtype, run: multiply_exact::<i64>, pool }),
        _ => None,
    }
}

/// Products of halves whose partial sums are halves.
pub(super) fn split_matmul(cpu: &Cpu, dtype: DType, chunk: usize) -> Option<Arc<dyn Kernel>> {
    let (variant, pool) = (cpu.pick(matmul::VARIANTS), Arc::clone(&cpu.pool));
    match dtype {
        DType::F16 => kernel(SplitKernel { dtype, chunk, run: multiply_split::<f16>, variant, pool }),
        DType::BF16 => kernel(SplitKernel { dtype, chunk, run: multiply_split::<bf16>, variant, pool }),
        _ => None,
    }
}

/// Attention of every token to every key.
pub(super) fn attention(cpu: &Cpu, scale: f32) -> Option<Arc<dyn Kernel>> {
    let variants = (cpu.pick(matmul::VARIANTS), cpu.pick(softmax::VARIANTS));
    kernel(AttentionKernel { scale, variants, pool: Arc::clone(&cpu.pool) })
}

/// Attention of every token to every token of its sequence.
pub(super) fn ragged_attention(cpu: &Cpu, scale: f32) -> Option<Arc<dyn Kernel>> {
    let variants = (cpu.pick(matmul::VARIANTS), cpu.pick(softmax::VARIANTS));
    kernel(RaggedAttentionKernel { scale, variants, pool: Arc::clone(&cpu.pool) })
}

/// A linear layer and what is fused with it.
pub(super) fn linear(cpu: &Cpu, op: &ops::Linear, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
    let epilogue = match (op.gate, op.activation) {
        (None, None) => Epilogue::Plain,
        (None, Some(function)) => Epilogue::Activate(activation(function)?),
        (Some(gate), _) => Epilogue::Gate(activation(gate)?),
    };
    let dtypes = op.operands(node.inputs).weights.iter().map(|weight| weight.dtype).collect();
    let (variant, pool) = (cpu.pick(linear::VARIANTS), Arc::clone(&cpu.pool));
    kernel(LinearKernel { op: *op, epilogue, dtypes, variant, pool })
}

/// A linear layer whose weight comes as the bytes of quantized blocks.
pub(super) fn qmatmul(cpu: &Cpu, encoding: DType) -> Option<Arc<dyn Kernel>> {
    let (op, epilogue, dtypes) = (ops::Linear::default(), Epilogue::Plain, vec![encoding]);
    let (variant, pool) = (cpu.pick(linear::VARIANTS), Arc::clone(&cpu.pool));
    kernel(LinearKernel { op, epilogue, dtypes, variant, pool })
}

/// The layout of a weight of a linear layer.
pub(super) fn packing(op: &ops::Linear, node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let first = 1 + usize::from(op.norm.is_some());
    let is_weight = (first..first + op.weights).contains(&position);
    is_weight.then(|| layout(node.inputs[position].dtype))
}

/// The layout of the right side of a product.
pub(super) fn matmul_packing(node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let right = node.inputs[position];
    (position == 1 && right.dtype == DType::F32 && right.rank() == 2).then(|| COLUMNS.to_string())
}

/// Brings the columns of a right matrix into panels.
pub(super) fn pack_columns(pool: &Pool, right: &Tensor) -> Result<PackedWeight, String> {
    if right.dtype() != DType::F32 || right.shape().rank() != 2 {
        return Err(format!("{COLUMNS} is a layout of f32[k, n], got {}{}", right.dtype(), right.shape()));
    }
    packed_columns(pack_matrix(pool, &right.permute(&[1, 0]))?)
}

/// A right matrix in panels of saved bytes, used where they lie.
pub(super) fn load_columns(ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let (DType::F32, &[k, n]) = (ty.dtype, shape.dims()) else {
        return Err(format!("{COLUMNS} is a layout of f32[k, n], got {ty}"));
    };
    packed_columns(PackedMatrix::from_panels(DType::F32, n, k, bytes).map_err(|error| error.to_string())?)
}

fn packed_columns(matrix: PackedMatrix) -> Result<PackedWeight, String> {
    Ok(PackedWeight { layout: COLUMNS.to_string(), bytes: matrix.bytes(), data: Arc::new(matrix) })
}

/// Brings a weight into panels.
pub(super) fn pack(pool: &Pool, wanted: &str, weight: &Tensor) -> Result<PackedWeight, String> {
    let weight = &match encoding(wanted) {
        Some(encoding) if weight.dtype() == DType::U8 => as_blocks(weight, encoding)?,
        _ => weight.clone(),
    };
    let found = layout(weight.dtype());
    if found != wanted {
        return Err(format!("{}{} packs as {found}, not as {wanted}", weight.dtype(), weight.shape()));
    }
    let matrix = pack_matrix(pool, weight)?;
    Ok(PackedWeight { layout: found, bytes: matrix.bytes(), data: Arc::new(matrix) })
}

/// A weight in panels as bytes: the panels alone.
pub(super) fn save(weight: &PackedWeight) -> Result<Bytes, String> {
    let matrix: &PackedMatrix =
        weight.data.downcast_ref().ok_or_else(|| format!("{} is not a layout of the CPU", weight.layout))?;
    Ok(matrix.packed_bytes().clone())
}

/// A weight in panels of saved bytes, used where they lie.
pub(super) fn load(wanted: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let (experts, rows, stored) = match *shape.dims() {
        [rows, stored] => (1, rows, stored),
        [experts, rows, stored] => (experts, rows, stored),
        _ => return Err(format!("a weight is [rows, columns] or [experts, rows, columns], got {ty}")),
    };
    let (dtype, columns) = match encoding(wanted) {
        Some(encoding) if ty.dtype == DType::U8 => (encoding, columns_of(stored, encoding)),
        _ => (ty.dtype, stored),
    };
    let found = layout(dtype);
    if found != wanted {
        return Err(format!("{ty} packs as {found}, not as {wanted}"));
    }
    let matrix = PackedMatrix::experts_from_panels(packed_as(dtype), [experts, rows, columns], bytes)
        .map_err(|error| error.to_string())?;
    Ok(PackedWeight { layout: found, bytes: matrix.bytes(), data: Arc::new(matrix) })
}

/// The name of the panels for weights of a dtype.
pub(super) fn layout(dtype: DType) -> String {
    format!("panel16.{}", packed_as(dtype))
}

/// The dtype that panels hold: that of the weights, but for those that another holds exactly (f64, not made for
/// weights, is rounded).
pub(super) fn packed_as(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F32,
        dtype if dtype.is_float8() => DType::BF16,
        dtype => dtype,
    }
}

fn pack_matrix(pool: &Pool, weight: &Tensor) -> Result<PackedMatrix, String> {
    let stored = weight.contiguous();
    let weight = match packed_as(stored.dtype()) {
        dtype if dtype == stored.dtype() => stored,
        DType::F32 => Tensor::from_slice(*stored.shape(), &stored.to_f32_vec()),
        _ => {
            let values: Vec<bf16> = stored.to_f32_vec().into_iter().map(bf16::from_f32).collect();
            Tensor::from_slice(*stored.shape(), &values)
        }
    };
    PackedMatrix::pack(&weight, pool).map_err(|error| error.to_string())
}

/// The dtype of the blocks that a layout holds.
fn encoding(layout: &str) -> Option<DType> {
    let dtype: DType = layout.strip_prefix("panel16.")?.parse().ok()?;
    dtype.is_block().then_some(dtype)
}

/// How many elements the blocks of a row of bytes hold.
fn columns_of(bytes: usize, encoding: DType) -> usize {
    bytes / encoding.block().bytes * encoding.block().elements
}

/// The blocks that bytes `u8[rows, bytes]` are.
fn as_blocks(bytes: &Tensor, encoding: DType) -> Result<Tensor, String> {
    let shape = bytes.shape();
    let blocks = Bytes::new(AlignedBytes::copy_of(bytes.contiguous().bytes()));
    Tensor::from_bytes(encoding, [shape[0], columns_of(shape[1], encoding)], blocks)
        .map_err(|error| error.to_string())
}

pub(super) fn activation(function: Unary) -> Option<Activation> {
    match function {
        Unary::Relu => Some(Activation::Relu),
        Unary::Silu => Some(Activation::Silu),
        Unary::GeluTanh => Some(Activation::GeluTanh),
        Unary::Gelu => Some(Activation::GeluErf),
        Unary::GeluQuick => Some(Activation::GeluQuick),
        Unary::Sigmoid => Some(Activation::Sigmoid),
        Unary::Tanh => Some(Activation::Tanh),
        _ => None,
    }
}

struct LinearKernel {
    op: ops::Linear,
    epilogue: Epilogue,
    /// Of the weights.
    dtypes: Vec<DType>,
    variant: &'static Variant<linear::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for LinearKernel {
    fn name(&self) -> String {
        let dtypes: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
        let mut parts = vec![dtypes.join("+")];
        parts.extend(self.op.norm.map(|_| "norm".to_string()));
        parts.extend(self.op.bias.then(|| "bias".to_string()));
        let function = self.op.gate.or(self.op.activation);
        parts.extend(function.map(|function| graph::Op::from(function).name().to_string()));
        parts.extend(self.op.residual.then(|| "residual".to_string()));
        format!("linear[{}].{}", parts.join(", "), self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let (&columns, rows) = inputs[0].split_last().expect("the type rule asks for a last axis");
        let dtypes = self.dtypes.iter().map(|&dtype| packed_as(dtype));
        linear::scratch_bytes_for(rows.iter().product(), columns, dtypes)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let roles = self.op.operands(&*call.inputs);
        let input = floats(roles.x);
        let tokens = tokens(roles.x);
        let weights: Vec<Cow<'_, PackedMatrix>> = roles
            .weights
            .iter()
            .zip(&self.dtypes)
            .map(|(weight, &dtype)| packed(&self.pool, weight, dtype))
            .collect::<Result<_, _>>()?;
        let weights: Vec<&PackedMatrix> = weights.iter().map(|weight| &**weight).collect();
        let norm = roles.norm.map(floats);
        let biases: Vec<Cow<'_, [f32]>> = roles.biases.iter().map(floats).collect();
        let biases: Vec<Option<&[f32]>> = biases.iter().map(|bias| Some(&**bias)).collect();
        let residual = roles.residual.map(floats);
        let mut outputs: Vec<&mut [f32]> =
            call.outputs.iter_mut().map(|result| elements_mut(result.bytes)).collect();
        let norm = norm.as_deref().zip(self.op.norm).map(|(weight, eps)| Norm { weight, eps });
        linear::linear_with(
            &self.variant.run,
            &self.pool,
            linear::Linear {
                input: &input,
                tokens,
                norm,
                weights: &weights,
                biases: &biases,
                epilogue: self.epilogue,
                residual: residual.as_deref(),
                outputs: &mut outputs,
                scratch: call.scratch,
            },
        );
        Ok(())
    }
}

/// A weight in panels. One that is computed, and so comes as it is, is packed for this call.
pub(super) fn packed<'c>(
    pool: &Pool,
    weight: &'c Operand<'_>,
    dtype: DType,
) -> Result<Cow<'c, PackedMatrix>, String> {
    match weight {
        Operand::Packed(packed) => match packed.data.downcast_ref() {
            Some(matrix) => Ok(Cow::Borrowed(matrix)),
            None => panic!("a weight in the layout {}, which is not the CPU's", packed.layout),
        },
        Operand::View(view) => {
            let bytes = Bytes::new(AlignedBytes::copy_of(view.bytes));
            let tensor =
                Tensor::from_bytes(view.dtype, view.shape, bytes).map_err(|error| error.to_string())?;
            let tensor = if dtype == view.dtype { tensor } else { as_blocks(&tensor, dtype)? };
            pack_matrix(pool, &tensor).map(Cow::Owned)
        }
        Operand::InResult | Operand::Buffer(_) => panic!("a weight is a value to read"),
    }
}

fn floats<'c>(operand: &'c Operand<'_>) -> Cow<'c, [f32]> {
    match operand {
        Operand::View(view) => elements(view.bytes),
        _ => panic!("the input, norm, biases and residual of a product are values to read"),
    }
}

/// How many rows an operand [.., columns] has.
fn tokens(operand: &Operand<'_>) -> usize {
    match operand {
        Operand::View(view) => view.shape[..view.shape.rank() - 1].iter().product(),
        _ => panic!("the input of a linear layer is a value to read"),
    }
}

struct AttentionKernel {
    scale: f32,
    variants: (&'static Variant<matmul::Kernel>, &'static Variant<softmax::Kernel>),
    pool: Arc<Pool>,
}

impl Kernel for AttentionKernel {
    fn name(&self) -> String {
        format!("attention.{}", self.variants.0.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (q, k, v) = (view(&call, 0), view(&call, 1), view(&call, 2));
        let (batch, sizes) = q.shape.split_at(q.shape.rank() - 3);
        let (tokens, keys, width) = (sizes[0], k.shape[batch.len()], v.shape[batch.len() + 2]);
        let shape = AttentionShape { heads: sizes[1], dim: sizes[2], width };
        let item = |i: usize| Item { first_token: i * tokens, tokens, first_key: i * keys, keys };
        let items: Vec<Item> = (0..batch.iter().product()).map(item).collect();
        let scores = Shape::new(&[batch, &[sizes[1], tokens, keys]].concat());
        let mask = (call.inputs.len() > 3).then(|| view(&call, 3));
        let mask = mask.map(|mask| (elements(mask.bytes), Strided::broadcast(&mask.shape, &scores)));
        let bias = mask.as_ref().map_or(Bias::None, |(mask, walk)| Bias::Mask(mask, *walk));
        let (q, k, v) = (elements(q.bytes), elements(k.bytes), elements(v.bytes));
        let inputs = AttentionInputs { scale: self.scale, q: &q, k: &k, v: &v, bias };
        let out = elements_mut(call.outputs[0].bytes);
        attention::attention(self.variants, &self.pool, shape, &items, &inputs, out);
        Ok(())
    }
}

struct RaggedAttentionKernel {
    scale: f32,
    variants: (&'static Variant<matmul::Kernel>, &'static Variant<softmax::Kernel>),
    pool: Arc<Pool>,
}

impl Kernel for RaggedAttentionKernel {
    fn name(&self) -> String {
        format!("ragged_attention.{}", self.variants.0.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (q, v) = (view(&call, 0), view(&call, 2));
        let shape = AttentionShape { heads: q.shape[1], dim: q.shape[2], width: v.shape[2] };
        let offsets = elements::<u32>(view(&call, 3).bytes);
        check_offsets(3, &offsets, q.shape[0])?;
        let item = |rows: &[u32]| {
            let (first, tokens) = (rows[0] as usize, (rows[1] - rows[0]) as usize);
            Item { first_token: first, tokens, first_key: first, keys: tokens }
        };
        let items: Vec<Item> = offsets.windows(2).map(item).collect();
        let bias = (call.inputs.len() > 4).then(|| elements(view(&call, 4).bytes));
        let bias = bias.as_ref().map_or(Bias::None, |bias| Bias::Distance(bias));
        let [q, k, v] = [0, 1, 2].map(|position| elements(view(&call, position).bytes));
        let inputs = AttentionInputs { scale: self.scale, q: &q, k: &k, v: &v, bias };
        let out = elements_mut(call.outputs[0].bytes);
        attention::attention(self.variants, &self.pool, shape, &items, &inputs, out);
        Ok(())
    }
}

type Multiply = fn(&Variant<matmul::Kernel>, &Pool, Call<'_, '_>);

struct MatMulKernel {
    dtype: DType,
    run: Multiply,
    variant: &'static Variant<matmul::Kernel>,
    /// For a right side in panels.
    packed: &'static Variant<linear::Kernel>,
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
                linear::scratch_bytes_for(rows.iter().product(), k, [DType::F32].into_iter())
            }
            _ => 0,
        }
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        match &call.inputs[1] {
            Operand::Packed(right) => multiply_packed(&self.packed.run, &self.pool, right, call),
            _ => (self.run)(self.variant, &self.pool, call),
        }
        Ok(())
    }
}

/// The product with a right side in panels. Sums run as without them, so that they have the same bits.
fn multiply_packed(kernel: &linear::Kernel, pool: &Pool, right: &PackedWeight, call: Call<'_, '_>) {
    let Some(right) = right.data.downcast_ref::<PackedMatrix>() else {
        panic!("a right matrix in the layout {}, which is not the CPU's", right.layout)
    };
    let (input, tokens) = (floats(&call.inputs[0]), tokens(&call.inputs[0]));
    let outputs = &mut [&mut *elements_mut(call.outputs[0].bytes)];
    let epilogue = Epilogue::Plain;
    let (weights, scratch) = (&[right], call.scratch);
    linear::linear_with(
        kernel,
        pool,
        linear::Linear {
            input: &input,
            tokens,
            norm: None,
            weights,
            biases: &[],
            epilogue,
            residual: None,
            outputs,
            scratch,
        },
    );
}

fn multiply<T: Element + Scalar>(variant: &Variant<matmul::Kernel>, pool: &Pool, call: Call<'_, '_>) {
    with_sides::<T>(call, |shape, a, b, _, out| {
        matmul::matmul_with(variant, pool, shape, a, b, elements_mut(out))
    });
}

/// Products of halves, some of the inner axis at a time.
struct SplitKernel {
    dtype: DType,
    chunk: usize,
    run: fn(&SplitKernel, Call<'_, '_>),
    variant: &'static Variant<matmul::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for SplitKernel {
    fn name(&self) -> String {
        format!("split_matmul[{}, {}].{}", self.dtype, self.chunk, self.variant.name)
    }

    fn scratch(&self, _inputs: &[Shape], outputs: &[Shape]) -> usize {
        outputs[0].elements().saturating_mul(2 * size_of::<f32>())
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        (self.run)(self, call);
        Ok(())
    }
}

fn multiply_split<T: Element + Scalar>(kernel: &SplitKernel, call: Call<'_, '_>) {
    let SplitKernel { variant, pool, chunk, .. } = kernel;
    with_sides::<T>(call, |shape, a, b, scratch, out| {
        let (scratch, out) = (elements_mut(scratch), elements_mut(out));
        matmul::matmul_split(variant, pool, shape, (a, b), *chunk, scratch, out);
    });
}

/// Products of f64 and of integers.
struct ExactKernel {
    dtype: DType,
    run: fn(&Pool, Call<'_, '_>),
    pool: Arc<Pool>,
}

impl Kernel for ExactKernel {
    fn name(&self) -> String {
        format!("matmul[{}].portable", self.dtype)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        (self.run)(&self.pool, call);
        Ok(())
    }
}

fn multiply_exact<T: matmul::Wide>(pool: &Pool, call: Call<'_, '_>) {
    with_sides::<T>(call, |shape, a, b, _, out| matmul::matmul_exact(pool, shape, a, b, elements_mut(out)));
}

/// Hands the sizes and the two sides of a product to `multiply`, with the scratch and the bytes of the result.
fn with_sides<T: Pod>(
    call: Call<'_, '_>,
    multiply: impl FnOnce(MatmulShape<'_>, Matrix<'_, T>, Matrix<'_, T>, &mut [u8], &mut [u8]),
) {
    let (a, b) = (view(&call, 0), view(&call, 1));
    let result = &mut call.outputs[0];
    let (batch, sizes) = result.shape.split_at(result.shape.rank() - 2);
    let shape = MatmulShape { batch, m: sizes[0], k: a.shape[a.shape.rank() - 1], n: sizes[1] };
    let (strides_a, strides_b) = (strides(&a.shape, batch), strides(&b.shape, batch));
    let (a, b) = (elements(a.bytes), elements(b.bytes));
    let a = Matrix { data: &a, strides: &strides_a };
    let b = Matrix { data: &b, strides: &strides_b };
    multiply(shape, a, b, call.scratch, result.bytes);
}

/// The strides of a row-major operand whose batch axes are repeated to fill `batch`.
pub(super) fn strides(shape: &Shape, batch: &[usize]) -> Vec<usize> {
    let own = shape.row_major_strides();
    let missing = batch.len() + 2 - shape.rank();
    let stride = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if axis + 2 >= shape.rank() || shape[axis] != 1 => own[axis] as usize,
        _ => 0,
    };
    (0..batch.len() + 2).map(stride).collect()
}
