//! The values of sample problems: random with fixed seeds, or awkward.

use tensor::blocks::random_blocks;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};

use graph::Op;
use graph::ops::Cast;

/// Sizes around those of vector registers, and one that is no multiple of anything.
pub(super) const SIZES: [usize; 5] = [1, 15, 16, 17, 1000];

/// Values where formulas and bit tricks go wrong.
pub(super) const AWKWARD: [f32; 28] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    f32::EPSILON,
    0.999_999_94,
    1.000_000_1,
    88.7,
    -88.7,
    -103.9,
    8_388_608.5,
    16_777_217.0,
    1e20,
    -1e-20,
    3.0e9,
];

/// Uniformly random numbers.
pub(super) struct Random(u64);

impl Random {
    /// Numbers that depend on the seed alone.
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A whole number below `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// f32 numbers in `-reach..reach`.
    pub(super) fn floats(&mut self, shape: impl Into<Shape>, reach: f32) -> Tensor {
        let shape = shape.into();
        let mut float = || ((self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0) * reach;
        Tensor::from_slice(shape, &(0..shape.elements()).map(|_| float()).collect::<Vec<f32>>())
    }

    /// Numbers of any plain dtype: floats in `-reach..reach`, integers over their whole range, both truth
    /// values.
    pub(super) fn tensor(&mut self, dtype: DType, shape: impl Into<Shape>, reach: f32) -> Tensor {
        let shape = shape.into();
        if dtype.is_float() {
            return cast(&self.floats(shape, reach), dtype);
        }
        let mask = if dtype == DType::Bool { 1 } else { 0xff };
        let bytes: Vec<u8> =
            (0..shape.elements() * dtype.block().bytes).map(|_| self.bits() as u8 & mask).collect();
        from_bytes(dtype, shape, &bytes)
    }

    /// u32 indices below `limit`.
    pub(super) fn indices(&mut self, shape: impl Into<Shape>, limit: usize) -> Tensor {
        let shape = shape.into();
        let indices: Vec<u32> = (0..shape.elements()).map(|_| self.below(limit) as u32).collect();
        Tensor::from_slice(shape, &indices)
    }

    /// A weight [rows, columns] of a plain float or block dtype, with elements of at most about 1.
    pub(super) fn weight(&mut self, dtype: DType, rows: usize, columns: usize) -> Tensor {
        if !dtype.is_block() {
            return self.tensor(dtype, [rows, columns], 0.5);
        }
        let count = rows * columns / dtype.block().elements;
        from_bytes(dtype, [rows, columns].into(), &random_blocks(dtype, count, self.bits()))
    }

    /// The weights [experts, rows, columns] of experts, as [`Random::weight`].
    pub(super) fn experts(&mut self, dtype: DType, [experts, rows, columns]: [usize; 3]) -> Tensor {
        let weight = self.weight(dtype, experts * rows, columns);
        from_bytes(dtype, [experts, rows, columns].into(), weight.bytes())
    }

    /// The numbers below `count` in random order.
    pub(super) fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..count as u32).collect();
        (1..count).rev().for_each(|i| numbers.swap(i, self.below(i + 1)));
        numbers
    }
}

/// Awkward values that pass a filter, in a dtype.
pub(super) fn awkward(dtype: DType, keep: impl Fn(f32) -> bool) -> Tensor {
    let values: Vec<f32> = AWKWARD.into_iter().filter(|&value| keep(value)).collect();
    cast(&Tensor::from_slice([values.len()], &values), dtype)
}

/// A tensor in another dtype.
pub(super) fn cast(x: &Tensor, to: DType) -> Tensor {
    let results = Op::from(Cast { to }).reference(&[x], &[*x.shape()]).expect("every float can be cast");
    results.into_iter().next().expect("a cast has one result")
}

fn from_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Tensor {
    Tensor::from_bytes(dtype, shape, Bytes::new(AlignedBytes::copy_of(bytes)))
        .expect("bytes fit by construction")
}
