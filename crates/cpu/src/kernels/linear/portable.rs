//! Panels in plain Rust, for any machine; compilers turn the loops over 16 rows into whatever registers it has.

use half::{bf16, f16};

use super::simd::{Floats, Isa, Quantized, scale_of};
use crate::vec::Simd;

pub(super) struct Portable;

#[inline(always)]
unsafe fn read<T: Copy>(from: *const u8) -> T {
    // SAFETY: the caller vouches for the pointer, and all bytes are values of the types used here.
    unsafe { from.cast::<T>().read_unaligned() }
}

/// As `map` of arrays, in a loop that compilers vectorize.
#[inline(always)]
fn each<A: Copy, B: Copy + Default, const N: usize>(from: &[A; N], function: impl Fn(A) -> B) -> [B; N] {
    let mut to = [B::default(); N];
    for (to, from) in to.iter_mut().zip(from) {
        *to = function(*from);
    }
    to
}

#[inline(always)]
fn lanes(values: [f32; 16]) -> Floats<Portable> {
    // SAFETY: the array has sixteen values.
    unsafe { crate::vec::Portable.load(values.as_ptr()) }
}

impl Isa for Portable {
    const TILE: usize = 2;
    type Bytes = [u8; 64];
    type Ints = [i32; 16];
    type Lanes = crate::vec::Portable;

    fn available() -> bool {
        true
    }

