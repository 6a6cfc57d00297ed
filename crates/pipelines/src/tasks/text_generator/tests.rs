//! The text generator on the model that every clone has.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_lite::Stream;
use futures_lite::future::{block_on, or, yield_now, zip};

use super::*;
use crate::error::QueueUnit;
use crate::plan::config::{KVCacheStrategy, PipelineConfig};
use crate::run::generator::{EventKind, FinishReason, Status};
use crate::run::kv_cache::CacheEvent;

fn storyteller() -> Arc<TextModel> {
    crate::testing::text_model(&testdata::asset("storyteller/model.gguf"))
}

fn settings(model: &TextModel) -> Plan {
    let change = |config: PipelineConfig| {
        config
            .max_cache_batch_size(4)
            .max_batch_tokens(32)
            .cache_strategy(KVCacheStrategy::Paged)
            .enable_echo(true)
    };
    model.plan().with(change).unwrap()
}

fn start() -> TextGenerator {
    let model = storyteller();
    let plan = settings(&model);
    TextGenerator::with_plan(model, &plan).unwrap()
}

/// A fault for the next step: it blocks until the sender is dropped, and then goes on as if nothing had been.
fn hold(generator: &TextGenerator) -> async_channel::Sender<()> {
    let (holder, held) = async_channel::bounded(1);
    fault(generator, move || {
        let _ = held.recv_blocking();
        Ok(())
    });
    holder
}

fn fault(generator: &TextGenerator, fault: impl FnOnce() -> Result<(), Error> + Send + Sync + 'static) {
    generator.worker.act(|work| work.generator.faults.once = Some(Box::new(fault)));
}

fn request(prompt: &str, max_new_tokens: usize) -> TextRequest {
    let mut request = TextRequest::from(prompt);
    request.parameters.max_new_tokens = Some(max_new_tokens);
    request.parameters.ignore_eos = true;
    request.parameters.sampling.temperature = Some(1.0);
    request.parameters.seed = 5;
    request
}

