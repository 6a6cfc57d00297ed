//! Numbers without pattern.

use graph::Op;
use graph::ops::Cast;
use tensor::blocks::random_blocks;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    /// Noise that depends on a name.
    pub(crate) fn named(name: &str) -> Noise {
        Noise(name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte)))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From -1 to 1.
    pub(crate) fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Floats from -2 to 2, integers from -2 (or 0) to 6, both truth values, any blocks.
    pub(crate) fn tensor(&mut self, dtype: DType, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let elements = shape.elements();
        if dtype.is_block() {
            let block = dtype.block();
            let bytes = random_blocks(dtype, elements / block.elements, self.bits());
            return from_bytes(dtype, shape, &bytes);
        }
        let unsigned = [DType::U8, DType::U16, DType::U32, DType::U64].contains(&dtype);
        let mut value = || match dtype {
            DType::Bool => (self.bits() % 2) as f64,
            _ if dtype.is_float() => self.number() * 2.0,
            _ => (self.bits() % 9) as f64 - if unsigned { 0.0 } else { 2.0 },
        };
        let values: Vec<f64> = (0..elements).map(|_| value()).collect();
        cast(&Tensor::from_slice(shape, &values), dtype)
    }

    /// Indices below a limit.
    pub(crate) fn indices(&mut self, dtype: DType, shape: impl Into<Shape>, limit: usize) -> Tensor {
        let shape = shape.into();
        let limit = limit.max(1) as u64;
        let values: Vec<f64> = (0..shape.elements()).map(|_| (self.bits() % limit) as f64).collect();
        cast(&Tensor::from_slice(shape, &values), dtype)
    }
}

/// A tensor in another dtype.
pub(crate) fn cast(x: &Tensor, to: DType) -> Tensor {
    let results = Op::from(Cast { to }).reference(&[x], &[*x.shape()]);
    results.expect("numbers can be cast").swap_remove(0)
}

/// A tensor over copied bytes.
pub(crate) fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Tensor {
    Tensor::from_bytes(dtype, shape, Bytes::new(AlignedBytes::copy_of(bytes))).expect("bytes of the shape")
}
