//! Which tokens are chosen.

use proptest::prelude::*;

use super::candidates::{Candidate, reach, select_top};
use super::weights::exp_nonpositive;
use super::*;

fn params(edit: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
    let mut params = SamplingParams { temperature: 1.0, ..Default::default() };
    edit(&mut params);
    params
}

fn sample(logits: &[f32], params: &SamplingParams, history: &TokenCounts, position: u64) -> u32 {
    let row = Row { logits, params, history, position, allowed: None, forbidden: &[] };
    Sampler::default().sample(&row).unwrap().token
}

/// How often each token comes in `draws` draws.
fn shares(logits: &[f32], params: &SamplingParams, draws: u64) -> Vec<f64> {
    let mut counts = vec![0u32; logits.len()];
    for position in 0..draws {
        counts[sample(logits, params, &TokenCounts::default(), position) as usize] += 1;
    }
    counts.into_iter().map(|count| f64::from(count) / draws as f64).collect()
}

fn noise(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64).map(|i| (philox::uniform(seed, i) * 16.0 - 8.0) as f32).collect()
}

#[test]
fn greedy_takes_the_first_of_the_best() {
    let greedy = SamplingParams::default();
    let check = |logits: &[f32], expected| {
        assert_eq!(sample(logits, &greedy, &TokenCounts::default(), 0), expected, "{logits:?}");
    };
    check(&[1.0, 3.0, 3.0, 2.0], 1);
    check(&[-0.0, 0.0], 0);
    check(&[f32::NAN, -5.0, f32::NAN], 1);
    check(&[f32::NEG_INFINITY, f32::INFINITY, f32::MAX], 1);
    let mut long = vec![0.0; 1000];
    (long[700], long[130]) = (9.0, 9.0);
    check(&long, 130);
}

#[test]
fn no_candidate_is_an_error() {
    let never = [f32::NAN, f32::NEG_INFINITY];
    let edits: [fn(&mut SamplingParams); 4] =
        [|p| p.temperature = 0.0, |_| {}, |p| p.top_k = Some(2), |p| p.top_p = 0.5];
    for edit in edits {
        for logits in [&never[..], &[]] {
            let row = Row {
                logits,
                params: &params(edit),
                history: &TokenCounts::default(),
                position: 0,
                allowed: None,
                forbidden: &[],
            };
            let error = Sampler::default().sample(&row).unwrap_err();
            assert!(matches!(error, Error::NoCandidate { vocab_size } if vocab_size == logits.len()));
        }
    }
}

#[test]
fn strange_logits_are_survived() {
    let logits = [f32::NAN, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN];
    let edits: [fn(&mut SamplingParams); 5] = [
        |_| {},
        |p| p.top_k = Some(3),
        |p| p.top_p = 0.9,
        |p| p.temperature = 1e-45,
        |p| p.temperature = f32::MAX,
    ];
    for edit in edits {
        for position in 0..50 {
            let token = sample(&logits, &params(edit), &TokenCounts::default(), position);
            assert!(![0, 3].contains(&token), "chose {token}, whose logit is {}", logits[token as usize]);
        }
    }
}

#[test]
fn draws_follow_the_probabilities() {
    let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()];
    let check = |edit: fn(&mut SamplingParams), expected: [f64; 3]| {
        let shares = shares(&logits, &params(edit), 20_000);
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 0.015, "{shares:?} is not {expected:?}");
        }
    };
    check(|_| {}, [0.5, 0.3, 0.2]);
    check(|p| p.seed = 99, [0.5, 0.3, 0.2]);
    check(|p| p.temperature = 0.5, [0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38]);
    check(|p| p.top_k = Some(2), [0.625, 0.375, 0.0]);
    check(|p| p.top_p = 0.7, [0.625, 0.375, 0.0]);
    check(|p| p.top_p = 0.4, [1.0, 0.0, 0.0]);
    check(|p| p.min_p = 0.5, [0.625, 0.375, 0.0]);
    // Of the two that top-k leaves, the first has 0.625, which is enough for top-p.
    check(|p| (p.top_k, p.top_p) = (Some(2), 0.6), [1.0, 0.0, 0.0]);
}

