//! Packing: rows as files store them into the panels of [`super::panel`]. Codes and factors keep their bits.

use tensor::DType;
use tensor::blocks::{
    self, fp4, ggml_nvfp4, iq4_xs, nf4, q2_k, q3_k, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0,
};

use super::codes::{EightBits, FiveBits, Levels, Nibbles, SixBits, Table};
use super::factors::{
    EighthMultiples, Exponents, Factors, FloatMultiples, Halves, HalvesAndZeros, Multiples,
    MultiplesAndMinimums, SinglesAndZeros,
};
use super::panel::{Blocks, EightBitFloats, FloatCodes, Pairs, Plain, Scaled, TableFloats};
use super::simd::{Codes, ROWS};

/// Fills a panel, which is zeroed, from up to 16 rows of `columns` weights each.
pub(super) trait Pack {
    fn pack(dtype: DType, rows: &[&[u8]], panel: &mut [u8]);
}

/// One block of a file, taken apart: what panels store, in their own order.
struct Unpacked {
    /// Codes as stored, that is, before a zero point is subtracted.
    codes: [u8; 256],
    /// The f16 scale and minimum.
    halves: [[u8; 2]; 2],
    /// The f32 scale.
    single: f32,
    scales: [u8; 16],
    minimums: [u8; 16],
}

/// Stores codes or factors of one of 16 rows.
pub(super) trait Put<T: ?Sized> {
    fn put(value: &T, row: usize, to: &mut [u8]);
}

impl<C, F> Pack for Blocks<C, F>
where
    C: Put<[u8; 32]> + Codes,
    F: Put<Unpacked> + Factors,
{
    fn pack(dtype: DType, rows: &[&[u8]], panel: &mut [u8]) {
        let mut unpacked = Unpacked {
            codes: [0; 256],
            halves: [[0; 2]; 2],
            single: 0.0,
            scales: [0; 16],
            minimums: [0; 16],
        };
        let bytes = F::BYTES + F::COLUMNS / 32 * C::BYTES;
        let file_block = dtype.block().bytes;
        for (index, block) in panel.chunks_exact_mut(bytes).enumerate() {
            let (factors, codes) = block.split_at_mut(F::BYTES);
            for (row, source) in rows.iter().enumerate() {
                unpack(dtype, &source[index * file_block..][..file_block], &mut unpacked);
                F::put(&unpacked, row, factors);
                for (piece, codes) in codes.chunks_exact_mut(C::BYTES).enumerate() {
                    C::put(&unpacked.codes.as_chunks().0[piece], row, codes);
                }
            }
        }
    }
}

/// Takes a block apart.
fn unpack(dtype: DType, block: &[u8], to: &mut Unpacked) {
    /// The bytes of a block at an offset.
    fn field<const N: usize>(block: &[u8], offset: usize) -> &[u8; N] {
        block[offset..].first_chunk().expect("fields lie within their block")
    }
    /// Codes with their zero point added.
    fn put_codes<const N: usize>(codes: [i8; N], zero_point: u8, to: &mut Unpacked) {
        for (to, code) in to.codes.iter_mut().zip(codes) {
            *to = (code as u8).wrapping_add(zero_point);
        }
    }
    fn put_nibbles(nibbles: &[u8; 16], to: &mut [u8]) {
        for (index, byte) in nibbles.iter().enumerate() {
            (to[index], to[16 + index]) = (byte & 15, byte >> 4);
        }
    }
    let signed = |scales: [i8; 16]| scales.map(|scale| scale as u8);
    let long = |short: [u8; 8]| std::array::from_fn(|index| *short.get(index).unwrap_or(&0));
    let (scale, minimum) = match dtype {
        DType::Q2K => (80, 82),
        DType::Q3K => (108, 0),
        DType::Q6K => (208, 0),
        _ => (0, 2),
    };
    to.halves = [*field(block, scale), *field(block, minimum)];
    match dtype {
        DType::Q4_0 | DType::Iq4Nl => put_nibbles(field(block, 2), &mut to.codes),
        DType::Q4_1 => put_codes(q4_1::unpack(field(block, 0)).codes, 0, to),
        DType::Q5_0 => put_codes(q5_0::unpack(field(block, 0)).codes, 16, to),
        DType::Q5_1 => put_codes(q5_1::unpack(field(block, 0)).codes, 0, to),
        DType::Q8_0 => put_codes(q8_0::unpack(field(block, 0)).codes, 128, to),
        DType::Q2K => {
            put_codes(q2_k::unpack(field(block, 0)).codes, 0, to);
            (to.scales, to.minimums) = q2_k::scales_and_minimums(field(block, 0));
        }
        DType::Q3K => {
            put_codes(q3_k::unpack(field(block, 0)).codes, 4, to);
            to.scales = signed(q3_k::scales(field(block, 96)));
        }
        DType::Q4K | DType::Q5K => {
            if dtype == DType::Q4K {
                put_codes(q4_k::unpack(field(block, 0)).codes, 0, to);
            } else {
                put_codes(q5_k::unpack(field(block, 0)).codes, 0, to);
            }
            let (scales, minimums) = q4_k::scales_and_minimums(field(block, 4));
            (to.scales, to.minimums) = (long(scales), long(minimums));
        }
        DType::Q6K => {
            put_codes(q6_k::unpack(field(block, 0)).codes, 32, to);
            to.scales = signed(q6_k::scales(field(block, 192)));
        }
        DType::Iq4Xs => {
            for (group, codes) in to.codes.chunks_exact_mut(32).enumerate() {
                put_nibbles(field(block, 8 + 16 * group), codes);
            }
            to.scales = long(iq4_xs::scales(field(block, 2)).map(|scale| scale as u8));
        }
        DType::Gptq => {
            put_nibbles(field(block, 3), &mut to.codes);
            to.minimums[0] = block[2];
        }
        DType::Mxfp4 => {
            put_nibbles(field(block, 1), &mut to.codes);
            to.scales[0] = block[0];
        }
        DType::Nvfp4 => {
            put_nibbles(field(block, 8), &mut to.codes);
            put_nibbles(field(block, 24), &mut to.codes[32..]);
            to.single = f32::from_le_bytes(*field(block, 0));
            to.scales[..4].copy_from_slice(&block[4..8]);
        }
        DType::GgmlNvfp4 => {
            put_codes(ggml_nvfp4::nibbles(field(block, 0)), 0, to);
            to.single = 0.5;
            to.scales[..4].copy_from_slice(&ggml_nvfp4::scales(field(block, 0)));
        }
        DType::Gptq8 => {
            to.codes[..32].copy_from_slice(&block[5..]);
            to.single = f32::from_le_bytes(*field(block, 0));
            to.minimums[0] = block[4];
        }
        grid => {
            let block =
                blocks::eighths(grid, block).expect("all other layouts are of plain numbers or floats");
            to.codes = block.codes.map(|code| code as u8);
            (to.halves[0], to.scales) = (block.d, block.multiples);
        }
    }
}

