//! For tests of functions in lanes: how far results are from those of f64.

use super::LANES;
use crate::variant::Variant;

pub(super) type Map = unsafe fn(&mut [f32; LANES]);

/// Lists the variants of functions of the parent module, in place over sixteen numbers.
macro_rules! in_lanes {
    ($($list:ident = $function:ident),*) => {$(
        $crate::variant::variants!(static $list = $function, (x: &mut [f32; LANES]));

        #[inline(always)]
        fn $function<S: $crate::vec::Simd>(s: S, x: &mut [f32; LANES]) {
            // SAFETY: the array has sixteen values.
            unsafe { s.store(x.as_mut_ptr(), super::$function(s, s.load(x.as_ptr()))) }
        }
    )*};
}

pub(super) use in_lanes;

/// Floats of every size and both signs: each exponent, with mantissas from a Weyl sequence, and the special values.
pub(super) fn samples() -> impl Iterator<Item = f32> {
    let special = [0.0, -0.0, 1e-45, -1e-45, 88.7, 88.72, 88.73, 89.0, -87.3, -87.4, -103.9, -104.0, -104.1];
    let more = [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.625, -0.625, 0.624_999_94];
    let mut weyl = 1u32;
    let of_exponent = move |exponent: u32| {
        let count = if (110..136).contains(&exponent) { 4000 } else { 20 };
        let mut mantissa = move || {
            weyl = weyl.wrapping_add(0x9e37_79b9);
            f32::from_bits((exponent << 23) | (weyl & 0x807f_ffff))
        };
        (0..count).map(move |_| mantissa()).collect::<Vec<_>>()
    };
    special.into_iter().chain(more).chain((0..255).flat_map(of_exponent))
}

/// All floats but NaN, from 0 away in both directions.
pub(super) fn all_floats() -> impl Iterator<Item = f32> {
    (0..=f32::INFINITY.to_bits()).flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)])
}

/// Distance in units of the last place of the f32 next to `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let near = want as f32;
    if near.is_infinite() || got.is_infinite() {
        return if got == near { 0.0 } else { f64::INFINITY };
    }
    let exponent = (near.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
    (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
}

/// Every variant is within a limit of the exact function, in ulp, gives NaN for NaN, and the same bits as the others.
pub(super) fn check(
    list: &[Variant<Map>],
    arguments: impl Iterator<Item = f32>,
    exact: impl Fn(f64) -> f64,
    limit: f64,
) {
    let list: Vec<&Variant<Map>> = list.iter().filter(|variant| (variant.available)()).collect();
    let run = |variant: &Variant<Map>, x: [f32; LANES]| {
        let mut lanes = x;
        // SAFETY: the variant is available.
        unsafe { (variant.run)(&mut lanes) };
        lanes
    };
    let mut worst = (0.0, 0.0);
    let mut arguments = arguments.peekable();
    while arguments.peek().is_some() {
        let x: [f32; LANES] = std::array::from_fn(|_| arguments.next().unwrap_or(1.0));
        let results: Vec<[f32; LANES]> = list.iter().map(|variant| run(variant, x)).collect();
        for (i, &x) in x.iter().enumerate() {
            let exact = exact(f64::from(x));
            for (variant, lanes) in list.iter().zip(&results) {
                let off = ulps(lanes[i], exact);
                assert!(off <= limit, "{}: {off} ulp at {x:e}: {:e}, not {exact:e}", variant.name, lanes[i]);
                worst = if off > worst.0 { (off, x) } else { worst };
                let same = lanes[i].to_bits() == results[0][i].to_bits();
                assert!(same, "{}: other bits at {x:e} than {}", variant.name, list[0].name);
            }
        }
    }
    println!("at most {:.3} ulp, at {:e}", worst.0, worst.1);
    for variant in list {
        let lanes = run(variant, [f32::NAN; LANES]);
        assert!(lanes.iter().all(|y| y.is_nan()), "{}: {lanes:?} of NaN", variant.name);
    }
}
