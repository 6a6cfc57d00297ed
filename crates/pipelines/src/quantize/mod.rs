//! A checkpoint becomes a GGUF file of other dtypes, tensor by tensor: never more than a few rows of it are in memory.

mod importance;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use engine::AtomicFile;
use models::{Checkpoint, Network, QuantizeOptions, Quantizer};
use tensor::DType;
use text::ChatTemplate;
use weights::{Format, GgufWriter, Metadata};

use crate::classifier::{ACTIVATION_KEY, ClassifierConfig, PairTemplate, RERANK_KEY};
use crate::sentence_transformers::{EmbeddingConfig, RANK};
use crate::{Error, MemoryBytes, Pooling, ScoreActivation, Tokenizer};

pub use importance::measure_importance;

/// What became of the tensors of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quantized {
    /// How many tensors of each dtype there are.
    pub dtypes: BTreeMap<DType, usize>,
    /// Bytes of the tensors.
    pub bytes: u64,
    /// The number of weights.
    pub weights: u64,
    /// What is worth a warning.
    pub warnings: Vec<String>,
}

impl Quantized {
    /// What a quantizer makes of the tensors of a checkpoint.
    pub fn of(quantizer: &Quantizer, checkpoint: &Checkpoint) -> Quantized {
        let (mut dtypes, mut bytes, mut weights) = (BTreeMap::new(), 0, 0);
        for (_, dtype, shape) in quantizer.records() {
            *dtypes.entry(dtype).or_default() += 1;
            bytes += dtype.bytes_for_shape(&shape).unwrap_or(0) as u64;
            weights += shape.elements() as u64;
        }
        let mut warnings = quantizer.warnings();
        if let [first, ..] = checkpoint.unused() {
            warnings.push(format!(
                "{} tensors that the model does not use are left out, `{first}` first",
                checkpoint.unused().len()
            ));
        }
        Quantized { dtypes, bytes, weights, warnings }
    }
}