/// Asks until it is so: the counters are those between two steps.
fn wait_until(generator: &TextGenerator, what: &str, so: impl Fn(Status) -> bool) {
    for _ in 0..2000 {
        if so(generator.status().unwrap()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never {what}: {:?}", generator.status());
}

fn nothing_is_left(generator: &TextGenerator) {
    wait_until(generator, "idle", |status| {
        let Status { running, waiting, paused, free_pages, num_pages, .. } = status;
        (running, waiting, paused) == (0, 0, 0) && free_pages == num_pages
    });
}

#[test]
fn blocking_and_async_callers_get_the_same() {
    let generator = start();
    let mut wanted = request("Once upon a time", 30);
    wanted.parameters.echo = true;
    wanted.parameters.logprobs = Some(2);
    let whole = generator.generate(wanted.clone()).unwrap();
    assert!(whole.text.starts_with("Once upon a time") && whole.reason == FinishReason::Length);
    assert_eq!((whole.tokens.len(), whole.logprobs.len(), whole.usage.generated_tokens), (30, 30, 30));
    assert_eq!(whole.prompt.len(), whole.usage.prompt_tokens);
    let Timings { queue, first_token, last_token, total } = whole.timings;
    assert!(queue.unwrap() <= first_token.unwrap() && first_token.unwrap() < last_token.unwrap());
    assert_eq!(last_token, total);
    let same = |other: &Completion| {
        (&other.text, &other.tokens, &other.logprobs, &other.prompt)
            == (&whole.text, &whole.tokens, &whole.logprobs, &whole.prompt)
    };
    // Two tasks and two threads at once, on one handle's clones.
    let (one, other) = block_on(zip(
        generator.generate_async(wanted.clone()),
        generator.clone().generate_async(wanted.clone()),
    ));
    assert!(same(&one.unwrap()) && same(&other.unwrap()));
    std::thread::scope(|scope| {
        let threads =
            [0, 1].map(|_| scope.spawn(|| generator.stream(wanted.clone()).unwrap().completion().unwrap()));
        threads.into_iter().for_each(|thread| assert!(same(&thread.join().unwrap())));
    });
    let mut stream = block_on(generator.stream_async(wanted)).unwrap();
    let mut text = String::new();
    block_on(async {
        while let Some(event) = poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
            match event.unwrap() {
                EventKind::PromptToken { text: piece, .. }
                | EventKind::Token { text: piece, .. }
                | EventKind::Finished { text: piece, .. } => text.push_str(&piece),
                _ => {}
            }
        }
    });
    assert_eq!(text, whole.text);
    assert_eq!(stream.usage(), whole.usage);
    nothing_is_left(&generator);
}

#[test]
fn dropping_cancels_wherever_a_request_is() {
    let generator = start();
    // Four that answer, and two that wait for a place; as their streams are not read, none comes to its end.
    let mut streams: Vec<TextStream> =
        (0..6).map(|_| generator.stream(request("Once upon a time", 400)).unwrap()).collect();
    assert!(streams[0].by_ref().any(|event| matches!(event, Ok(EventKind::Token { .. }))));
    let requests = |status: Status| status.running + status.waiting + status.paused;
    assert_eq!(requests(generator.status().unwrap()), 6);
    drop(streams.pop());
    wait_until(&generator, "one less", |status| requests(status) == 5);
    drop(streams);
    nothing_is_left(&generator);
    // One whose prompt takes several steps to read, as a future that loses a race. It has more to say than anybody who
    // does not read is told.
    let long = request(&"Once upon a time there was a king. ".repeat(20), HIGH_WATER + 20);
    let lost = block_on(or(async { generator.generate_async(long).await.ok() }, async {
        yield_now().await;
        None
    }));
    assert!(lost.is_none());
    nothing_is_left(&generator);
}

#[test]
fn a_slow_reader_is_paused_and_loses_nothing() {
    let generator = start();
    let expected = generator.generate(request("Once upon a time", 480)).unwrap();
    let mut slow = generator.stream(request("Once upon a time", 480)).unwrap();
    wait_until(&generator, "paused", |status| status.paused == 1);
    let status = generator.status().unwrap();
    assert_eq!((status.running, status.free_pages), (0, status.num_pages));
    // Others do not notice.
    assert!(!generator.generate(request("The fox", 20)).unwrap().text.is_empty());
    let mut tokens = Vec::new();
    for event in slow.by_ref() {
        if let EventKind::Token { token, .. } = event.unwrap() {
            tokens.push(token);
        }
    }
    assert_eq!(tokens, expected.tokens);
    assert_eq!(slow.usage(), expected.usage);
    // A paused one whose stream is dropped is forgotten.
    let forgotten = generator.stream(request("Once upon a time", 480)).unwrap();
    wait_until(&generator, "paused", |status| status.paused == 1);
    drop(forgotten);
    nothing_is_left(&generator);
}

#[test]
fn prompts_come_as_text_tokens_and_conversations() {
    let model = storyteller();
    let template = ChatTemplate::new(
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
    )
    .unwrap();
    let generator = TextGenerator::with_chat_template(Arc::clone(&model), template).unwrap();
    let messages = vec![serde_json::json!({"role": "user", "content": "a tale"})];
    let same = |prompt: Prompt| {
        let mut wanted = request("", 8);
        (wanted.prompt, wanted.parameters.echo) = (prompt, true);
        generator.generate(wanted).unwrap().prompt.iter().map(|token| token.token).collect::<Vec<_>>()
    };
    let chat = same(Chat::new(messages.clone()).into());
    assert_eq!(chat, same("user: a tale\nassistant:".into()));
    assert_eq!(chat, same(chat.clone().into()));
    // A name of a special token in a text is text, unless it is said to be more.
    let name = "<|endofstory|>";
    let parsed =
        same(Prompt::Text { text: name.into(), add: crate::AddSpecial::No, parse: crate::ParseSpecial::Yes });
    assert!(parsed.len() == 1 && same(name.into()).len() > 2);
    let plain = TextGenerator::new(model).unwrap();
    let error = plain.generate(Chat::new(messages)).unwrap_err();
    assert!(matches!(error, Error::NoChatTemplate), "{error}");
}

#[test]
fn samples_are_made_together() {
    let generator = start();
    let plain = generator.generate(request("Once upon a time", 12)).unwrap();
    let streams = generator.samples(request("Once upon a time", 12), 3).unwrap();
    let texts: Vec<String> = streams.into_iter().map(|stream| stream.completion().unwrap().text).collect();
    assert!(texts[0] == plain.text && texts[1] != texts[0] && texts[2] != texts[1]);
    assert!(generator.samples("a", 0).is_err() && generator.samples("a", 1_000_000).is_err());
}

#[test]
fn refusals_and_ends_reach_the_callers() {
    let generator = start();
    let error = generator.generate(Vec::<u32>::new()).unwrap_err();
    assert!(matches!(error, Error::EmptyPrompt), "{error}");
    let mut stream = generator.stream(vec![99_999]).unwrap();
    assert!(matches!(stream.next(), Some(Err(Error::UnknownToken { token: 99_999, .. }))));
    assert!(stream.next().is_none());
    drop(stream);
    // A stream outlives the handles.
    let survivor = generator.clone().stream(request("Once upon a time", 20)).unwrap();
    let ended = generator.worker.ended();
    drop(generator);
    assert_eq!(survivor.completion().unwrap().tokens.len(), 20);
    // The thread ends with the last stream.
    assert!(ended.recv_blocking().is_err());
    // Shutting down ends all.
    let generator = start();
    let stream = generator.stream(request("Once upon a time", 400)).unwrap();
    let other = generator.clone();
    generator.shutdown();
    let end = stream.last().unwrap().unwrap_err().to_string();
    assert_eq!(end, "the text generator has ended: it was shut down");
    assert!(other.status().is_err() && other.generate("x").is_err());
}

#[test]
fn nobody_waits_for_a_thread_that_ends() {
    let model = storyteller();
    for _ in 0..20 {
        let generator = TextGenerator::new(Arc::clone(&model)).unwrap();
        let other = generator.clone();
        let ending = std::thread::spawn(|| other.shutdown());
        // It comes before the end, or after it; neither hangs.
        let _ = generator.generate(request("x", 2));
        ending.join().unwrap();
        assert!(generator.generate("x").is_err() && generator.status().is_err());
    }
}

/// A defect outside of the model fails the requests of that moment; the others get what they always get.
#[test]
fn a_panic_of_the_thread_fails_its_requests_and_the_generator_goes_on() {
    let generator = start();
    let expected = generator.generate(request("The fox", 20)).unwrap().text;
    let mut stream = generator.stream(request("Once upon a time", 400)).unwrap();
    assert!(stream.next().unwrap().is_ok());
    let slow = generator.stream(request("Once upon a time", 480)).unwrap();
    wait_until(&generator, "paused", |status| status.paused > 0);
    generator.worker.act(|_| panic!("on purpose"));
    for stream in [stream, slow] {
        let end = stream.last().unwrap().unwrap_err().to_string();
        assert_eq!(end, "internal error while generating a token: on purpose");
    }
    assert_eq!(generator.generate(request("The fox", 20)).unwrap().text, expected);
    nothing_is_left(&generator);
    let status = generator.status().unwrap();
    assert_eq!((status.restarts, status.finished.failed), (1, 2));
}

#[test]
fn status_waits_for_no_step_and_a_full_queue_refuses() {
    let generator = start();
    let holder = hold(&generator);
    let held = generator.stream(request("Once upon a time", 4)).unwrap();
    // The counters are those from before the step that blocks now.
    wait_until(&generator, "taken", |status| status.waiting == 1);
    let mut queued = Vec::new();
    let refused = loop {
        match generator.try_stream(request("The fox", 2)) {
            Ok(stream) => queued.push(stream),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Busy { .. }), "{refused}");
    let status = generator.status().unwrap();
    assert_eq!((status.running, status.waiting), (0, 1 + queued.len()));
    // Who waits for room gets it once the step goes on.
    let waiting = std::thread::spawn({
        let generator = generator.clone();
        move || generator.generate(request("The fox", 2)).unwrap().text
    });
    drop(holder);
    assert_eq!(held.completion().unwrap().tokens.len(), 4);
    let texts: Vec<String> = queued.into_iter().map(|stream| stream.completion().unwrap().text).collect();
    let text = waiting.join().unwrap();
    assert!(texts.len() >= 64 && texts.iter().all(|other| *other == text));
    nothing_is_left(&generator);
}

#[test]
fn a_batch_is_refused_as_a_whole_while_too_much_waits() {
    let model = storyteller();
    let queue = QueueLimits { requests: 4, tenant_requests: 2, ..QueueLimits::new(1000) };
    let options = TextGeneratorOptions { queue: Some(queue), ..TextGeneratorOptions::default() };
    let generator = TextGenerator::with_options(Arc::clone(&model), &settings(&model), options).unwrap();
    let holder = hold(&generator);
    let of = |tenant: &str| {
        let mut wanted = request("The fox", 2);
        wanted.parameters.tenant = Some(tenant.to_string());
        generator.prepare(wanted).unwrap()
    };
    let held = generator.try_batch(vec![of("a")]).unwrap();
    let second = generator.try_batch(vec![of("a"), of("b")]).unwrap();
    let refusal = |requests| match generator.try_batch(requests).unwrap_err() {
        Error::Busy { waiting, unit, limit, retry_after, .. } => {
            (waiting, unit, limit, retry_after.is_some())
        }
        other => panic!("{other}"),
    };
    assert_eq!(refusal(vec![of("b"), of("b")]), (3, QueueUnit::Requests, 4, true));
    assert_eq!(refusal(vec![of("a")]), (2, QueueUnit::TenantRequests, 2, true));
    assert!(matches!(generator.try_batch(vec![of("b"); 5]), Err(Error::Request(_))));
    // What is dropped waits no longer.
    drop(second);
    drop(holder);
    wait_until(&generator, "started", |status| status.started > 0);
    nothing_is_left(&generator);
    drop(held);
    assert!(generator.try_batch(vec![of("a"), of("a"), of("b"), of("b")]).is_ok());
}

#[test]
fn requests_end_when_their_time_is_up() {
    let model = storyteller();
    let one = settings(&model).with(|config| config.max_cache_batch_size(1)).unwrap();
    let options =
        TextGeneratorOptions { read_timeout: Some(Duration::from_millis(30)), ..Default::default() };
    let generator = TextGenerator::with_options(model, &one, options).unwrap();
    let timed = |edit: fn(&mut Request)| {
        let mut wanted = request("Once upon a time", 480);
        edit(&mut wanted.parameters);
        generator.stream(wanted).unwrap()
    };
    let ends = |mut stream: TextStream| stream.find_map(Result::err).map(|error| error.to_string());
    // One that runs makes the others wait.
    let holder = hold(&generator);
    let running = timed(|_| ());
    let reading = std::thread::spawn(move || running.completion().unwrap().tokens.len());
    let waiting = timed(|wanted| wanted.queue_timeout = Some(Duration::from_millis(1)));
    let started = timed(|wanted| wanted.timeout = Some(Duration::from_millis(1)));
    let patient = timed(|wanted| wanted.queue_timeout = Some(Duration::MAX));
    std::thread::sleep(Duration::from_millis(5));
    drop(holder);
    let message = "the request did not start within its queue_timeout of 1ms: try again later, or allow more";
    assert_eq!(ends(waiting).as_deref(), Some(message));
    let message = "the request did not end within its timeout of 1ms: ask for fewer tokens, or allow more";
    assert_eq!(ends(started).as_deref(), Some(message));
    assert_eq!(reading.join().unwrap(), 480);
    // Nothing runs once the last is paused, and still its time runs out.
    wait_until(&generator, "dropped", |status| status.finished.timed_out == 3 && status.paused == 0);
    assert_eq!(ends(patient).as_deref(), Some("the answer was dropped because it was not read for 30ms"));
    nothing_is_left(&generator);
}

/// Events of one step have one time, and requests of one batch start in one step; even if few are read at first, none
/// is lost.
#[test]
fn a_batch_gives_the_events_of_all_its_requests() {
    let generator = start();
    let prompt = |text: &str| {
        let TextRequest { parameters, .. } = request(text, 400);
        let prompt =
            generator.model().tokenizer().encode(text, crate::AddSpecial::Yes, crate::ParseSpecial::No);
        Request { prompt: prompt.unwrap(), ..parameters }
    };
    let requests = vec![prompt("Once upon a time"), prompt("The fox"), Request::default(), prompt("A king")];
    let alone = ["Once upon a time", "The fox", "A king"]
        .map(|text| generator.generate(request(text, 400)).unwrap().tokens);
    let mut batch = generator.batch(requests);
    // The channel fills up, and all are paused.
    wait_until(&generator, "paused", |status| status.paused == 3 && status.running == 0);
    let mut tokens = vec![Vec::new(); 4];
    let (mut started, mut failed) = (Vec::new(), Vec::new());
    block_on(async {
        while let Some(event) = poll_fn(|context| Pin::new(&mut batch).poll_next(context)).await {
            let BatchEvent { index, at, kind } = event.unwrap();
            match kind {
                EventKind::Started { .. } => started.push((index, at)),
                EventKind::Token { token, .. } => tokens[index].push(token),
                EventKind::Failed(_) => failed.push(index),
                _ => {}
            }
        }
    });
    assert!(started.len() == 3 && started.iter().all(|(_, at)| *at == started[0].1), "{started:?}");
    assert_eq!(failed, [2], "it has no prompt");
    assert_eq!([&tokens[0], &tokens[1], &tokens[3]], [&alone[0], &alone[1], &alone[2]]);
    nothing_is_left(&generator);
}

#[test]
fn handles_and_streams_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<TextGenerator>();
    check::<TextStream>();
    check::<AsyncTextStream>();
    check::<BatchStream>();
}

