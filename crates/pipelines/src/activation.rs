//! How logits become scores.

use std::str::FromStr;

use crate::error::InvalidField;

/// The function that makes scores of a text's logits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ScoreActivation {
    /// The logits themselves.
    #[default]
    Identity,
    /// `1 / (1 + exp(-x))` of each logit: a probability for each label by itself.
    Sigmoid,
    /// `exp(x) / Σ exp(x)`: probabilities that sum to 1.
    Softmax,
}

impl ScoreActivation {
    /// Every function.
    pub const ALL: &[ScoreActivation] =
        &[ScoreActivation::Identity, ScoreActivation::Sigmoid, ScoreActivation::Softmax];

    /// The name in configurations and arguments.
    pub const fn name(self) -> &'static str {
        match self {
            ScoreActivation::Identity => "identity",
            ScoreActivation::Sigmoid => "sigmoid",
            ScoreActivation::Softmax => "softmax",
        }
    }

    /// Turns the logits of a text into scores, in f64.
    pub(crate) fn apply(self, logits: &mut [f32]) {
        match self {
            ScoreActivation::Identity => {}
            ScoreActivation::Sigmoid => {
                logits.iter_mut().for_each(|x| *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32);
            }
            ScoreActivation::Softmax => {
                let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                let exponential = |x: f32| (f64::from(x) - largest).exp();
                let sum: f64 = logits.iter().map(|&x| exponential(x)).sum();
                logits.iter_mut().for_each(|x| *x = (exponential(*x) / sum) as f32);
            }
        }
    }
}

impl FromStr for ScoreActivation {
    type Err = InvalidField;

    fn from_str(name: &str) -> Result<ScoreActivation, InvalidField> {
        let named = ScoreActivation::ALL.iter().find(|activation| activation.name() == name);
        named.copied().ok_or_else(|| {
            let names: Vec<&str> = ScoreActivation::ALL.iter().map(|activation| activation.name()).collect();
            InvalidField {
                field: "activation",
                value: name.to_string(),
                fix: format!("choose one of {}", names.join(", ")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_probabilities() {
        let check = |activation: ScoreActivation, logits: &[f32], expected: &[f32]| {
            let mut scores = logits.to_vec();
            activation.apply(&mut scores);
            assert_eq!(scores, expected, "{activation:?}");
            assert_eq!(activation.name().parse::<ScoreActivation>().unwrap(), activation);
        };
        check(ScoreActivation::Identity, &[1.5, -2.0], &[1.5, -2.0]);
        check(ScoreActivation::Sigmoid, &[0.0, -1000.0, 1000.0], &[0.5, 0.0, 1.0]);
        check(ScoreActivation::Softmax, &[1000.0, 1000.0, -1000.0], &[0.5, 0.5, 0.0]);
        let error = "tanh".parse::<ScoreActivation>().unwrap_err().to_string();
        assert_eq!(error, "activation is tanh: choose one of identity, sigmoid, softmax");
    }
}
