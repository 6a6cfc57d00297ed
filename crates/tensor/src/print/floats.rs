//! Floats as text: fixed, scientific as C's `printf` writes it, and in columns as NumPy chooses them.

use super::nest::right_aligned;
use crate::{DType, Scalar};

/// Digits behind the point in columns.
const COLUMN_DIGITS: usize = 8;

/// `digits` decimals.
pub(super) fn fixed(value: f64, digits: usize) -> String {
    special(value).unwrap_or_else(|| format!("{value:.digits$}"))
}

/// `digits` decimals and an exponent of a sign and at least two digits: `1.12e+00`.
pub(super) fn scientific(value: f64, digits: usize) -> String {
    special(value).unwrap_or_else(|| {
        let text = format!("{value:.digits$e}");
        let (mantissa, exponent) = text.split_once('e').expect("an exponent was asked for");
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        format!("{mantissa}e{sign}{exponent:0>2}")
    })
}

fn special(value: f64) -> Option<String> {
    match value {
        _ if value.is_nan() => Some("nan".to_string()),
        f64::INFINITY => Some("inf".to_string()),
        f64::NEG_INFINITY => Some("-inf".to_string()),
        _ => None,
    }
}

/// The values with their points below each other, each with no more digits than tell it from its neighbours of that
/// dtype, eight at most. What is very large or small makes all of them scientific.
pub(super) fn columns(values: &[Scalar], dtype: DType, single: bool) -> Vec<String> {
    let values: Vec<f64> = values.iter().map(|value| value.as_f64()).collect();
    let sizes = || values.iter().map(|value| value.abs()).filter(|&size| size > 0.0 && size.is_finite());
    let (low, high) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let is_scientific = high >= 1e8 || (high > 0.0 && (low < 1e-4 || high / low > 1e3));
    let digits: Vec<Digits> =
        values.iter().filter(|value| value.is_finite()).map(|&value| Digits::of(value, dtype)).collect();
    let most = |count: fn(&Digits) -> usize| digits.iter().map(count).max().unwrap_or(0).min(COLUMN_DIGITS);
    let texts = match is_scientific {
        true => {
            let most = most(|digits| digits.mantissa);
            let text = |value: &f64| match (scientific(*value, most), most) {
                (text, 0) => text.replace('e', ".e"),
                (text, _) => text,
            };
            values.iter().map(text).collect()
        }
        false => {
            let most = most(|digits| digits.decimals);
            let least = usize::from(single);
            values.iter().map(|&value| point_aligned(value, most, least)).collect()
        }
    };
    right_aligned(texts)
}

/// How many digits the shortest text of a value has.
struct Digits {
    /// Behind the point of its scientific form.
    mantissa: usize,
    /// Behind the point of its fixed form.
    decimals: usize,
}

impl Digits {
    fn of(value: f64, dtype: DType) -> Digits {
        let text = shortest(value, dtype);
        let (mantissa, exponent) = text.split_once('e').expect("an exponent was asked for");
        let mantissa = mantissa.split_once('.').map_or(0, |(_, digits)| digits.len());
        let exponent: i64 = exponent.parse().expect("an integer");
        Digits { mantissa, decimals: (mantissa as i64 - exponent).max(0) as usize }
    }
}

/// The scientific form with the fewest digits that reads back as the same value of the dtype.
fn shortest(value: f64, dtype: DType) -> String {
    match dtype {
        DType::F64 => return format!("{value:e}"),
        DType::F32 => return format!("{:e}", value as f32),
        _ => {}
    }
    let reads_back = |text: &String| {
        let (mut bytes, parsed) = ([0; 8], text.parse().expect("a number that was just written"));
        let written = Scalar::Float(parsed).write(dtype, &mut bytes);
        written.is_err() || Scalar::read(dtype, &bytes).as_f64() == value
    };
    (0..17)
        .map(|digits| format!("{value:.digits$e}"))
        .find(reads_back)
        .unwrap_or_else(|| format!("{value:e}"))
}

/// `most` decimals, of which trailing zeros beyond the first `least` become spaces.
fn point_aligned(value: f64, most: usize, least: usize) -> String {
    if let Some(text) = special(value) {
        return text;
    }
    let text = format!("{value:.most$}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let kept = decimals.trim_end_matches('0');
    let kept = format!("{kept:0<least$}");
    let width = most.max(least);
    format!("{whole}.{kept:<width$}")
}
