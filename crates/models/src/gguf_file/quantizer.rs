//! The tensors of a checkpoint in other dtypes, made row by row: for a GGUF file, or for a model that is being loaded.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor, blocks};
use weights::{FileHeader, Metadata, Weights};

use super::{ExportTensor, GgufFile};
use crate::{Error, Mix};

/// The version of the block formats, as GGML counts them.
const QUANTIZATION_VERSION: u32 = 2;
/// Weights that [`Quantizer::write`] has in memory at once.
const PIECE: usize = 1 << 22;
/// The largest number that f16 has.
const LARGEST_F16: f32 = 65504.0;

/// How a checkpoint is quantized.
#[derive(Debug, Clone)]
pub struct QuantizeOptions {
    /// Which dtypes its tensors get.
    pub mix: &'static Mix,
    /// Whether all matrices get the same, as far as their shapes allow.
    pub pure: bool,
    /// How much columns matter, if it was measured.
    pub importance: Option<Arc<Importance>>,
}

/// The mean square of the input of each column, by the canonical names of weights: `f32[columns]` for a matrix,
/// `f32[experts · columns]` for the matrices of experts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Importance {
    /// The means.
    pub columns: BTreeMap<String, Vec<f32>>,
    /// Tokens that they were measured with.
    pub tokens: usize,
}

/// The tensors of a checkpoint as the GGUF file of a mix has them. Each is quantized when it is asked for.
#[derive(Debug)]
pub struct Quantizer {
    file: GgufFile,
    /// In the order of the tensors.
    dtypes: Vec<DType>,
    /// Where tensors are in that order, by name.
    places: HashMap<String, usize>,
    options: QuantizeOptions,
}

impl QuantizeOptions {
    /// The dtypes of a mix, chosen without the importance of columns.
    pub fn new(mix: &'static Mix) -> QuantizeOptions {
        QuantizeOptions { mix, pure: false, importance: None }
    }
}

impl Importance {
    /// The importance of the columns of a tensor by its GGUF name, which may hold several weights with one input.
    pub fn for_tensor(&self, name: &str) -> Option<&[f32]> {
        let other =
            name.replace("attn_qkv.weight", "attn_q.weight").replace("ssm_ba.weight", "ssm_beta.weight");
        self.columns.get(name).or_else(|| self.columns.get(&other)).map(Vec::as_slice)
    }
}

impl Quantizer {
    /// What becomes of the tensors of a file.
    pub(crate) fn for_file(file: GgufFile, options: &QuantizeOptions) -> Quantizer {
        let QuantizeOptions { mix, pure, importance } = options;
        let names: Vec<(&str, Shape)> =
            file.tensors.iter().map(|tensor| (&tensor.name[..], tensor.shape())).collect();
        let chosen = mix.dtypes(&file.model(importance.is_some(), *pure), &names);
        // Vectors and what else stays as it is are f32, as llama.cpp wants them; a GGUF file keeps its own.
        let tensors = || file.tensors.iter();
        let dtypes =
            tensors().zip(chosen).map(|(tensor, dtype)| dtype.unwrap_or(tensor.kept_dtype())).collect();
        let places = tensors().enumerate().map(|(index, tensor)| (tensor.name.clone(), index)).collect();
        Quantizer { file, dtypes, places, options: options.clone() }
    }