    #[inline(always)]
    unsafe fn lanes() -> crate::vec::Portable {
        crate::vec::Portable
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> [u8; 64] {
        // SAFETY: passed on to the caller.
        unsafe { read(from) }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    #[inline(always)]
    unsafe fn low_nibbles(bytes: [u8; 64]) -> [u8; 64] {
        each(&bytes, |byte| byte & 15)
    }

    #[inline(always)]
    unsafe fn high_nibbles(bytes: [u8; 64]) -> [u8; 64] {
        each(&bytes, |byte| byte >> 4)
    }

    #[inline(always)]
    unsafe fn with_upper_bits<const FIELD: usize, const WIDTH: usize>(
        mut nibbles: [u8; 64],
        bits: [u8; 64],
    ) -> [u8; 64] {
        for (nibble, bits) in nibbles.iter_mut().zip(&bits) {
            *nibble |= (bits >> (FIELD * WIDTH) & ((1 << WIDTH) - 1)) << 4;
        }
        nibbles
    }

    #[inline(always)]
    unsafe fn lookup(nibbles: [u8; 64], table: &'static [u8; 16]) -> [u8; 64] {
        each(&nibbles, |nibble| table[usize::from(nibble & 15)])
    }

    #[inline(always)]
    unsafe fn zero_ints() -> [i32; 16] {
        [0; 16]
    }

    #[inline(always)]
    unsafe fn splat_int(from: *const u8) -> [i32; 16] {
        // SAFETY: passed on to the caller.
        [unsafe { read(from) }; 16]
    }

    // A call: the kernels repeat it up to 32 times.
    #[inline(never)]
    unsafe fn dot<const SMALL: bool>(mut sums: [i32; 16], codes: [u8; 64], x: *const u8) -> [i32; 16] {
        // SAFETY: passed on to the caller.
        let x = unsafe { read::<[i8; 4]>(x) }.map(i32::from);
        let rows: [u32; 16] = bytemuck::cast(codes);
        for (sum, row) in sums.iter_mut().zip(rows) {
            let code = |column: usize| (u32::from_le(row) >> (8 * column) & 255) as i32;
            *sum += code(0) * x[0] + code(1) * x[1] + code(2) * x[2] + code(3) * x[3];
        }
        sums
    }

    #[inline(always)]
    unsafe fn to_floats(ints: [i32; 16]) -> Floats<Self> {
        lanes(each(&ints, |int| int as f32))
    }

    #[inline(always)]
    unsafe fn unsigned(from: *const u8) -> Floats<Self> {
        // SAFETY: passed on to the caller.
        lanes(each(&unsafe { read::<[u8; 16]>(from) }, f32::from))
    }

    #[inline(always)]
    unsafe fn signed(from: *const u8) -> Floats<Self> {
        // SAFETY: passed on to the caller.
        lanes(each(&unsafe { read::<[i8; 16]>(from) }, f32::from))
    }

    #[inline(always)]
    unsafe fn exponents(from: *const u8) -> Floats<Self> {
        // The two smallest are subnormal: bits that are shifted. From 2 on, the exponent counts up.
        let power = |e: u8| f32::from_bits((1 << 21 << e.min(2)) + (u32::from(e.max(2) - 2) << 23));
        // SAFETY: passed on to the caller.
        lanes(each(&unsafe { read::<[u8; 16]>(from) }, power))
    }

    #[inline(always)]
    unsafe fn float8(from: *const u8) -> Floats<Self> {
        // The exponent of an f16 has one bit more, and a bias that is larger by 8.
        let half =
            |code: u8| f16::from_bits(u16::from(code & 0x80) << 8 | u16::from(code & 0x7f) << 7).to_f32();
        // SAFETY: passed on to the caller.
        lanes(each(&unsafe { read::<[u8; 16]>(from) }, half))
    }

    #[inline(always)]
    unsafe fn table_pair(table: *const u8, from: *const u8) -> (Floats<Self>, Floats<Self>) {
        // SAFETY: passed on to the caller.
        let (table, bytes) = unsafe { (read::<[f32; 16]>(table), read::<[u8; 16]>(from)) };
        let look = |shift: u32| lanes(each(&bytes, |byte: u8| table[usize::from(byte >> shift & 15)]));
        (look(0), look(4))
    }

    #[inline(always)]
    unsafe fn pairs(from: *const u8) -> (Floats<Self>, Floats<Self>) {
        // SAFETY: passed on to the caller.
        let pairs: [[bf16; 2]; 16] = unsafe { read(from) };
        let side = |index: usize| lanes(each(&pairs, |pair: [bf16; 2]| widen(pair[index])));
        (side(0), side(1))
    }

    #[inline(always)]
    unsafe fn code(codes: [u8; 64], column: usize) -> Floats<Self> {
        let rows: [[u8; 4]; 16] = bytemuck::cast(codes);
        lanes(each(&rows, |row: [u8; 4]| f32::from(row[column])))
    }

    // A call: the kernels repeat it 8 times.
    #[inline(never)]
    unsafe fn widen_columns(codes: [u8; 64], factors: [Floats<Self>; 3], to: *mut u8) {
        let [zero_point, scale, minimum] = factors;
        for column in 0..4 {
            // SAFETY: passed on to the caller.
            unsafe {
                let code = Self::lanes().sub(Self::code(codes, column), zero_point);
                Self::store(to.add(64 * column), Self::mul_add(code, scale, minimum));
            }
        }
    }

    #[inline(always)]
    unsafe fn quantize(low: Floats<Self>, high: Floats<Self>) -> Quantized {
        let values = [low, high].map(|lanes| crate::vec::Portable.to_array(lanes));
        // Magnitudes compare as integers do, and NaN as the largest.
        let magnitude = |value: &f32| value.to_bits() & 0x7fff_ffff;
        let largest = values.iter().flatten().map(magnitude).max().expect("32 values");
        let (scale, inverse) = scale_of(f32::from_bits(largest));
        let mut codes = [0; 32];
        let mut sums = [0; 2];
        for (index, value) in values.iter().flatten().enumerate() {
            let multiple = value * inverse;
            let code = if multiple.is_nan() { -127 } else { multiple.round_ties_even() as i8 };
            codes[index] = code as u8;
            sums[index / 16] += i32::from(code);
        }
        Quantized { codes, scale, sums }
    }
}

/// A bf16 is the upper half of an f32.
#[inline(always)]
fn widen(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}
