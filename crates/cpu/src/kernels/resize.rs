//! Tensors at other sizes, one axis after the other: weighted sums of neighbours, in their order.
//!
//! Bound by memory. The last two axes that change are computed line by line, so that nothing lies between them but one
//! line of a thread's own memory; lines that are alike are copied. Threads share lines.

use std::ops::Range;
use std::sync::Arc;

use engine::KernelCall;
use graph::ops::{Neighbors, Resize};
use tensor::{AlignedBytes, DType, Shape};

use super::floats::{self, is_float};
use super::operands::view;
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd, with_scratch};
use crate::{Cpu, Pool};

/// One axis at another size.
struct Axis {
    /// What each element is made of: the first of the old axis, and the weights of it and those behind it.
    neighbors: Vec<(usize, Vec<f32>)>,
    /// Elements before.
    from: usize,
    /// Elements under one of it.
    inner: usize,
    form: AxisElements,
}

/// What the elements of an axis are.
enum AxisElements {
    /// Those of the old axis, each so many times.
    Repeated(usize),
    /// Some of the old axis.
    Picked(Vec<usize>),
    /// Weighted sums; those of a line, if there are any, sixteen by sixteen.
    Weighted(Vec<Option<Block>>),
}

/// Sixteen elements that are sums of as many terms each, more than one, all of which lie within sixteen elements of the old axis.
struct Block {
    /// The first of the old axis.
    first: usize,
    terms: Vec<Term>,
}

/// A term of sixteen sums.
struct Term {
    /// The elements of the old axis, from the block's first on.
    places: [u8; LANES],
    weights: [f32; LANES],
}

/// A tensor with one axis at another size, or two that follow one another.
pub(crate) struct Pass<'a> {
    x: &'a [f32],
    /// An axis whose elements are computed line by line.
    down: Option<Axis>,
    /// The one after it, whose elements are computed within a line.
    across: Option<Axis>,
}

