//! The generator on real models.

use std::collections::HashMap;

use super::*;
use crate::plan::Plan;
use crate::plan::config::{KVCacheStrategy, PipelineConfig};
use crate::tasks::text_model::TextModel;
use crate::tokenizer::{AddSpecial, ParseSpecial, SkipSpecial};
use crate::{Constraint, ReasoningFormat, ReasoningPhase};

/// The model that every clone has: byte-level BPE, 4096 tokens, a context of 512.
fn storyteller() -> Arc<TextModel> {
    load(&testdata::asset("storyteller/model.gguf"))
}

fn load(path: &std::path::Path) -> Arc<TextModel> {
    crate::testing::text_model(path)
}

fn encode(model: &TextModel, text: &str) -> Vec<u32> {
    model.tokenizer().encode(text, AddSpecial::Yes, ParseSpecial::No).unwrap()
}

/// Room for a few sequences, and steps so short that prompts are read in chunks.
fn settings(model: &TextModel) -> Plan {
    let change = |config: PipelineConfig| {
        config
            .max_cache_batch_size(4)
            .max_batch_tokens(7)
            .cache_strategy(KVCacheStrategy::Paged)
            .enable_echo(true)
    };
    model.plan().with(change).unwrap()
}

fn request(model: &TextModel, prompt: &str, max_new_tokens: usize) -> Request {
    let sampling = SamplingOptions { temperature: Some(1.0), ..SamplingOptions::default() };
    let prompt = encode(model, prompt);
    Request { prompt, sampling, seed: 3, max_new_tokens: Some(max_new_tokens), ..Request::default() }
}

/// What became of a request.
#[derive(Debug, Default, Clone, PartialEq)]
struct Answer {
    prompt: Vec<u32>,
    prompt_text: String,
    prompt_logprobs: Vec<Option<TokenLogprobs>>,
    tokens: Vec<u32>,
    text: String,
    logprobs: Vec<TokenLogprobs>,
    warnings: Vec<Warning>,
    finished: Option<FinishReason>,
    failed: Option<String>,
}

impl Answer {
    fn take(&mut self, kind: EventKind) {
        assert!(self.finished.is_none() && self.failed.is_none(), "{kind:?} after the end");
        match kind {
            EventKind::Started { cached_tokens, .. } => assert_eq!(cached_tokens, 0),
            EventKind::Warning(warning) => self.warnings.push(warning),
            EventKind::PromptToken { token, text, logprobs } => {
                assert!(self.tokens.is_empty(), "the prompt comes first");
                self.prompt.push(token);
                self.prompt_text.push_str(&text);
                self.prompt_logprobs.push(logprobs);
            }
            EventKind::Token { token, text, logprobs } => {
                self.tokens.push(token);
                self.text.push_str(&text);
                self.logprobs.extend(logprobs);
            }
            EventKind::Finished { reason, text } => {
                self.text.push_str(&text);
                self.finished = Some(reason);
            }
            EventKind::Failed(error) => self.failed = Some(error.to_string()),
        }
    }
}

fn run_all(model: &Arc<TextModel>, plan: &Plan, requests: Vec<Request>) -> Vec<Answer> {
    let mut generator = Generator::with_plan(Arc::clone(model), plan).unwrap();
    let ids: Vec<SequenceId> = requests.into_iter().map(|request| generator.add(request).unwrap()).collect();
    let mut answers: HashMap<SequenceId, Answer> = HashMap::new();
    while !generator.is_idle() {
        for event in generator.step().unwrap() {
            answers.entry(event.id).or_default().take(event.kind);
        }
    }
    let cache = generator.scheduler().cache();
    assert_eq!(cache.num_free(), cache.num_pages(), "all pages come back");
    ids.iter().map(|id| answers.remove(id).unwrap()).collect()
}

fn run(model: &Arc<TextModel>, request: Request) -> Answer {
    run_all(model, &settings(model), vec![request]).remove(0)
}

/// Log-probabilities as bits, so that equal means equal.
fn bits(answer: &Answer) -> Vec<u32> {
    let all = answer.prompt_logprobs.iter().flatten().chain(&answer.logprobs);
    all.flat_map(|at| at.top.iter().chain([&at.chosen])).map(|entry| entry.logprob.to_bits()).collect()
}

#[test]
fn a_stop_string_ends_the_text_wherever_tokens_part() {
    let model = storyteller();
    let plain = run(&model, request(&model, "Once upon a time", 40));
    assert_eq!(plain.finished, Some(FinishReason::Length));
    // Strings of one to nine bytes from anywhere in the text, words or not.
    for (start, length) in [(0, 1), (5, 3), (11, 9), (20, 6), (31, 4)] {
        let stop = plain.text[start..start + length].to_string();
        let first = plain.text.find(&stop).unwrap();
        let never = "\u{1F600} never".to_string();
        let answer = run(
            &model,
            Request { stop: vec![never, stop.clone()], ..request(&model, "Once upon a time", 40) },
        );
        assert_eq!(answer.text, plain.text[..first], "{stop:?}");
        assert_eq!(answer.finished, Some(FinishReason::StopString(1)));
        assert!(plain.tokens.starts_with(&answer.tokens));
    }
}