/// Nibbles of columns 0..16 low, of columns 16..32 high, in registers of 4 columns of each row.
fn put_nibbles(codes: &[u8; 32], row: usize, to: &mut [u8]) {
    let (low, high) = codes.split_at(16);
    for (step, (low, high)) in low.as_chunks::<4>().0.iter().zip(high.as_chunks::<4>().0).enumerate() {
        let low = u32::from_ne_bytes(*low) & 0x0f0f_0f0f;
        let high = u32::from_ne_bytes(*high) & 0x0f0f_0f0f;
        to[64 * step + 4 * row..][..4].copy_from_slice(&(low | high << 4).to_ne_bytes());
    }
}

impl<const ZERO_POINT: i32> Put<[u8; 32]> for Nibbles<ZERO_POINT> {
    fn put(codes: &[u8; 32], row: usize, to: &mut [u8]) {
        put_nibbles(codes, row, to);
    }
}

impl<T: Table> Put<[u8; 32]> for Levels<T> {
    fn put(codes: &[u8; 32], row: usize, to: &mut [u8]) {
        match T::NIBBLES {
            Some(nibbles) => put_nibbles(&codes.map(|level| nibbles[usize::from(level)]), row, to),
            None => put_nibbles(codes, row, to),
        }
    }
}

impl<const ZERO_POINT: i32> Put<[u8; 32]> for FiveBits<ZERO_POINT> {
    fn put(codes: &[u8; 32], row: usize, to: &mut [u8]) {
        put_nibbles(codes, row, &mut to[64..]);
        let steps = codes.as_chunks::<4>().0.iter().enumerate();
        let bits = steps
            .fold(0, |bits, (step, codes)| bits | (u32::from_ne_bytes(*codes) >> 4 & 0x0101_0101) << step);
        to[4 * row..][..4].copy_from_slice(&bits.to_ne_bytes());
    }
}

impl<const ZERO_POINT: i32> Put<[u8; 32]> for SixBits<ZERO_POINT> {
    fn put(codes: &[u8; 32], row: usize, to: &mut [u8]) {
        put_nibbles(codes, row, &mut to[64..]);
        for (half, codes) in codes.as_chunks::<16>().0.iter().enumerate() {
            let steps = codes.as_chunks::<4>().0.iter().enumerate();
            let pairs = steps.fold(0, |pairs, (field, codes)| {
                pairs | (u32::from_ne_bytes(*codes) >> 4 & 0x0303_0303) << (2 * field)
            });
            to[320 * half + 4 * row..][..4].copy_from_slice(&pairs.to_ne_bytes());
        }
    }
}

impl<const ZERO_POINT: i32> Put<[u8; 32]> for EightBits<ZERO_POINT> {
    fn put(codes: &[u8; 32], row: usize, to: &mut [u8]) {
        for (step, codes) in codes.as_chunks::<4>().0.iter().enumerate() {
            to[64 * step + 4 * row..][..4].copy_from_slice(codes);
        }
    }
}