#[test]
fn draws_depend_on_seed_and_position_alone() {
    let logits = noise(1000, 1);
    let tokens = |seed: u64| -> Vec<u32> {
        let params = params(|p| p.seed = seed);
        (0..20).map(|position| sample(&logits, &params, &TokenCounts::default(), position)).collect()
    };
    assert_eq!(tokens(1), tokens(1));
    assert_ne!(tokens(1), tokens(2));
    let mut shared = Sampler::default();
    let (one, other) = (params(|p| p.seed = 1), params(|p| (p.seed, p.top_k) = (2, Some(5))));
    let history = TokenCounts::default();
    let in_company: Vec<u32> = (0..20)
        .map(|position| {
            shared
                .sample(&Row {
                    logits: &logits,
                    params: &other,
                    history: &history,
                    position,
                    allowed: None,
                    forbidden: &[],
                })
                .unwrap();
            let row = Row {
                logits: &logits,
                params: &one,
                history: &history,
                position,
                allowed: None,
                forbidden: &[],
            };
            shared.sample(&row).unwrap().token
        })
        .collect();
    assert_eq!(in_company, tokens(1));
}

#[test]
fn penalties_bias_and_mask() {
    let mut history = TokenCounts::new(&[0]);
    let row = |logits: &[f32], edit: fn(&mut SamplingParams), history: &TokenCounts| {
        let params = params(|p| {
            p.temperature = 0.0;
            edit(p);
        });
        let mut adjusted = Vec::new();
        adjust(
            &Row { logits, params: &params, history, position: 0, allowed: Some(&[0b1011]), forbidden: &[] },
            &mut adjusted,
        );
        adjusted
    };
    let inf = f32::NEG_INFINITY;
    let logits = [2.0, -2.0, 5.0, 1.0];
    assert_eq!(row(&logits, |p| p.repetition_penalty = 2.0, &history), [1.0, -2.0, inf, 1.0]);
    assert_eq!(row(&logits, |p| p.frequency_penalty = 1.0, &history), [2.0, -2.0, inf, 1.0]);
    [1, 1, 3, 777].into_iter().for_each(|token| history.push(token));
    assert_eq!(row(&logits, |p| p.repetition_penalty = 2.0, &history), [1.0, -4.0, inf, 0.5]);
    assert_eq!(row(&logits, |p| p.frequency_penalty = 0.5, &history), [2.0, -3.0, inf, 0.5]);
    assert_eq!(row(&logits, |p| p.presence_penalty = 0.5, &history), [2.0, -2.5, inf, 0.5]);
    let bias = |p: &mut SamplingParams| p.logit_bias = [(1, 10.0), (2, 100.0), (9, 1.0)].into();
    assert_eq!(row(&logits, bias, &history), [2.0, 8.0, inf, 1.0]);
}

#[test]
fn wrong_parameters_are_all_named() {
    let params = SamplingParams {
        temperature: -1.0,
        top_k: Some(0),
        top_p: 0.0,
        min_p: f32::NAN,
        repetition_penalty: 0.0,
        frequency_penalty: f32::INFINITY,
        presence_penalty: f32::NAN,
        logit_bias: [(7, 1.0), (3, f32::NAN)].into(),
        ..Default::default()
    };
    let message = params.validate(5).unwrap_err().to_string();
    for part in [
        "temperature is -1: give 0 for greedy, or a positive number",
        "top_k is 0: give at least 1",
        "top_p is 0: ",
        "min_p is NaN: ",
        "repetition_penalty is 0: ",
        "frequency_penalty is inf: ",
        "presence_penalty is NaN: ",
        "logit_bias is {7: 1}: give a token below 5",
        "logit_bias is {3: NaN}: give a number from -1000000 to 1000000",
    ] {
        assert!(message.contains(part), "{message:?} should say {part:?}");
    }
    SamplingParams::default().validate(5).unwrap();
}