#[test]
fn stop_tokens_and_the_least_number_of_tokens() {
    let model = storyteller();
    let base = request(&model, "Once upon a time", 30);
    let plain = run(&model, base.clone());
    let stop = plain.tokens[10];
    let first = plain.tokens.iter().position(|&token| token == stop).unwrap();
    let stopped = run(&model, Request { stop_token_ids: vec![stop], ..base.clone() });
    assert_eq!(stopped.tokens, plain.tokens[..first]);
    assert_eq!(stopped.finished, Some(FinishReason::StopToken(stop)));
    // The token cannot be chosen before its time, and stop strings are not looked for.
    let later =
        Request { stop_token_ids: vec![stop], stop: vec![" ".into()], min_new_tokens: 20, ..base.clone() };
    let later = run(&model, later);
    assert!(later.tokens.len() >= 20 && !later.tokens[..20].contains(&stop), "{later:?}");
    assert!(later.text.contains(' '));
    // An end that the model is made to want at once.
    let eos = *model.tokenizer().eos_ids().first().unwrap();
    let mut wants_to_end = base;
    wants_to_end.logit_bias = [(eos, 1e6)].into();
    let answer = run(&model, wants_to_end.clone());
    assert_eq!((answer.tokens.len(), answer.finished), (0, Some(FinishReason::Stop)));
    let answer = run(&model, Request { min_new_tokens: 5, ..wants_to_end.clone() });
    assert_eq!((answer.tokens.len(), answer.finished), (5, Some(FinishReason::Stop)));
    let answer = run(&model, Request { ignore_eos: true, min_new_tokens: 5, ..wants_to_end });
    assert_eq!((answer.tokens, answer.finished), (vec![eos; 30], Some(FinishReason::Length)));
}

#[test]
fn max_length_bounds_prompt_and_answer() {
    let model = storyteller();
    let long = |tokens: usize, new| Request {
        prompt: (0..tokens as u32).map(|token| 100 + token).collect(),
        max_new_tokens: new,
        ignore_eos: true,
        ..Request::default()
    };
    let fast = settings(&model).with(|config| config.max_batch_tokens(512)).unwrap();
    let answers =
        run_all(&model, &fast, vec![long(500, None), long(500, Some(usize::MAX)), long(512, Some(0))]);
    assert_eq!(answers.iter().map(|answer| answer.tokens.len()).collect::<Vec<_>>(), [12, 12, 0]);
    assert!(answers.iter().all(|answer| answer.finished == Some(FinishReason::Length)));
    let bounded = fast.with(|config| config.max_length(100).max_new_tokens(5)).unwrap();
    let answers = run_all(&model, &bounded, vec![long(98, None), long(10, None), long(10, Some(7))]);
    assert_eq!(answers.iter().map(|answer| answer.tokens.len()).collect::<Vec<_>>(), [2, 5, 7]);
    let mut generator = Generator::with_plan(Arc::clone(&model), &bounded).unwrap();
    assert_eq!(
        generator.add(long(101, Some(0))).unwrap_err().to_string(),
        "the prompt has 101 tokens, but max_length is 100 for prompt and answer together: shorten the prompt or \
         raise max_length"
    );
    assert!(generator.add(long(100, Some(1))).is_err() && generator.add(long(100, Some(0))).is_ok());
    let error = fast.with(|config| config.max_length(513)).unwrap_err().to_string();
    assert!(error.contains("max_length is 513") && error.contains("512"), "{error}");
}

/// The last token that fits may be the one that ends the text; it is not part of it.
#[test]
fn an_end_in_the_last_place_is_an_end() {
    let model = storyteller();
    let eos = *model.tokenizer().eos_ids().first().unwrap();
    let mut base = request(&model, "Once upon a time", 5);
    base.logit_bias = [(eos, 1e6)].into();
    let answer = run(&model, Request { min_new_tokens: 4, ..base });
    assert_eq!((answer.tokens.len(), answer.finished), (4, Some(FinishReason::Stop)));
}

