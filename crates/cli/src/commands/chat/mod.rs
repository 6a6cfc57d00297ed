//! `peri chat` and `peri run`: a conversation with a model, typed, piped, or of one message.

mod answer;
mod command;
mod display;
mod input;
mod session;
mod thinking;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::Model;
use pipelines::{Error, Plan, Request, TextGenerator};

use crate::command_profile;
use crate::conversation::TemplateArguments;
use crate::exit::{self, Interrupted, Usage};
use crate::interrupt::{self, Interrupt};
use crate::model::{self, ModelSource, ThreadArguments};
use crate::progress::Progress;
use crate::sampling::SamplingArguments;
use crate::settings::{ModelAndTexts, ModelFlags, ModelPath};
use crate::structured_output::StructuredOutputFlags;
use command::Command;
use display::{Display, note};
use input::{Input, Reader};
use session::Session;

const EXAMPLES: &str = "\
Examples:
  peri chat
  peri chat llama.gguf --system \"Answer in one sentence.\"
  printf 'Hello\\nAnd now in French\\n' | peri chat llama.gguf --seed 1 --json";

const DETAILS: &str = "\
* The default without a generation_config.json next to the model.

On a terminal, /help lists the commands, and messages are kept in peri/chat_history below XDG_STATE_HOME. In a pipe, \
each line is a message or a command, and the first error ends the conversation. Answers go to standard output, \
everything else to standard error. Ctrl-C stops an answer and keeps the text so far.

--json prints one object per answer: index, text, finish_reason, usage{prompt_tokens, cached_tokens, generated_tokens}, \
timings{queue_ms, first_token_ms, total_ms, tokens_per_second}, seed.

Examples:
  peri chat
  peri chat llama.gguf --system \"Answer in one sentence.\"
  peri chat base.gguf --template plain
  printf 'Hello\\nAnd now in French\\n' | peri chat llama.gguf --seed 1 --json";

const RUN_EXAMPLES: &str = "\
Examples:
  peri run llama.gguf
  peri run llama.gguf \"Why is the sky blue?\"";

const RUN_DETAILS: &str = "\
* The default without a generation_config.json next to the model.

Without a PROMPT, this is `peri chat`. A model without a chat template continues the prompt.

Examples:
  peri run llama.gguf
  peri run llama.gguf \"Why is the sky blue?\"";

/// Arguments of `peri chat`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = DETAILS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Chat>,
    #[command(flatten)]
    chat: ChatArguments,
}

/// Arguments of `peri run`.
#[derive(clap::Args)]
#[command(override_usage = "peri run [OPTIONS] [MODEL] [PROMPT]...",
    after_help = RUN_EXAMPLES,
    after_long_help = RUN_DETAILS
)]
pub(crate) struct RunArguments {
    /// The message to answer, after the MODEL [default: chat]
    #[arg(value_name = "PROMPT")]
    words: Vec<String>,
    /// The message to answer
    #[arg(long, short, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    #[command(flatten)]
    model: ModelFlags<command_profile::Chat>,
    #[command(flatten)]
    chat: ChatArguments,
}

#[derive(clap::Args)]
struct ChatArguments {
    #[command(flatten)]
    threads: ThreadArguments,
    #[command(flatten)]
    template: TemplateArguments,
    /// The system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Continue a conversation that /save wrote
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// Print one JSON object per answer
    #[arg(long)]
    json: bool,
    /// Show no progress, timings and hints
    #[arg(long, short)]
    quiet: bool,
    /// Do not keep typed messages for later conversations
    #[arg(long, hide_short_help = true)]
    no_history: bool,
    #[command(flatten)]
    structured_output: StructuredOutputFlags,
    #[command(flatten)]
    sampling: SamplingArguments,
}

/// Most tokens of an answer of the built-in model, which would otherwise fill its short context with one story.
const BUILT_IN_MAX_NEW_TOKENS: i64 = 80;

/// Runs `peri chat`.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    converse(arguments.model.source()?, &arguments.chat, None)
}

/// Runs `peri run`.
pub(crate) fn run_model(arguments: &RunArguments) -> anyhow::Result<()> {
    let ModelAndTexts { source, mut texts, .. } =
        arguments.model.model_and_texts(&arguments.words, |_| true)?;
    texts.extend(arguments.prompt.clone());
    match (texts.is_empty(), texts.join(" ")) {
        (true, _) => converse(source, &arguments.chat, None),
        (false, message) if message.trim().is_empty() => {
            Err(Usage("the prompt is empty: give a message, or leave it out to chat".into()).into())
        }
        (false, message) => converse(source, &arguments.chat, Some(message)),
    }
}