#[test]
fn a_step_that_fails_takes_its_own_requests_alone() {
    let model = storyteller();
    let one = settings(&model).with(|config| config.max_cache_batch_size(1)).unwrap();
    let generator = TextGenerator::with_plan(model, &one).unwrap();
    let expected = generator.generate(request("The fox", 4)).unwrap().text;
    let faults: [fn() -> Result<(), Error>; 2] =
        [|| panic!("on purpose"), || Err(Error::Defect("on purpose".to_string()))];
    for on_purpose in faults {
        fault(&generator, on_purpose);
        let (first, second) = (request("Once upon a time", 4), request("The fox", 4));
        let streams = [first, second].map(|request| generator.stream(request).unwrap());
        let [first, second] = streams.map(TextStream::completion);
        assert!(first.unwrap_err().to_string().contains("on purpose"));
        // It waited, and the thread goes on.
        assert_eq!(second.unwrap().text, expected);
    }
}

#[test]
fn a_request_that_the_model_cannot_run_fails_alone() {
    let generator = start();
    let prompts = ["Once upon a time", "The fox", "A king", "There was"];
    let tokens = |stream: TextStream| stream.completion().map(|answer| answer.tokens);
    let alone = prompts.map(|text| generator.generate(request(text, 30)).unwrap().tokens);
    for culprit in 0..4 {
        // All start in one step; the culprit fails in a later one.
        let holder = hold(&generator);
        let streams = prompts.map(|text| generator.stream(request(text, 30)).unwrap());
        generator.worker.act(move |work| {
            let id = *work.readers.keys().nth(culprit).unwrap();
            work.generator.faults.poisoned = vec![id];
        });
        drop(holder);
        for (index, (stream, alone)) in streams.into_iter().zip(&alone).enumerate() {
            match tokens(stream) {
                Ok(tokens) => assert!(index != culprit && tokens == *alone, "{index} of {culprit}"),
                Err(error) => assert!(index == culprit && error.to_string().contains("poisoned"), "{error}"),
            }
        }
    }
    nothing_is_left(&generator);
    let status = generator.status().unwrap();
    assert_eq!((status.finished.failed, status.failed_steps), (4, 4));
}

