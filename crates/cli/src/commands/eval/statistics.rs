//! Sums and quantiles over scored positions.

use pipelines::Divergence;

use crate::exit::BadModel;

/// The log-probabilities of the tokens of a text.
#[derive(Default)]
pub(super) struct Likelihood {
    nats: f64,
    /// Scored tokens.
    pub(super) count: usize,
}

/// The divergence of predictions from saved ones.
#[derive(Default)]
pub(super) struct Agreement {
    divergences: Vec<f64>,
    same_top: usize,
    /// Negative log-probabilities of the text under the saved and the model's logits, over the same positions.
    saved: Likelihood,
    model: Likelihood,
}

impl Likelihood {
    /// Adds the log-probability of the token that follows a position.
    pub(super) fn add(&mut self, log_probability: f64, at: usize) -> Result<(), BadModel> {
        if log_probability.is_nan() {
            return Err(no_numbers("the model's", at));
        }
        self.nats -= log_probability;
        self.count += 1;
        Ok(())
    }

    /// Nats per token, if any token was scored.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.nats / self.count as f64)
    }
}

impl Agreement {
    /// Adds a position, with the negative log-probabilities of the next token if there is one.
    pub(super) fn add(
        &mut self,
        divergence: Divergence,
        nats: Option<(f64, f64)>,
        at: usize,
    ) -> Result<(), BadModel> {
        if divergence.kl.is_nan() {
            return Err(no_numbers("the saved or the model's", at));
        }
        self.divergences.push(divergence.kl);
        self.same_top += usize::from(divergence.same_top);
        if let Some((saved, model)) = nats {
            self.saved.add(-saved, at)?;
            self.model.add(-model, at)?;
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.divergences.is_empty()
    }

    pub(super) fn rows(&self) -> usize {
        self.divergences.len()
    }

    /// Mean, median, 99th percentile and maximum of the divergences.
    pub(super) fn summary(&self) -> [f64; 4] {
        let mut sorted = self.divergences.clone();
        sorted.sort_by(f64::total_cmp);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        [mean, quantile(&sorted, 0.5), quantile(&sorted, 0.99), quantile(&sorted, 1.0)]
    }

    /// The fraction of positions whose likeliest token agrees.
    pub(super) fn top1(&self) -> f64 {
        self.same_top as f64 / self.rows() as f64
    }

    /// The perplexity under the saved logits, and the ratio of the model's perplexity to it.
    pub(super) fn perplexities(&self) -> Option<(f64, f64)> {
        let (saved, model) = (self.saved.mean()?, self.model.mean()?);
        Some((saved.exp(), (model - saved).exp()))
    }
}

/// The quantile of sorted values, with linear interpolation.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    if low == high { low } else { low + (high - low) * place.fract() }
}

fn no_numbers(whose: &str, at: usize) -> BadModel {
    BadModel(format!("{whose} logits at token {at} are not numbers: the weights or the file may be damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between() {
        let sorted = [0.0, 1.0, 2.0, 4.0];
        assert_eq!(quantile(&sorted, 0.5), 1.5);
        assert_eq!(quantile(&sorted, 1.0), 4.0);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(quantile(&[f64::INFINITY, f64::INFINITY], 0.5), f64::INFINITY);
    }

    #[test]
    fn sums_are_over_the_same_positions() {
        let mut agreement = Agreement::default();
        for (at, (kl, same_top)) in [(0.1, true), (0.3, false)].into_iter().enumerate() {
            let nats = (at == 0).then_some((1.0, 1.5));
            agreement.add(Divergence { kl, same_top }, nats, at).unwrap();
        }
        assert_eq!((agreement.rows(), agreement.top1()), (2, 0.5));
        let [mean, median, _, max] = agreement.summary();
        assert!((mean - 0.2).abs() < 1e-12 && (median - 0.2).abs() < 1e-12 && max == 0.3);
        let (saved, ratio) = agreement.perplexities().unwrap();
        assert!((saved - 1f64.exp()).abs() < 1e-12 && (ratio - 0.5f64.exp()).abs() < 1e-12);
        let nan = Divergence { kl: f64::NAN, same_top: false };
        let error = agreement.add(nan, None, 7).unwrap_err().to_string();
        assert!(error.contains("at token 7 are not numbers"), "{error}");
    }
}
