//! The kernels of each instruction set: functions compiled for its target features, and the table of them.

use tensor::DType;

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::bf16::{self, PairDots};
use super::epilogue::{self, Finish, PanelProducts};
use super::matrix;
#[cfg(target_arch = "aarch64")]
use super::neon::{Mixed, Neon, Signed, Widening};
use super::panel::{Entry, Layout, Product, with_layout};
use super::portable::Portable;
use super::prepare::{self, InputFormat, Rows, Tile};
use super::simd::{Isa, MAX_TILE, ROWS};
use crate::variant::Variant;

/// The instruction sets, fastest first. (A static: a constant's kernels would be compiled into each crate that reads it.)
pub static VARIANTS: &[Variant<Functions>] = &[
    #[cfg(target_arch = "x86_64")]
    Variant { name: "avx512", available: Avx512::available, run: Functions::of::<Avx512>() },
    #[cfg(target_arch = "x86_64")]
    Variant { name: "avx2", available: Avx2::available, run: Functions::of::<Avx2>() },
    #[cfg(target_arch = "aarch64")]
    Variant { name: "i8mm", available: Neon::<Mixed>::available, run: Functions::of::<Neon<Mixed>>() },
    #[cfg(target_arch = "aarch64")]
    Variant { name: "dotprod", available: Neon::<Signed>::available, run: Functions::of::<Neon<Signed>>() },
    #[cfg(target_arch = "aarch64")]
    Variant { name: "neon", available: Neon::<Widening>::available, run: Functions::of::<Neon<Widening>>() },
    Variant { name: "portable", available: Portable::available, run: Functions::of::<Portable>() },
];

/// Variants that round inputs of bf16 weights to bf16 and multiply pairs. Each kind of processor rounds the sums in its own
/// way, so results are those of the machine.
pub static ROUNDING_VARIANTS: &[Variant<Functions>] = &[
    #[cfg(target_arch = "x86_64")]
    Variant { name: "avx512+bf16", available: Avx512::has_pair_dots, run: Functions::rounding::<Avx512>() },
    #[cfg(target_arch = "aarch64")]
    Variant {
        name: "i8mm+bf16",
        available: Neon::<Mixed>::has_pair_dots,
        run: Functions::rounding::<Neon<Mixed>>(),
    },
];

/// The functions of an instruction set.
pub struct Functions {
    pub(super) available: fn() -> bool,
    tile: usize,
    float_tile: usize,
    /// The form of inputs that meet bf16 weights.
    of_bf16: InputFormat,
    pub(super) prepare: unsafe fn(&Rows, &Tile),
    pub(super) multiply: unsafe fn(&Product),
    pub(super) widen: unsafe fn(DType, *const u8, usize, *mut u8),
    pub(super) finish: unsafe fn(&Finish, &PanelProducts),
}

impl Functions {
    const fn of<I: Compiled>() -> Functions {
        assert!(I::TILE <= MAX_TILE && I::FLOAT_TILE <= I::TILE);
        Functions {
            available: I::available,
            tile: I::TILE,
            float_tile: I::FLOAT_TILE,
            of_bf16: InputFormat::F32,
            prepare: I::prepare,
            multiply: multiply::<I>,
            widen: widen::<I>,
            finish: I::finish,
        }
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    const fn rounding<I: PairDots + Compiled>() -> Functions {
        let (available, multiply) = (I::has_pair_dots, multiply_rounded::<I>);
        Functions { available, of_bf16: InputFormat::Bf16, multiply, ..Functions::of::<I>() }
    }

    /// The form of inputs that meet weights of a dtype.
    pub(super) fn form(&self, dtype: DType, exact: bool) -> InputFormat {
        if dtype == DType::BF16 { self.of_bf16 } else { matrix::form(dtype, exact) }
    }

    /// The largest number of tokens that panels are multiplied with at once, if they want these forms of the input.
    pub(super) fn tile(&self, forms: &[(InputFormat, *mut u8)]) -> usize {
        let is_float = |(form, _): &(InputFormat, *mut u8)| !matches!(form, InputFormat::Int8 { .. });
        if forms.iter().any(is_float) { self.float_tile } else { self.tile }
    }
}

/// Calls `$body` with the constant `$T` as the number of tokens of a tile.
macro_rules! with_tokens {
    ($tokens:expr, $T:ident => $body:expr) => {{
        macro_rules! with {
            ($count:literal) => {{
                const $T: usize = $count;
                $body
            }};
        }
        match $tokens {
            1 => with!(1),
            2 => with!(2),
            3 => with!(3),
            4 => with!(4),
            5 => with!(5),
            6 => with!(6),
            7 => with!(7),
            8 => with!(8),
            9 => with!(9),
            10 => with!(10),
            11 => with!(11),
            12 => with!(12),
            _ => unreachable!("tiles are smaller"),
        }
    }};
}

/// Chooses the entry point for a dtype and a number of tokens.
unsafe fn multiply<I: Compiled>(product: &Product) {
    let entry = with_layout!(
        product.dtype,
        L => entry::<I, L>(product.tokens),
        else unreachable!("checked when packed")
    );
    // SAFETY: passed on to the caller.
    unsafe { entry(product) }
}

/// As [`multiply`], with instructions for pairs of bf16.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe fn multiply_rounded<I: PairDots + Compiled>(product: &Product) {
    let entry = match product.dtype {
        DType::BF16 => with_tokens!(product.tokens, T => bf16::entry::<I, T>()),
        _ => multiply::<I>,
    };
    // SAFETY: passed on to the caller.
    unsafe { entry(product) }
}