/// Writes a checkpoint as a GGUF file to `path`, which appears whole or not at all. Tokenizer and chat template come
/// from the checkpoint or, if it is no GGUF file, from `folder`. `progress` is told how many bytes of how many are
/// done.
///
/// # Errors
/// If `path` is one of the checkpoint's own files or cannot be written; if the architecture, the tokenizer or a value
/// cannot stand in such a file; if the weights are those of an artifact; or if the mix needs the importance of columns and
/// there is none.
pub fn quantize(
    checkpoint: &Checkpoint,
    folder: &Path,
    options: &QuantizeOptions,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Quantized, Error> {
    expect_other_file(checkpoint, path)?;
    expect_quantizable(checkpoint, options)?;
    let quantizer = Quantizer::new(checkpoint, &folder.join("config.json"), options)?;
    let metadata = quantizer.metadata(&other_metadata(&quantizer, checkpoint, folder)?);
    let records = quantizer.records();
    let quantized = Quantized::of(&quantizer, checkpoint);
    let io = |error: io::Error| {
        let needs = match error.kind() {
            io::ErrorKind::StorageFull => format!(" needs {}", MemoryBytes(quantized.bytes)),
            _ => String::new(),
        };
        Error::Quantize(format!("{}{needs}: {error}", path.display()))
    };
    let mut file = GgufWriter::new(AtomicFile::create(path).map_err(io)?, &metadata, &records).map_err(io)?;
    let mut done = 0;
    for index in 0..records.len() {
        quantizer.write(index, &mut |bytes| {
            file.write_all(bytes).map_err(io)?;
            done += bytes.len() as u64;
            progress(done, quantized.bytes);
            Ok::<(), Error>(())
        })?;
    }
    checkpoint.weights().check_files().map_err(models::Error::from)?;
    file.finish().and_then(AtomicFile::commit).map_err(io)?;
    Ok(quantized)
}

fn refuse<T>(problem: String) -> Result<T, Error> {
    Err(Error::Quantize(problem))
}

/// Refuses weights without their values, and mixes that need the importance of columns if it is not known.
pub(crate) fn expect_quantizable(checkpoint: &Checkpoint, options: &QuantizeOptions) -> Result<(), Error> {
    let name = options.mix.name;
    if !checkpoint.weights().has_values() {
        let file = checkpoint.weights().files()[0].path().display();
        return refuse(format!(
            "{file} has no values that can be quantized: give the model that it was made from"
        ));
    }
    if options.mix.needs_importance() && options.importance.is_none() {
        return refuse(format!("{name} needs the importance of columns: give a text to measure it with"));
    }
    Ok(())
}

/// Refuses to write over what is read.
fn expect_other_file(checkpoint: &Checkpoint, path: &Path) -> Result<(), Error> {
    let Ok(target) = fs::canonicalize(path) else { return Ok(()) };
    let files = checkpoint.weights().files().iter();
    let is_source = files.filter_map(|file| fs::canonicalize(file.path()).ok()).any(|file| file == target);
    if is_source {
        return refuse(format!(
            "{} is read from and cannot be written to: name another file",
            path.display()
        ));
    }
    Ok(())
}

/// The metadata of the tokenizer and the pooling for a GGUF file. It is empty if the checkpoint is a GGUF file, which has
/// them already.
///
/// # Errors
/// If GGUF files have no way to say it.
pub(crate) fn other_metadata(
    quantizer: &Quantizer,
    checkpoint: &Checkpoint,
    folder: &Path,
) -> Result<Metadata, Error> {
    if checkpoint.weights().format() == Format::Gguf {
        return Ok(Metadata::new());
    }
    let mut metadata = Tokenizer::gguf_metadata(folder, checkpoint.network.vocab())?;
    if checkpoint.network.head().is_some() {
        match pair_template(checkpoint, folder)? {
            Some(template) => drop(metadata.insert(RERANK_KEY, template)),
            None if joins_alike(folder, &metadata)? => {}
            None => return refuse("GGUF files cannot say how this tokenizer joins two texts".to_string()),
        }
    }
    if let Some(activation) = unusual_activation(checkpoint, folder)? {
        metadata.insert(ACTIVATION_KEY, activation.name());
    }
    if let Some(pooling) = pooling(checkpoint, folder)? {
        metadata.insert(format!("{}.pooling_type", quantizer.architecture()), pooling);
    }
    Ok(metadata)
}

/// The chat template that joins the pairs of a folder's model, with the instruction that it has by default.
fn pair_template(checkpoint: &Checkpoint, folder: &Path) -> Result<Option<String>, Error> {
    let (files, tokenizer) = (ClassifierConfig::of_folder(folder)?, Tokenizer::from_directory(folder)?);
    let own_template = || Ok(ChatTemplate::from_directory(folder)?);
    let template = PairTemplate::of(checkpoint, &tokenizer, &files, own_template)?;
    let prompt = files.default_prompt.as_ref().and_then(|name| files.prompts.get(name));
    template.map(|template| template.with_places(&tokenizer, prompt.map(String::as_str))).transpose()
}

/// Whether the tokenizers of a folder and of GGUF metadata make the same of two texts, or both nothing.
fn joins_alike(folder: &Path, metadata: &Metadata) -> Result<bool, Error> {
    let join = |tokenizer: Tokenizer| tokenizer.pair(&[0], &[1]).ok();
    Ok(join(Tokenizer::from_directory(folder)?) == join(Tokenizer::from_gguf(metadata)?))
}

/// How the folder's classifier makes scores of logits, if it is not as files that do not say it.
fn unusual_activation(checkpoint: &Checkpoint, folder: &Path) -> Result<Option<ScoreActivation>, Error> {
    let Some(head) = checkpoint.network.head() else { return Ok(None) };
    let activation = ClassifierConfig::of_folder(folder)?.activation(head);
    Ok((activation != ClassifierConfig::default().activation(head)).then_some(activation))
}

/// How the folder's model makes one vector of hidden states, as GGUF numbers it.
fn pooling(checkpoint: &Checkpoint, folder: &Path) -> Result<Option<u32>, Error> {
    if checkpoint.network.head().is_some() {
        return Ok(Some(RANK));
    }
    let files = EmbeddingConfig::of_folder(folder)?;
    if !files.dense.is_empty() {
        return refuse("layers behind the pooling (`Dense`) are not written into GGUF files".to_string());
    }
    match files.pooling {
        None if matches!(checkpoint.network, Network::Encoder(_)) => Ok(Some(0)),
        None => Ok(None),
        Some(Pooling::Mean) => Ok(Some(1)),
        Some(Pooling::Cls) => Ok(Some(2)),
        Some(Pooling::Last) => Ok(Some(3)),
        Some(other) => refuse(format!("GGUF files cannot say that the pooling is {other:?}")),
    }
}
