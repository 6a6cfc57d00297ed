//! The embedder on the model that every clone has.

use std::sync::Arc;
use std::time::Duration;

use async_channel::Sender;
use futures_lite::future::{block_on, or, yield_now, zip};

use super::*;
use crate::tasks::vectors::{BatchStatus, EmbeddingPrompt, Truncate};

const MEAN: EmbeddingParameters = EmbeddingParameters {
    pooling: Some(Pooling::Mean),
    normalize: None,
    dimensions: None,
    truncate: None,
    max_tokens: None,
    prompt: None,
};

fn storyteller() -> Arc<EmbeddingModel> {
    crate::testing::embedding_model(&testdata::asset("storyteller/model.gguf"))
}

fn settings(model: &EmbeddingModel, max_batch_size: usize, max_batch_tokens: usize) -> Plan {
    let plan = model.plan();
    plan.with(|config| config.max_cache_batch_size(max_batch_size).max_batch_tokens(max_batch_tokens))
        .unwrap()
}

fn start() -> Embedder {
    let model = storyteller();
    let plan = settings(&model, 4, 64);
    Embedder::with_plan(model, &plan, &MEAN).unwrap()
}

/// Asks until it is so: the counters are those between two batches.
fn wait_until(embedder: &Embedder, what: &str, so: impl Fn(BatchStatus) -> bool) -> BatchStatus {
    for _ in 0..2000 {
        let status = embedder.status().unwrap();
        if so(status) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never {what}: {:?}", embedder.status());
}

/// Texts of different lengths, none of them alike.
fn texts(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("The fox number {i} {}.", "ran on and ".repeat(i % 5))).collect()
}

/// Keeps the embedder from its work until what is given back is dropped.
fn hold(embedder: &Embedder) -> Sender<()> {
    let (holder, held) = async_channel::bounded(1);
    embedder.worker.act(move |_| {
        let _ = held.recv_blocking();
    });
    holder
}

#[test]
fn blocking_and_async_callers_get_the_same_bits() {
    let embedder = start();
    let texts = texts(11);
    let alone: Vec<Embedding> = texts.iter().map(|text| embedder.embed([text]).unwrap().remove(0)).collect();
    assert!(alone.iter().all(|embedding| embedding.vector.len() == 256 && embedding.truncated == 0));
    assert_eq!(alone[3].tokens, embedder.tokenize(&texts[3], &MEAN).unwrap().len());
    assert_eq!(embedder.embed(&texts).unwrap(), alone);
    let (one, other) = block_on(zip(embedder.embed_async(&texts), embedder.clone().embed_async(&texts)));
    assert!(one.unwrap() == alone && other.unwrap() == alone);
    std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|_| scope.spawn(|| embedder.embed(&texts).unwrap()));
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), alone));
    });
    let tokens: Vec<Vec<u32>> = texts.iter().map(|text| embedder.tokenize(text, &MEAN).unwrap()).collect();
    assert_eq!(embedder.embed(tokens).unwrap(), alone);
    assert_eq!(embedder.embed(Vec::<String>::new()).unwrap(), []);
    wait_until(&embedder, "idle", |status| status.waiting == 0);
}

#[test]
fn several_callers_share_batches() {
    let embedder = start();
    let holder = hold(&embedder);
    let streams: Vec<EmbeddingStream> =
        ["One.", "Two.", "Three.", "Four.", "Five."].map(|text| embedder.stream(text).unwrap()).into();
    drop(holder);
    let all: Vec<Embedding> = streams.into_iter().flatten().map(Result::unwrap).collect();
    let BatchStatus { batches, tokens, waiting, .. } =
        wait_until(&embedder, "done", |status| status.texts == 5);
    assert_eq!((batches, waiting), (2, 0), "four texts are a batch");
    assert_eq!(tokens as usize, all.iter().map(|embedding| embedding.tokens).sum::<usize>());
    // Sixty-four tokens are one too, and a longer text is computed alone.
    let holder = hold(&embedder);
    let long = "The fox ran on and on and on. ".repeat(20);
    let streams = ["One.", &long, "Two."].map(|text| embedder.stream(text).unwrap());
    drop(holder);
    assert!(streams.into_iter().flatten().all(|embedding| embedding.is_ok()));
    let status = wait_until(&embedder, "done", |status| status.texts == 8);
    assert_eq!(status.batches, batches + 3);
}

