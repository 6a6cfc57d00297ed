//! How many prompt tokens may run with sequences that decode, so that a step takes no longer than it is to.
//!
//! A step takes the time of one that only decodes, and more for each prompt token; both are measured. Time that rises
//! counts at once, time that falls by and by, and the share of prompts at most doubles from one such step to the next: one
//! step that takes too long is enough to learn that.

use std::time::Duration;

/// Fewer prompt tokens than this hardly make a step shorter.
const FEWEST: usize = 8;
/// The weight of the last step in averages.
const LAST: f64 = 0.25;
/// A step with fewer prompt tokens tells less of what each costs.
const TELLING: f64 = 16.0;

/// The time that a step may take, and what was measured.
#[derive(Debug, Default)]
pub(super) struct StepBudget {
    /// Seconds; without, steps take as long as they take.
    limit: Option<f64>,
    /// Seconds of a step that only decodes.
    decode: Option<f64>,
    /// Seconds of a prompt token.
    token: Option<f64>,
    /// Prompt tokens of the last step that decoded too.
    share: usize,
}

impl StepBudget {
    /// A budget of so much time; zero is no limit.
    pub(super) fn new(limit: Duration) -> StepBudget {
        let limit = Some(limit.as_secs_f64()).filter(|&limit| limit > 0.0);
        StepBudget { limit, ..StepBudget::default() }
    }

    /// Prompt tokens that may run in a step in which other sequences decode.
    pub(super) fn prefill_tokens(&self) -> usize {
        let Some(limit) = self.limit else { return usize::MAX };
        let left = limit - self.decode.unwrap_or(0.0);
        let tokens = self.token.map_or(0.0, |token| left / token).max(0.0) as usize;
        tokens.min(2 * self.share).max(FEWEST)
    }

    /// Takes note of a step of so many prompt tokens, in which other sequences decoded or not.
    pub(super) fn note(&mut self, prefill: usize, decodes: bool, time: Duration) {
        let time = time.as_secs_f64();
        if prefill == 0 {
            self.decode = Some(self.decode.map_or(time, |average| average + LAST * (time - average)));
            return;
        }
        if decodes {
            self.share = prefill;
        }
        // Even a step that is shorter than usual takes time for its tokens.
        let more = (time - self.decode.unwrap_or(0.0)).max(time / 64.0);
        let (token, telling) = (more / prefill as f64, (prefill as f64 / TELLING).min(1.0));
        self.token = Some(match self.token {
            Some(average) if token < average => average + LAST * telling * (token - average),
            Some(average) => average + telling * (token - average),
            None => token,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps with sequences that decode: for each the time that it takes on a machine with these costs.
    fn steps(budget: &mut StepBudget, count: usize, decode: f64, token: f64) -> Vec<f64> {
        let step = |_| {
            let tokens = budget.prefill_tokens().min(512);
            let time = decode + token * tokens as f64;
            budget.note(tokens, true, Duration::from_secs_f64(time));
            time
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn steps_come_to_the_time_that_they_may_take() {
        let ms = Duration::from_millis;
        let mut budget = StepBudget::new(ms(100));
        // A prompt of 512 tokens alone, then decoding.
        budget.note(512, false, ms(2560));
        (0..3).for_each(|_| budget.note(0, true, ms(50)));
        let times = steps(&mut budget, 10, 0.05, 0.005);
        assert!(times.iter().all(|time| *time < 0.1001), "{times:?}");
        assert!(times[9] > 0.09, "{times:?}");
        // Tokens become dearer and cheaper, as they do in long and short texts; one step may be too long.
        let times = steps(&mut budget, 10, 0.05, 0.01);
        assert!(times[1..].iter().all(|time| *time < 0.14), "{times:?}");
        let times = steps(&mut budget, 100, 0.05, 0.001);
        assert!(times[99] > 0.09 && times.iter().all(|time| *time < 0.101), "{times:?}");
    }

    #[test]
    fn the_share_of_prompts_at_most_doubles() {
        let mut budget = StepBudget::new(Duration::from_secs(100));
        budget.note(10, false, Duration::from_micros(10));
        let mut shares = vec![];
        for _ in 0..4 {
            shares.push(budget.prefill_tokens());
            budget.note(shares[shares.len() - 1], true, Duration::from_micros(20));
        }
        assert_eq!(shares, [8, 16, 32, 64]);
    }

    #[test]
    fn slow_decoding_leaves_a_few_tokens_and_no_limit_leaves_all() {
        let mut budget = StepBudget::new(Duration::from_millis(100));
        budget.note(0, true, Duration::from_secs(1));
        budget.note(64, true, Duration::from_secs(3));
        assert_eq!(budget.prefill_tokens(), FEWEST);
        assert_eq!(StepBudget::new(Duration::ZERO).prefill_tokens(), usize::MAX);
    }
}
