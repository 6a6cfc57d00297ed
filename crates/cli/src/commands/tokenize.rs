//! `peri tokenize`: text on standard input to ids, or ids back to text.

use std::io::{BufRead, Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use pipelines::{AddSpecial, ParseSpecial, SkipSpecial, Tokenizer};

/// Arguments of `peri tokenize`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A GGUF file, a tokenizer.json or tokenizer.model, or a folder with one
    path: PathBuf,
    /// Read JSON arrays of ids, one a line, and print their texts
    #[arg(long)]
    decode: bool,
    /// Tokenize each line by itself rather than the whole input
    #[arg(long, conflicts_with = "decode")]
    lines: bool,
    /// Leave out the tokens that the model puts around a text
    #[arg(long, conflicts_with = "decode")]
    no_special: bool,
}

/// Tokenizes.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let tokenizer = Tokenizer::open(&arguments.path).context("cannot open the tokenizer")?;
    let mut out = std::io::stdout().lock();
    if arguments.decode {
        return decode(&tokenizer, &mut out);
    }
    let special = if arguments.no_special { AddSpecial::No } else { AddSpecial::Yes };
    let mut encode = |text: &str| -> anyhow::Result<()> {
        let ids = tokenizer.encode(text, special, ParseSpecial::Yes)?;
        writeln!(out, "{}", serde_json::to_string(&ids)?)?;
        Ok(())
    };
    if arguments.lines {
        for line in std::io::stdin().lock().lines() {
            encode(&line.context("standard input")?)?;
        }
        return Ok(());
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).context("standard input")?;
    encode(&text)
}

fn decode(tokenizer: &Tokenizer, out: &mut impl Write) -> anyhow::Result<()> {
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.context("standard input")?;
        if line.trim().is_empty() {
            continue;
        }
        let ids: Vec<u32> = serde_json::from_str(&line)
            .with_context(|| format!("line {}: expected an array of ids", number + 1))?;
        writeln!(out, "{}", tokenizer.decode(&ids, SkipSpecial::Yes))?;
    }
    Ok(())
}