#[test]
fn no_valid_parameters_leave_nothing_to_choose() {
    let logits = [3e4f32, -3e4, 0.0, -1e-3];
    let mut history = TokenCounts::new(&[0, 1, 2, 3]);
    (0..100_000u32).for_each(|i| history.push(i % 4));
    let (most, repetition) = (LARGEST_PENALTY, LARGEST_REPETITION_PENALTY);
    for sign in [1.0, -1.0] {
        for repetition_penalty in [repetition, 1.0 / repetition] {
            for temperature in [0.0, 1e-30, 1.0, 1e30] {
                let params = SamplingParams {
                    temperature,
                    repetition_penalty,
                    frequency_penalty: sign * most,
                    presence_penalty: sign * most,
                    logit_bias: (0..4).map(|token| (token, sign * LARGEST_BIAS)).collect(),
                    ..Default::default()
                };
                params.validate(4).unwrap();
                let row = Row {
                    logits: &logits,
                    params: &params,
                    history: &history,
                    position: 7,
                    allowed: None,
                    forbidden: &[],
                };
                Sampler::default().sample(&row).unwrap();
            }
        }
    }
    for edit in [
        |p: &mut SamplingParams| p.frequency_penalty = 101.0,
        |p: &mut SamplingParams| p.presence_penalty = -101.0,
        |p: &mut SamplingParams| p.repetition_penalty = 1e-4,
        |p: &mut SamplingParams| p.repetition_penalty = 101.0,
        |p: &mut SamplingParams| p.logit_bias = [(1, 1e7)].into(),
    ] {
        let mut params = SamplingParams::default();
        edit(&mut params);
        assert!(params.validate(4).is_err(), "{params:?}");
    }
}

#[test]
fn logprobs_are_of_the_models_own_logits() {
    let logits = [1.0f32, 2.0, f32::NAN, 0.0];
    let sum: f32 = [1.0f32, 2.0, 0.0].iter().map(|logit| logit.exp()).sum();
    let history = TokenCounts::default();
    let params = params(|p| (p.logit_bias, p.logprobs) = ([(3, 1000.0)].into(), Some(2)));
    let row = Row {
        logits: &logits,
        params: &params,
        history: &history,
        position: 0,
        allowed: None,
        forbidden: &[],
    };
    let Sampled { token, logprobs: Some(logprobs) } = Sampler::default().sample(&row).unwrap() else {
        panic!()
    };
    assert_eq!((token, logprobs.top[0].0, logprobs.top[1].0), (3, 1, 0));
    for (got, logit) in [(logprobs.logprob, 0.0), (logprobs.top[0].1, 2.0), (logprobs.top[1].1, 1.0)] {
        assert!((got - (logit - sum.ln())).abs() < 1e-6);
    }
    assert_eq!(Logprobs::from_logits(&logits, 2, 0), Logprobs { logprob: f32::NEG_INFINITY, top: vec![] });
    assert_eq!(Logprobs::from_logits(&logits, 99, 9).top.len(), 3);
    assert_eq!(Logprobs::from_logits(&[f32::NAN], 0, 1).logprob, f32::NEG_INFINITY);
}

/// Each step by itself: sort, keep, divide.
fn probabilities(adjusted: &[f32], params: &SamplingParams) -> Vec<(u32, f64)> {
    let mut sorted: Vec<(u32, f64)> =
        (0..).zip(adjusted).map(|(token, &logit)| (token, f64::from(logit / params.temperature))).collect();
    sorted.retain(|(_, logit)| !logit.is_nan() && *logit > f64::NEG_INFINITY);
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    sorted.truncate(params.top_k.unwrap_or(usize::MAX));
    let highest = sorted[0].1;
    sorted.iter_mut().for_each(|(_, logit)| *logit = (*logit - highest).exp());
    let total: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    let enough = sorted.iter().position(|(_, weight)| {
        sum += weight;
        sum >= f64::from(params.top_p) * total
    });
    sorted.truncate(enough.map_or(usize::MAX, |last| last + 1));
    sorted.retain(|&(_, weight)| weight >= f64::from(params.min_p));
    let kept: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    sorted.into_iter().map(|(token, weight)| (token, weight / kept)).collect()
}

