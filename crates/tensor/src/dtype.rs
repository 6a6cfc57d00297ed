//! The types an element can have: plain numbers, and blocks of quantized weights.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

use crate::Shape;

/// How a block-quantized dtype is stored: `elements` weights in `bytes` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Weights in one block (32 or 256).
    pub elements: usize,
    /// Bytes of one block, scales included.
    pub bytes: usize,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $elements:literal per $bytes:literal;)*) => {
        /// The type of a tensor's elements.
        ///
        /// The discriminants are the codes that artifacts and checkpoint files store: those of plain numbers
        /// are fixed by the engine's specification, those of block formats (from 192) are Perihelion's own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType { $($(#[$doc])* $variant = $code,)* }

        impl DType {
            const LISTED: &[DType] = &[$(DType::$variant,)*];

            /// The name used in graph text and messages, such as `f32` or `q4_k`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// The smallest number of elements that can be stored, and its bytes.
            pub const fn block(self) -> Block {
                match self { $(DType::$variant => Block { elements: $elements, bytes: $bytes },)* }
            }
        }
    };
}

dtypes! {
    /// 4-bit float, 2 exponent bits and 1 mantissa bit, finite; two to a byte.
    F4E2M1 = 64, "f4e2m1fn", 2 per 1;
    /// 6-bit float, 2 exponent and 3 mantissa bits, finite; four to three bytes.
    F6E2M3 = 65, "f6e2m3fn", 4 per 3;
    /// 6-bit float, 3 exponent and 2 mantissa bits, finite; four to three bytes.
    F6E3M2 = 66, "f6e3m2fn", 4 per 3;
    /// One byte, 0 or 1.
    Bool = 1, "bool", 1 per 1;
    /// 8-bit exponent-only scale.
    F8E8M0 = 73, "f8e8m0fnu", 1 per 1;
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite.
    F8E4M3 = 75, "f8e4m3fn", 1 per 1;
    /// 8-bit float, 4 exponent and 3 mantissa bits, no negative zero.
    F8E4M3Fnuz = 76, "f8e4m3fnuz", 1 per 1;
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2 = 77, "f8e5m2", 1 per 1;
    /// 8-bit float, 5 exponent and 2 mantissa bits, no negative zero.
    F8E5M2Fnuz = 78, "f8e5m2fnuz", 1 per 1;
    /// IEEE half precision.
    F16 = 79, "f16", 1 per 2;
    /// The upper half of an `f32`.
    BF16 = 80, "bf16", 1 per 2;
    /// IEEE single precision.
    F32 = 81, "f32", 1 per 4;
    /// IEEE double precision.
    F64 = 82, "f64", 1 per 8;
    /// Unsigned 8-bit integer.
    U8 = 134, "u8", 1 per 1;
    /// Signed 8-bit integer.
    I8 = 135, "i8", 1 per 1;
    /// Unsigned 16-bit integer.
    U16 = 136, "u16", 1 per 2;
    /// Signed 16-bit integer.
    I16 = 137, "i16", 1 per 2;
    /// Unsigned 32-bit integer.
    U32 = 138, "u32", 1 per 4;
    /// Signed 32-bit integer.
    I32 = 139, "i32", 1 per 4;
    /// Unsigned 64-bit integer.
    U64 = 140, "u64", 1 per 8;
    /// Signed 64-bit integer.
    I64 = 141, "i64", 1 per 8;
    /// 4-bit weights, one f16 scale per 32.
    Q4_0 = 192, "q4_0", 32 per 18;
    /// 4-bit weights, one f16 scale and one f16 minimum per 32.
    Q4_1 = 193, "q4_1", 32 per 20;
    /// 5-bit weights, one f16 scale per 32.
    Q5_0 = 194, "q5_0", 32 per 22;
    /// 5-bit weights, one f16 scale and one f16 minimum per 32.
    Q5_1 = 195, "q5_1", 32 per 24;
    /// 8-bit weights, one f16 scale per 32.
    Q8_0 = 196, "q8_0", 32 per 34;
    /// 2-bit weights, 4-bit scale and minimum per 16, f16 superscales per 256.
    Q2K = 197, "q2_k", 256 per 84;
    /// 3-bit weights, 6-bit scale per 16, f16 superscale per 256.
    Q3K = 198, "q3_k", 256 per 110;
    /// 4-bit weights, 6-bit scale and minimum per 32, f16 superscales per 256.
    Q4K = 199, "q4_k", 256 per 144;
    /// 5-bit weights, 6-bit scale and minimum per 32, f16 superscales per 256.
    Q5K = 200, "q5_k", 256 per 176;
    /// 6-bit weights, 8-bit scale per 16, f16 superscale per 256.
    Q6K = 201, "q6_k", 256 per 210;
    /// 4-bit indices into a table of 16 levels, one f16 scale per 32.
    Iq4Nl = 202, "iq4_nl", 32 per 18;
    /// 4-bit indices into a table of 16 levels, 6-bit scale per 32, f16 superscale per 256.
    Iq4Xs = 203, "iq4_xs", 256 per 136;
    /// 4-bit weights, one f16 scale and one zero point per 32.
    Gptq = 204, "gptq", 32 per 19;
    /// 4-bit floats, one power of two per 32.
    Mxfp4 = 205, "mxfp4", 32 per 17;
    /// 8-bit floats, one f32 scale per 64.
    Fp8 = 206, "fp8", 64 per 68;
    /// 8-bit weights, one f32 scale and one zero point per 32.
    Gptq8 = 207, "gptq8", 32 per 37;
    /// 4-bit floats, 8-bit float per 16, f32 scale per 64.
    Nvfp4 = 208, "nvfp4", 64 per 40;
    /// 4-bit indices into the quantiles of a normal distribution, one f32 scale per 64.
    Nf4 = 209, "nf4", 64 per 36;
    /// 4-bit floats of bitsandbytes, one f32 scale per 64.
    Fp4 = 210, "fp4", 64 per 36;
    /// Grid points of 8 weights near -1, 0 and 1, 3-bit scale per 32, f16 superscale per 256.
    Iq1S = 211, "iq1_s", 256 per 50;
    /// Grid points of 8 weights near -1, 0 and 1, 3-bit scale per 16, f16 superscale per 256.
    Iq1M = 212, "iq1_m", 256 per 56;
    /// Grid points of 8 weights, 4-bit scale per 32, f16 superscale per 256.
    Iq2Xxs = 213, "iq2_xxs", 256 per 66;
    /// Grid points of 8 weights of a finer grid, 4-bit scale per 16, f16 superscale per 256.
    Iq2Xs = 214, "iq2_xs", 256 per 74;
    /// Grid points of 8 weights of the finest grid, 4-bit scale per 16, f16 superscale per 256.
    Iq2S = 215, "iq2_s", 256 per 82;
    /// Grid points of 4 weights, 4-bit scale per 32, f16 superscale per 256.
    Iq3Xxs = 216, "iq3_xxs", 256 per 98;
    /// Grid points of 4 weights of a finer grid, 4-bit scale per 32, f16 superscale per 256.
    Iq3S = 217, "iq3_s", 256 per 110;
    /// Weights of -1, 0 and 1, five to a byte, f16 scale per 256.
    Tq1_0 = 218, "tq1_0", 256 per 54;
    /// Weights of -1, 0 and 1, four to a byte, f16 scale per 256.
    Tq2_0 = 219, "tq2_0", 256 per 66;
    /// 4-bit floats, 8-bit float per 16, as GGML has them.
    GgmlNvfp4 = 220, "ggml_nvfp4", 64 per 36;
}

