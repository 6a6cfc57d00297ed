//! Times streams of a model through the server and from its generator in this process, in alternation: tokens per second,
//! time to the first token, and time between tokens. Other servers that speak OpenAI's protocol can take part.
//!
//! `cargo bench -p perihelion-serve --bench load -- [MODEL] [--streams 1,4,16,64] [--tokens 64] [--prompt-tokens 128]
//! [--rounds 5] [--peer NAME=HOST:PORT/MODEL]…`
//!
//! Every request has a prompt of its own, of random tokens, so no cache of prefixes helps. All streams of a round begin at
//! once. The figures are medians of the rounds; percentiles are taken over all requests of a round. On Linux, the last
//! column is the time that the server's threads, without those of the model, ran on a core for each token.

mod client;
mod cpu_time;
mod options;
mod trace;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use cpu::Cpu;
use engine::InferenceSession;
use engine::devices::Platform;
use futures_core::Stream;
use pipelines::config::{KVCacheStrategy, PipelineConfig};
use pipelines::{EventKind, Machine, Prompt, Request, SamplingOptions, TextGenerator, TextRequest};
use serve::{LogFormat, ModelConfig, Server, ServerConfig};

use client::Client;
use options::Options;
use trace::{Summary, Trace};

static PLATFORM: Platform = Platform::new(|| Arc::new(Cpu::new(0)));

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A generator or a server that answers requests.
enum Target {
    InProcess(TextGenerator),
    Http(Client),
}

impl Target {
    /// One stream: sends the prompt and notes when tokens come.
    async fn stream(&self, prompt: Vec<u32>, tokens: usize) -> Result<Trace, Error> {
        match self {
            Target::InProcess(generator) => generate(generator, prompt, tokens).await,
            Target::Http(client) => client.stream(&prompt, tokens).await,
        }
    }
}

fn main() -> Result<(), Error> {
    let options = Options::from_args(std::env::args().skip(1))?;
    let session = Arc::new(InferenceSession::builder().device(Arc::new(Cpu::new(0))).build()?);
    let config = config(&options);
    let plan = config.clone().plan(Machine::new(&PLATFORM))?;
    let generator = TextGenerator::from_plan(&session, plan)?;
    let vocabulary = generator.model().vocab();

    let id = "model".to_string();
    let model = ModelConfig { id: id.clone(), ..ModelConfig::new(config) };
    let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
    let server = ServerConfig { addresses, log: LogFormat::Off, ..ServerConfig::default() };
    let server = Server::start(server, vec![model], session, &PLATFORM)?;
    let Some(serve::Address::Tcp(address)) = server.addresses().first() else {
        return Err("the server has no TCP address".into());
    };
    let ours = Client { host: address.to_string(), model: id };
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run());

    let mut targets = vec![
        ("in process".to_string(), Target::InProcess(generator)),
        ("peri serve".to_string(), Target::Http(ours)),
    ];
    targets.extend(options.peers.iter().map(|(name, client)| (name.clone(), Target::Http(client.clone()))));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Memory is mapped when it is first written: all of the cache, before the clock runs.
    let most = options.streams.iter().copied().max().unwrap_or(1);
    for (_, target) in &targets {
        runtime.block_on(load(target, most, &options, vocabulary))?;
    }
    println!(
        "| streams | | tok/s | of in process | first token p50, p99 | between tokens p50, p99 | server CPU |"
    );
    println!("|---|---|---|---|---|---|---|");
    for &streams in &options.streams {
        let mut rounds: Vec<Vec<Summary>> = targets.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for ((_, target), summaries) in targets.iter().zip(&mut rounds) {
                summaries.push(runtime.block_on(load(target, streams, &options, vocabulary))?);
            }
        }
        let base = Summary::median(&rounds[0]).rate;
        for ((name, _), summaries) in targets.iter().zip(&rounds) {
            let median = Summary::median(summaries);
            println!("| {streams} | {name} | {:.0} | {:.3} | {median} |", median.rate, median.rate / base);
        }
    }
    handle.stop();
    thread.join().map_err(|_| "the server panicked")?;
    Ok(())
}

/// The configuration of `peri serve` for so many streams.
fn config(options: &Options) -> PipelineConfig {
    let streams = options.streams.iter().copied().max().unwrap_or(1);
    let length = options.prompt_tokens + options.tokens;
    let config = options.model.as_deref().map_or_else(PipelineConfig::default, PipelineConfig::new);
    config
        .max_length(length.next_multiple_of(128))
        .max_cache_batch_size(streams)
        .cache_strategy(KVCacheStrategy::Paged)
        .enable_prefix_caching(true)
}

/// All streams of a round, at once.
async fn load(
    target: &Target,
    streams: usize,
    options: &Options,
    vocabulary: usize,
) -> Result<Summary, Error> {
    let prompt = || (0..options.prompt_tokens).map(|_| fastrand::u32(3..vocabulary as u32)).collect();
    let prompts: Vec<Vec<u32>> = (0..streams).map(|_| prompt()).collect();
    let (began, cpu_time) = (Instant::now(), cpu_time::of_server());
    let open = prompts.into_iter().map(|prompt| target.stream(prompt, options.tokens));
    let traces = futures_util::future::try_join_all(open).await?;
    Ok(Summary::of(began, &traces, cpu_time::of_server().saturating_sub(cpu_time)))
}

/// A stream of the generator in this process.
async fn generate(generator: &TextGenerator, prompt: Vec<u32>, tokens: usize) -> Result<Trace, Error> {
    let mut request = TextRequest::from(Prompt::Tokens(prompt));
    request.parameters = Request {
        sampling: SamplingOptions { temperature: Some(0.0), ..Default::default() },
        max_new_tokens: Some(tokens),
        ignore_eos: true,
        ..Default::default()
    };
    let mut trace = Trace::begin();
    let mut stream = std::pin::pin!(generator.stream_async(request).await?);
    while let Some(event) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        if let EventKind::Token { .. } = event? {
            trace.note(1);
        }
    }
    trace.tokens = stream.usage().generated_tokens;
    Ok(trace)
}