/// A step that failed once is tried again and may succeed.
#[test]
fn a_step_that_fails_once_is_tried_again() {
    let generator = start();
    let holder = hold(&generator);
    let streams = ["The fox", "A king"].map(|text| generator.stream(request(text, 8)).unwrap());
    fault(&generator, || panic!("on purpose"));
    drop(holder);
    let texts = streams.map(|stream| stream.completion().unwrap().text);
    let alone = ["The fox", "A king"].map(|text| generator.generate(request(text, 8)).unwrap().text);
    assert_eq!(texts, alone);
}

#[test]
fn a_batch_gives_whole_answers_in_the_order_of_their_ends() {
    let generator = start();
    let prepare = |text: &str, tokens| generator.prepare(request(text, tokens)).unwrap();
    let requests = vec![prepare("Once upon a time", 40), prepare("The fox", 4), Request::default()];
    let alone = [("Once upon a time", 40), ("The fox", 4)]
        .map(|(text, tokens)| generator.generate(request(text, tokens)).unwrap());
    let mut batch = block_on(generator.batch_async(requests));
    let mut answers = Vec::new();
    while let Some(answer) = block_on(batch.next_completion()).unwrap() {
        answers.push(answer);
    }
    assert_eq!(answers.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2, 1, 0]);
    assert!(matches!(answers[0].1, Err(Error::EmptyPrompt)));
    for (index, answer) in &answers[1..] {
        let (answer, alone) = (answer.as_ref().unwrap(), &alone[*index]);
        assert_eq!((&answer.text, &answer.tokens, answer.usage), (&alone.text, &alone.tokens, alone.usage));
        assert!(answer.timings.queue <= answer.timings.first_token);
    }
    nothing_is_left(&generator);
}