#[test]
fn a_text_that_is_refused_holds_up_no_other() {
    let model = storyteller();
    let short = settings(&model, 4, 64).with(|config| config.max_length(6)).unwrap();
    let embedder = Embedder::with_plan(model, &short, &MEAN).unwrap();
    let long = "The fox ran on and on and on.";
    let tokens = start().tokenize(long, &MEAN).unwrap();
    let mixed: Vec<EmbeddingText> =
        vec!["The fox".into(), long.into(), Vec::new().into(), vec![99_999].into(), "The raven".into()];
    let answers: Vec<Result<Embedding, Error>> = embedder.stream(&mixed).unwrap().collect();
    assert_eq!(answers.len(), 5);
    assert_eq!(answers[0].as_ref().unwrap(), &embedder.embed("The fox").unwrap()[0]);
    assert_eq!(answers[4].as_ref().unwrap(), &embedder.embed("The raven").unwrap()[0]);
    let message = answers[1].as_ref().unwrap_err().to_string();
    let expected =
        format!("text 1 (counted from 0) has {} tokens, but the model takes at most 6", tokens.len());
    assert!(message.starts_with(&expected), "{message}");
    assert!(matches!(answers[2], Err(Error::EmptyText { index: 2 })));
    assert!(matches!(answers[3], Err(Error::UnknownToken { token: 99_999, .. })));
    let message = embedder.embed(&mixed).unwrap_err().to_string();
    assert!(message.starts_with(&expected), "the first error: {message}");
    let truncated = EmbeddingParameters { truncate: Some(Truncate::Right), ..EmbeddingParameters::default() };
    let request = EmbeddingRequest::new([long]).with(truncated);
    let embedding = embedder.embed(request).unwrap().remove(0);
    assert_eq!((embedding.tokens, embedding.truncated), (6, tokens.len() - 6));
    assert_eq!(embedder.embed([tokens[..6].to_vec()]).unwrap()[0].vector, embedding.vector);
}

#[test]
fn requests_say_how() {
    let embedder = start();
    let embed = |parameters: EmbeddingParameters| {
        embedder
            .embed(EmbeddingRequest::new(["The fox ran."]).with(parameters))
            .map(|mut all| all.remove(0).vector)
    };
    let usual = embed(EmbeddingParameters::default()).unwrap();
    assert_eq!(embed(MEAN).unwrap(), usual);
    let short = embed(EmbeddingParameters { dimensions: Some(16), ..MEAN }).unwrap();
    assert!(short.len() == 16 && short[0].abs() > usual[0].abs());
    let plain = embed(EmbeddingParameters { normalize: Some(false), ..MEAN }).unwrap();
    assert_ne!(plain, usual);
    let prompt = Some(EmbeddingPrompt::Text("The fox ".into()));
    let prompted =
        embedder.embed(EmbeddingRequest::new(["ran."]).with(EmbeddingParameters { prompt, ..MEAN }));
    assert_eq!(prompted.unwrap()[0].vector, usual);
    let wrong = EmbeddingParameters {
        dimensions: Some(257),
        prompt: Some(EmbeddingPrompt::Named("query".into())),
        ..MEAN
    };
    assert_eq!(
        embed(wrong).unwrap_err().to_string(),
        "dimensions is 257: give 1 to 256, which is what the model has; \
         prompt is query: the model's files name no prompts; give its text"
    );
    let error = Embedder::new(storyteller(), &EmbeddingParameters::default()).unwrap_err();
    assert!(matches!(error, Error::NoPooling { .. }), "{error}");
}

#[test]
fn a_text_that_fails_takes_no_other_along() {
    let faults: [fn() -> Result<(), Error>; 2] =
        [|| panic!("on purpose"), || Err(Error::Defect("on purpose".to_string()))];
    let embedder = start();
    let expected = embedder.embed(texts(3)).unwrap();
    for fault in faults {
        // The batch fails, then the first text by itself; the others are fine, and the thread goes on.
        embedder.worker.act(move |work| work.faults = [Box::new(fault) as _, Box::new(fault) as _].into());
        let mut answers = embedder.stream(texts(3)).unwrap();
        assert!(answers.next().unwrap().unwrap_err().to_string().contains("on purpose"));
        assert_eq!(answers.map(Result::unwrap).collect::<Vec<_>>(), expected[1..]);
    }
}

