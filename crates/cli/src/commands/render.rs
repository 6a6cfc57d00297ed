//! `peri render`: the prompt that a chat template makes of a conversation.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use pipelines::{AddSpecial, Chat, ChatTemplate, ParseSpecial, Tokenizer};

use crate::conversation::{self, TemplateArguments};
use crate::exit::Usage;
use crate::output::printable;
use crate::progress::Progress;
use crate::purpose;
use crate::settings::ModelFlags;

const AFTER_HELP: &str = "\
The conversation is a list of messages, or an object with them as \"messages\", and \"tools\", \"documents\",
\"add_generation_prompt\" and further variables of the template if need be. The prompt goes to standard output exactly
as the template makes it. The model's weights are not loaded.

The tokens that begin and end a text are those of --model; where only a template is given, say them as variables.

Examples:
  echo '[{\"role\": \"user\", \"content\": \"Hello\"}]' | peri render --model llama.gguf
  peri render chat.json --model qwen/ --variable enable_thinking=false --tokens
  peri render chat.json --template chatml.jinja --variable 'bos_token=<s>'";

/// Arguments of `peri render`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The conversation, as JSON [default: standard input]
    #[arg(value_name = "FILE")]
    conversation: Option<PathBuf>,
    #[command(flatten)]
    model: ModelFlags<purpose::Render>,
    #[command(flatten)]
    template: TemplateArguments,
    /// End the prompt after the last message, rather than where the assistant is to speak
    #[arg(long)]
    no_generation_prompt: bool,
    /// Print the ids of the prompt's tokens too, on a line of their own
    #[arg(long)]
    tokens: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Object<'a> {
    prompt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<&'a [u32]>,
}

/// Renders.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut chat = conversation(arguments)?;
    chat.extra.extend(arguments.template.variables());
    chat.add_generation_prompt &= !arguments.no_generation_prompt;
    let (template, tokenizer) = open(arguments)?;
    let prompt = chat.render(&template, tokenizer.as_ref())?;
    let tokens = match &tokenizer {
        // The template writes all special tokens itself.
        Some(tokenizer) if arguments.tokens => {
            Some(tokenizer.encode(&prompt, AddSpecial::No, ParseSpecial::Yes)?)
        }
        _ => None,
    };
    print(arguments, &prompt, tokens.as_deref()).context("cannot write to standard output")
}

fn conversation(arguments: &Arguments) -> anyhow::Result<Chat> {
    if let Some(path) = arguments.conversation.as_deref().filter(|path| path.as_os_str() != "-") {
        let json = std::fs::read(path).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
        return Ok(conversation::read(&json, &path.display().to_string())?);
    }
    if std::io::stdin().is_terminal() {
        return Err(Usage("no conversation: name a file, or give one on standard input".into()).into());
    }
    let mut json = Vec::new();
    std::io::stdin().read_to_end(&mut json).context("cannot read the conversation from standard input")?;
    Ok(conversation::read(&json, "standard input")?)
}

/// The template, and the tokenizer unless nothing but a template is given.
fn open(arguments: &Arguments) -> anyhow::Result<(ChatTemplate, Option<Tokenizer>)> {
    let source = arguments.model.source()?;
    if source.is_built_in()
        && let Some(template) = arguments.template.given()?
    {
        return match arguments.tokens {
            true => Err(Usage("--tokens needs a tokenizer: name its model with --model".into()).into()),
            false => Ok((template, None)),
        };
    }
    let resolved = source.look(&Progress::new(arguments.json))?;
    let template = arguments.template.template(&source, &resolved, "or name another model with --model")?;
    Ok((template, Some(resolved.tokenizer().context("cannot open the tokenizer")?)))
}

fn print(arguments: &Arguments, prompt: &str, tokens: Option<&[u32]>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&Object { prompt, tokens })?)?;
        return out.flush();
    }
    let terminal = out.is_terminal();
    match terminal {
        true => out.write_all(printable(prompt).as_bytes())?,
        false => out.write_all(prompt.as_bytes())?,
    }
    if (terminal || tokens.is_some()) && !prompt.ends_with('\n') {
        writeln!(out)?;
    }
    if let Some(tokens) = tokens {
        writeln!(out, "{}", serde_json::to_string(tokens)?)?;
    }
    out.flush()
}
