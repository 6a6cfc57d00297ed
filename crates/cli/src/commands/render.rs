//! `peri render`: the prompt a chat template makes of a conversation.

use std::io::{IsTerminal, Read, Write};

use anyhow::Context;
use pipelines::{AddSpecial, Chat, ChatTemplate, Moment, ParseSpecial, Tokenizer};

use crate::command_profile;
use crate::conversation::{self, TemplateArguments};
use crate::exit::Usage;
use crate::model::ModelSource;
use crate::model_name;
use crate::output::printable;
use crate::progress::Progress;
use crate::settings::{ModelAndTexts, ModelFlags};

const EXAMPLES: &str = "\
Examples:
  echo '[{\"role\": \"user\", \"content\": \"Hello\"}]' | peri render llama.gguf
  peri render qwen/ chat.json --variable enable_thinking=false --tokens
  peri render chat.json --template chatml.jinja --variable 'bos_token=<s>'";

const DETAILS: &str = "\
The conversation is a list of messages, or an object with \"messages\" and optionally \"tools\", \"documents\", \
\"add_generation_prompt\" and template variables. The prompt is printed exactly as the template makes it. The model's \
weights are not loaded.

bos_token and eos_token come from the model; with a template alone, set them as variables.";

/// Arguments of `peri render`.
#[derive(clap::Args)]
#[command(
    override_usage = "peri render [OPTIONS] [MODEL] [FILE]",
    after_help = EXAMPLES,
    after_long_help = super::details(DETAILS, EXAMPLES)
)]
pub(crate) struct Arguments {
    /// The conversation as JSON, after the MODEL if one is named [default: standard input]
    #[arg(value_name = "FILE", num_args = 0..=2)]
    words: Vec<String>,
    #[command(flatten)]
    model: ModelFlags<command_profile::Render>,
    #[command(flatten)]
    template: TemplateArguments,
    /// End the prompt after the last message, without opening an answer
    #[arg(long)]
    no_generation_prompt: bool,
    /// The time that strftime_now shows, such as 2025-07-26T12:00:00 [default: now]
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    now: Option<Moment>,
    /// Also print the prompt's token ids, on a line of their own
    #[arg(long)]
    tokens: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// The object of `--json`.
#[derive(serde::Serialize)]
struct Object<'a> {
    prompt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<&'a [u32]>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let ModelAndTexts { source, texts, .. } =
        arguments.model.model_and_texts(&arguments.words, model_name::names_model)?;
    let mut chat = conversation(&texts)?;
    chat.extra.extend(arguments.template.variables());
    chat.add_generation_prompt &= !arguments.no_generation_prompt;
    chat.now = arguments.now;
    let (template, tokenizer) = open(arguments, &source)?;
    let prompt = chat.render(&template, tokenizer.as_ref())?;
    let tokens = match &tokenizer {
        // The template writes the special tokens.
        Some(tokenizer) if arguments.tokens => {
            Some(tokenizer.encode(&prompt, AddSpecial::No, ParseSpecial::Yes)?)
        }
        _ => None,
    };
    print(arguments, &prompt, tokens.as_deref()).context("cannot write to standard output")
}

fn conversation(files: &[String]) -> anyhow::Result<Chat> {
    match files {
        [] => {}
        [file] if file == "-" => {}
        [file] => {
            let json = std::fs::read(file).map_err(|error| Usage(format!("{file}: {error}")))?;
            return Ok(conversation::read(&json, file)?);
        }
        [_, other, ..] => {
            return Err(Usage(format!("`{other}` is a second conversation: name one file")).into());
        }
    }
    if std::io::stdin().is_terminal() {
        return Err(Usage("no conversation: name a file, or give one on standard input".into()).into());
    }
    let mut json = Vec::new();
    std::io::stdin().read_to_end(&mut json).context("cannot read the conversation from standard input")?;
    Ok(conversation::read(&json, "standard input")?)
}

/// The template, and the tokenizer unless only a template is given.
fn open(arguments: &Arguments, source: &ModelSource) -> anyhow::Result<(ChatTemplate, Option<Tokenizer>)> {
    if source.is_built_in()
        && let Some(template) = arguments.template.given()?
    {
        return if arguments.tokens {
            Err(Usage("--tokens needs a tokenizer: name its model with --model".into()).into())
        } else {
            Ok((template, None))
        };
    }
    let plan = source.open(&Progress::new(arguments.json))?;
    let template = arguments.template.template(source, &plan, "or name another model with --model")?;
    Ok((template, Some(plan.tokenizer().context("cannot open the tokenizer")?)))
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
