//! A checkpoint becomes a GGUF file of other dtypes, tensor by tensor: never more than a few rows of it are in memory.

mod importance;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use engine::AtomicFile;
use models::{Checkpoint, Export, ExportTensor, Mix, Network};
use rayon::prelude::*;
use tensor::{DType, Shape, blocks};
use weights::{Format, GgufWriter, Metadata};

use crate::sentence_transformers::EmbeddingConfig;
use crate::{Error, Pooling, Tokenizer};

pub use importance::Importance;

/// The version of the block formats, as GGML counts them.
const QUANTIZATION_VERSION: u32 = 2;
/// Weights that are in memory at once.
const PIECE: usize = 1 << 22;
/// The largest number that f16 has.
const LARGEST_F16: f32 = 65504.0;

/// How a checkpoint is quantized.
#[derive(Debug, Clone, Copy)]
pub struct QuantizeOptions<'a> {
    /// Which dtypes its tensors get.
    pub mix: &'static Mix,
    /// Whether all matrices get the same, as far as their shapes allow.
    pub pure: bool,
    /// How much columns matter, where it was measured.
    pub importance: Option<&'a Importance>,
}

/// The tensors that quantizing wrote.
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

/// Writes a checkpoint as a GGUF file to `path`, which appears whole or not at all. Tokenizer and chat template come
/// from the checkpoint or, if it is no GGUF file, from `folder`. `progress` is told how many bytes of how many are
/// done.
///
/// # Errors
/// If `path` is one of the checkpoint's own files or cannot be written; if the architecture, the tokenizer or a value
/// cannot stand in such a file; or if the mix needs the importance of columns and there is none.
pub fn quantize(
    checkpoint: &Checkpoint,
    folder: &Path,
    options: &QuantizeOptions<'_>,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Quantized, Error> {
    expect_other_file(checkpoint, path)?;
    let QuantizeOptions { mix, pure, importance } = *options;
    if mix.name == "q2_k_s" && importance.is_none() {
        return refuse("q2_k_s needs the importance of columns: give a text to measure it with".to_string());
    }
    let export = Export::new(checkpoint, &folder.join("config.json"))?;
    let names: Vec<(&str, Shape)> =
        export.tensors.iter().map(|tensor| (&tensor.name[..], tensor.shape())).collect();
    let dtypes = mix.dtypes(&export.model(importance.is_some(), pure), &names);
    let records = export.records(&dtypes);
    let metadata = metadata(checkpoint, folder, &export, mix)?;
    let size = |(_, dtype, shape): &(String, DType, Shape)| dtype.bytes_for_shape(shape).unwrap_or(0) as u64;
    let total: u64 = records.iter().map(size).sum();
    let io = |error: io::Error| Error::Quantize(format!("{}: {error}", path.display()));
    let mut file = GgufWriter::new(AtomicFile::create(path).map_err(io)?, &metadata, &records).map_err(io)?;
    let mut done = 0;
    for (tensor, record) in export.tensors.iter().zip(&records) {
        let importance = importance.and_then(|importance| importance.of(&tensor.name));
        write(tensor, record.1, importance, &mut |bytes| {
            file.write_all(bytes).map_err(io)?;
            done += bytes.len() as u64;
            progress(done, total);
            Ok(())
        })?;
    }
    file.finish().and_then(AtomicFile::commit).map_err(io)?;
    let mut counts = BTreeMap::new();
    records.iter().for_each(|(_, dtype, _)| *counts.entry(*dtype).or_default() += 1);
    let weights = records.iter().map(|(_, _, shape)| shape.elements() as u64).sum();
    let warnings = warnings(checkpoint, &export, &records, mix);
    Ok(Quantized { dtypes: counts, bytes: total, weights, warnings })
}

