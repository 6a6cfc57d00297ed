//! The driver of the products: converts the input, then multiplies panels with tiles and finishes what comes out.

use std::ops::Range;

use tensor::DType;

use super::epilogue::{Epilogue, Finish, Products};
use super::functions::{Functions, Product};
use super::matrix::PackedMatrix;
use super::panel::ROWS;
use super::prepare::{Form, Rows, Tile};
use super::simd::MAX_TILE;
use crate::Pool;
use crate::threads::SendPointer;
use crate::vec::{prefetch_line, with_scratch};

/// Elements that are not worth a region of their own for the prologue.
const SMALL_INPUT: usize = 1 << 14;

/// Converts the input, on one thread when it is small, since it is done before others would have woken.
pub(super) fn prepare_all(
    functions: &Functions,
    pool: &Pool,
    rows: &Rows,
    tokens: usize,
    tiles: usize,
    tile: &(dyn Fn(usize) -> Range<usize> + Sync),
) {
    let blocks = rows.columns.div_ceil(32);
    let small = tokens * rows.columns * rows.forms.len() <= SMALL_INPUT;
    // Few tiles are cut along the columns too. Each slice computes the norm of its rows again.
    let slices = if small { 1 } else { (2 * pool.threads()).div_ceil(tiles).min(blocks.div_ceil(8)).max(1) };
    let body = |chunk: usize| {
        let (index, slice) = (chunk / slices, chunk % slices);
        let blocks = slice * blocks / slices..(slice + 1) * blocks / slices;
        let tile = Tile { tokens: tile(index), blocks };
        // SAFETY: the variant is available; the forms have room; tiles and slices are disjoint.
        unsafe { (functions.prepare)(rows, &tile) };
    };
    if small {
        (0..tiles).for_each(body);
    } else {
        pool.run(tiles * slices, &body);
    }
}

/// The products of one call, and what follows them.
pub(super) struct Job<'a> {
    pub(super) functions: &'a Functions,
    pub(super) weights: &'a [&'a PackedMatrix],
    pub(super) biases: &'a [Option<&'a [f32]>],
    pub(super) epilogue: Epilogue,
    pub(super) residual: Option<&'a [f32]>,
    pub(super) exact: bool,
    /// The rows of each tile.
    pub(super) tile: &'a (dyn Fn(usize) -> Range<usize> + Sync),
    /// Where in the output each row goes, unless they are in order.
    pub(super) order: Option<&'a [usize]>,
    /// The start and the bytes per row of the input in each matrix's form.
    pub(super) inputs: Vec<(SendPointer<u8>, usize)>,
    pub(super) outputs: &'a [SendPointer<f32>],
}

/// About how long a panel takes in nanoseconds: the time to stream it or to multiply it, whichever is longer.
pub(super) fn panel_time(matrix: &PackedMatrix, exact: bool, tokens: usize) -> usize {
    let products = ROWS * matrix.columns() * tokens;
    let products_per_ns = match matrix.form(exact) {
        Form::Int8 { .. } => 170,
        Form::F32 => 50,
    };
    1 + (matrix.panel_bytes() / 16).max(products / products_per_ns)
}

/// Multiplies a panel of an expert's matrix (and, with a gate, its sibling) with some tiles.
pub(super) fn multiply_panel(job: &Job, matrix: usize, (expert, panel): (usize, usize), tiles: Range<usize>) {
    let (pair, activation) = match job.epilogue {
        Epilogue::Plain => (&job.weights[matrix..=matrix], None),
        Epilogue::Activate(activation) => (&job.weights[matrix..=matrix], Some(activation)),
        Epilogue::Gate(activation) => (&job.weights[..2], Some(activation)),
    };
    let rows = pair[0].rows();
    let finish = Finish {
        biases: std::array::from_fn(|index| pair.get(index).and_then(|_| *job.biases.get(matrix + index)?)),
        activation,
        residual: job.residual.filter(|_| matrix == 0),
        output: job.outputs[matrix].get(),
        order: job.order,
        rows,
        range: panel * ROWS..rows.min((panel + 1) * ROWS),
    };
    with_panels(job.functions, pair, job.exact, (expert, panel), |panels| {
        for tile in tiles {
            // SAFETY: the variant is available; the converted tiles are whole; the outputs have room for all rows, of
            // which an order names each once, and these columns of these rows are this chunk's alone.
            unsafe {
                multiply_tile(job.functions, panels, &job.inputs[matrix..], (job.tile)(tile), &finish);
            }
        }
    });
}