/// Callers refuse what the worker would.
#[test]
fn requests_are_refused_before_any_work() {
    let generator = start();
    let refused = |request: Request| {
        let early = generator.prepare(request.clone()).unwrap_err().to_string();
        assert_eq!(generator.generate(request).unwrap_err().to_string(), early);
        early
    };
    let prompt = vec![5];
    assert!(refused(Request::default()).contains("the prompt is empty"));
    assert!(
        refused(Request { prompt: vec![99_999], ..Request::default() }).contains("token 99999 is beyond")
    );
    assert!(refused(Request { prompt: vec![5; 513], ..Request::default() }).contains("512 tokens"));
    let sampling = crate::SamplingOptions { temperature: Some(-1.0), ..crate::SamplingOptions::default() };
    assert!(
        refused(Request { prompt: prompt.clone(), sampling, ..Request::default() }).contains("temperature")
    );
    let model = storyteller();
    let small = settings(&model).with_cache_tokens(64);
    let generator = TextGenerator::with_plan(model, &small).unwrap();
    let long = Request { prompt, max_new_tokens: Some(500), ..Request::default() };
    assert!(matches!(generator.prepare(long), Err(Error::TooLong(_))));
}

#[test]
fn the_last_message_of_a_conversation_can_be_continued() {
    let source = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}</s>{% endfor %}\
        {% if add_generation_prompt %}[assistant]{% endif %}";
    let template = ChatTemplate::new(source).unwrap();
    let messages = [ChatMessage::user("Sure or not?"), ChatMessage::assistant(" Sure ")].map(Into::into);
    let chat = Chat { continue_final_message: true, ..Chat::new(messages.to_vec()) };
    let prompt = chat.render(&template, None).unwrap();
    assert_eq!(prompt, "[user] Sure or not?</s>[assistant] Sure");
    let hidden = ChatTemplate::new("{{ messages[0].content }}").unwrap();
    let other =
        Chat { messages: vec![chat.messages[0].clone(), serde_json::json!({"content": "No"})], ..chat };
    let message = other.render(&hidden, None).unwrap_err().to_string();
    assert!(message.ends_with("the prompt does not have the content of the last message"), "{message}");
}