impl DType {
    /// The dtypes that are stored, printed and cast from, and no more: floats of less than a byte.
    pub const STORED_ONLY: &[DType] = DType::LISTED.split_at(3).0;

    /// Every other dtype, in the order of their codes: what ops compute with.
    pub const ALL: &[DType] = DType::LISTED.split_at(3).1;

    /// Every dtype there is.
    pub fn every() -> impl Iterator<Item = DType> {
        DType::LISTED.iter().copied()
    }

    /// The code stored in files.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The dtype with a code, if there is one.
    pub fn from_code(code: u8) -> Option<DType> {
        DType::every().find(|dtype| dtype.code() == code)
    }

    /// Bits of one element; of quantized blocks, rounded up.
    pub const fn size_in_bits(self) -> usize {
        let block = self.block();
        (block.bytes * 8).div_ceil(block.elements)
    }

    /// Bytes that one element takes, rounded up.
    pub const fn size_in_bytes(self) -> usize {
        self.size_in_bits().div_ceil(8)
    }

    /// The alignment, in bytes, that elements have in memory; 1 where several share bytes.
    pub const fn align(self) -> usize {
        if self.block().elements == 1 { self.block().bytes } else { 1 }
    }

    /// Whether several elements share bytes: those of quantized blocks, and floats of less than a byte.
    pub const fn is_block(self) -> bool {
        self.block().elements > 1
    }