/// Holds a conversation: of one message if there is one, else of those on standard input.
fn converse(
    mut source: ModelSource,
    arguments: &ChatArguments,
    message: Option<String>,
) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    set_defaults(&mut source)?;
    let mut session = open(&source, arguments, interrupt.clone(), message.is_some())?;
    if let Some(path) = &arguments.load {
        session.load(path)?;
    }
    if let Some(text) = &arguments.system {
        session.set_system(text);
    }
    let mut reader = match message {
        Some(message) => Reader::Once(Some(message)),
        None => Reader::new(!arguments.no_history, interrupt.flag()),
    };
    let typed = reader.is_terminal();
    let mut display = Display::new(arguments.json, arguments.quiet, typed, session.is_sampled());
    if typed && !arguments.quiet {
        note("/help lists the commands, Ctrl-D leaves.");
    }
    let mut is_empty = true;
    loop {
        let input = next(&mut reader, &interrupt)?;
        if matches!(input, Input::End) && is_empty && !typed {
            return Err(Usage("standard input has no message: give one on each line".into()).into());
        }
        is_empty = false;
        let result = match input {
            Input::End => return Ok(()),
            Input::Terminated => return Err(Interrupted.into()),
            Input::Cancelled => Ok(true),
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

/// The next message. The line editor restores the terminal before a signal ends the process.
fn next(reader: &mut Reader, interrupt: &Interrupt) -> anyhow::Result<Input> {
    if !matches!(reader, Reader::Terminal(..)) {
        return reader.read();
    }
    interrupt.watch();
    let input = reader.read();
    interrupt.rest();
    input
}

/// Loads the model. One message needs no chat template.
fn open(
    source: &ModelSource,
    arguments: &ChatArguments,
    interrupt: Interrupt,
    one_message: bool,
) -> anyhow::Result<Session> {
    let progress = Progress::new(arguments.quiet);
    let plan = source.plan_and_fetch_decoder(&progress)?;
    let session = arguments.threads.session([plan.config()])?;
    let template = if one_message {
        arguments.template.template_or_plain(&plan)?
    } else {
        let hint = "such as `--template plain` to continue texts, or use `peri generate`";
        arguments.template.template(source, &plan, hint)?
    };
    if !arguments.quiet {
        source.warn(&plan);
    }
    let request = request(arguments, source, &plan)?;
    let max_length = plan.max_length()?;
    let model = model::load(model::compile(&session, plan)?, &session, &progress)?;
    if let Some(constraint) = &request.constraint {
        model.grammars().compile(constraint)?;
    }
    if !one_message {
        // While the first message is typed. Calls find out if it fails.
        let model = Arc::clone(&model);
        std::thread::spawn(move || model.model().map(Model::pack_weights));
    }
    let generator = TextGenerator::with_chat_template(model, template.clone())?;
    let variables = arguments.template.variables();
    Ok(Session::new(generator, template, request, max_length, variables, interrupt))
}

/// Sets the defaults of a conversation that depend on the model.
fn set_defaults(source: &mut ModelSource) -> anyhow::Result<()> {
    if source.is_built_in() {
        source.default_to("max_new_tokens", &BUILT_IN_MAX_NEW_TOKENS.into())?;
    }
    Ok(())
}

/// The settings that all answers share.
fn request(arguments: &ChatArguments, source: &ModelSource, plan: &Plan) -> anyhow::Result<Request> {
    // Without a limit, an answer may fill the context.
    let max_new_tokens = Some(model::max_new_tokens(plan).unwrap_or(usize::MAX));
    let constraint = arguments.structured_output.constraint()?;
    Ok(Request { max_new_tokens, constraint, ..arguments.sampling.request(source, plan) })
}

/// Answers a message; returns whether the conversation continues.
fn say(session: &mut Session, text: &str, display: &mut Display, quiet: bool) -> anyhow::Result<bool> {
    session.say(text, display).and_then(|answer| after_answer(session, &answer, quiet))
}

fn after_answer(session: &Session, answer: &answer::Answer, quiet: bool) -> anyhow::Result<bool> {
    if let Some(warning) = session.full_context(answer).filter(|_| !quiet) {
        exit::warn(&warning);
    }
    if answer.reason.is_none() { Err(Interrupted.into()) } else { Ok(true) }
}

/// Runs a command; returns whether the conversation continues.
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
        Command::Retry => {
            return session.retry(display).and_then(|answer| after_answer(session, &answer, quiet));
        }
        Command::Reset => {
            session.reset();
            hint("The conversation starts over.");
        }
        Command::Undo => {
            session.undo()?;
            hint("The last message is removed.");
        }
        Command::Think => {
            hint(if display.toggle_thoughts() { "Thoughts are folded." } else { "Thoughts are shown." });
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

/// Whether the conversation cannot continue.
fn is_fatal(error: &anyhow::Error) -> bool {
    let terminated = error.is::<Interrupted>() && interrupt::was_terminated();
    terminated || exit::is_broken_pipe(error) || matches!(error.downcast_ref(), Some(Error::Stopped { .. }))
}

/// Prints an error and continues.
fn recover(error: &anyhow::Error) {
    // An interrupted answer is kept, and its line says so.
    if !error.is::<Interrupted>() {
        exit::report(error);
    }
}