#[test]
fn continued_messages_end_where_their_own_text_ends() {
    let source = "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}<think>\n\
        {{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }}<|end|>\n{% endfor %}";
    let template = ChatTemplate::new(source).unwrap();
    let check = |message: serde_json::Value, continued: &str, expected: &str| {
        let user = ChatMessage::user("Hi").into();
        let chat = Chat { continue_final_message: true, ..Chat::new(vec![user, message]) };
        let prompt = chat.render(&template, None).unwrap();
        assert_eq!(prompt, format!("<|user|>Hi<|end|>\n<|assistant|><think>\n{expected}"));
        assert_eq!(chat.continued(), Some(continued));
    };
    use serde_json::json;
    // A text that the template writes too, and white space that the model goes on behind.
    check(json!({"role": "assistant", "content": "end"}), "end", "\n</think>\n\nend");
    check(json!({"role": "assistant", "content": " a \n"}), " a \n", "\n</think>\n\n a \n");
    check(json!({"role": "assistant", "content": ""}), "", "\n</think>\n\n");
    check(json!({"role": "assistant", "content": null}), "", "\n</think>\n\n");
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    check(json!({"role": "assistant", "content": parts}), "b", "\n</think>\n\nab");
    // Reasoning that goes on.
    check(json!({"role": "assistant", "content": "", "reasoning_content": "I wonder"}), "", "I wonder");
    let none = Chat::new(vec![ChatMessage::user("Hi").into()]);
    assert_eq!(none.continued(), None);
    for strange in [json!("Hi"), json!({"content": [1]}), json!({"content": []}), json!({"content": [{}]})] {
        let chat = Chat { continue_final_message: true, ..Chat::new(vec![strange]) };
        assert!(chat.render(&template, None).is_err(), "{:?}", chat.messages);
    }
}