#[test]
fn processed_logprobs_are_those_of_the_draw() {
    let logits = noise(5000, 3);
    let edits: [fn(&mut SamplingParams); 7] = [
        |_| {},
        |p| p.temperature = 2.5,
        |p| p.top_k = Some(5),
        |p| p.top_k = Some(4000),
        |p| (p.top_p, p.top_k, p.temperature) = (0.9, Some(3), 1.5),
        |p| (p.min_p, p.temperature) = (0.2, 3.0),
        |p| (p.top_p, p.temperature) = (0.99, 4.0),
    ];
    for edit in edits {
        let mut params = params(|p| (p.logprobs, p.logprobs_mode) = (Some(8), LogprobsMode::Processed));
        edit(&mut params);
        params.logit_bias = [(17, 5.0)].into();
        let mut adjusted = logits.clone();
        adjusted[17] += 5.0;
        adjusted[4] = f32::NEG_INFINITY;
        let history = TokenCounts::default();
        for position in 0..20 {
            let row = Row {
                logits: &logits,
                params: &params,
                history: &history,
                position,
                allowed: None,
                forbidden: &[4],
            };
            let sampled = Sampler::default().sample(&row).unwrap();
            let expected = probabilities(&adjusted, &params);
            let close = |got: f32, expected: f64| (f64::from(got.exp()) - expected).abs() < 1e-5;
            let Logprobs { logprob, top } = sampled.logprobs.unwrap();
            let own = expected.iter().find(|(token, _)| *token == sampled.token).unwrap();
            assert!(close(logprob, own.1), "{logprob} {own:?} {params:?}");
            assert_eq!(top.len(), expected.len().min(8), "{params:?}");
            for ((token, logprob), expected) in top.iter().zip(&expected) {
                assert!(*token == expected.0 && close(*logprob, expected.1), "{top:?} {params:?}");
            }
        }
    }
    let greedy = SamplingParams {
        logprobs: Some(3),
        logprobs_mode: LogprobsMode::Processed,
        ..SamplingParams::default()
    };
    let history = TokenCounts::default();
    let row = Row {
        logits: &logits,
        params: &greedy,
        history: &history,
        position: 0,
        allowed: None,
        forbidden: &[],
    };
    let Sampled { token, logprobs } = Sampler::default().sample(&row).unwrap();
    assert_eq!(logprobs, Some(Logprobs { logprob: 0.0, top: vec![(token, 0.0)] }));
}

#[test]
fn exp_is_close() {
    for i in 0..870_000 {
        let x = -(i as f32) / 10_000.0;
        let exact = f64::from(x).exp();
        let error = (f64::from(exp_nonpositive(x)) - exact).abs() / exact;
        assert!(error < 2e-7, "exp({x}) is off by {error:e}");
    }
    assert_eq!(exp_nonpositive(0.0), 1.0);
    assert_eq!([-88.0, f32::NEG_INFINITY, f32::NAN].map(exp_nonpositive), [0.0; 3]);
}

proptest! {
    /// Against a full sort, with many equal logits.
    #[test]
    fn selection_is_a_sorts_prefix(seed: u64, len in 0usize..3000, count in 0usize..300, levels in 1u32..500) {
        let logits: Vec<f32> = (0..len as u64)
            .map(|i| match (philox::uniform(seed, i) * f64::from(levels)) as u32 {
                0 => f32::NAN,
                1 => f32::NEG_INFINITY,
                level => level as f32,
            })
            .collect();
        let mut sorted: Vec<u32> = (0..len as u32).filter(|&i| logits[i as usize] > f32::NEG_INFINITY).collect();
        sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        sorted.truncate(count);
        let mut candidates = Vec::new();
        select_top(&logits, count, &mut candidates);
        prop_assert_eq!(candidates.iter().map(|c| c.token).collect::<Vec<_>>(), sorted);
    }

    /// Halving finds the place in the sorted order at which a running sum reaches a target.
    #[test]
    fn halving_finds_what_walking_finds(seed: u64, len in 1usize..2000, levels in 1u32..50, share in 0.0f64..1.2) {
        let logits: Vec<f32> =
            (0..len as u64).map(|i| (philox::uniform(seed, i) * f64::from(levels)).floor() as f32).collect();
        let mut sorted = Vec::new();
        select_top(&logits, len, &mut sorted);
        let size = |candidate: &Candidate| u64::from(candidate.token % 7);
        let target = (share * sorted.iter().map(size).sum::<u64>() as f64) as u64;
        let mut sum = 0;
        let walked = sorted.iter().find(|candidate| {
            sum += size(candidate);
            sum >= target
        });
        let mut shuffled = sorted.clone();
        shuffled.sort_by_key(|candidate| candidate.token);
        prop_assert_eq!(reach(&mut shuffled, target, size), walked.or(sorted.last()).copied());
    }
}
