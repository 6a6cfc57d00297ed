//! What a panel kernel needs of an instruction set: registers of 16 rows, and about thirty operations on them.
//!
//! The kernels (`panel`, `prepare`, `epilogue`) are written once over [`Isa`] and always inlined, into the functions
//! of `functions`, which carry the target features.

use crate::vec::Simd;

/// An f32 for each of 16 rows.
pub(super) type Floats<I> = <<I as Isa>::Lanes as Simd>::F32;

/// Rows in a panel.
pub(super) const ROWS: usize = 16;

/// The largest [`Isa::TILE`].
pub(super) const MAX_TILE: usize = 12;

/// Int8 codes of 32 neighbouring columns, and what they are multiples of.
pub(super) struct Quantized {
    /// Signed codes, in column order.
    pub codes: [u8; 32],
    /// What a code counts in; NaN when the input holds one, and infinite when it holds an infinity.
    pub scale: f32,
    /// The sums of the first and the last 16 codes.
    pub sums: [i32; 2],
}

/// An instruction set.
///
/// # Safety
/// All functions are unsafe for the same two reasons: the machine must have the instruction set, and pointers must
/// lead to as many readable (or writable) bytes as the operation names. Nothing needs alignment.
pub(super) trait Isa: Sized + 'static {
    /// The largest number of tokens that a panel is multiplied with at once, as registers allow; at most 12.
    const TILE: usize;
    /// As [`Isa::TILE`], for f32 inputs.
    const FLOAT_TILE: usize = Self::TILE;
    /// Whether codes stay in registers while sums of several tokens are loaded and stored; otherwise the sums stay there.
    const CODES_STAY: bool = false;
    /// 4 byte codes for each of 16 rows.
    type Bytes: Copy;
    /// An i32 for each of 16 rows.
    type Ints: Copy;
    /// An f32 for each of 16 rows, and the arithmetic on them.
    type Lanes: Simd;

    /// Whether this machine has the instruction set.
    fn available() -> bool;
    /// The proof that the instruction set is there.
    unsafe fn lanes() -> Self::Lanes;

    /// 64 bytes.
    unsafe fn bytes(from: *const u8) -> Self::Bytes;
    /// Asks for a cache line that will be read soon. Any address will do.
    unsafe fn prefetch(from: *const u8);
    /// The lower 4 bits of each byte.
    unsafe fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    /// The upper 4 bits of each byte.
    unsafe fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    /// Adds 16 times the `WIDTH` bits, 1 or 2, of each byte that start with bit `FIELD · WIDTH`.
    unsafe fn with_upper_bits<const FIELD: usize, const WIDTH: usize>(
        nibbles: Self::Bytes,
        bits: Self::Bytes,
    ) -> Self::Bytes;
    /// The byte of a table that each nibble stands for.
    unsafe fn lookup(nibbles: Self::Bytes, table: &'static [u8; 16]) -> Self::Bytes;

    /// Zeros.
    unsafe fn zero_ints() -> Self::Ints;
    /// One i32, for all rows.
    unsafe fn splat_int(from: *const u8) -> Self::Ints;
    /// Adds for each row the products of its 4 unsigned codes with the 4 signed bytes at `x`, exactly.
    /// With `SMALL`, codes are at most 127.
    unsafe fn dot<const SMALL: bool>(sums: Self::Ints, codes: Self::Bytes, x: *const u8) -> Self::Ints;
    /// Adds for each row the products of its codes of four steps with the signed bytes at places `stride` apart, exactly.
    /// A zero point of 128 is subtracted from the codes first.
    unsafe fn dots<C: Codes>(_: Self::Ints, _: [Self::Bytes; 4], _: *const u8, _: usize) -> Self::Ints {
        unreachable!("codes do not stay")
    }
    /// Converts to f32, rounding to nearest even.
    unsafe fn to_floats(ints: Self::Ints) -> Floats<Self>;

    /// 16 u8.
    unsafe fn unsigned(from: *const u8) -> Floats<Self>;
    /// 16 i8.
    unsafe fn signed(from: *const u8) -> Floats<Self>;
    /// 16 powers of two: `2^(e − 128)` of each byte `e`.
    unsafe fn exponents(from: *const u8) -> Floats<Self>;
    /// 16 e4m3, divided by 256. NaN's code is read as 480.
    unsafe fn float8(from: *const u8) -> Floats<Self>;
    /// For the low and the high nibbles of 16 bytes, the numbers of a table of 16 f32 that they stand for.
    unsafe fn table_pair(table: *const u8, from: *const u8) -> (Floats<Self>, Floats<Self>);
    /// 16 pairs of bf16: the first of each, and the second.
    unsafe fn pairs(from: *const u8) -> (Floats<Self>, Floats<Self>);
    /// The codes of one of four columns.
    unsafe fn code(codes: Self::Bytes, column: usize) -> Floats<Self>;
    /// Writes `(code − zero point) · scale + minimum` of four columns, 16 weights each. `factors` are these three.
    #[inline(always)]
    unsafe fn widen_columns(codes: Self::Bytes, factors: [Floats<Self>; 3], to: *mut u8) {
        let [zero_point, scale, minimum] = factors;
        for column in 0..4 {
            // SAFETY: passed on to the caller.
            unsafe {
                let code = Self::lanes().sub(Self::code(codes, column), zero_point);
                Self::store(to.add(64 * column), Self::mul_add(code, scale, minimum));
            }
        }
    }

    /// Quantizes 32 values, the first 16 in `low`: `scale = max|x| / 127`, codes rounded to nearest even. NaN gets the
    /// code -127. So does an infinity: its inverse scale is 0, and their product is NaN.
    unsafe fn quantize(low: Floats<Self>, high: Floats<Self>) -> Quantized;

    /// Zeros.
    #[inline(always)]
    unsafe fn zero() -> Floats<Self> {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self::lanes() }.splat(0.0)
    }

    /// One f32, for all rows.
    #[inline(always)]
    unsafe fn splat(from: *const u8) -> Floats<Self> {
        // SAFETY: the caller vouches for the instruction set and the pointer.
        unsafe { Self::lanes().splat(from.cast::<f32>().read_unaligned()) }
    }

    /// 16 f32.
    #[inline(always)]
    unsafe fn floats(from: *const u8) -> Floats<Self> {
        // SAFETY: the caller vouches for the instruction set and the pointer.
        unsafe { Self::lanes().load(from.cast()) }
    }

    /// Stores 16 f32.
    #[inline(always)]
    unsafe fn store(to: *mut u8, floats: Floats<Self>) {
        // SAFETY: the caller vouches for the instruction set and the pointer.
        unsafe { Self::lanes().store(to.cast(), floats) }
    }

    /// 16 f16.
    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Floats<Self> {
        // SAFETY: the caller vouches for the instruction set and the pointer.
        unsafe { Self::lanes().load_f16(from.cast()) }
    }

    /// `a · b`.
    #[inline(always)]
    unsafe fn mul(a: Floats<Self>, b: Floats<Self>) -> Floats<Self> {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self::lanes() }.mul(a, b)
    }

    /// `a · b + c`, rounded once.
    #[inline(always)]
    unsafe fn mul_add(a: Floats<Self>, b: Floats<Self>, c: Floats<Self>) -> Floats<Self> {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self::lanes() }.fma(a, b, c)
    }
}