#[test]
fn conversations_are_adapted_to_the_template() {
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content + '|' }}{% for c in m.tool_calls or [] %}\
        {{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let template = ChatTemplate::new(source).unwrap();
    use serde_json::json;
    let function = json!({"name": "f", "arguments": "{\"a\": 1}"});
    let chat = Chat::new(vec![
        json!({"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief"}]}),
        json!({"role": "assistant", "content": null, "tool_calls": [{"function": function}]}),
        json!({"role": "tool", "content": [1, 2]}),
    ]);
    let prompt = chat.render(&template, None).unwrap();
    assert_eq!(prompt, "system: Be brief|assistant: |{\"a\": 1}tool: [1,2]|");
    let image = Chat::new(vec![json!({"role": "user", "content": [{"type": "image_url"}]})]);
    let message = image.render(&template, None).unwrap_err().to_string();
    assert_eq!(message, "messages[0].content[0]: has the type image_url; only text is supported");
}

/// The pages that a reader of cache events knows: parent, tokens and salt of each.
type Mirror = std::collections::BTreeMap<crate::Page, (Option<crate::Page>, Vec<u32>, Option<String>)>;

fn apply(mirror: &mut Mirror, events: Vec<CacheEvent>) {
    for event in events {
        match event {
            CacheEvent::Stored { page, parent, tokens, cache_salt } => {
                assert!(parent.is_none_or(|parent| mirror.contains_key(&parent)), "the parent comes first");
                let salt = cache_salt.map(|salt| salt.to_string());
                assert_eq!(mirror.insert(page, (parent, tokens.to_vec(), salt)), None, "page {page}");
            }
            CacheEvent::Removed { page } => assert!(mirror.remove(&page).is_some(), "page {page}"),
            CacheEvent::Cleared => mirror.clear(),
        }
    }
}

