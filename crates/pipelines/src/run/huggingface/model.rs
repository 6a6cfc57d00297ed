//! A model that Transformers runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::json;
use tensor::{Buffer, DType};
use text::Tokenizer;

use super::default_python;
use super::process::Process;
use crate::Error;
use crate::run::batch::Slice;
use crate::run::kv_cache::SequenceId;
use crate::run::runner::{Logits, refused};

/// A model in a process of its own.
pub(crate) struct TransformersModel {
    process: Process,
    width: usize,
    writes: bool,
    folder: PathBuf,
    trust_remote_code: bool,
    next_runner: AtomicU64,
}

/// What the process says of a model that it has loaded.
#[derive(Deserialize)]
struct Loaded {
    /// Numbers for each token: logits, or dims of hidden states.
    width: usize,
    has_cache: bool,
    transformers: String,
    torch: String,
}

impl TransformersModel {
    /// Starts a process that loads a model whose files are here, by an interpreter; without one, the one that loaded this
    /// library, or `python3`. The model `writes` tokens or gives hidden states, its weights are cast to `dtype`, and code of
    /// its files may run if it is trusted.
    ///
    /// # Errors
    /// If the interpreter cannot be started, lacks a package, or cannot load the model.
    pub(crate) fn load(
        python: Option<&Path>,
        folder: &Path,
        architecture: &str,
        writes: bool,
        dtype: Option<DType>,
        trust_remote_code: bool,
        threads: usize,
    ) -> Result<TransformersModel, Error> {
        let process = Process::start(&python.map_or_else(default_python, Path::to_path_buf))?;
        let loaded: Loaded = process.ask(&json!({
            "do": "load",
            "folder": absolute(folder)?,
            "task": if writes { "write" } else { "embed" },
            "dtype": dtype.map(|dtype| match dtype {
                DType::BF16 => "bfloat16",
                DType::F16 => "float16",
                _ => "float32",
            }),
            "trust_remote_code": trust_remote_code,
            "threads": threads,
        }))?;
        let Loaded { width, has_cache, transformers, torch } = loaded;
        tracing::info!("Transformers {transformers} runs {architecture} with PyTorch {torch}");
        if writes && !has_cache {
            tracing::warn!(
                "{architecture} keeps no cache in Transformers: each token reads the whole text again"
            );
        }
        let (folder, next_runner) = (folder.to_path_buf(), AtomicU64::new(0));
        Ok(TransformersModel { process, width, writes, folder, trust_remote_code, next_runner })
    }