/// Some lines of the result, from one with a number on.
pub(crate) type PassKernel = unsafe fn(&Pass<'_>, usize, &mut [f32]);

variants! {
    /// Lines of weighted sums.
    pub(crate) static VARIANTS = lines, (pass: &Pass<'_>, first: usize, out: &mut [f32])
}

/// Writes `x` of one shape to `out` of another.
///
/// # Errors
/// If `x` has no elements to make those of `out` of, or the system refuses memory for what lies between them.
pub(crate) fn resize(
    variant: &Variant<PassKernel>,
    pool: &Pool,
    op: &Resize,
    (x, from): (&[f32], &Shape),
    (out, to): (&mut [f32], &Shape),
) -> Result<(), String> {
    if out.is_empty() {
        return Ok(());
    }
    if x.is_empty() {
        return Err(format!("operand 0 of shape {from} has no elements to make {to} of"));
    }
    let mut shape = from.to_vec();
    let mut steps: Vec<(usize, Vec<Neighbors>)> =
        (0..to.rank()).filter_map(|axis| Some((axis, op.neighbors(from[axis], to[axis])?))).collect();
    let across = steps.pop();
    let down = steps.pop_if(|(axis, _)| across.as_ref().is_some_and(|(last, _)| *axis + 1 == *last));
    let mut current: Option<AlignedBytes> = None;
    for (axis, neighbors) in steps {
        let pass = Pass::of_one(floats_or(current.as_ref(), x), Axis::new(&shape, axis, neighbors));
        shape[axis] = to[axis];
        // Larger than the operand and the result, if the first axes grow and the last ones shrink.
        let bytes = DType::F32.bytes_for_shape(&Shape::new(&shape)).unwrap_or(usize::MAX);
        let mut next = AlignedBytes::try_zeroed(bytes).map_err(|error| error.to_string())?;
        pass.run(variant, pool, bytemuck::cast_slice_mut(&mut next));
        current = Some(next);
    }
    let x = floats_or(current.as_ref(), x);
    let down = down.map(|(axis, neighbors)| Axis::new(&shape, axis, neighbors));
    match (down, across.map(|(axis, neighbors)| Axis::new(&shape, axis, neighbors))) {
        (None, Some(axis)) => Pass::of_one(x, axis).run(variant, pool, out),
        (down, Some(across)) => Pass { x, down, across: Some(across) }.run(variant, pool, out),
        (_, None) => out.copy_from_slice(x),
    }
    Ok(())
}

fn floats_or<'a>(bytes: Option<&'a AlignedBytes>, otherwise: &'a [f32]) -> &'a [f32] {
    bytes.map_or(otherwise, |bytes| bytemuck::cast_slice(bytes))
}

impl Axis {
    fn new(shape: &[usize], axis: usize, neighbors: Vec<Neighbors>) -> Axis {
        let (from, inner) = (shape[axis], shape[axis + 1..].iter().product());
        let narrow = |n: Neighbors| (n.first, n.weights.iter().map(|&weight| weight as f32).collect());
        let neighbors: Vec<_> = neighbors.into_iter().map(narrow).collect();
        let form = AxisElements::of(&neighbors, from, inner);
        Axis { neighbors, from, inner, form }
    }

    /// The old axis that an element of the new one belongs to, counted over all before it, and the element's neighbors.
    fn place(&self, line: usize) -> (usize, &(usize, Vec<f32>)) {
        (line / self.neighbors.len(), &self.neighbors[line % self.neighbors.len()])
    }
}

impl AxisElements {
    fn of(neighbors: &[(usize, Vec<f32>)], from: usize, inner: usize) -> AxisElements {
        if neighbors.iter().any(|(_, weights)| weights.len() > 1) {
            let blocks = neighbors.chunks(LANES).map(|sums| Block::of(sums, from));
            return AxisElements::Weighted(if inner == 1 { blocks.collect() } else { Vec::new() });
        }
        let repeats = (neighbors.len() / from).max(1);
        match neighbors.iter().enumerate().all(|(i, (first, _))| *first == i / repeats) {
            true => AxisElements::Repeated(repeats),
            false => AxisElements::Picked(neighbors.iter().map(|(first, _)| *first).collect()),
        }
    }
}

impl Block {
    /// The block of some elements of an axis that had `from` elements, if they are one.
    fn of(sums: &[(usize, Vec<f32>)], from: usize) -> Option<Block> {
        let sums: &[_; LANES] = sums.try_into().ok()?;
        let count = sums[0].1.len();
        let first = sums.iter().map(|(first, _)| *first).min()?.min(from.checked_sub(LANES)?);
        let fits =
            |(place, weights): &(usize, Vec<f32>)| weights.len() == count && place - first + count <= LANES;
        let term = |term: usize| Term {
            places: sums.each_ref().map(|(place, _)| (place - first + term) as u8),
            weights: sums.each_ref().map(|(_, weights)| weights[term]),
        };
        (count > 1 && sums.iter().all(fits)).then(|| Block { first, terms: (0..count).map(term).collect() })
    }

    /// Writes the sums over a line of the old axis, whose bits are those of [`weighted`].
    #[inline(always)]
    fn write_sums<S: Simd>(&self, s: S, x: &[f32], out: &mut [f32; LANES]) {
        let x: &[f32; LANES] = x[self.first..].first_chunk().expect("a block lies within the old axis");
        // SAFETY: the arrays have sixteen values.
        unsafe {
            let x = s.load(x.as_ptr());
            let (mut sums, rest) = match &self.terms[..] {
                [a, b] => (s.add(a.product(s, x), b.product(s, x)), &[][..]),
                terms => (s.splat(0.0), terms),
            };
            for term in rest {
                sums = s.add(sums, term.product(s, x));
            }
            s.store(out.as_mut_ptr(), sums);
        }
    }
}

impl Term {
    /// The products with sixteen elements of the old axis.
    #[inline(always)]
    fn product<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        // SAFETY: the array has sixteen values.
        s.mul(unsafe { s.load(self.weights.as_ptr()) }, s.permute(x, &self.places))
    }
}

impl<'a> Pass<'a> {
    fn of_one(x: &'a [f32], axis: Axis) -> Pass<'a> {
        match axis.inner {
            1 => Pass { x, down: None, across: Some(axis) },
            _ => Pass { x, down: Some(axis), across: None },
        }
    }

    fn run(&self, variant: &Variant<PassKernel>, pool: &Pool, out: &mut [f32]) {
        assert!((variant.available)(), "resize: this machine cannot run {}", variant.name);
        let line = self.line();
        let lines = (16 * 1024 / line).max(1);
        pool.run_on_pieces(out, lines * line, &|index, out| {
            // SAFETY: the variant is available.
            unsafe { (variant.run)(self, index * lines, out) };
        });
    }

    /// Elements of a line of the result.
    fn line(&self) -> usize {
        match (&self.down, &self.across) {
            (_, Some(across)) => across.neighbors.len() * across.inner,
            (Some(down), None) => down.inner,
            (None, None) => unreachable!("a pass changes an axis"),
        }
    }
}

/// The kernel of the op, for a dtype.
pub(crate) fn kernel(cpu: &Cpu, op: &Resize, dtype: DType) -> Option<Arc<dyn engine::Kernel>> {
    let (op, variant, pool) = (op.clone(), cpu.pick(VARIANTS), Arc::clone(&cpu.pool));
    if is_float(dtype) { Some(Arc::new(ResizeKernel { op, dtype, variant, pool })) } else { None }
}

struct ResizeKernel {
    op: Resize,
    dtype: DType,
    variant: &'static Variant<PassKernel>,
    pool: Arc<Pool>,
}

impl engine::Kernel for ResizeKernel {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.op.clone()).name(), self.dtype, self.variant.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, to) = (view(&call, 0), call.outputs[0].shape);
        let from = (&*floats::read(x)?, x.shape);
        floats::write(&mut call.outputs[0], |out| {
            resize(self.variant, &self.pool, &self.op, from, (out, to))
        })?
    }
}

