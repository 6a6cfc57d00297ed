//! How the hidden states of a text's tokens become one vector.

use std::str::FromStr;

use crate::error::InvalidField;

/// Which hidden states make the vector of a text, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the first token, which BERT calls CLS.
    Cls,
    /// That of the last token.
    Last,
    /// The largest of each dim.
    Max,
    /// Their sum over the square root of their number.
    MeanSqrtLen,
    /// Their mean, the `i`-th of them counted `i` times.
    WeightedMean,
}

impl Pooling {
    /// Every way.
    pub const ALL: &[Pooling] = &[
        Pooling::Mean,
        Pooling::Cls,
        Pooling::Last,
        Pooling::Max,
        Pooling::MeanSqrtLen,
        Pooling::WeightedMean,
    ];

    /// The name in configurations and arguments.
    pub const fn name(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Last => "last",
            Pooling::Max => "max",
            Pooling::MeanSqrtLen => "mean_sqrt_len",
            Pooling::WeightedMean => "weighted_mean",
        }
    }

    /// The vector of a text: `rows` are its hidden states f32[tokens, width], at least one. Sums are taken in f64,
    /// from the first token to the last.
    pub(crate) fn pool(self, rows: &[f32], width: usize) -> Vec<f32> {
        let tokens = rows.len() / width;
        match self {
            Pooling::Cls => rows[..width].to_vec(),
            Pooling::Last => rows[rows.len() - width..].to_vec(),
            Pooling::Max => rows.chunks_exact(width).skip(1).fold(rows[..width].to_vec(), |mut most, row| {
                most.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(*x));
                most
            }),
            Pooling::Mean => sum(rows, width, |_| 1.0, tokens as f64),
            Pooling::MeanSqrtLen => sum(rows, width, |_| 1.0, (tokens as f64).sqrt()),
            Pooling::WeightedMean => {
                sum(rows, width, |token| (token + 1) as f64, (tokens * (tokens + 1) / 2) as f64)
            }
        }
    }
}

impl FromStr for Pooling {
    type Err = InvalidField;

    fn from_str(name: &str) -> Result<Pooling, InvalidField> {
        Pooling::ALL.iter().find(|pooling| pooling.name() == name).copied().ok_or_else(|| {
            let names: Vec<&str> = Pooling::ALL.iter().map(|pooling| pooling.name()).collect();
            InvalidField {
                field: "pooling",
                value: name.to_string(),
                fix: format!("choose one of {}", names.join(", ")),
            }
        })
    }
}

/// Divides by the length; a vector of zeros stays one.
pub(crate) fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt().max(1e-12);
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

fn sum(rows: &[f32], width: usize, weight: impl Fn(usize) -> f64, divisor: f64) -> Vec<f32> {
    let mut sums = vec![0.0f64; width];
    for (token, row) in rows.chunks_exact(width).enumerate() {
        let weight = weight(token);
        sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += weight * f64::from(x));
    }
    sums.into_iter().map(|sum| (sum / divisor) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools() {
        let rows = [1.0, 8.0, 3.0, -2.0, 5.0, 0.0];
        let root = 3f32.sqrt();
        for (pooling, expected) in [
            (Pooling::Mean, [3.0, 2.0]),
            (Pooling::Cls, [1.0, 8.0]),
            (Pooling::Last, [5.0, 0.0]),
            (Pooling::Max, [5.0, 8.0]),
            (Pooling::MeanSqrtLen, [9.0 / root, 6.0 / root]),
            (Pooling::WeightedMean, [22.0 / 6.0, 4.0 / 6.0]),
        ] {
            let got = pooling.pool(&rows, 2);
            assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{pooling:?}: {got:?}");
            assert_eq!(pooling.name().parse::<Pooling>().unwrap(), pooling);
        }
        assert_eq!(
            "average".parse::<Pooling>().unwrap_err().to_string(),
            "pooling is average: choose one of mean, cls, last, max, mean_sqrt_len, weighted_mean"
        );
    }

    #[test]
    fn unit_vectors() {
        let mut vector = [3.0, 4.0];
        normalize(&mut vector);
        assert_eq!(vector, [0.6, 0.8]);
        let mut zeros = [0.0; 3];
        normalize(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
    }
}