impl<const MINIMUMS: bool> Put<Unpacked> for Halves<MINIMUMS> {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        for (to, half) in to.chunks_exact_mut(32).zip(block.halves) {
            to[2 * row..][..2].copy_from_slice(&half);
        }
    }
}

impl Put<Unpacked> for HalvesAndZeros {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        to[2 * row..][..2].copy_from_slice(&block.halves[0]);
        to[32 + row] = block.minimums[0];
    }
}

impl Put<Unpacked> for SinglesAndZeros {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        to[4 * row..][..4].copy_from_slice(&block.single.to_le_bytes());
        to[4 * ROWS + row] = block.minimums[0];
    }
}

impl Put<Unpacked> for FloatMultiples {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        to[4 * row..][..4].copy_from_slice(&(256.0 * block.single).to_le_bytes());
        put_multiples(&block.scales[..4], row, &mut to[4 * ROWS..]);
    }
}

impl Put<Unpacked> for EighthMultiples {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        to[2 * row..][..2].copy_from_slice(&block.halves[0]);
        put_multiples(&block.scales, row, &mut to[2 * ROWS..]);
    }
}

impl Put<Unpacked> for Exponents {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        to[row] = block.scales[0];
    }
}

impl<const GROUPS: usize> Put<Unpacked> for Multiples<GROUPS> {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        to[2 * row..][..2].copy_from_slice(&block.halves[0]);
        put_multiples(&block.scales[..8 * GROUPS], row, &mut to[32..]);
    }
}

impl<const GROUPS: usize> Put<Unpacked> for MultiplesAndMinimums<GROUPS> {
    fn put(block: &Unpacked, row: usize, to: &mut [u8]) {
        to[2 * row..][..2].copy_from_slice(&block.halves[0]);
        to[32 + 2 * row..][..2].copy_from_slice(&block.halves[1]);
        put_multiples(&block.scales[..8 * GROUPS], row, &mut to[64..]);
        put_multiples(&block.minimums[..8 * GROUPS], row, &mut to[64 + ROWS * 8 * GROUPS..]);
    }
}

fn put_multiples(multiples: &[u8], row: usize, to: &mut [u8]) {
    for (to, multiple) in to.chunks_exact_mut(ROWS).zip(multiples) {
        to[row] = *multiple;
    }
}

impl<C: FloatCodes + PutFloats> Pack for Scaled<C> {
    fn pack(dtype: DType, rows: &[&[u8]], panel: &mut [u8]) {
        let (head, blocks) = panel.split_at_mut(C::HEAD);
        C::put_head(dtype, head);
        let file_block = dtype.block().bytes;
        for (index, block) in blocks.chunks_exact_mut(Scaled::<C>::BLOCK).enumerate() {
            let (scales, codes) = block.split_at_mut(4 * ROWS);
            for (row, source) in rows.iter().enumerate() {
                let (scale, source) = source[index * file_block..][..file_block].split_at(4);
                let scale = f32::from_le_bytes(scale.try_into().expect("4 bytes"));
                scales[4 * row..][..4].copy_from_slice(&(C::FACTOR * scale).to_le_bytes());
                codes.iter_mut().skip(row).step_by(ROWS).zip(source).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

/// What a panel of float codes starts with.
pub(super) trait PutFloats {
    fn put_head(dtype: DType, head: &mut [u8]);
}

impl PutFloats for EightBitFloats {
    fn put_head(_: DType, _: &mut [u8]) {}
}

impl PutFloats for TableFloats {
    fn put_head(dtype: DType, head: &mut [u8]) {
        let levels = if dtype == DType::Nf4 { nf4::LEVELS } else { fp4::LEVELS };
        head.copy_from_slice(bytemuck::cast_slice(&levels));
    }
}

impl<const BYTES: usize> Pack for Plain<BYTES> {
    fn pack(_: DType, rows: &[&[u8]], panel: &mut [u8]) {
        transpose::<BYTES>(rows, panel);
    }
}

impl Pack for Pairs {
    fn pack(_: DType, rows: &[&[u8]], panel: &mut [u8]) {
        transpose::<4>(rows, panel);
    }
}

/// Items of `N` bytes, from rows to columns of 16; a shorter last item is followed by zeros.
fn transpose<const N: usize>(rows: &[&[u8]], panel: &mut [u8]) {
    // Some columns at a time, which stay in the first-level cache until all rows are in.
    const COLUMNS: usize = 64;
    for (index, part) in panel.chunks_mut(COLUMNS * ROWS * N).enumerate() {
        for (row, source) in rows.iter().enumerate() {
            let source = &source[index * COLUMNS * N..];
            let (items, rest) = source[..source.len().min(COLUMNS * N)].as_chunks::<N>();
            for (column, item) in part.chunks_exact_mut(ROWS * N).zip(items) {
                column[row * N..][..N].copy_from_slice(item);
            }
            part[items.len() * ROWS * N..]
                .iter_mut()
                .skip(row * N)
                .zip(rest)
                .for_each(|(to, from)| *to = *from);
        }
    }
}
