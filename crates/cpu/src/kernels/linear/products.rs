//! The driver of the products: converts the input, then multiplies panels with tiles and finishes what comes out.

use std::ops::Range;

use tensor::DType;

use super::epilogue::{Epilogue, Finish, PanelProducts};
use super::functions::Functions;
use super::matrix::PackedMatrix;
use super::panel::Product;
use super::prepare::{InputFormat, Rows, Tile};
use super::simd::ROWS;
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
pub(super) struct LinearProducts<'a> {
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

impl LinearProducts<'_> {
    /// About how long a panel takes in nanoseconds: the time to stream it or to multiply it, whichever is longer.
    pub(super) fn panel_time(&self, matrix: &PackedMatrix, tokens: usize) -> usize {
        let products = ROWS * matrix.columns() * tokens;
        let products_per_ns = match self.functions.form(matrix.dtype(), self.exact) {
            InputFormat::Int8 { .. } => 170,
            InputFormat::F32 => 50,
            InputFormat::Bf16 => 100,
        };
        1 + (matrix.panel_bytes() / 16).max(products / products_per_ns)
    }
}

/// Multiplies panels of an expert's matrix (and, with a gate, of its sibling) with some tiles.
pub(super) fn multiply_panels(
    job: &LinearProducts,
    matrix: usize,
    expert: usize,
    panels: Range<usize>,
    tiles: Range<usize>,
) {
    let (pair, activation) = match job.epilogue {
        Epilogue::Plain => (&job.weights[matrix..=matrix], None),
        Epilogue::Activate(activation) => (&job.weights[matrix..=matrix], Some(activation)),
        Epilogue::Gate(activation) => (&job.weights[..2], Some(activation)),
    };
    let finish = Finish {
        biases: std::array::from_fn(|index| pair.get(index).and_then(|_| *job.biases.get(matrix + index)?)),
        activation,
        residual: job.residual.filter(|_| matrix == 0),
        output: job.outputs[matrix].get(),
        order: job.order,
        rows: pair[0].rows(),
    };
    let is_stream = pair.iter().all(|matrix| matrix.is_packed() && !matrix.is_widened(job.exact));
    // A panel stays in the first-level cache while tiles pass it. If there is one tile, panels are read as one stream.
    let tokens = (job.tile)(tiles.start).len();
    let at_a_time = match tiles.len() {
        1 if is_stream => (MAX_PRODUCTS / (pair.len() * tokens * ROWS)).max(1),
        _ => 1,
    };
    for start in panels.clone().step_by(at_a_time) {
        let panels = start..panels.end.min(start + at_a_time);
        with_panels(job.functions, pair, job.exact, expert, panels.clone(), |weights| {
            for tile in tiles.clone() {
                // SAFETY: the variant is available; the converted tiles are whole; the outputs have room for all rows, of
                // which an order names each once, and these columns of these rows are this chunk's alone.
                unsafe {
                    multiply_tile(
                        job.functions,
                        weights,
                        &job.inputs[matrix..],
                        (job.tile)(tile),
                        panels.clone(),
                        &finish,
                    );
                }
            }
        });
    }
}

/// The most products of a tile that wait for the epilogue: a half of the first-level cache.
const MAX_PRODUCTS: usize = 4096;

/// Neighbouring panels as a kernel multiplies them.
#[derive(Clone, Copy)]
struct Panels<'a> {
    dtype: DType,
    columns: usize,
    bytes: &'a [u8],
}