/// Text, tokens and log-probabilities of all combinations are those of the others, in any chunks.
fn check_combinations(model: &Arc<TextModel>, prompt: &str) {
    let tokens = encode(model, prompt);
    let full =
        Request { echo: true, prompt_logprobs: Some(2), logprobs: Some(3), ..request(model, prompt, 12) };
    let reference = run(model, full.clone());
    assert_eq!(reference.prompt, tokens);
    let all: Vec<u32> = tokens.iter().chain(&reference.tokens).copied().collect();
    let whole = format!("{}{}", reference.prompt_text, reference.text);
    assert_eq!(whole, model.tokenizer().decode(&all, SkipSpecial::Yes), "{prompt:?}");
    assert!(reference.prompt_logprobs[0].is_none());
    assert!(reference.prompt_logprobs[1..].iter().flatten().all(|at| at.top.len() == 2));
    assert!(reference.logprobs.iter().all(|at| at.top.len() == 3 && at.chosen.logprob <= 0.0));
    // The tokens' bytes, end to end, are the text's.
    let entries = reference.prompt_logprobs.iter().flatten().chain(&reference.logprobs).map(|at| &at.chosen);
    let mut bytes = Vec::new();
    for (entry, &token) in entries.zip(&all[1..]) {
        assert_eq!(entry.token, token);
        if !model.tokenizer().is_special(token) {
            bytes.extend_from_slice(&entry.bytes);
        }
    }
    let rest = String::from_utf8_lossy(&bytes).into_owned();
    assert!(model.tokenizer().is_special(all[0]) && rest == whole, "{rest:?} is not {whole:?}");

    let chunks = settings(model);
    for plan in [&chunks, &chunks.with(|config| config.max_batch_tokens(64)).unwrap()] {
        for case in 0..16 {
            let (echo, logprobs, scores, stop) = (case & 1 > 0, case & 2 > 0, case & 4 > 0, case & 8 > 0);
            let mut request = Request { echo, ..full.clone() };
            request.logprobs = logprobs.then_some(3);
            request.prompt_logprobs = scores.then_some(2);
            let cut = reference.text.char_indices().nth(reference.text.chars().count() / 2).unwrap().0;
            request.stop = Vec::from_iter(stop.then(|| reference.text[cut..].chars().take(2).collect()));
            let end =
                request.stop.first().map_or(reference.text.len(), |s| reference.text.find(&s[..]).unwrap());
            let answer = run_all(model, plan, vec![request.clone()]).remove(0);
            assert_eq!(answer.text, reference.text[..end], "{request:?}");
            assert!(reference.tokens.starts_with(&answer.tokens) && answer.warnings.is_empty());
            let expected = if echo || scores { &reference.prompt[..] } else { &[] };
            assert_eq!(answer.prompt, expected);
            let scored = scores || echo && logprobs;
            assert_eq!(
                answer.prompt_logprobs.iter().flatten().count(),
                if scored { tokens.len() - 1 } else { 0 }
            );
            if scores {
                assert_eq!(answer.prompt_logprobs, reference.prompt_logprobs);
            }
            assert_eq!(answer.logprobs.len(), if logprobs { answer.tokens.len() } else { 0 });
            if logprobs {
                assert!(reference.logprobs.starts_with(&answer.logprobs));
            }
        }
    }
}

#[test]
fn echo_log_probabilities_and_stops_align() {
    let model = storyteller();
    // Characters of two to four bytes, a joined family, combining marks, right to left, half a surrogate's escape.
    for prompt in ["Once upon a time", "né 👩‍👩‍👧 e\u{301}\u{323}", "שלום \u{FFFD}\\ud83d\t\n  "]
    {
        check_combinations(&model, prompt);
    }
    // SentencePiece, where the first word's space is not its own.
    let Some(path) = testdata::shared("stories260k/gguf/stories260K-F32.gguf") else { return };
    let model = load(&path);
    for prompt in ["Once upon a time", "Zoë 🦊 ran", " two  spaces"] {
        check_combinations(&model, prompt);
    }
}

#[test]
fn a_prompt_is_scored_as_it_would_be_made() {
    let model = storyteller();
    let mut made = request(&model, "Once upon a time", 20);
    made.logprobs = Some(4);
    let answer = run(&model, made.clone());
    let mut read = Request { max_new_tokens: Some(0), prompt_logprobs: Some(4), ..made.clone() };
    read.prompt.extend(&answer.tokens);
    let score = run(&model, read.clone());
    let first = made.prompt.len();
    for (at, (read, made)) in score.prompt_logprobs[first..].iter().zip(&answer.logprobs).enumerate() {
        assert_eq!(read.as_ref(), Some(made), "token {at}");
    }
    assert!(score.tokens.is_empty() && score.finished == Some(FinishReason::Length));
    // The same bits whatever else runs, and when pages are short.
    let others = ["The fox", "A king had three sons, and", "There was"].map(|text| request(&model, text, 60));
    let tight = settings(&model).with_cache_tokens(128);
    let mut mix = others.to_vec();
    mix.insert(1, read);
    let answers = run_all(&model, &tight, mix);
    assert_eq!(answers[1], score);
    assert_eq!(bits(&answers[1]), bits(&score));
}

#[test]
fn prompts_are_not_scored_unless_enabled() {
    let model = storyteller();
    let mut wants = Request { echo: true, ..request(&model, "The fox", 6) };
    wants.logprobs = Some(1);
    let scored = run(&model, wants.clone());
    let silent = settings(&model).with(|config| config.enable_echo(false)).unwrap();
    let answer = run_all(&model, &silent, vec![wants]).remove(0);
    assert_eq!(answer.warnings, [Warning::EchoDisabled]);
    assert!(answer.warnings[0].to_string().contains("enable_echo"));
    assert!(answer.prompt == scored.prompt && answer.prompt_logprobs.iter().all(Option::is_none));
    assert!(answer.text == scored.text && answer.logprobs == scored.logprobs);
}

#[test]
fn what_goes_wrong_in_one_sequence_ends_that_one() {
    let model = storyteller();
    let good = ["The fox", "A king had"].map(|text| request(&model, text, 20));
    // Every token is one that may not be chosen yet.
    let vocab = model.vocab() as u32;
    let poisoned = Request {
        stop_token_ids: (0..vocab).collect(),
        min_new_tokens: 1,
        echo: true,
        ..request(&model, "Once upon a time", 20)
    };
    let [first, second] = good.clone();
    let answers = run_all(&model, &settings(&model), vec![first, poisoned, second]);
    let alone = good.map(|request| run(&model, request));
    assert!(answers[0] == alone[0] && answers[2] == alone[1]);
    assert!(answers[1].failed.as_ref().unwrap().contains("no token to choose"), "{:?}", answers[1]);
    assert_eq!(answers[1].prompt, encode(&model, "Once upon a time"));
}

