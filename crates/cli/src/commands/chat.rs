//! `peri chat`: a conversation with a model, typed or piped.

mod answer;
mod command;
mod display;
mod input;
mod session;

use std::path::{Path, PathBuf};

use pipelines::config::{KVCacheStrategy, ResolvedConfig};
use pipelines::{Error, GeneratorOptions, Request, TextGenerator};

use crate::conversation::TemplateArguments;
use crate::exit::{self, Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model::{self, Source, ThreadArguments};
use crate::progress::Progress;
use crate::purpose;
use crate::sampling::SamplingArguments;
use crate::settings::ModelFlags;
use command::Command;
use display::{Display, note};
use input::{Input, Reader};
use session::Session;

const AFTER_HELP: &str = "\
* or what the generation_config.json beside the model recommends.

On a terminal, /help lists what steers a conversation, and what is typed is remembered in peri/chat_history below
XDG_STATE_HOME. Piped, each line is a message, commands work too, and the first error ends the conversation. Answers go
to standard output, all else to standard error. Ctrl-C ends an answer where it is.

Examples:
  peri chat --model llama.gguf --system \"Answer in one sentence.\"
  peri chat --template chatml.jinja
  printf 'Hello\\nAnd now in French\\n' | peri chat --model llama.gguf --seed 1 --json";

/// Arguments of `peri chat`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelFlags<purpose::Chat>,
    #[command(flatten)]
    threads: ThreadArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    template: TemplateArguments,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Go on with the conversation of a file, as /save writes it
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// Print one JSON object a line for each answer
    #[arg(long)]
    json: bool,
    /// No progress, no timings and no hints on standard error
    #[arg(long, short)]
    quiet: bool,
    /// Do not remember what is typed
    #[arg(long)]
    no_history: bool,
}

/// Tokens in a step: long prompts run in chunks.
const MAX_BATCH_TOKENS: usize = 512;

/// Chats.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let mut session = open(arguments, interrupt.clone())?;
    if let Some(path) = &arguments.load {
        session.load(path)?;
    }
    if let Some(text) = &arguments.system {
        session.set_system(text);
    }
    let mut reader = Reader::new(!arguments.no_history);
    let typed = reader.is_terminal();
    let mut display = Display::new(arguments.json, arguments.quiet, typed, session.is_sampled());
    if typed && !arguments.quiet {
        note("/help lists the commands, Ctrl-D leaves.");
    }
    loop {
        let result = match reader.read()? {
            Input::End => return Ok(()),
            Input::Interrupted => Ok(true),
            Input::Block(text) => say(&mut session, &text, &mut display, arguments.quiet),
            Input::Line(text) => match command::parse(&text) {
                None => say(&mut session, &text, &mut display, arguments.quiet),
                Some(command) => command
                    .map_err(|problem| Usage(problem).into())
                    .and_then(|command| obey(&command, &mut session, &mut display, arguments.quiet)),
            },
        };
        match result {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if typed && !is_fatal(&error) => recover(&error),
            Err(error) => return Err(error),
        }
    }
}

/// Loads the model.
fn open(arguments: &Arguments, interrupt: Interrupt) -> anyhow::Result<Session> {
    let session = arguments.threads.session()?;
    let progress = Progress::new(arguments.quiet);
    let source = source(arguments)?;
    let resolved = source.resolve_writer(&progress)?;
    let otherwise = "or continue texts with `peri generate`";
    let template = arguments.template.template(&source, &resolved, otherwise)?;
    if !arguments.quiet {
        source.warn(&resolved);
    }
    let request = request(arguments, &source, &resolved);
    let options =
        GeneratorOptions { max_batch_tokens: MAX_BATCH_TOKENS, ..GeneratorOptions::from(&resolved) };
    let max_length = resolved.memory().max_length;
    let model = model::pack(model::compile(&session, resolved)?, &session, &progress)?;
    let generator = TextGenerator::with_chat_template(model, &options, template)?;
    Ok(Session::new(generator, request, max_length, arguments.template.variables(), interrupt))
}

/// The model, with what is so here unless someone says otherwise.
fn source(arguments: &Arguments) -> anyhow::Result<Source> {
    let mut source = arguments.model.source()?;
    let paged =
        matches!(source.config().cache_strategy, KVCacheStrategy::Paged | KVCacheStrategy::ModelDefault);
    source.default_to("enable_prefix_caching", &paged.into())?;
    Ok(source)
}

/// What all answers have in common.
fn request(arguments: &Arguments, source: &Source, resolved: &ResolvedConfig) -> Request {
    // Without a limit, an answer goes on until the context is full.
    let max_new_tokens = Some(model::max_new_tokens(resolved).unwrap_or(usize::MAX));
    Request { max_new_tokens, ..arguments.sampling.request(source, resolved) }
}

/// Says something to the model; gives whether the conversation goes on.
fn say(session: &mut Session, text: &str, display: &mut Display, quiet: bool) -> anyhow::Result<bool> {
    session.say(text, display).and_then(|answer| end(session, &answer, quiet))
}

/// After an answer.
fn end(session: &Session, answer: &answer::Answer, quiet: bool) -> anyhow::Result<bool> {
    if let Some(cut) = session.cut(answer).filter(|_| !quiet) {
        exit::warn(&cut);
    }
    if answer.reason.is_none() { Err(Interrupted.into()) } else { Ok(true) }
}

/// Does what a command says; gives whether the conversation goes on.
fn obey(
    command: &Command<'_>,
    session: &mut Session,
    display: &mut Display,
    quiet: bool,
) -> anyhow::Result<bool> {
    let hint = |text: &str| {
        if !quiet {
            note(text);
        }
    };
    match *command {
        Command::Exit => return Ok(false),
        Command::Help => note(&command::help()),
        Command::Stats => note(&session.stats()),
        Command::Retry => return session.retry(display).and_then(|answer| end(session, &answer, quiet)),
        Command::Reset => {
            session.reset();
            hint("The conversation begins anew.");
        }
        Command::Undo => {
            session.undo()?;
            hint("The last message is taken back.");
        }
        Command::System("") => match session.system() {
            Some(text) => note(&crate::output::printable(text)),
            None => note("There is no system message."),
        },
        Command::System(text) => {
            session.set_system(if text == "\"\"" { "" } else { text });
            hint("The system message is changed.");
        }
        Command::Save(path) => {
            let count = session.save(Path::new(path))?;
            hint(&format!("{count} messages are written to {path}."));
        }
        Command::Load(path) => {
            let count = session.load(Path::new(path))?;
            hint(&format!("The conversation has {count} messages now."));
        }
    }
    Ok(true)
}

/// Whether there is no going on.
fn is_fatal(error: &anyhow::Error) -> bool {
    exit::is_broken_pipe(error) || matches!(error.downcast_ref(), Some(Error::Stopped { .. }))
}

/// Says what went wrong, and goes on.
fn recover(error: &anyhow::Error) {
    // What was said of an answer that was stopped is kept, and its line tells.
    if !error.is::<Interrupted>() {
        exit::report(error);
    }
}