#[test]
fn cache_events_keep_a_reader_up_to_date() {
    let model = storyteller();
    let change = |config: PipelineConfig| {
        config
            .cache_strategy(KVCacheStrategy::Paged)
            .enable_prefix_caching(true)
            .kv_cache_page_size(16_usize)
            .max_cache_batch_size(2)
    };
    let plan = model.plan().with(change).unwrap();
    let generator = TextGenerator::with_plan(model, &plan).unwrap();
    let events = generator.cache_events();
    let mut mirror = Mirror::new();
    apply(&mut mirror, events.recv_blocking().unwrap());
    assert!(mirror.is_empty());
    for seed in 0..48 {
        let mut wanted = request(&"Once upon a time there was a cat. ".repeat(1 + seed % 3), 40 + seed);
        wanted.parameters.seed = seed as u64;
        wanted.parameters.cache_salt = (seed % 3 == 0).then(|| "mine".into());
        generator.generate(wanted).unwrap();
    }
    let latest = |generator: &TextGenerator| {
        let mut mirror = Mirror::new();
        apply(&mut mirror, generator.cache_events().recv_blocking().unwrap());
        mirror
    };
    let expected = latest(&generator);
    let mut removed = 0;
    while mirror != expected {
        let batch = events.recv_blocking().unwrap();
        removed += batch.iter().filter(|event| matches!(event, CacheEvent::Removed { .. })).count();
        apply(&mut mirror, batch);
    }
    assert!(removed > 0 && expected.len() > 2, "{removed} removed, {} left", expected.len());
    assert!(expected.values().any(|(_, _, salt)| salt.as_deref() == Some("mine")));
    generator.worker.act(|work| work.generator.restart());
    assert_eq!(events.recv_blocking(), Some(vec![CacheEvent::Cleared]));
    generator.shutdown();
    assert_eq!(events.recv_blocking(), None);
}

/// A reader that does not read costs nothing, and is brought up to date when it reads again.
#[test]
fn a_reader_of_cache_events_that_falls_behind_gets_everything_anew() {
    let model = storyteller();
    let change = |config: PipelineConfig| {
        config.cache_strategy(KVCacheStrategy::Paged).enable_prefix_caching(true).kv_cache_page_size(16_usize)
    };
    let plan = model.plan().with(change).unwrap();
    let mut generator = crate::run::generator::Generator::with_plan(model, &plan).unwrap();
    let mut readers = CacheReaders::default();
    let (sender, events) = CacheReaders::channel();
    let capacity = sender.capacity().unwrap();
    readers.add(sender);
    readers.publish(&mut generator);
    for _ in 0..2 * capacity {
        generator.reset_prefix_cache();
        readers.publish(&mut generator);
    }
    let cleared = Some(vec![CacheEvent::Cleared]);
    (0..capacity).for_each(|_| assert_eq!(block_on(events.recv()), cleared));
    generator
        .add(request("Once upon a time there was a cat and a dog and a bird.", 20).parameters)
        .unwrap_err();
    readers.publish(&mut generator);
    assert_eq!(events.recv_blocking(), cleared, "everything there is: nothing");
    drop(events);
    readers.publish(&mut generator);
    generator.reset_prefix_cache();
    readers.publish(&mut generator);
    assert!(generator.prefixes_mut().unwrap().take_events().is_empty(), "no reader is left");
}