    /// Whether this is a plain floating-point number.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64) || self.is_half() || self.is_float8() || self.is_sub_byte()
    }

    /// Whether this is a 16-bit float.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// Whether this is a float of less than a byte.
    pub const fn is_sub_byte(self) -> bool {
        matches!(self, DType::F4E2M1 | DType::F6E2M3 | DType::F6E3M2)
    }

    /// Whether this is an 8-bit float.
    pub const fn is_float8(self) -> bool {
        matches!(self, DType::F8E8M0 | DType::F8E4M3 | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz)
    }

    /// Whether this is an integer (`bool` is not).
    pub const fn is_integer(self) -> bool {
        self.is_signed_integer() || self.is_unsigned_integer()
    }

    /// Whether this is an integer, under the name that users of the engine know.
    pub const fn is_integral(self) -> bool {
        self.is_integer()
    }

    /// Whether this is a plain number that can be negative.
    pub const fn is_signed(self) -> bool {
        self.is_signed_integer() || self.is_float() && !matches!(self, DType::F8E8M0)
    }

    /// Whether this is a signed integer.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Whether this is an unsigned integer.
    pub const fn is_unsigned_integer(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// The bytes that `elements` consecutive elements take, or `None` if they do not divide into blocks
    /// or the count overflows.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        let block = self.block();
        if !elements.is_multiple_of(block.elements) {
            return None;
        }
        (elements / block.elements).checked_mul(block.bytes)
    }

    /// The bytes of a row-major array, or `None` if its rows do not divide into blocks or the size overflows.
    pub fn bytes_for_shape(self, shape: &Shape) -> Option<usize> {
        // A row of blocks must end with a block: the last axis counts, not the product.
        let whole_rows = !self.is_block() || shape.last().is_some_and(|&row| self.bytes_for(row).is_some());
        shape.checked_elements().filter(|_| whole_rows).and_then(|elements| self.bytes_for(elements))
    }

    /// Refuses another number of elements than the shape has.
    #[track_caller]
    pub(crate) fn expect_elements(self, shape: &Shape, count: usize) {
        let elements = shape.elements();
        assert!(elements == count, "{self}{shape} has {elements} elements, got {count}");
    }

    /// Whether elements can be read as `T`; `bool` is read as `u8`.
    pub fn reads_as<T: Element>(self) -> bool {
        T::DTYPE == self || (self == DType::Bool && T::DTYPE == DType::U8)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(name: &str) -> Result<DType, String> {
        DType::every().find(|dtype| dtype.name() == name).ok_or_else(|| format!("unknown dtype `{name}`"))
    }
}

/// A Rust type that can be an element of a tensor.
pub trait Element: bytemuck::Pod + Send + Sync + PartialOrd + fmt::Debug + 'static {
    /// The dtype whose bytes this type reads. (`bool` data is read as `u8`.)
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })* };
}

elements!(f16 => F16, bf16 => BF16, f32 => F32, f64 => F64, u8 => U8, i8 => I8, u16 => U16, i16 => I16,
          u32 => U32, i32 => I32, u64 => U64, i64 => I64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for dtype in DType::every() {
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        assert_eq!(DType::from_code(0), None);
        assert!("q9_z".parse::<DType>().unwrap_err().contains("q9_z"));
    }

    #[test]
    fn codes_are_those_of_the_engine() {
        let code = |name: &str| name.parse::<DType>().unwrap().code();
        let codes = [("bool", 1), ("f4e2m1fn", 64), ("f6e3m2fn", 66), ("f8e8m0fnu", 73), ("f8e5m2fnuz", 78)];
        for (name, expected) in codes.into_iter().chain([("f16", 79), ("f64", 82), ("u8", 134), ("i64", 141)])
        {
            assert_eq!(code(name), expected, "{name}");
        }
        assert!(DType::STORED_ONLY.iter().all(|dtype| dtype.is_sub_byte()));
        assert!(DType::ALL.iter().all(|dtype| !dtype.is_sub_byte()));
    }

    #[test]
    fn kinds_of_numbers_are_told_apart() {
        let kinds = |dtype: DType| {
            (
                dtype.is_float(),
                dtype.is_half(),
                dtype.is_integral(),
                dtype.is_signed(),
                dtype.is_unsigned_integer(),
            )
        };
        assert_eq!(kinds(DType::BF16), (true, true, false, true, false));
        assert_eq!(kinds(DType::F8E8M0), (true, false, false, false, false));
        assert_eq!(kinds(DType::F4E2M1), (true, false, false, true, false));
        assert_eq!(kinds(DType::I8), (false, false, true, true, false));
        assert_eq!(kinds(DType::U64), (false, false, true, false, true));
        assert_eq!(kinds(DType::Bool), (false, false, false, false, false));
        assert_eq!(kinds(DType::Q4K), (false, false, false, false, false));
    }

    #[test]
    fn elements_have_sizes() {
        let sizes = |dtype: DType| (dtype.size_in_bits(), dtype.size_in_bytes(), dtype.align());
        assert_eq!(sizes(DType::F64), (64, 8, 8));
        assert_eq!(sizes(DType::Bool), (8, 1, 1));
        assert_eq!(sizes(DType::F4E2M1), (4, 1, 1));
        assert_eq!(sizes(DType::F6E2M3), (6, 1, 1));
        assert_eq!(sizes(DType::Q4_0), (5, 1, 1));
        assert_eq!(DType::F6E2M3.bytes_for_shape(&Shape::new(&[2, 8])), Some(12));
        assert_eq!(DType::F4E2M1.bytes_for_shape(&Shape::new(&[2, 3])), None);
    }

    #[test]
    fn bytes_count_whole_blocks_only() {
        assert_eq!(DType::Q4K.bytes_for(512), Some(288));
        assert_eq!(DType::Q4K.bytes_for(511), None);
        assert_eq!(DType::F64.bytes_for(usize::MAX / 4), None);
        assert_eq!(DType::Q4_0.bytes_for_shape(&Shape::new(&[3, 64])), Some(108));
        assert_eq!(DType::Q4_0.bytes_for_shape(&Shape::new(&[4, 16])), None);
        assert_eq!(DType::Q4_0.bytes_for_shape(&Shape::SCALAR), None);
        assert_eq!(DType::F32.bytes_for_shape(&Shape::SCALAR), Some(4));
    }
}
