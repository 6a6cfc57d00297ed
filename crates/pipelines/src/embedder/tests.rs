//! The embedder on the model that every clone has.

use std::time::Duration;

use futures_lite::future::{block_on, or, yield_now, zip};

use super::*;

const MEAN: EmbeddingParameters = EmbeddingParameters {
    pooling: Some(Pooling::Mean),
    normalize: None,
    dimensions: None,
    truncate: None,
    prompt: None,
};

fn storyteller() -> Arc<EmbeddingModel> {
    crate::testing::embedding_model(&testdata::asset("storyteller/model.gguf"))
}

fn options(max_batch_size: usize, max_batch_tokens: usize) -> EmbedderOptions {
    EmbedderOptions { parameters: MEAN, max_length: None, max_batch_size, max_batch_tokens }
}

fn start() -> Embedder {
    Embedder::new(storyteller(), &options(4, 64)).unwrap()
}

/// Texts of different lengths, none of them alike.
fn texts(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("The fox number {i} {}.", "ran on and ".repeat(i % 5))).collect()
}

/// Keeps the embedder from its work until what is given back is dropped.
fn hold(embedder: &Embedder) -> Sender<()> {
    let (holder, held) = async_channel::bounded(1);
    embedder.commands.send_blocking(Command::Hold(held)).unwrap();
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
    assert_eq!(embedder.status().unwrap().waiting, 0);
}

#[test]
fn several_callers_share_batches() {
    let embedder = start();
    let holder = hold(&embedder);
    let streams: Vec<EmbeddingStream> =
        ["One.", "Two.", "Three.", "Four.", "Five."].map(|text| embedder.stream(text).unwrap()).into();
    drop(holder);
    let all: Vec<Embedding> = streams.into_iter().flatten().map(Result::unwrap).collect();
    let EmbedderStatus { batches, texts, tokens, waiting } = embedder.status().unwrap();
    assert_eq!((batches, texts, waiting), (2, 5, 0), "four texts are a batch");
    assert_eq!(tokens as usize, all.iter().map(|embedding| embedding.tokens).sum::<usize>());
    // Sixty-four tokens are one too, and a longer text is computed alone.
    let holder = hold(&embedder);
    let long = "The fox ran on and on and on. ".repeat(20);
    let streams = ["One.", &long, "Two."].map(|text| embedder.stream(text).unwrap());
    drop(holder);
    assert!(streams.into_iter().flatten().all(|embedding| embedding.is_ok()));
    assert_eq!(embedder.status().unwrap().batches, batches + 3);
}

#[test]
fn a_text_that_is_refused_holds_up_no_other() {
    let options = EmbedderOptions { max_length: Some(6), ..options(4, 64) };
    let embedder = Embedder::new(storyteller(), &options).unwrap();
    let long = "The fox ran on and on and on.";
    let tokens = start().tokenize(long, &MEAN).unwrap();
    let mixed: Vec<EmbeddingText> =
        vec!["The fox".into(), long.into(), Vec::new().into(), vec![99_999].into(), "The raven".into()];
    let answers: Vec<Result<Embedding, Error>> = embedder.stream(&mixed).unwrap().collect();
    assert_eq!(answers.len(), 5);
    assert_eq!(answers[0].as_ref().unwrap(), &embedder.embed("The fox").unwrap()[0]);
    assert_eq!(answers[4].as_ref().unwrap(), &embedder.embed("The raven").unwrap()[0]);
    let message = answers[1].as_ref().unwrap_err().to_string();
    let expected = format!("text 1 (counted from 0) has {} tokens, and the model takes 6", tokens.len());
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
    let silent = EmbedderOptions { parameters: EmbeddingParameters::default(), ..options(1, 1) };
    let error = Embedder::new(storyteller(), &silent).unwrap_err();
    assert!(matches!(error, Error::NoPooling { .. }), "{error}");
    let error = Embedder::new(storyteller(), &options(0, 1)).unwrap_err().to_string();
    assert_eq!(error, "max_batch_size is 0: give at least 1");
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
    let EmbedderStatus { texts, waiting, .. } = embedder.status().unwrap();
    assert_eq!((texts, waiting), (1, 0));
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
    let end = embedder.shared.end.clone();
    drop(embedder);
    assert_eq!(survivor.map(Result::unwrap).count(), 20);
    end.wait();
    let embedder = start();
    let holder = hold(&embedder);
    let stream = embedder.stream(texts(20)).unwrap();
    let other = embedder.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(holder);
    });
    embedder.commands.send_blocking(Command::Stop).unwrap();
    embedder.shutdown();
    release.join().unwrap();
    let last = stream.last().unwrap().unwrap_err().to_string();
    assert_eq!(last, "the embedder has ended: it was shut down");
    assert!(other.status().is_err() && other.embed("x").is_err());
    let embedder = start();
    let holder = hold(&embedder);
    embedder.commands.send_blocking(Command::Panic).unwrap();
    let future = embedder.embed_async("The fox");
    drop(holder);
    let message = block_on(future).unwrap_err().to_string();
    assert_eq!(message, "the embedder has ended: a defect ended it: on purpose");
}

#[test]
fn handles_and_streams_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<Embedder>();
    check::<EmbeddingStream>();
    check::<AsyncEmbeddingStream>();
}