/// A panel as a kernel multiplies it.
#[derive(Clone, Copy)]
struct Panel<'a> {
    dtype: DType,
    columns: usize,
    bytes: &'a [u8],
}

/// Calls `body` with the panel of a number of each matrix of an expert (0 where there is but one), quantized ones widened
/// if inputs stay exact.
fn with_panels(
    functions: &Functions,
    matrices: &[&PackedMatrix],
    exact: bool,
    (expert, panel): (usize, usize),
    body: impl FnOnce(&[Panel]),
) {
    let is_widened = |matrix: &PackedMatrix| exact && matrix.form(false) != Form::F32;
    let lengths = matrices.iter().map(|matrix| if is_widened(matrix) { ROWS * matrix.columns() } else { 0 });
    with_scratch(lengths.sum(), |mut wide| {
        let mut panels = [Panel { dtype: DType::F32, columns: 0, bytes: &[] }; 2];
        for (slot, matrix) in panels.iter_mut().zip(matrices) {
            let (columns, mut bytes) = (matrix.columns(), matrix.panel(expert, panel));
            let mut dtype = matrix.dtype();
            if is_widened(matrix) {
                let (weights, rest) = wide.split_at_mut(ROWS * columns);
                // SAFETY: the caller has checked for the variant; the panel is whole, and there are 16 numbers per column.
                unsafe { (functions.widen)(dtype, bytes.as_ptr(), columns, weights.as_mut_ptr().cast()) };
                (dtype, bytes, wide) = (DType::F32, bytemuck::cast_slice(weights), rest);
            }
            *slot = Panel { dtype, columns, bytes };
        }
        body(&panels[..matrices.len()]);
    });
}

/// Multiplies a panel, or a pair that is gated, with a tile.
///
/// # Safety
/// The variant is available, each input (start, and bytes per token) holds the whole converted tile, and as for
/// [`finish`](super::epilogue::finish).
unsafe fn multiply_tile(
    functions: &Functions,
    panels: &[Panel],
    inputs: &[(SendPointer<u8>, usize)],
    tokens: Range<usize>,
    finish: &Finish,
) {
    fetch_ends(finish, tokens.clone());
    let mut products: [Products; 2] = [[[0.0; ROWS]; MAX_TILE]; 2];
    for ((panel, (input, token_bytes)), out) in panels.iter().zip(inputs).zip(&mut products) {
        // SAFETY: the caller vouches for variant and tile; panel and products are whole.
        unsafe {
            (functions.multiply)(&Product {
                dtype: panel.dtype,
                tokens: tokens.len(),
                columns: panel.columns,
                panel: panel.bytes.as_ptr(),
                x: input.get().add(tokens.start * token_bytes),
                out: out.as_mut_ptr().cast(),
            });
        }
    }
    let gated = (panels.len() == 2).then_some(&products[1]);
    // SAFETY: as the caller promises.
    unsafe { (functions.finish)(finish, tokens, &products[0], gated) };
}

/// Asks for what the epilogue will read and write, so that it is there when the products are.
fn fetch_ends(finish: &Finish, tokens: Range<usize>) {
    for token in tokens {
        let start = finish.place(token) * finish.rows + finish.range.start;
        prefetch_line(finish.output.wrapping_add(start));
        if let Some(residual) = finish.residual {
            prefetch_line(&residual[start]);
        }
    }
}