fn refuse<T>(problem: String) -> Result<T, Error> {
    Err(Error::Quantize(problem))
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

/// What the file says of the model, as llama.cpp orders it: the kind of file comes last.
fn metadata(checkpoint: &Checkpoint, folder: &Path, export: &Export, mix: &Mix) -> Result<Metadata, Error> {
    let changed = ["general.quantization_version", "general.file_type"];
    let mut metadata = Metadata::new();
    for (key, value) in export.metadata.iter().filter(|(key, _)| !changed.contains(key)) {
        metadata.insert(key, value.clone());
    }
    if checkpoint.weights().format() != Format::Gguf {
        for (key, value) in Tokenizer::gguf_metadata(folder, checkpoint.network.vocab())?.iter() {
            metadata.insert(key, value.clone());
        }
        if let Some(pooling) = pooling(checkpoint, folder)? {
            metadata.insert(format!("{}.pooling_type", export.architecture), pooling);
        }
    }
    metadata.insert(changed[0], QUANTIZATION_VERSION);
    metadata.insert(changed[1], mix.file_type);
    Ok(metadata)
}

/// How the folder's model makes one vector of hidden states, as GGUF numbers it.
fn pooling(checkpoint: &Checkpoint, folder: &Path) -> Result<Option<u32>, Error> {
    match EmbeddingConfig::of_folder(folder)?.pooling {
        None if matches!(checkpoint.network, Network::Encoder(_)) => Ok(Some(0)),
        None => Ok(None),
        Some(Pooling::Mean) => Ok(Some(1)),
        Some(Pooling::Cls) => Ok(Some(2)),
        Some(Pooling::Last) => Ok(Some(3)),
        Some(other) => refuse(format!("GGUF files cannot say that the pooling is {other:?}")),
    }
}

fn warnings(
    checkpoint: &Checkpoint,
    export: &Export,
    records: &[(String, DType, Shape)],
    mix: &Mix,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let pairs = || export.tensors.iter().zip(records);
    let again =
        pairs().filter(|(tensor, (_, dtype, _))| tensor.dtype().is_block() && tensor.dtype() != *dtype);
    match again.count() {
        0 => {}
        count => warnings.push(format!(
            "{count} tensors were quantized before: quantizing them again adds to their errors; take the original"
        )),
    }
    let block = mix.dtype.block().elements;
    let unfit = |(_, (_, dtype, shape)): &(&ExportTensor, &(String, DType, Shape))| {
        let columns = shape.last().copied().unwrap_or(0);
        shape.rank() > 1 && *dtype != DType::F32 && !columns.is_multiple_of(block)
    };
    match pairs().filter(unfit).count() {
        0 => {}
        count => warnings.push(format!(
            "the rows of {count} tensors are not in blocks of {block}: they have the nearest dtype that fits"
        )),
    }
    match checkpoint.unused() {
        [] => {}
        [first, ..] => warnings.push(format!(
            "{} tensors that the model does not use are left out, `{first}` first",
            checkpoint.unused().len()
        )),
    }
    warnings
}

/// Gives the bytes of a tensor as `dtype`, piece by piece.
fn write(
    tensor: &ExportTensor,
    dtype: DType,
    importance: Option<&[f32]>,
    give: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (rows, columns) = (tensor.rows(), tensor.columns());
    if tensor.dtype() == dtype
        && let Some(stored) = tensor.stored()
    {
        return stored.bytes().chunks(PIECE).try_for_each(give);
    }
    let row_bytes = dtype.bytes_for(columns).expect("rows in whole blocks");
    // Experts lie one behind the other, each with the importance of its own columns.
    let rows_each = importance.map_or(rows, |importance| rows * columns / importance.len().max(1));
    let rows_at_once = (PIECE / columns.max(1)).max(1);
    let mut bytes = vec![0; rows_at_once.min(rows) * row_bytes];
    for start in (0..rows).step_by(rows_at_once) {
        let piece = &mut bytes[..rows_at_once.min(rows - start) * row_bytes];
        piece.par_chunks_mut(row_bytes).enumerate().try_for_each(|(index, bytes)| {
            let row = start + index;
            let importance = importance.map(|importance| &importance[row / rows_each * columns..][..columns]);
            quantize_row(&tensor.row(row), dtype, importance, bytes)
                .map_err(|problem| Error::Quantize(format!("tensor `{}`, row {row}: {problem}", tensor.name)))
        })?;
        give(piece)?;
    }
    Ok(())
}

/// Quantizes a row, if its values and what becomes of them are finite.
fn quantize_row(
    values: &[f32],
    dtype: DType,
    importance: Option<&[f32]>,
    bytes: &mut [u8],
) -> Result<(), String> {
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return Err(format!("holds {value}, expected finite numbers"));
    }
    let largest = values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    blocks::quantize_row(dtype, values, importance, bytes);
    let fits = match blocks::format(dtype) {
        None => dtype != DType::F16 || largest <= LARGEST_F16,
        Some(format) => {
            let scale = |block: &[u8], at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
            // An exponent of ones: infinite.
            let is_finite =
                |block: &[u8]| format.halves.iter().all(|&at| scale(block, at) & 0x7c00 != 0x7c00);
            bytes.chunks_exact(dtype.block().bytes).all(is_finite)
        }
    };
    if fits { Ok(()) } else { Err(format!("{largest} is too large for {dtype}: take bf16 or f32")) }
}