#[test]
fn status_waits_for_no_batch_and_a_full_queue_refuses() {
    let embedder = start();
    let (holder, held) = async_channel::bounded::<()>(1);
    let blocking = move || {
        let _ = held.recv_blocking();
        Ok(())
    };
    embedder.worker.act(move |work| work.faults = [Box::new(blocking) as _].into());
    let first = embedder.stream("The fox").unwrap();
    wait_until(&embedder, "taken", |status| status.waiting == 1);
    let mut queued = Vec::new();
    let refused = loop {
        match embedder.try_stream("The raven") {
            Ok(stream) => queued.push(stream),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Busy { .. }), "{refused}");
    assert_eq!(embedder.status().unwrap().waiting, 1 + queued.len());
    // A task waits for room too, in a stream that is dropped while it does and in one that is read.
    let lost = block_on(or(async { embedder.embed_async("The wolf").await.ok() }, async {
        for _ in 0..20 {
            yield_now().await;
        }
        None
    }));
    assert!(lost.is_none());
    let waiting = std::thread::spawn({
        let embedder = embedder.clone();
        move || block_on(embedder.embed_async("The raven")).unwrap()
    });
    drop(holder);
    let expected = waiting.join().unwrap().remove(0);
    assert_eq!(first.count(), 1);
    assert!(queued.into_iter().flatten().all(|embedding| embedding.unwrap() == expected));
}

#[test]
fn dropping_cancels_what_was_not_computed() {
    let embedder = start();
    let holder = hold(&embedder);
    let kept = embedder.stream("The fox").unwrap();
    let dropped = embedder.stream(texts(50)).unwrap();
    let lost = block_on(or(async { embedder.embed_async(texts(6)).await.ok() }, async {
        for _ in 0..20 {
            yield_now().await;
        }
        None
    }));
    assert!(lost.is_none());
    drop(dropped);
    drop(holder);
    assert_eq!(kept.count(), 1);
    let status = wait_until(&embedder, "idle", |status| status.waiting == 0 && status.texts > 0);
    assert_eq!(status.texts, 1);
}

/// What is not read is not computed either, beyond two batches.
#[test]
fn a_slow_reader_holds_up_nobody() {
    let embedder = start();
    let mut slow = embedder.stream(texts(40)).unwrap();
    let (mut others, mut status) = (0, embedder.status().unwrap());
    while others < 3 || status.waiting > 0 {
        embedder.embed("The raven").unwrap();
        (others, status) = (others + 1, embedder.status().unwrap());
    }
    assert!(status.texts <= others + 8, "{status:?}");
    assert_eq!(slow.len(), 40);
    assert!(slow.by_ref().all(|embedding| embedding.is_ok()));
    assert_eq!((slow.len(), slow.next().is_none()), (0, true));
}

#[test]
fn ends_reach_the_callers() {
    let embedder = start();
    // A stream outlives the handles, and the thread ends with the last of both.
    let survivor = embedder.stream(texts(20)).unwrap();
    let ended = embedder.worker.ended();
    drop(embedder);
    assert_eq!(survivor.map(Result::unwrap).count(), 20);
    assert!(ended.recv_blocking().is_err());
    let embedder = start();
    let holder = hold(&embedder);
    let stream = embedder.stream(texts(20)).unwrap();
    let other = embedder.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(holder);
    });
    embedder.shutdown();
    release.join().unwrap();
    let last = stream.last().unwrap().unwrap_err().to_string();
    assert_eq!(last, "the embedder has ended: it was shut down");
    assert!(other.status().is_err() && other.embed("x").is_err());
}

#[test]
fn a_panic_of_the_thread_fails_its_texts_and_the_embedder_goes_on() {
    let embedder = start();
    let expected = embedder.embed("The fox").unwrap();
    let holder = hold(&embedder);
    let stream = embedder.stream(texts(3)).unwrap();
    embedder.worker.act(|_| panic!("on purpose"));
    drop(holder);
    for result in stream {
        assert!(result.unwrap_err().to_string().ends_with("on purpose"));
    }
    assert_eq!(embedder.embed("The fox").unwrap(), expected);
}

#[test]
fn handles_and_streams_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<Embedder>();
    check::<EmbeddingStream>();
    check::<AsyncEmbeddingStream>();
}