#[test]
fn status_counts_requests_tokens_and_steps() {
    let model = storyteller();
    let plan = settings(&model).with(|config| config.enable_prefix_caching(true)).unwrap();
    let mut generator = Generator::with_plan(Arc::clone(&model), &plan).unwrap();
    let run = |generator: &mut Generator| {
        while !generator.is_idle() {
            generator.step().unwrap();
        }
    };
    let plain = Request { ignore_eos: true, ..request(&model, "Once upon a time there was a king", 5) };
    let prompt = plain.prompt.len();
    generator.add(plain.clone()).unwrap();
    let Status { waiting, queued_tokens, .. } = generator.status();
    assert_eq!((waiting, queued_tokens), (1, prompt));
    run(&mut generator);
    let status = generator.status();
    assert_eq!((status.started, status.prompt_tokens, status.cached_tokens), (1, prompt as u64, 0));
    assert_eq!((status.generated_tokens, status.finished.length, status.queued_tokens), (5, 1, 0));
    // The last token never runs; steps have seven tokens at most.
    assert_eq!((status.step_tokens.sum, status.step_prefill_tokens.sum), (prompt as u64 + 4, prompt as u64));
    let steps = prompt.div_ceil(7) as u64 + 4;
    assert_eq!((status.step_tokens.count(), status.step_micros.count()), (steps, steps));
    assert_eq!((status.step_tokens.at_most(0), status.step_tokens.at_most(3)), (4, steps));
    assert!(status.step_micros.sum > 0);

    let stop = Request { stop: vec![String::from(" ")], ..plain.clone() };
    generator.add(stop).unwrap();
    let aborted = generator.add(plain.clone()).unwrap();
    generator.abort(aborted);
    generator.abort(aborted);
    let everything = (0..model.vocab() as u32).collect();
    generator.add(Request { stop_token_ids: everything, min_new_tokens: 1, ..plain }).unwrap();
    run(&mut generator);
    let status = generator.status();
    let FinishedRequests { stop, length, cancelled, timed_out, failed } = status.finished;
    assert_eq!((stop, length, cancelled, timed_out, failed), (1, 1, 1, 0, 1));
    assert_eq!((status.started, status.prompt_tokens), (3, 3 * prompt as u64));
    assert_eq!(status.cached_tokens, 2 * (prompt as u64 - 1));
}

/// However few prompt tokens a step may have next to decoding sequences, the results are the same to the bit.
#[test]
fn short_steps_change_no_result() {
    let model = storyteller();
    let long = "A king had three sons, and one of them was a fox that ran. ".repeat(4);
    let requests = ["The fox", &long[..], "Once upon a time there was"].map(|text| Request {
        logprobs: Some(2),
        prompt_logprobs: Some(1),
        ignore_eos: true,
        ..request(&model, text, 30)
    });
    let plan = |max_step_ms: usize| {
        let change = |config: PipelineConfig| config.max_batch_tokens(512).max_step_ms(max_step_ms);
        settings(&model).with(change).unwrap()
    };
    let run = |max_step_ms| {
        let mut generator = Generator::with_plan(Arc::clone(&model), &plan(max_step_ms)).unwrap();
        let mut answers: HashMap<SequenceId, Answer> = HashMap::new();
        for request in &requests {
            // The one before decodes already.
            let id = generator.add(request.clone()).unwrap();
            while answers.get(&id).is_none_or(|answer| answer.tokens.is_empty()) {
                for event in generator.step().unwrap() {
                    answers.entry(event.id).or_default().take(event.kind);
                }
            }
        }
        while !generator.is_idle() {
            for event in generator.step().unwrap() {
                answers.entry(event.id).or_default().take(event.kind);
            }
        }
        let steps = generator.status().step_tokens.count();
        (steps, (0..3).map(|id| answers.remove(&SequenceId(id)).unwrap()).collect::<Vec<_>>())
    };
    let ((whole, expected), (short, answers)) = (run(0), run(1));
    assert_eq!(answers, expected);
    for (answer, expected) in answers.iter().zip(&expected) {
        assert_eq!(bits(answer), bits(expected));
    }
    assert!(short > whole, "{short} steps, and {whole} without a limit");
}

#[test]
fn panics_become_errors() {
    let error = guarded::<()>(|| panic!("index {} is out of bounds", 7)).unwrap_err();
    assert_eq!(error.to_string(), "internal error while generating a token: index 7 is out of bounds");
    assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
}