#[inline(always)]
fn lines<S: Simd>(s: S, pass: &Pass<'_>, first: usize, out: &mut [f32]) {
    let len = pass.line();
    let numbers = first..first + out.len() / len;
    match (&pass.down, &pass.across) {
        (None, Some(axis)) => {
            let x = pass.x[first * axis.from..].chunks_exact(axis.from);
            out.chunks_exact_mut(len).zip(x).for_each(|(out, x)| across(s, axis, x, out));
        }
        (Some(axis), None) => {
            out.chunks_exact_mut(len).zip(numbers).for_each(|(out, line)| down(axis, pass.x, line, out));
        }
        (Some(axis), Some(other)) => with_scratch(
            axis.inner,
            #[inline(always)]
            |row| down_and_across(s, (axis, other), pass.x, numbers, row, out),
        ),
        (None, None) => unreachable!("a pass changes an axis"),
    }
}

/// Lines of an axis and the one after it. A line that is made of the same one as that before it is copied.
#[inline(always)]
fn down_and_across<S: Simd>(
    s: S,
    (axis, other): (&Axis, &Axis),
    x: &[f32],
    numbers: Range<usize>,
    row: &mut [f32],
    out: &mut [f32],
) {
    let len = other.neighbors.len() * other.inner;
    for (i, line) in numbers.enumerate() {
        let (before, this) = out[..(i + 1) * len].split_at_mut(i * len);
        let (outer, (first, weights)) = axis.place(line);
        if weights.len() > 1 {
            down(axis, x, line, row);
            across(s, other, row, this);
        } else if i > 0 && same(axis.place(line - 1), (outer, *first)) {
            this.copy_from_slice(&before[(i - 1) * len..]);
        } else {
            across(s, other, &x[(outer * axis.from + first) * axis.inner..][..axis.inner], this);
        }
    }
}

/// Whether a line is made of one line of the operand alone, of this one.
fn same((outer, (first, weights)): (usize, &(usize, Vec<f32>)), line: (usize, usize)) -> bool {
    weights.len() == 1 && (outer, *first) == line
}