    /// The model's tokenizer as Transformers reads it, for those that are not read here.
    ///
    /// # Errors
    /// If Transformers cannot read it either, or only as Python code.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer, Error> {
        let (folder, trusted) = (absolute(&self.folder)?, self.trust_remote_code);
        let command = json!({"do": "tokenizer", "folder": folder, "trust_remote_code": trusted});
        Ok(Tokenizer::from_json(self.process.bytes(&command)?, &self.folder)?)
    }

    /// Numbers for each token: the vocabulary, or dims of hidden states.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The number of logits, if it makes any.
    pub(crate) fn vocab(&self) -> Option<usize> {
        Some(self.width).filter(|_| self.writes)
    }

    /// A name for the sequences of a runner.
    pub(super) fn runner_name(&self) -> u64 {
        self.next_runner.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads the next tokens of a sequence, and gives the logits of the last of them: f32[outputs, width].
    ///
    /// # Errors
    /// If the model fails, or its process has ended.
    pub(super) fn read(&self, runner: u64, slice: &Slice) -> Result<Vec<u8>, Error> {
        let mut cached = slice.cached;
        let mut logits = Vec::new();
        for tokens in parts(slice) {
            let after = slice.cached + slice.tokens.len() - cached - tokens.len();
            let outputs = slice.outputs.saturating_sub(after).min(tokens.len());
            let command = json!({
                "do": "run",
                "runner": runner,
                "sequence": slice.id.0,
                "cached": cached,
                "tokens": tokens,
                "outputs": outputs,
            });
            let begin = logits.len();
            grow(&mut logits, outputs.saturating_mul(self.width))?;
            self.process.numbers(&command, outputs, self.width, &mut logits[begin..])?;
            cached += tokens.len();
        }
        Ok(logits)
    }

    /// Forgets sequences of a runner, or all of them.
    pub(super) fn forget(&self, runner: u64, sequences: Option<&[SequenceId]>) {
        let ids = sequences.map(|ids| ids.iter().map(|id| id.0).collect::<Vec<_>>());
        self.process.tell(&json!({"do": "drop", "runner": runner, "sequences": ids}));
    }

    /// The hidden states of texts, each by itself: f32[tokens of all, width].
    ///
    /// # Errors
    /// If the model fails, or its process has ended.
    pub(crate) fn hidden(&self, texts: &[&[u32]]) -> Result<Logits, Error> {
        let mut states = Vec::new();
        for text in texts {
            let begin = states.len();
            grow(&mut states, text.len().saturating_mul(self.width))?;
            let command = json!({"do": "hidden", "tokens": text});
            self.process.numbers(&command, text.len(), self.width, &mut states[begin..])?;
        }
        self.logits(&[&states])
    }

    /// Checks that the process runs.
    ///
    /// # Errors
    /// If it has ended: how.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        self.process.end().map_or(Ok(()), Err)
    }

    /// Rows of numbers, given as their bytes.
    pub(super) fn logits(&self, parts: &[&[u8]]) -> Result<Logits, Error> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let rows = bytes / size_of::<f32>() / self.width.max(1);
        let buffer = Buffer::try_zeros(DType::F32, [rows, self.width])
            .map_err(|error| refused("logits of a step", error))?;
        let mut to = buffer.write().expect("nothing else has the buffer");
        let mut rest = &mut to[..];
        for part in parts {
            let (own, after) = rest.split_at_mut(part.len());
            own.copy_from_slice(part);
            rest = after;
        }
        drop(to);
        Ok(Logits::new(buffer.read().expect("nothing else has the buffer"), self.width))
    }
}

/// The tokens of a slice that run together: those of the prompt, and each later one by itself. So the bits do not depend on
/// how often a sequence was stopped and read again.
fn parts(slice: &Slice) -> impl Iterator<Item = &[u32]> {
    let prompt = if slice.prompt == 0 { usize::MAX } else { slice.prompt };
    let (together, alone) =
        slice.tokens.split_at(prompt.saturating_sub(slice.cached).min(slice.tokens.len()));
    Some(together).filter(|tokens| !tokens.is_empty()).into_iter().chain(alone.chunks(1))
}

/// Makes room for more numbers.
fn grow(bytes: &mut Vec<u8>, numbers: usize) -> Result<(), Error> {
    let more = numbers.saturating_mul(size_of::<f32>());
    if bytes.try_reserve(more).is_err() {
        return Err(refused("logits of a step", tensor::Error::OutOfMemory { bytes: more }));
    }
    bytes.resize(bytes.len() + more, 0);
    Ok(())
}

/// A folder by a path that code of the model cannot change by changing the current folder.
fn absolute(folder: &Path) -> Result<String, Error> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    folder.into_os_string().into_string().map_err(|path| Error::Worker {
        python: "huggingface".to_string(),
        problem: format!("the path {} is not UTF-8: move the model", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_run_together_and_later_tokens_alone() {
        let check = |prompt, cached, count: u32, expected: &[usize]| {
            let slice = Slice { prompt, cached, tokens: (0..count).collect(), ..Slice::default() };
            let found: Vec<usize> = parts(&slice).map(<[u32]>::len).collect();
            assert_eq!(found, expected, "{prompt} {cached} {count}");
            assert_eq!(parts(&slice).flatten().copied().collect::<Vec<u32>>(), slice.tokens);
        };
        check(5, 0, 5, &[5]);
        check(5, 0, 8, &[5, 1, 1, 1]);
        check(5, 5, 1, &[1]);
        check(5, 7, 2, &[1, 1]);
        check(0, 3, 4, &[4]);
    }
}
