//! A checkpoint becomes a GGUF file of other dtypes, tensor by tensor: never more than a few rows of it are in memory.

mod importance;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use engine::AtomicFile;
use models::{Checkpoint, QuantizeOptions, Quantizer};
use tensor::DType;
use weights::GgufWriter;

use crate::plan::model_files::gguf::{expect_quantizable, other_metadata};
use crate::{Error, MemoryBytes};

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
    pub fn from_quantizer(quantizer: &Quantizer, checkpoint: &Checkpoint) -> Quantized {
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
    let quantized = Quantized::from_quantizer(&quantizer, checkpoint);
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

/// Refuses to write over what is read.
fn expect_other_file(checkpoint: &Checkpoint, path: &Path) -> Result<(), Error> {
    let Ok(target) = fs::canonicalize(path) else { return Ok(()) };
    let files = checkpoint.weights().files().iter();
    let is_source = files.filter_map(|file| fs::canonicalize(file.path()).ok()).any(|file| file == target);
    if is_source {
        return Err(Error::Quantize(format!(
            "{} is read from and cannot be written to: name another file",
            path.display()
        )));
    }
    Ok(())
}
