//! `peri tokenize`: texts to ids, or ids back to text.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context;
use pipelines::{AddSpecial, ParseSpecial, Piece, SkipSpecial, Tokenizer};
use serde_json::json;

use crate::command_profile;
use crate::exit::Usage;
use crate::model;
use crate::output;
use crate::settings::ModelPath;

const EXAMPLES: &str = "\
Examples:
  echo \"Once upon a time\" | peri tokenize model.gguf
  echo \"[1, 403, 407]\" | peri tokenize model.gguf --decode
  peri tokenize Qwen/Qwen3-0.6B --string \"Once upon a time\" --json
  peri tokenize Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf --text story.txt --whole";

const DETAILS: &str = "\
Each line of standard input is a text, unless --string or --text gives others. Ids are JSON arrays, one per line. Of a \
repo only the tokenizer's files are downloaded, or the header of a GGUF file.

--json prints one object per text: text, ids[], pieces[], offsets[[start, end]]. Pieces are tokens as the vocabulary \
spells them. Offsets count bytes of the text; they are null for tokens added around it, and for all tokens if the \
tokenizer changes texts in unknown ways. With --decode there are no offsets.";

/// Arguments of `peri tokenize`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = super::details(DETAILS, EXAMPLES))]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Tokenize>,
    /// A text, line breaks included; repeatable
    #[arg(long, short = 'p', value_name = "TEXT", conflicts_with = "text", allow_hyphen_values = true)]
    string: Vec<String>,
    /// A file to read, - for standard input; repeatable
    #[arg(long, value_name = "FILE")]
    text: Vec<PathBuf>,
    /// Read JSON arrays of ids, one per line, and print their texts
    #[arg(long)]
    decode: bool,
    /// Take each input as one text instead of one per line
    #[arg(long, conflicts_with = "decode")]
    whole: bool,
    /// Do not add the model's special tokens around a text
    #[arg(long, conflicts_with = "decode")]
    no_special: bool,
    /// Print one JSON object per text
    #[arg(long)]
    json: bool,
}

/// A source of texts or ids.
struct Input<R> {
    /// The name in errors.
    name: String,
    reader: R,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let source = arguments.model.source()?;
    let name = Some(Path::new(&source.config().huggingface_repo_id)).filter(|_| !source.is_built_in());
    let tokenizer = model::tokenizer(name)?;
    for (index, text) in arguments.string.iter().enumerate() {
        let place = || format!("--string, number {}", index + 1);
        put(&line(&tokenizer, text, place, arguments)?)?;
    }
    let standard = [PathBuf::from("-")];
    let only_standard_input = arguments.text.is_empty() && arguments.string.is_empty();
    let files = if only_standard_input { &standard[..] } else { &arguments.text };
    for path in files {
        if path.as_os_str() == "-" {
            let name = "standard input".to_string();
            Input { name, reader: std::io::stdin().lock() }.tokenize(&tokenizer, arguments)?;
        } else {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| Usage(format!("{name}: {error}")))?;
            Input { name, reader: BufReader::new(file) }.tokenize(&tokenizer, arguments)?;
        }
    }
    Ok(())
}

impl<R: BufRead> Input<R> {
    fn tokenize(mut self, tokenizer: &Tokenizer, arguments: &Arguments) -> anyhow::Result<()> {
        let failed = format!("cannot read {}", self.name);
        if arguments.whole {
            let mut bytes = Vec::new();
            self.reader.read_to_end(&mut bytes).context(failed)?;
            let text = self.utf8(bytes, 1)?;
            return put(&line(tokenizer, &text, || self.place(1), arguments)?);
        }
        for number in 1.. {
            let mut bytes = Vec::new();
            if self.reader.read_until(b'\n', &mut bytes).context(failed.clone())? == 0 {
                break;
            }
            let text = self.utf8(bytes, number)?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            if !(arguments.decode && text.trim().is_empty()) {
                put(&line(tokenizer, text, || self.place(number), arguments)?)?;
            }
        }
        Ok(())
    }

    fn place(&self, line: usize) -> String {
        format!("{}, line {line}", self.name)
    }

    fn utf8(&self, bytes: Vec<u8>, line: usize) -> Result<String, Usage> {
        let wrong =
            |error| Usage(format!("{}: {error}; convert it, for example with iconv", self.place(line)));
        String::from_utf8(bytes).map_err(wrong)
    }
}

/// The output line for a text, or for ids.
fn line(
    tokenizer: &Tokenizer,
    text: &str,
    place: impl Fn() -> String,
    arguments: &Arguments,
) -> anyhow::Result<String> {
    if arguments.decode {
        return decode(tokenizer, text, place, arguments.json);
    }
    let special = if arguments.no_special { AddSpecial::No } else { AddSpecial::Yes };
    if !arguments.json {
        return Ok(serde_json::to_string(&tokenizer.encode(text, special, ParseSpecial::Yes)?)?);
    }
    let pieces = tokenizer.encode_pieces(text, special, ParseSpecial::Yes)?;
    let offsets = |piece: &Piece| piece.place.as_ref().map(|place| [place.start, place.end]);
    let object = json!({
        "text": text,
        "ids": pieces.iter().map(|piece| piece.id).collect::<Vec<_>>(),
        "pieces": pieces.iter().map(|piece| &piece.token).collect::<Vec<_>>(),
        "offsets": pieces.iter().map(offsets).collect::<Vec<_>>(),
    });
    Ok(object.to_string())
}

fn decode(
    tokenizer: &Tokenizer,
    line: &str,
    place: impl Fn() -> String,
    json: bool,
) -> anyhow::Result<String> {
    let wrong = |problem: String| Usage(format!("{}: {problem}", place()));
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
    if !json {
        return Ok(text);
    }
    let pieces: Vec<_> = ids.iter().map(|&id| tokenizer.token(id)).collect();
    Ok(json!({ "text": text, "ids": ids, "pieces": pieces }).to_string())
}

/// Prints a line without buffering, for those who pipe line by line.
fn put(line: &str) -> anyhow::Result<()> {
    output::print(format!("{line}\n"))
}