/// Writes the weights of a panel as f32.
unsafe fn widen<I: Compiled>(dtype: DType, panel: *const u8, columns: usize, out: *mut u8) {
    type Widen = unsafe fn(*const u8, usize, *mut u8);
    let widen: Widen = with_layout!(dtype, L => I::widen::<L>, else unreachable!("checked when packed"));
    // SAFETY: passed on to the caller.
    unsafe { widen(panel, columns, out) }
}

fn entry<I: Compiled, L: Layout>(tokens: usize) -> Entry {
    /// The largest tile that has an entry of its own.
    const fn tile<I: Isa, L: Layout>() -> usize {
        match L::FORM {
            InputFormat::Int8 { .. } if I::CODES_STAY => L::FEW,
            InputFormat::Int8 { .. } => I::TILE,
            InputFormat::F32 | InputFormat::Bf16 => I::FLOAT_TILE,
        }
    }
    /// The entry for `T` tokens, or for any number of them.
    fn of<I: Compiled, L: Layout, const T: usize>() -> Entry {
        if const { T <= tile::<I, L>() } {
            I::multiply::<L, T>
        } else if const { I::CODES_STAY && T <= I::TILE } {
            I::multiply_passing::<L>
        } else {
            unreachable!("tiles are smaller")
        }
    }
    with_tokens!(tokens, T => of::<I, L, T>())
}

/// The kernels, compiled for an instruction set with all that is inlined into them.
///
/// # Safety
/// As [`Isa`].
trait Compiled: Isa {
    /// Multiplies panels with a tile of `T` tokens.
    unsafe fn multiply<L: Layout, const T: usize>(product: &Product);
    /// Multiplies panels, whose codes stay in registers, with a tile.
    unsafe fn multiply_passing<L: Layout>(product: &Product);
    /// Writes the weights of one panel as f32: for each column 16 of them, at `out`.
    unsafe fn widen<L: Layout>(panel: *const u8, columns: usize, out: *mut u8);
    /// Converts a part of a tile of input rows.
    unsafe fn prepare(rows: &Rows, tile: &Tile);
    /// Stores the products of a panel and a tile.
    unsafe fn finish(call: &Finish, of: &PanelProducts);
}

/// [`Compiled`] for an instruction set, with its target features.
macro_rules! compile {
    ($isa:ty $(, $features:literal)?) => {
        impl Compiled for $isa {
            $(#[target_feature(enable = $features)])?
            unsafe fn multiply<L: Layout, const T: usize>(product: &Product) {
                // SAFETY: passed on to the caller; the panels and their products lie one after another.
                unsafe {
                    let (mut panel, mut out) = (product.panel, product.out);
                    for _ in 0..product.panels {
                        for sums in L::multiply::<Self, T>(panel, product.columns, product.x) {
                            Self::store(out, sums);
                            out = out.add(4 * ROWS);
                        }
                        panel = panel.add(L::panel_bytes(product.columns));
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn multiply_passing<L: Layout>(product: &Product) {
                let &Product { panel, panels, columns, x, tokens, out, .. } = product;
                let (panel_bytes, out_bytes) = (L::panel_bytes(columns), 4 * ROWS * tokens);
                for index in 0..panels {
                    // SAFETY: passed on to the caller; the panels and their products lie one after another.
                    unsafe {
                        let (panel, out) = (panel.add(index * panel_bytes), out.add(index * out_bytes));
                        L::multiply_passing::<Self>(panel, columns, x, tokens, out);
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn widen<L: Layout>(panel: *const u8, columns: usize, out: *mut u8) {
                // SAFETY: passed on to the caller.
                unsafe { L::widen::<Self>(panel, columns, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn prepare(rows: &Rows, tile: &Tile) {
                // SAFETY: passed on to the caller.
                unsafe { prepare::prepare::<Self>(rows, tile) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn finish(call: &Finish, of: &PanelProducts) {
                // SAFETY: passed on to the caller.
                unsafe { epilogue::finish::<Self>(call, of) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
compile!(Avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
#[cfg(target_arch = "x86_64")]
compile!(Avx2, "avx2,fma,f16c");
#[cfg(target_arch = "aarch64")]
compile!(Neon<Mixed>, "neon,i8mm");
#[cfg(target_arch = "aarch64")]
compile!(Neon<Signed>, "neon,dotprod");
#[cfg(target_arch = "aarch64")]
compile!(Neon<Widening>, "neon");
compile!(Portable);