    /// The mix.
    pub fn mix(&self) -> &'static Mix {
        self.options.mix
    }

    /// Whether errors are smallest in the columns that matter most.
    pub fn has_importance(&self) -> bool {
        self.options.importance.is_some()
    }

    /// The GGUF name of the architecture.
    pub fn architecture(&self) -> &str {
        &self.file.architecture
    }

    /// Names, dtypes and shapes of the tensors: those of no layer first, then layer by layer, by name.
    pub fn records(&self) -> Vec<(String, DType, Shape)> {
        let tensors = self.file.tensors.iter().zip(&self.dtypes);
        tensors.map(|(tensor, dtype)| (tensor.name.clone(), *dtype, tensor.shape())).collect()
    }

    /// The metadata of the file, with others, such as those of a tokenizer, where llama.cpp has them: before the kind of
    /// file.
    pub fn metadata(&self, others: &Metadata) -> Metadata {
        let kind = [
            ("general.quantization_version", QUANTIZATION_VERSION),
            ("general.file_type", self.options.mix.file_type),
        ];
        let mut metadata = Metadata::new();
        let is_other = |(key, _): &(&str, _)| kind.iter().all(|(changed, _)| changed != key);
        for (key, value) in self.file.metadata.iter().filter(is_other).chain(others.iter()) {
            metadata.insert(key, value.clone());
        }
        for (key, value) in kind {
            metadata.insert(key, value);
        }
        metadata
    }

    /// What is worth a warning.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let pairs = || self.file.tensors.iter().zip(&self.dtypes);
        let again = pairs().filter(|(tensor, dtype)| tensor.dtype().is_block() && tensor.dtype() != **dtype);
        match again.count() {
            0 => {}
            count => warnings.push(format!(
                "{count} tensors were quantized before: quantizing them again adds to their errors; take the original"
            )),
        }
        let block = self.options.mix.dtype.block().elements;
        let unfit = pairs().filter(|(tensor, dtype)| {
            let shape = tensor.shape();
            let columns = shape.last().copied().unwrap_or(0);
            shape.rank() > 1 && **dtype != DType::F32 && !columns.is_multiple_of(block)
        });
        match unfit.count() {
            0 => {}
            count => warnings.push(format!(
                "the rows of {count} tensors are not in blocks of {block}: they have the nearest dtype that fits"
            )),
        }
        warnings
    }

    /// Gives the bytes of a tensor, by its place among the records, piece by piece.
    ///
    /// # Errors
    /// If a value has no place in the dtype, such as NaN; and those of `give`.
    pub fn write<E: From<Error>>(
        &self,
        index: usize,
        give: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (tensor, dtype) = (&self.file.tensors[index], self.dtypes[index]);
        if let Some(stored) = tensor.stored().filter(|stored| stored.dtype() == dtype) {
            return stored.bytes().chunks(PIECE).try_for_each(give);
        }
        let rows_at_once = (PIECE / tensor.columns().max(1)).max(1);
        let row_bytes = self.row_bytes(index);
        let mut bytes = vec![0; rows_at_once.min(tensor.rows()) * row_bytes];
        for start in (0..tensor.rows()).step_by(rows_at_once) {
            let piece = &mut bytes[..rows_at_once.min(tensor.rows() - start) * row_bytes];
            self.quantize(index, start, piece)?;
            give(piece)?;
        }
        Ok(())
    }

    /// A tensor, or those places of its first axis that are asked for.
    ///
    /// # Errors
    /// If a value has no place in the dtype, such as NaN; or if there is not enough memory.
    pub(crate) fn tensor(&self, name: &str, range: Option<&Range<usize>>) -> Result<Option<Tensor>, Error> {
        let Some(&index) = self.places.get(name) else { return Ok(None) };
        let (tensor, dtype) = (&self.file.tensors[index], self.dtypes[index]);
        let mut dims = tensor.shape().to_vec();
        let range = range.cloned().unwrap_or(0..dims[0]);
        if let Some(stored) = tensor.stored().filter(|stored| stored.dtype() == dtype) {
            return Ok(Some(stored.reshape(tensor.shape()).narrow(0, range)));
        }
        let rows = tensor.rows().checked_div(dims[0]).unwrap_or(0);
        dims[0] = range.len();
        let shape = Shape::new(&dims);
        let size = dtype.bytes_for_shape(&shape).expect("rows in whole blocks");
        let mut bytes = AlignedBytes::try_zeroed(size)?;
        self.quantize(index, range.start * rows, &mut bytes)?;
        Ok(Some(Tensor::from_bytes(dtype, shape, Bytes::new(bytes))?))
    }

    /// What the files of the checkpoint call the tensors that one is made of.
    pub(crate) fn files(&self, name: &str) -> &[String] {
        self.places.get(name).map_or(&[], |&index| &self.file.tensors[index].files)
    }

    /// The file that would hold the tensors of a checkpoint with these weights, without the values of matrices. The source
    /// of the checkpoint is for messages.
    ///
    /// # Errors
    /// If there is not enough memory for it, or a GGUF file cannot hold a tensor.
    pub(crate) fn header(&self, weights: &Weights, source: &str) -> Result<Weights, Error> {
        let mut tensors = Vec::new();
        for ((name, dtype, shape), tensor) in self.records().into_iter().zip(&self.file.tensors) {
            let is_at_hand = tensor.files.iter().all(|name| weights.has_value(name));
            let values = if shape.rank() < 2 && is_at_hand { self.tensor(&name, None)? } else { None };
            tensors.push((name, dtype, shape, values));
        }
        let name = format!("{source}.{}.gguf", self.options.mix.name);
        let header = FileHeader::from_gguf(name, &self.metadata(&Metadata::new()), tensors)
            .map_err(|error| Error::config(source, error.to_string()))?;
        Ok(Weights::from_files(vec![header.into_file()?])?)
    }

    fn row_bytes(&self, index: usize) -> usize {
        let columns = self.file.tensors[index].columns();
        self.dtypes[index].bytes_for(columns).expect("rows in whole blocks")
    }

    /// Quantizes rows of a tensor from `start` on, as many as fill `bytes`, on all cores.
    fn quantize(&self, index: usize, start: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let (tensor, dtype) = (&self.file.tensors[index], self.dtypes[index]);
        let (rows, columns) = (tensor.rows(), tensor.columns());
        let importance =
            self.options.importance.as_ref().and_then(|importance| importance.for_tensor(&tensor.name));
        let importance = importance.map(|importance| tensor.in_column_order(importance));
        // Experts lie one behind the other, each with the importance of its own columns.
        let rows_each =
            importance.as_ref().map_or(rows, |importance| rows * columns / importance.len().max(1));
        let pieces = bytes.par_chunks_mut(self.row_bytes(index).max(1)).enumerate();
        pieces.try_for_each(|(index, bytes)| {
            let row = start + index;
            let importance =
                importance.as_ref().map(|importance| &importance[row / rows_each * columns..][..columns]);
            quantize_row(&tensor.row(row), dtype, importance, bytes)
                .map_err(|problem| row_refusal(tensor, row, &problem))
        })
    }
}

fn row_refusal(tensor: &ExportTensor, row: usize, problem: &str) -> Error {
    Error::Weight { name: tensor.name.clone(), message: format!("row {row} {problem}") }
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
            let is_finite = |block: &[u8]| format.scales.iter().all(|scale| scale.is_finite(block));
            bytes.chunks_exact(dtype.block().bytes).all(is_finite)
        }
    };
    if fits { Ok(()) } else { Err(format!("holds {largest}, too large for {dtype}: take bf16 or f32")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_a_dtype_are_refused() {
        let refused = |value: f32, dtype: DType| {
            let mut row = vec![0; dtype.bytes_for(32).unwrap()];
            quantize_row(&[value; 32], dtype, None, &mut row).unwrap_err()
        };
        assert_eq!(refused(f32::NAN, DType::Q4_0), "holds NaN, expected finite numbers");
        assert!(refused(1e38, DType::Q8_0).ends_with("too large for q8_0: take bf16 or f32"));
        assert!(refused(70_000.0, DType::F16).starts_with("holds 70000, too large for f16"));
    }
}