/// Calls `body` with panels of each matrix of an expert (0 where there is but one), packed if they are not yet, and quantized
/// ones widened if inputs stay exact.
fn with_panels(
    functions: &Functions,
    matrices: &[&PackedMatrix],
    exact: bool,
    expert: usize,
    panels: Range<usize>,
    body: impl FnOnce(&[Panels]),
) {
    let packed_len = |matrix: &PackedMatrix| match matrix.is_packed() {
        true => 0,
        false => (panels.len() * matrix.panel_bytes()).div_ceil(64) * ROWS,
    };
    let wide_len = |matrix: &PackedMatrix| match matrix.is_widened(exact) {
        true => panels.len() * ROWS * matrix.columns(),
        false => 0,
    };
    let lengths: [[usize; 2]; 2] = std::array::from_fn(|index| {
        matrices.get(index).map_or([0; 2], |matrix| [packed_len(matrix), wide_len(matrix)])
    });
    with_scratch(lengths.as_flattened().iter().sum(), |mut scratch| {
        let mut weights = [Panels { dtype: DType::F32, columns: 0, bytes: &[] }; 2];
        for ((slot, matrix), [packed_len, wide_len]) in weights.iter_mut().zip(matrices).zip(lengths) {
            let (packed, rest) = scratch.split_at_mut(packed_len);
            let (widened, rest) = rest.split_at_mut(wide_len);
            scratch = rest;
            let mut bytes = matrix.panels_of(expert, panels.clone(), bytemuck::cast_slice_mut(packed));
            let (mut dtype, columns) = (matrix.dtype(), matrix.columns());
            if matrix.is_widened(exact) {
                for (panel, to) in
                    bytes.chunks_exact(matrix.panel_bytes()).zip(widened.chunks_exact_mut(ROWS * columns))
                {
                    // SAFETY: the caller has checked for the variant; the panel is whole, and there are 16 numbers per
                    // column.
                    unsafe { (functions.widen)(dtype, panel.as_ptr(), columns, to.as_mut_ptr().cast()) };
                }
                (dtype, bytes) = (DType::F32, bytemuck::cast_slice(widened));
            }
            *slot = Panels { dtype, columns, bytes };
        }
        body(&weights[..matrices.len()]);
    });
}

/// Multiplies neighbouring panels, or those of a pair that is gated, with a tile.
///
/// # Safety
/// The variant is available, each input (start, and bytes per token) holds the whole converted tile, and as for
/// [`finish`](super::epilogue::finish).
unsafe fn multiply_tile(
    functions: &Functions,
    weights: &[Panels],
    inputs: &[(SendPointer<u8>, usize)],
    tokens: Range<usize>,
    panels: Range<usize>,
    finish: &Finish,
) {
    fetch_ends(finish, tokens.clone(), panels.clone());
    let len = panels.len() * tokens.len() * ROWS;
    with_scratch(weights.len() * len, |products| {
        for ((panel, (input, token_bytes)), out) in
            weights.iter().zip(inputs).zip(products.chunks_exact_mut(len))
        {
            // SAFETY: the caller vouches for variant and tile; panels are whole, and there is room for the products.
            unsafe {
                (functions.multiply)(&Product {
                    dtype: panel.dtype,
                    tokens: tokens.len(),
                    columns: panel.columns,
                    panel: panel.bytes.as_ptr(),
                    panels: panels.len(),
                    x: input.get().add(tokens.start * token_bytes),
                    out: out.as_mut_ptr().cast(),
                });
            }
        }
        let (products, gated) = products.as_chunks().0.split_at(panels.len() * tokens.len());
        for (index, panel) in panels.enumerate() {
            let of_panel = index * tokens.len()..(index + 1) * tokens.len();
            let gated = gated.get(of_panel.clone());
            let of = PanelProducts { panel, tokens: tokens.clone(), products: &products[of_panel], gated };
            // SAFETY: as the caller promises.
            unsafe { (functions.finish)(finish, &of) };
        }
    });
}

/// Asks for what the epilogue will read and write, so that it is there when the products are.
fn fetch_ends(finish: &Finish, tokens: Range<usize>, panels: Range<usize>) {
    for token in tokens {
        for panel in panels.clone() {
            let start = finish.place(token) * finish.rows + panel * ROWS;
            prefetch_line(finish.output.wrapping_add(start));
            if let Some(residual) = finish.residual {
                prefetch_line(&residual[start]);
            }
        }
    }
}