#[test]
fn samples_of_a_prompt_differ_and_the_first_is_the_plain_answer() {
    let model = storyteller();
    let base = request(&model, "Once upon a time", 15);
    let mut generator = Generator::with_plan(Arc::clone(&model), &settings(&model)).unwrap();
    let ids = generator.add_samples(&base, 6).unwrap();
    let mut texts: HashMap<SequenceId, Answer> = HashMap::new();
    while !generator.is_idle() {
        for event in generator.step().unwrap() {
            texts.entry(event.id).or_default().take(event.kind);
        }
    }
    assert_eq!(texts[&ids[0]], run(&model, base.clone()));
    let different: std::collections::HashSet<&str> = ids.iter().map(|id| &texts[id].text[..]).collect();
    assert_eq!(different.len(), 6);
    assert!(generator.add_samples(&Request { prompt: vec![], ..base }, 2).is_err() && generator.is_idle());
}

/// Runs requests that are added together; cancels some after so many steps.
fn run_together(
    model: &Arc<TextModel>,
    plan: &Plan,
    requests: &[Request],
    cancel: &[(usize, usize)],
) -> (Vec<Answer>, Status) {
    let mut generator = Generator::with_plan(Arc::clone(model), plan).unwrap();
    let ids: Vec<SequenceId> =
        generator.add_all(requests.to_vec()).into_iter().collect::<Result<_, _>>().unwrap();
    let mut answers: HashMap<SequenceId, Answer> = HashMap::new();
    for step in 0.. {
        let due = cancel.iter().filter(|(when, _)| *when == step);
        due.for_each(|&(_, which)| generator.abort(ids[which]));
        if generator.is_idle() {
            break;
        }
        for event in generator.step().unwrap() {
            answers.entry(event.id).or_default().take(event.kind);
        }
    }
    let status = generator.status();
    assert_eq!(status.free_pages, status.num_pages, "all pages come back");
    (ids.iter().map(|id| answers.remove(id).unwrap_or_default()).collect(), status)
}

/// Whether pages are shared or not, and whatever else happens, each sample is what the same request gets alone.
#[test]
fn samples_share_their_prompt_and_are_what_they_are_alone() {
    let model = storyteller();
    let text = "A king had three sons, and one of them was a fox that ran. ".repeat(12);
    let mut base = Request {
        logprobs: Some(2),
        prompt_logprobs: Some(1),
        echo: true,
        ignore_eos: true,
        ..request(&model, &text, 20)
    };
    // A page of 64 and a part of one; answers reach into a third.
    let prompt = 120;
    base.prompt.truncate(prompt);
    assert_eq!(base.prompt.len(), prompt);
    let plain = Request { prompt_logprobs: None, echo: false, ..base.clone() };
    let chunks = settings(&model).with(|config| config.max_batch_tokens(50)).unwrap();
    for base in [base, plain] {
        let samples = base.samples(6).unwrap();
        let alone: Vec<Answer> = samples.iter().map(|sample| run(&model, sample.clone())).collect();
        for (caching, tokens) in [(false, None), (true, None), (false, Some(256)), (true, Some(256))] {
            let plan = chunks.with(|config| config.enable_prefix_caching(caching)).unwrap();
            let plan = tokens.map_or(plan.clone(), |tokens| plan.with_cache_tokens(tokens));
            let (answers, status) = run_together(&model, &plan, &samples, &[]);
            assert!(answers == alone, "caching {caching}, {tokens:?} tokens");
            assert!(answers.iter().zip(&alone).all(|(answer, alone)| bits(answer) == bits(alone)));
            if tokens.is_none() {
                assert_eq!((status.step_prefill_tokens.sum, status.preemptions), (prompt as u64, 0));
            } else {
                assert!(status.preemptions > 0);
            }
            // Whichever is cancelled, while the prompt is read or later, the others go on.
            for (when, which) in [(0, 0), (2, 0), (2, 3), (5, 0), (5, 5), (12, 1)] {
                let (answers, _) = run_together(&model, &plan, &samples, &[(when, which)]);
                let others = (0..6).filter(|&other| other != which);
                others.for_each(|other| assert!(answers[other] == alone[other], "{when} {which} {other}"));
            }
        }
    }
}

#[test]
fn samples_of_a_cache_of_slots_read_the_prompt_for_each() {
    let model = storyteller();
    let slots = |config: PipelineConfig| config.cache_strategy(KVCacheStrategy::Continuous);
    let plan = settings(&model).with(slots).unwrap();
    let samples = request(&model, "Once upon a time", 10).samples(6).unwrap();
    let (answers, status) = run_together(&model, &plan, &samples, &[]);
    assert_eq!(status.step_prefill_tokens.sum, 6 * samples[0].prompt.len() as u64);
    let alone: Vec<Answer> = samples.iter().map(|sample| run(&model, sample.clone())).collect();
    assert_eq!(answers, alone);
}

/// Bytes of this process that are in memory.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A long context costs what is written into it: the cache is zeros of the system until a page is touched.
#[cfg(target_os = "linux")]
#[test]
fn memory_of_the_cache_is_taken_as_texts_grow() {
    let model = storyteller();
    let before = resident();
    // 8 KiB a token: 1 GiB.
    let large = settings(&model).with_cache_tokens(128 << 10);
    let mut generator = Generator::with_plan(Arc::clone(&model), &large).unwrap();
    generator.add(request(&model, "Once upon a time", 8)).unwrap();
    while !generator.is_idle() {
        generator.step().unwrap();
    }
    let taken = resident().saturating_sub(before);
    assert!(taken < 256 << 20, "{taken} bytes");
}