/// All elements of an axis, from all of the old one.
#[inline(always)]
fn across<S: Simd>(s: S, axis: &Axis, x: &[f32], out: &mut [f32]) {
    match (axis.inner, &axis.form) {
        (1, AxisElements::Repeated(2)) => {
            for (out, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(x) {
                *out = [*x; 2];
            }
        }
        (1, AxisElements::Repeated(repeats)) => {
            out.chunks_exact_mut(*repeats).zip(x).for_each(|(out, x)| out.fill(*x))
        }
        (1, AxisElements::Picked(picks)) => out.iter_mut().zip(picks).for_each(|(out, &pick)| *out = x[pick]),
        (1, AxisElements::Weighted(blocks)) => {
            let sums = axis.neighbors.chunks(LANES);
            for ((out, sums), block) in out.chunks_mut(LANES).zip(sums).zip(blocks) {
                match (block, out.first_chunk_mut()) {
                    (Some(block), Some(out)) => block.write_sums(s, x, out),
                    _ => out.iter_mut().zip(sums).for_each(|(out, sum)| *out = weighted(x, sum)),
                }
            }
        }
        (inner, _) => {
            out.chunks_exact_mut(inner).enumerate().for_each(|(i, out)| down(axis, x, i, out));
        }
    }
}

/// One weighted sum.
#[inline(always)]
fn weighted(x: &[f32], (first, weights): &(usize, Vec<f32>)) -> f32 {
    match (&weights[..], &x[*first..]) {
        ([_], [x, ..]) => *x,
        ([a, b], [x, y, ..]) => a * x + b * y,
        (weights, x) => weights.iter().zip(x).fold(0.0, |sum, (weight, x)| sum + weight * x),
    }
}

/// The elements under one of the axis.
#[inline(always)]
fn down(axis: &Axis, x: &[f32], line: usize, out: &mut [f32]) {
    let (outer, (first, weights)) = axis.place(line);
    let row = |i: usize| &x[(outer * axis.from + first + i) * axis.inner..][..axis.inner];
    match weights[..] {
        [_] => out.copy_from_slice(row(0)),
        [a, b] => out.iter_mut().zip(row(0)).zip(row(1)).for_each(|((out, x), y)| *out = a * x + b * y),
        _ => {
            out.fill(0.0);
            for (i, weight) in weights.iter().enumerate() {
                out.iter_mut().zip(row(i)).for_each(|(out, x)| *out += weight * x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::ops::{Coordinates, Interpolation};

    use super::*;
    use crate::vec::Portable;

    #[test]
    fn blocks_have_the_bits_of_single_sums() {
        let signs: Vec<f32> =
            (0..40).map(|i| [-0.0, 1e-40, f32::INFINITY, 3.7][i % 4] * (i as f32 - 20.0)).collect();
        for (interpolation, to) in [
            (Interpolation::Linear, 80),
            (Interpolation::Linear, 57),
            (Interpolation::Cubic { a: -0.75 }, 100),
            (Interpolation::Cubic { a: -0.5 }, 64),
        ] {
            let coordinates = Coordinates::HalfPixel;
            let op = Resize { size: Vec::new(), interpolation, coordinates, antialias: false };
            let axis = Axis::new(&[40], 0, op.neighbors(40, to).expect("another size"));
            let AxisElements::Weighted(blocks) = &axis.form else { panic!("sums") };
            assert!(blocks.iter().any(Option::is_some), "{interpolation:?} to {to}");
            for x in [&signs[..], &[-0.0; 40]] {
                for (sums, block) in axis.neighbors.chunks(LANES).zip(blocks) {
                    let Some(block) = block else { continue };
                    let mut out = [0.0; LANES];
                    block.write_sums(Portable, x, &mut out);
                    for (out, sum) in out.iter().zip(sums) {
                        let single = weighted(x, sum);
                        assert!(out.to_bits() == single.to_bits() || out.is_nan() && single.is_nan());
                    }
                }
            }
        }
    }
}
