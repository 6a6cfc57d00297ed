//! Saved logits: a safetensors file with `tokens: u32[tokens]` and `logits: f32[rows, vocab]`, written row by row.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::json;
use tensor::{DType, Tensor};
use weights::Weights;

use crate::exit::Usage;

/// The names of the tensors.
const TOKENS: &str = "tokens";
const LOGITS: &str = "logits";

/// The tokens and windows of saved logits.
pub(super) struct Tokens<'a> {
    pub(super) tokens: &'a [u32],
    pub(super) vocab: usize,
    pub(super) window: usize,
    pub(super) stride: usize,
    pub(super) model: &'a str,
}

/// A file being written. It gets its name when complete.
pub(super) struct LogitsWriter {
    out: BufWriter<File>,
    path: PathBuf,
    unfinished: PathBuf,
    rows: usize,
    vocab: usize,
    tokens: usize,
}

/// Saved logits, memory-mapped.
pub(super) struct LogitsReader {
    path: PathBuf,
    tokens: Vec<u32>,
    logits: Tensor,
    /// The first token with a row.
    first: usize,
    window: Option<usize>,
    stride: Option<usize>,
}

impl LogitsWriter {
    /// Starts a file with its header and the tokens.
    pub(super) fn create(path: &Path, of: &Tokens<'_>) -> anyhow::Result<LogitsWriter> {
        let name = path
            .file_name()
            .ok_or_else(|| Usage(format!("--logits-out {} names no file", path.display())))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let unfinished = path.with_file_name(hidden);
        let header = header(of)?;
        let failed = || format!("cannot write {}", path.display());
        let file = File::create(&unfinished).with_context(failed)?;
        let mut writer = LogitsWriter {
            out: BufWriter::with_capacity(1 << 20, file),
            path: path.to_path_buf(),
            unfinished,
            rows: 0,
            vocab: of.vocab,
            tokens: of.tokens.len(),
        };
        writer.out.write_all(&header).with_context(failed)?;
        for token in of.tokens {
            writer.out.write_all(&token.to_le_bytes()).with_context(failed)?;
        }
        Ok(writer)
    }

    /// Adds the logits of the next token.
    pub(super) fn row(&mut self, logits: &[f32]) -> anyhow::Result<()> {
        assert_eq!(logits.len(), self.vocab, "a row has a logit for each token of the vocabulary");
        self.rows += 1;
        let mut write = || logits.iter().try_for_each(|logit| self.out.write_all(&logit.to_le_bytes()));
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Completes the file and gives it its name.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        assert_eq!(self.rows, self.tokens, "every token has its row");
        let write = self.out.flush().and_then(|()| std::fs::rename(&self.unfinished, &self.path));
        write.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for LogitsWriter {
    fn drop(&mut self) {
        // A complete file was renamed.
        let _ = std::fs::remove_file(&self.unfinished);
    }
}

/// The length of the header and the header, padded with spaces so that the tensors are aligned.
fn header(of: &Tokens<'_>) -> anyhow::Result<Vec<u8>> {
    let bytes = |count: usize| count.checked_mul(4).context("so many logits are beyond any file");
    let tokens = bytes(of.tokens.len())?;
    let elements = of.tokens.len().checked_mul(of.vocab).context("so many logits are beyond any file")?;
    let end = bytes(elements)?.checked_add(tokens).context("so many logits are beyond any file")?;
    // A fixed order, so that equal logits give equal files.
    let header = json!({
        "__metadata__": {
            "format": "perihelion logits",
            "model": of.model,
            "stride": of.stride.to_string(),
            "window": of.window.to_string(),
        },
        TOKENS: {"dtype": "U32", "shape": [of.tokens.len()], "data_offsets": [0, tokens]},
        LOGITS: {"dtype": "F32", "shape": [of.tokens.len(), of.vocab], "data_offsets": [tokens, end]},
    });
    let mut json = serde_json::to_vec(&header)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}

impl LogitsReader {
    /// Opens a file and checks its tensors.
    pub(super) fn open(path: &Path) -> anyhow::Result<LogitsReader> {
        let wrong = |problem: String| Usage(format!("{}: {problem}", path.display()));
        let file =
            Weights::open(path).map_err(|error| Usage(format!("cannot open saved logits: {error}")))?;
        let find = |name: &str| {
            file.get(name)
                .cloned()
                .ok_or_else(|| wrong(format!("there is no tensor `{name}`; give a file of --logits-out")))
        };
        let (tokens, logits) = (find(TOKENS)?, find(LOGITS)?);
        let shape = |tensor: &Tensor| format!("{}{}", tensor.dtype(), tensor.shape());
        ensure!(
            tokens.dtype() == DType::U32 && tokens.shape().rank() == 1,
            wrong(format!("`{TOKENS}` is {}, expected u32[tokens]", shape(&tokens)))
        );
        ensure!(
            logits.dtype() == DType::F32 && logits.shape().rank() == 2,
            wrong(format!("`{LOGITS}` is {}, expected f32[rows, vocab]", shape(&logits)))
        );
        let (rows, tokens) = (logits.shape()[0], tokens.to_vec::<u32>());
        ensure!(
            rows <= tokens.len(),
            wrong(format!("{rows} rows of logits, and {} tokens that they can be of", tokens.len()))
        );
        let number = |key: &str| {
            let value = file.metadata().str(key).ok()?;
            value.parse().ok().filter(|&value: &usize| value > 0)
        };
        let (first, window, stride) = (tokens.len() - rows, number("window"), number("stride"));
        let stride = stride.filter(|&stride| window.is_some_and(|window| stride <= window));
        Ok(LogitsReader {
            path: path.to_path_buf(),
            tokens,
            logits: logits.contiguous(),
            first,
            window,
            stride,
        })
    }

    /// The tokens.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The window and stride they were computed with, if the file has them.
    pub(super) fn sizes(&self) -> (Option<usize>, Option<usize>) {
        (self.window, self.stride)
    }

    /// The logits at a token, if saved.
    pub(super) fn row(&self, at: usize) -> Option<&[f32]> {
        let vocab = self.logits.shape()[1];
        let row = at.checked_sub(self.first)?;
        self.logits.as_slice::<f32>().expect("checked when it was opened").chunks_exact(vocab.max(1)).nth(row)
    }

    /// Checks the size of the vocabulary, and the tokens of a text if there is one.
    pub(super) fn check(&self, vocab: usize, tokens: Option<&[u32]>) -> Result<(), Usage> {
        let path = self.path.display();
        let saved = self.logits.shape()[1];
        if saved != vocab {
            return Err(Usage(format!(
                "{path}: logits of {saved} tokens, but the model's vocabulary has {vocab}; compare models of one kind"
            )));
        }
        let Some(tokens) = tokens else { return Ok(()) };
        if tokens == self.tokens {
            return Ok(());
        }
        let differs = tokens.iter().zip(&self.tokens).position(|(a, b)| a != b);
        let at = differs.unwrap_or(tokens.len().min(self.tokens.len()));
        let word = |tokens: &[u32]| tokens.get(at).map_or("the end".to_string(), u32::to_string);
        Err(Usage(format!(
            "{path}: the tokens differ from those of the text at {at}: {} there, {} here; leave the text out to take those of the file",
            word(&self.tokens),
            word(tokens)
        )))
    }
}