#[test]
fn special_tokens_are_text_if_asked_for() {
    let model = storyteller();
    let eos = model.tokenizer().eos().unwrap();
    let hidden =
        Request { ignore_eos: true, logit_bias: [(eos, 1000.0)].into(), ..request(&model, "The fox", 2) };
    let shown = Request { show_special_tokens: true, ..hidden.clone() };
    let chosen = Request { shown_special_tokens: vec![eos], ..hidden.clone() };
    let (hidden, shown) = (run(&model, hidden), run(&model, shown));
    assert_eq!((&hidden.text[..], &hidden.tokens), ("", &shown.tokens));
    assert_eq!(run(&model, chosen).text, shown.text);
    assert_eq!(shown.text, model.tokenizer().token(eos).unwrap().repeat(2));
}

fn person() -> Constraint {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 12 },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "likes": { "type": "array", "items": { "enum": ["trees", "the sea"] }, "minItems": 1, "maxItems": 2 },
        },
        "required": ["name", "age", "likes"],
        "additionalProperties": false,
    });
    Constraint::JsonSchema(Arc::new(schema))
}

fn constrained(model: &TextModel, constraint: Constraint, seed: u64) -> Request {
    let sampling = SamplingOptions { temperature: Some(2.0), ..SamplingOptions::default() };
    let constraint = Some(constraint);
    Request { constraint, sampling, seed, ..request(model, "Once upon a time", 200) }
}

#[test]
fn constrained_answers_have_their_form_and_end_with_it() {
    let model = storyteller();
    let requests = (0..6)
        .map(|seed| constrained(&model, person(), seed))
        .chain([Request { sampling: SamplingOptions::default(), ..constrained(&model, person(), 0) }]);
    let answers = run_all(&model, &settings(&model), requests.collect());
    for answer in &answers {
        assert_eq!((answer.finished, &answer.failed), (Some(FinishReason::Stop), &None), "{answer:?}");
        let value: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert!(value["name"].as_str().unwrap().chars().count() <= 12, "{value}");
        assert!(
            value["age"].as_u64().unwrap() <= 150 && !value["likes"].as_array().unwrap().is_empty(),
            "{value}"
        );
    }
    assert!(answers.windows(2).any(|pair| pair[0].text != pair[1].text));
    // Each gets the same alone.
    let alone = run(&model, constrained(&model, person(), 3));
    assert_eq!(alone, answers[3]);
}

/// With log-probabilities every token has a step of its own; without, forced ones share one.
#[test]
fn forced_tokens_run_together_and_change_nothing() {
    let model = storyteller();
    let steps = |request: Request| {
        let mut generator = Generator::with_plan(Arc::clone(&model), &settings(&model)).unwrap();
        generator.add(request).unwrap();
        let (mut answer, mut steps) = (Answer::default(), 0);
        while !generator.is_idle() {
            generator.step().unwrap().into_iter().for_each(|event| answer.take(event.kind));
            steps += 1;
        }
        (answer, steps)
    };
    for penalty in [1.0, 1.3] {
        let mut base = constrained(&model, person(), 5);
        base.sampling.repetition_penalty = Some(penalty);
        let (together, few) = steps(base.clone());
        let (single, many) = steps(Request { logprobs: Some(0), ..base.clone() });
        assert_eq!((&together.tokens, &together.text), (&single.tokens, &single.text));
        assert!(few + 8 < many, "{few} steps, {many} one by one");
        for max in [1, 5, 9, together.tokens.len() - 1] {
            let (cut, _) = steps(Request { max_new_tokens: Some(max), ..base.clone() });
            assert_eq!((cut.tokens.len(), cut.finished), (max, Some(FinishReason::Length)));
            assert!(together.tokens.starts_with(&cut.tokens));
        }
        let stop = vec!["\"age\"".to_string()];
        let (stopped, _) = steps(Request { stop: stop.clone(), ..base.clone() });
        let (slowly, _) = steps(Request { stop, logprobs: Some(0), ..base });
        assert_eq!((&stopped.tokens, &stopped.text), (&slowly.tokens, &slowly.text));
        assert_eq!(stopped.finished, Some(FinishReason::StopString(0)));
    }
}

#[test]
fn constrained_answers_survive_pauses_and_several_steps_at_once() {
    let model = storyteller();
    let several = model
        .plan()
        .with(|config| config.max_cache_batch_size(4).max_batch_tokens(7).max_num_steps(4))
        .unwrap();
    let base = constrained(&model, person(), 1);
    let expected = run(&model, base.clone());
    let mut generator = Generator::with_plan(Arc::clone(&model), &several).unwrap();
    let id = generator.add(base).unwrap();
    let (mut answer, mut steps) = (Answer::default(), 0);
    while !generator.is_idle() || generator.num_paused() > 0 {
        generator.step().unwrap().into_iter().for_each(|event| answer.take(event.kind));
        steps += 1;
        // A pause forgets what was computed: more of them than steps of progress, and the answer would never end.
        if steps % 5 == 0 && steps <= 20 {
            generator.pause(id);
            generator.resume(id);
        }
    }
    assert_eq!(answer, expected);
}

