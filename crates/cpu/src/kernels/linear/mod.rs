//! The linear layer of a decoder, fused: `y = epilogue(norm(x) · Wᵀ + b)` for weights of any dtype.
//!
//! 1. **Prologue** (`prepare`): each token's row is normalized and converted to what the weights multiply, once for
//!    all weights of the call: int8 blocks for quantized weights, f32 for others and where inputs have to stay exact.
//! 2. **Products** (`panel`): panels of 16 rows times tiles of up to 12 tokens. Weights stream through once, and
//!    are unpacked in registers; quantized ones that meet f32 inputs are widened panel by panel first. If there is one
//!    tile, several panels are multiplied before the epilogue: memory is read without a pause.
//! 3. **Epilogue** (`epilogue`): bias, activation or gate, residual, while the tile is in the first-level cache.
//!
//! One token is bound by memory, many by the dot-product unit.
//!
//! Results depend on a row and the columns alone. Token count, neighbours, threads and tiles change no bit.

mod activation;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod bf16;
mod codes;
mod epilogue;
mod experts;
mod factors;
mod functions;
mod kernel;
mod matrix;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod panel;
mod portable;
mod prepare;
mod products;
mod simd;
pub(crate) mod weights;

use std::ops::Range;

use tensor::DType;

use self::prepare::{InputFormat, Rows};
use self::products::{LinearProducts, multiply_panels, prepare_all};
use crate::Pool;
use crate::threads::SendPointer;
use crate::variant::fastest;

pub use self::activation::Activation;
pub use self::epilogue::Epilogue;
pub use self::experts::{ExpertLinear, expert_linear_with, expert_scratch_bytes_for};
pub(crate) use self::experts::{expert_kernel, expert_packing};
pub use self::functions::{Functions, ROUNDING_VARIANTS, VARIANTS};
pub(crate) use self::kernel::{kernel_for, packing, qmatmul};
pub use self::matrix::{PackError, PackedMatrix};

/// One call: sibling weights (such as q, k and v) times the same input.
pub struct Linear<'a, 'o> {
    /// [tokens, columns]
    pub input: &'a [f32],
    /// The number of input rows.
    pub tokens: usize,
    /// An RMS norm that each input row gets first.
    pub norm: Option<Norm<'a>>,
    /// Matrices with the input's number of columns; with a gate exactly two, of equal rows.
    pub weights: &'a [&'a PackedMatrix],
    /// `[rows]` for each matrix, or none at all.
    pub biases: &'a [Option<&'a [f32]>],
    /// What follows the products and biases.
    pub epilogue: Epilogue,
    /// Added to the first output: [tokens, rows of the first matrix].
    pub residual: Option<&'a [f32]>,
    /// Whether quantized weights are multiplied with the input as it is, rather than with int8 codes of it.
    pub exact: bool,
    /// [tokens, rows] for each matrix; one for both with a gate.
    pub outputs: &'a mut [&'o mut [f32]],
    /// At least [`scratch_bytes`].
    pub scratch: &'a mut [u8],
}

/// `x / sqrt(mean(x²) + eps) · weight`
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    /// `[columns]`
    pub weight: &'a [f32],
    /// Keeps rows of zeros finite.
    pub eps: f32,
}

/// The scratch that a call needs, on every instruction set: room for the converted input.
pub fn scratch_bytes(tokens: usize, weights: &[&PackedMatrix], exact: bool) -> usize {
    let Some(columns) = weights.first().map(|matrix| matrix.columns()) else { return 0 };
    scratch_bytes_for(tokens, columns, weights.iter().map(|matrix| matrix.dtype()), exact)
}