/// How the codes of 16 rows and 32 columns are stored.
pub(super) trait Codes {
    /// What stored codes are larger than the codes meant.
    const ZERO_POINT: i32;
    /// The largest code, or more.
    const MOST: u8;
    /// The bytes they take.
    const BYTES: usize;
    /// The codes of columns `4 · STEP..4 · STEP + 4`.
    unsafe fn step<I: Isa, const STEP: usize>(codes: *const u8) -> I::Bytes;
}

/// A byte in which the bits are set that [`Isa::with_upper_bits`] adds.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const fn upper_bits(width: usize) -> i8 {
    ((1 << width) - 1) << 4
}

/// The scale of a block whose largest magnitude is `largest`, and what to multiply with to get codes.
#[inline(always)]
pub(super) fn scale_of(largest: f32) -> (f32, f32) {
    let inverse = 127.0 / largest;
    // Blocks of zeros, or so tiny that the inverse overflows, become zeros.
    if inverse == f32::INFINITY { (0.0, 0.0) } else { (largest / 127.0, inverse) }
}

/// Operations that are one expression each.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! operations {
    ($($(#[$attribute:meta])* fn $name:ident $(<$(const $constant:ident: $kind:ty),*>)? ($($argument:ident: $type:ty),*)
       $(-> $result:ty)? = $body:expr;)*) => {
        $(
            $(#[$attribute])*
            #[inline(always)]
            unsafe fn $name $(<$(const $constant: $kind),*>)? ($($argument: $type),*) $(-> $result)? {
                // SAFETY: the caller vouches for the instruction set and the pointers.
                unsafe { $body }
            }
        )*
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use operations;