/// An expression that may end or go on: the end of text is a token like others there, and only there.
#[test]
fn ends_are_chosen_where_the_form_allows_them() {
    let model = storyteller();
    let eos = *model.tokenizer().eos_ids().first().unwrap();
    let base =
        Request { max_new_tokens: Some(30), ..constrained(&model, Constraint::Regex("(ab)+".into()), 2) };
    let biased = |bias: f32, more: Request| run(&model, Request { logit_bias: [(eos, bias)].into(), ..more });
    let short = biased(100.0, base.clone());
    assert_eq!((short.text.as_str(), short.finished), ("ab", Some(FinishReason::Stop)));
    let long = biased(-100.0, base.clone());
    assert_eq!(long.finished, Some(FinishReason::Length));
    assert!(long.text.len() > 10 && long.text.replace("ab", "").trim_end_matches('a').is_empty(), "{long:?}");
    let ignoring = biased(100.0, Request { ignore_eos: true, ..base.clone() });
    assert_eq!(ignoring.finished, Some(FinishReason::Length));
    let least = biased(100.0, Request { min_new_tokens: 7, ..base.clone() });
    assert!(least.tokens.len() >= 7 && least.finished == Some(FinishReason::Stop), "{least:?}");
    // A form that is complete ends the answer, whatever else is asked for.
    let word = Constraint::choice(["moon"]);
    let whole = Request { min_new_tokens: 20, ignore_eos: true, ..constrained(&model, word, 2) };
    let whole = run(&model, whole);
    assert_eq!((whole.text.as_str(), whole.finished), ("moon", Some(FinishReason::Stop)));
    // A stop token may come where the answer may end.
    let comma = encode(&model, ",").pop().unwrap();
    let stopped = Request { stop_token_ids: vec![comma], logit_bias: [(comma, 100.0)].into(), ..base };
    let stopped = run(&model, stopped);
    assert_eq!((stopped.text.as_str(), stopped.finished), ("ab", Some(FinishReason::StopToken(comma))));
}

#[test]
fn a_constraint_that_cannot_be_enforced_is_refused_before_any_token() {
    let model = storyteller();
    let schema =
        Constraint::json_schema(r#"{"items": {"type": "string", "not": {"format": "date"}}}"#).unwrap();
    let mut generator = Generator::with_plan(Arc::clone(&model), &settings(&model)).unwrap();
    let error = generator.add(constrained(&model, schema, 0)).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("json_schema at /items, keyword `not`: values that do not fit"), "{error}");
    assert!(generator.is_idle());
}

/// The events of an answer: tokens with their texts and log-probabilities, and the end.
fn pieces(model: &Arc<TextModel>, request: Request) -> Vec<String> {
    let mut generator = Generator::with_plan(Arc::clone(model), &settings(model)).unwrap();
    generator.add(request).unwrap();
    let mut pieces = Vec::new();
    while !generator.is_idle() {
        let events = generator.step().unwrap().into_iter().map(|event| event.kind);
        let answer =
            events.filter(|kind| !matches!(kind, EventKind::Started { .. } | EventKind::PromptToken { .. }));
        pieces.extend(answer.map(|kind| format!("{kind:?}")));
    }
    pieces
}

#[test]
fn an_answer_goes_on_elsewhere_as_if_it_had_never_stopped() {
    let model = storyteller();
    let plain = || request(&model, "Once upon a time", 24);
    let penalized = SamplingOptions {
        temperature: Some(1.0),
        frequency_penalty: Some(1.5),
        repetition_penalty: Some(1.3),
        ..SamplingOptions::default()
    };
    let word = Constraint::Regex("[A-Z][a-z]+( [a-z]+){6}\\.".into());
    let requests = [
        plain(),
        Request { sampling: penalized, logprobs: Some(2), ..plain() },
        Request { stop: vec![" the".into(), "zzz".into()], min_new_tokens: 9, ..plain() },
        Request { constraint: Some(word), ..plain() },
        Request { echo: true, logprobs: Some(1), ..plain() },
    ];
    for whole in requests {
        let expected = pieces(&model, whole.clone());
        let tokens = run(&model, whole.clone()).tokens;
        for generated in 0..tokens.len() {
            let prompt = [&whole.prompt[..], &tokens[..generated]].concat();
            let rest = pieces(&model, Request { prompt, generated, ..whole.clone() });
            assert_eq!(rest, expected[generated..], "{generated} tokens of {whole:?}");
        }
    }
}

#[test]
fn an_answer_that_has_ended_does_not_go_on() {
    let model = storyteller();
    let whole = Request { stop: vec![" the".into()], ..request(&model, "Once upon a time", 40) };
    let tokens = run(&model, whole.clone()).tokens;
    let (prompt, generated) = ([&whole.prompt[..], &tokens].concat(), tokens.len());
    let mut generator = Generator::with_plan(Arc::clone(&model), &settings(&model)).unwrap();
    let error = generator.add(Request { prompt, generated, ..whole }).unwrap_err().to_string();
    let expected = format!("generated is {generated}: give at most {}: the answer ends", generated - 1);
    assert!(error.contains(&expected), "{error}");
    assert!(generator.is_idle());
}

