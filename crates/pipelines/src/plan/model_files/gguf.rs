//! The tokenizer and the pooling of a model, as the metadata of the GGUF file that it is quantized to.

use std::path::Path;

use models::{Checkpoint, QuantizeOptions, Quantizer};
use text::{ChatTemplate, Tokenizer};
use weights::{Format, Metadata};

use crate::Error;
use crate::activation::ScoreActivation;
use crate::plan::model_files::classifier::{ACTIVATION_KEY, ClassifierConfig};
use crate::plan::model_files::pair_template::{PairTemplate, RERANK_KEY};
use crate::plan::model_files::sentence_transformers::{EmbeddingConfig, RANK};
use crate::pooling::Pooling;

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
    let mut metadata = Tokenizer::gguf_metadata(folder, checkpoint.model.vocab)?;
    if checkpoint.model.head.is_some() {
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
    let (files, tokenizer) = (ClassifierConfig::from_folder(folder)?, Tokenizer::from_directory(folder)?);
    let own_template = || Ok(ChatTemplate::from_directory(folder)?);
    let template = PairTemplate::for_model(checkpoint, &tokenizer, &files, own_template)?;
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
    let Some(head) = &checkpoint.model.head else { return Ok(None) };
    let activation = ClassifierConfig::from_folder(folder)?.activation(head);
    Ok((activation != ClassifierConfig::default().activation(head)).then_some(activation))
}

/// How the folder's model makes one vector of hidden states, as GGUF numbers it.
fn pooling(checkpoint: &Checkpoint, folder: &Path) -> Result<Option<u32>, Error> {
    if checkpoint.model.head.is_some() {
        return Ok(Some(RANK));
    }
    let files = EmbeddingConfig::from_folder(folder)?;
    if !files.dense.is_empty() {
        return refuse("layers behind the pooling (`Dense`) are not written into GGUF files".to_string());
    }
    match files.pooling {
        None if !checkpoint.model.runs_in_steps() => Ok(Some(0)),
        None => Ok(None),
        Some(Pooling::Mean) => Ok(Some(1)),
        Some(Pooling::Cls) => Ok(Some(2)),
        Some(Pooling::Last) => Ok(Some(3)),
        Some(other) => refuse(format!("GGUF files cannot say that the pooling is {other:?}")),
    }
}

fn refuse<T>(problem: String) -> Result<T, Error> {
    Err(Error::Quantize(problem))
}