/// As [`scratch_bytes`], before there are matrices: for weights of these dtypes, each of which can be packed.
pub fn scratch_bytes_for(
    tokens: usize,
    columns: usize,
    dtypes: impl Iterator<Item = DType>,
    exact: bool,
) -> usize {
    let mut forms: Vec<InputFormat> = Vec::new();
    for dtype in dtypes {
        // bf16 weights want f32 on most machines, which is larger, but may want a place of their own.
        let form = if dtype == DType::BF16 { InputFormat::Bf16 } else { matrix::form(dtype, exact) };
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    let size = |form: &InputFormat| match form {
        InputFormat::Bf16 => InputFormat::F32.token_bytes(columns),
        form => form.token_bytes(columns),
    };
    forms.iter().map(|form| (tokens * size(form)).next_multiple_of(64)).sum::<usize>() + 64
}

/// Computes a linear layer with the fastest variant for this machine.
///
/// # Panics
/// If sizes do not belong together.
pub fn linear(pool: &Pool, call: Linear) {
    linear_with(&fastest(VARIANTS).run, pool, call);
}

/// Computes a linear layer with a variant of the caller's choice.
///
/// # Panics
/// If sizes do not belong together, or this machine cannot run the variant.
pub fn linear_with(functions: &Functions, pool: &Pool, call: Linear) {
    assert!((functions.available)(), "linear: this machine cannot run the variant");
    check(&call);
    call.weights.iter().for_each(|matrix| matrix.prepare(call.tokens, pool));
    let columns = call.weights[0].columns();
    let forms = place(&forms(functions, call.weights, call.exact), call.tokens, columns, call.scratch);
    let tiles = Tiles { tokens: call.tokens, count: call.tokens.div_ceil(functions.tile(&forms)) };
    let norm = call.norm.map(|norm| (norm.weight, norm.eps));
    let rows = Rows { input: call.input, columns, sources: None, norm, forms: &forms };
    let tile = |index| tiles.get(index);
    prepare_all(functions, pool, &rows, call.tokens, tiles.count, &tile);
    let outputs: Vec<_> = call.outputs.iter_mut().map(|output| SendPointer(output.as_mut_ptr())).collect();
    let job = LinearProducts {
        functions,
        weights: call.weights,
        biases: call.biases,
        epilogue: call.epilogue,
        residual: call.residual,
        exact: call.exact,
        tile: &tile,
        order: None,
        inputs: call.weights.iter().map(|matrix| input_of(functions, matrix, call.exact, &forms)).collect(),
        outputs: &outputs,
    };
    multiply_all(pool, &job, tiles);
}

/// Multiplies rows of an input with one matrix, and nothing else.
pub(crate) fn multiply_matrix(
    functions: &Functions,
    pool: &Pool,
    matrix: &PackedMatrix,
    input: &[f32],
    exact: bool,
    output: &mut [f32],
    scratch: &mut [u8],
) {
    // There may be no columns, or no rows.
    let tokens = output.len().checked_div(matrix.rows()).or(input.len().checked_div(matrix.columns()));
    let call = Linear {
        input,
        tokens: tokens.unwrap_or(0),
        norm: None,
        weights: &[matrix],
        biases: &[],
        epilogue: Epilogue::Plain,
        residual: None,
        exact,
        outputs: &mut [output],
        scratch,
    };
    linear_with(functions, pool, call);
}

/// Bytes of converted input that the panels go over at a time: what stays in the second-level cache next to a panel.
const INPUT_BLOCK: usize = 512 << 10;
/// What a chunk of work should take, in nanoseconds: long against claiming it, short against a time slice.
const CHUNK_TIME: usize = 15_000;

fn check(call: &Linear) {
    let (tokens, weights) = (call.tokens, call.weights);
    let columns = weights.first().expect("linear: no weights").columns();
    assert_eq!(call.input.len(), tokens * columns, "linear: input of {tokens} rows of {columns}");
    if let Some(norm) = call.norm {
        assert_eq!(norm.weight.len(), columns, "linear: norm weight");
    }
    assert!(call.biases.is_empty() || call.biases.len() == weights.len(), "linear: a bias for each matrix");
    for (index, matrix) in weights.iter().enumerate() {
        assert_eq!(matrix.columns(), columns, "linear: columns of matrix {index}");
        assert_eq!(matrix.experts(), 1, "linear: matrices of matrix {index}");
        if let Some(bias) = call.biases.get(index).copied().flatten() {
            assert_eq!(bias.len(), matrix.rows(), "linear: bias {index}");
        }
    }
    let gate = matches!(call.epilogue, Epilogue::Gate(_));
    assert!(
        !gate || weights.len() == 2 && weights[0].rows() == weights[1].rows(),
        "linear: a gate takes two"
    );
    assert_eq!(call.outputs.len(), if gate { 1 } else { weights.len() }, "linear: outputs");
    for (output, matrix) in call.outputs.iter().zip(weights) {
        assert_eq!(
            output.len(),
            tokens * matrix.rows(),
            "linear: output of {tokens} rows of {}",
            matrix.rows()
        );
    }
    if let Some(residual) = call.residual {
        assert_eq!(residual.len(), tokens * weights[0].rows(), "linear: residual");
    }
    let needed = scratch_bytes(tokens, weights, call.exact);
    assert!(call.scratch.len() >= needed, "linear: scratch of {} bytes, {needed} needed", call.scratch.len());
}

/// The distinct forms that weights want.
fn forms(functions: &Functions, weights: &[&PackedMatrix], exact: bool) -> Vec<InputFormat> {
    let mut forms = Vec::with_capacity(weights.len());
    for form in weights.iter().map(|matrix| functions.form(matrix.dtype(), exact)) {
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// Where in the scratch each form goes.
fn place(
    forms: &[InputFormat],
    tokens: usize,
    columns: usize,
    scratch: &mut [u8],
) -> Vec<(InputFormat, *mut u8)> {
    let mut start = scratch.as_ptr().align_offset(64);
    let mut places = Vec::with_capacity(forms.len());
    for &form in forms {
        let size = tokens * form.token_bytes(columns);
        places.push((form, scratch[start..start + size].as_mut_ptr()));
        start += size.next_multiple_of(64);
    }
    places
}

fn input_of(
    functions: &Functions,
    matrix: &PackedMatrix,
    exact: bool,
    forms: &[(InputFormat, *mut u8)],
) -> (SendPointer<u8>, usize) {
    let form = functions.form(matrix.dtype(), exact);
    let (_, start) = forms.iter().find(|(other, _)| *other == form).expect("all forms have a place");
    (SendPointer(*start), form.token_bytes(matrix.columns()))
}

/// Tokens, cut into `count` tiles whose sizes differ by at most one.
#[derive(Clone, Copy)]
struct Tiles {
    tokens: usize,
    count: usize,
}

impl Tiles {
    fn get(self, index: usize) -> Range<usize> {
        index * self.tokens / self.count..(index + 1) * self.tokens / self.count
    }
}

/// Multiplies all panels with all tiles, in chunks of some panels times some tiles.
fn multiply_all(pool: &Pool, job: &LinearProducts, tiles: Tiles) {
    // With a gate, panels of the two matrices go together.
    let matrices = if matches!(job.epilogue, Epilogue::Gate(_)) { &job.weights[..1] } else { job.weights };
    let panels: usize = matrices.iter().map(|matrix| matrix.panels()).sum();
    if tiles.count == 0 || panels == 0 {
        return;
    }
    let tile_bytes = job.inputs[0].1 * tiles.tokens.div_ceil(tiles.count);
    let token_blocks = (tiles.count * tile_bytes).div_ceil(INPUT_BLOCK).clamp(1, tiles.count);
    let time: usize =
        matrices.iter().map(|matrix| matrix.panels() * job.panel_time(matrix, tiles.tokens)).sum();
    let at_a_time = (panels * CHUNK_TIME / time.max(1)).min(panels / (4 * pool.threads())).max(1);
    let groups = panels.div_ceil(at_a_time);
    pool.run(groups * token_blocks, &|chunk| {
        let (block, group) = (chunk / groups, chunk % groups);
        let tiles = block * tiles.count / token_blocks..(block + 1) * tiles.count / token_blocks;
        let (mut start, end) = (group * at_a_time, panels.min((group + 1) * at_a_time));
        let mut before = 0;
        for (index, matrix) in matrices.iter().enumerate() {
            let stop = end.min(before + matrix.panels());
            if start < stop {
                multiply_panels(job, index, 0, start - before..stop - before, tiles.clone());
                start = stop;
            }
            before += matrix.panels();
        }
    });
}

#[cfg(test)]
mod tests;