#[test]
fn reasoning_ends_once_its_budget_is_spent() {
    let model = storyteller();
    let format = ReasoningFormat::named("think").unwrap();
    let cut = format.cut_tokens(model.tokenizer()).unwrap();
    let base = Request { ignore_eos: true, ..request(&model, "Once upon a time", 40) };
    let free = run(&model, base.clone());
    let within = |tokens: usize, phase: ReasoningPhase, base: &Request| {
        let budget = ReasoningBudget::new(tokens, format, phase, model.tokenizer()).unwrap();
        run(&model, Request { reasoning: Some(budget), ..base.clone() })
    };
    let limited = within(10, ReasoningPhase::Inside, &base);
    assert_eq!(limited.tokens[..10], free.tokens[..10]);
    assert_eq!((&limited.tokens[10..10 + cut.len()], limited.tokens.len()), (&cut[..], 40));
    assert!(limited.text.contains("\n</think>\n\n"), "{}", limited.text);
    // The answer behind it is as long as it wants to be.
    assert_eq!(limited.text.matches("</think>").count(), 1);
    assert!(within(0, ReasoningPhase::Inside, &base).tokens.starts_with(&cut));
    // Without reasoning there is nothing to end.
    for (tokens, phase) in
        [(40, ReasoningPhase::Inside), (0, ReasoningPhase::Before), (0, ReasoningPhase::After)]
    {
        assert_eq!(within(tokens, phase, &base), free, "{phase:?}");
    }
    // Log-probabilities are those of the model, and each forced token has a step.
    let scored = within(10, ReasoningPhase::Inside, &Request { logprobs: Some(0), ..base.clone() });
    assert_eq!((&scored.tokens, scored.logprobs.len()), (&limited.tokens, 40));
    // A constraint that the cut does not fit goes on by itself.
    let digits = Request { constraint: Some(Constraint::Regex("[0-9]{20}".into())), ..base };
    assert_eq!(within(3, ReasoningPhase::Inside, &digits), run(&model, digits.clone()));
    // A mark that the model writes itself ends it too.
    let marked = Constraint::Regex("<think>[a-z]{2}</think>[a-z ]{30}".into());
    let marked = Request { constraint: Some(marked), ..digits };
    assert_eq!(within(30, ReasoningPhase::Before, &marked), run(&model, marked.clone()));
}

#[test]
fn a_logits_processor_decides_and_its_error_ends_its_request_alone() {
    let model = storyteller();
    let plain = Request { logprobs: Some(1), ..request(&model, "Once upon a time", 6) };
    let next = LogitsProcessor::new(|generated, logits| {
        let token = generated.last().map_or(100, |&last| last as usize + 1);
        logits.fill(f32::NEG_INFINITY);
        logits[token] = 0.0;
        Ok(())
    });
    let failing = LogitsProcessor::new(|generated, _| match generated.len() {
        2 => Err("no more".into()),
        _ => Ok(()),
    });
    let processors = [Some(next), None, Some(failing)];
    let requests = processors.map(|logits_processor| Request { logits_processor, ..plain.clone() });
    let answers = run_all(&model, &settings(&model), requests.into());
    assert_eq!(answers[0].tokens, [100, 101, 102, 103, 104, 105]);
    // Log-probabilities are the model's.
    assert_eq!(answers[0].logprobs[0].top, answers[1].logprobs[0].top);
    assert_eq!(answers[1], run(&model, plain));
    assert_eq!(answers[2].tokens, answers[1].tokens[..2]);
    assert_eq!(answers[2].failed.as_deref(), Some("the logits processor failed: no more"));
}

#[test]
fn tokens_are_among_the_allowed_ones_and_end_no_bad_word() {
    let model = storyteller();
    let plain = run(&model, request(&model, "Once upon a time", 12));
    let within = |edit: fn(&mut Request, &Answer)| {
        let mut changed = request(&model, "Once upon a time", 12);
        edit(&mut changed, &plain);
        run(&model, changed).tokens
    };
    let allowed = within(|r, _| r.allowed_token_ids = Some(vec![300, 301, 4000]));
    assert!(
        allowed.len() == 12 && allowed.iter().all(|token| [300, 301, 4000].contains(token)),
        "{allowed:?}"
    );
    // The third token cannot come behind the second, but the second may.
    let cut = within(|r, plain| r.bad_words = vec![plain.tokens[1..3].to_vec()]);
    assert!(cut[..2] == plain.tokens[..2] && cut[2] != plain.tokens[2]);
    assert!(!cut.windows(2).any(|pair| pair == &plain.tokens[1..3]));
    let first = within(|r, plain| r.bad_words = vec![vec![plain.tokens[0]]]);
    assert!(!first.contains(&plain.tokens[0]));
    // A form and the allowed tokens hold together.
    let digits: Vec<u32> =
        (0..10).flat_map(|digit| encode(&model, &digit.to_string())[1..].to_vec()).collect();
    let formed = Request {
        allowed_token_ids: Some(digits[..5].to_vec()),
        constraint: Some(Constraint::Regex("[0-9]{4}".into())),
        ..request(&model, "Once upon a time", 12)
    };
    let text = run(&model, formed).text;
    assert!(text.len() == 4 && text.chars().all(|char| ('0'..='4').contains(&char)), "{text}");
}
