//! `peri tokenize`: lines of text on standard input to ids, or ids back to text.

use std::io::{BufRead, Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use pipelines::{AddSpecial, ParseSpecial, SkipSpecial, Tokenizer};

use crate::exit::Usage;
use crate::model;

const AFTER_HELP: &str = "\
Ids are JSON as they are: an array a line.

Examples:
  echo \"Once upon a time\" | peri tokenize model.gguf
  echo \"[1, 403, 407]\" | peri tokenize model.gguf --decode";

/// Arguments of `peri tokenize`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A GGUF file, a tokenizer.json or tokenizer.model, or a folder with one [default: the storyteller's]
    path: Option<PathBuf>,
    /// Read JSON arrays of ids, one a line, and print the text of each
    #[arg(long)]
    decode: bool,
    /// The whole input is one text, line breaks and all, rather than one text a line
    #[arg(long, conflicts_with = "decode")]
    whole: bool,
    /// Leave out the tokens that the model wants around a text
    #[arg(long, conflicts_with = "decode")]
    no_special: bool,
    /// Print the decoded texts as JSON strings
    #[arg(long, requires = "decode")]
    json: bool,
}

/// Tokenizes.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let tokenizer = model::tokenizer(arguments.path.as_deref())?;
    if arguments.whole {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        return put(&encode(&tokenizer, utf8(bytes, 1)?, arguments)?);
    }
    let mut input = std::io::stdin().lock();
    for number in 1.. {
        let mut bytes = Vec::new();
        if input.read_until(b'\n', &mut bytes).context("cannot read standard input")? == 0 {
            break;
        }
        let line = utf8(bytes, number)?;
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        match arguments.decode {
            true if line.trim().is_empty() => {}
            true => put(&decode(&tokenizer, line, number, arguments.json)?)?,
            false => put(&encode(&tokenizer, line.to_string(), arguments)?)?,
        }
    }
    Ok(())
}

fn utf8(bytes: Vec<u8>, line: usize) -> Result<String, Usage> {
    String::from_utf8(bytes)
        .map_err(|error| Usage(format!("standard input, line {line}: {error}; convert it, with iconv say")))
}

fn encode(tokenizer: &Tokenizer, text: String, arguments: &Arguments) -> anyhow::Result<String> {
    let special = if arguments.no_special { AddSpecial::No } else { AddSpecial::Yes };
    Ok(serde_json::to_string(&tokenizer.encode(&text, special, ParseSpecial::Yes)?)?)
}

fn decode(tokenizer: &Tokenizer, line: &str, number: usize, json: bool) -> anyhow::Result<String> {
    let wrong = |problem: String| Usage(format!("standard input, line {number}: {problem}"));
    let ids: Vec<u32> = serde_json::from_str(line).map_err(|error| {
        let (error, column) = (error.to_string(), error.column());
        let problem = error.split(" at line").next().unwrap_or_default();
        wrong(format!("{problem} at column {column}; give arrays of ids, such as [1, 2, 3]"))
    })?;
    let size = tokenizer.vocab_size();
    if let Some(id) = ids.iter().find(|&&id| id as usize >= size) {
        return Err(
            wrong(format!("id {id} is beyond the vocabulary of {size} tokens; give ids below that")).into()
        );
    }
    let text = tokenizer.decode(&ids, SkipSpecial::Yes);
    Ok(if json { serde_json::to_string(&text)? } else { text })
}

/// Writes a line at once: who pipes line by line waits for it.
fn put(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
