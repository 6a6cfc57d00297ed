//! The encoding of files of weights, read from what is in them.

use std::path::Path;

use tensor::DType;
use weights::Weights;

use super::SupportedEncoding;
use crate::hub::HubError;

/// What the files of one model say of their encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    /// The encoding of the model.
    pub(crate) encoding: Option<SupportedEncoding>,
    /// What GGUF metadata declare. It is that of the model, unless no tensor has it: rows that are no multiple of
    /// 256 cannot have K-quants, and whole models may have fallen back to another encoding.
    declared: Option<SupportedEncoding>,
    /// The dtype of most elements of matrices.
    most: Option<DType>,
}

impl Content {
    /// Opens a model in a file, or in several that belong together, and looks at its tensors.
    ///
    /// # Errors
    /// If the files are damaged, or hold what is not read.
    pub(crate) fn of(files: &[impl AsRef<Path>]) -> Result<Content, HubError> {
        let mut opened = Vec::with_capacity(files.len());
        for file in files {
            opened.push(Weights::open(file.as_ref())?);
            if opened[0].format() == weights::Format::Gguf {
                // Of a split set, any file has opened them all.
                break;
            }
        }
        Ok(Content::of_weights(&opened))
    }

    /// As [`Content::of`], of weights that are open.
    pub(crate) fn of_weights<'w>(models: impl IntoIterator<Item = &'w Weights>) -> Content {
        let mut elements: Vec<(DType, u64)> = Vec::new();
        let mut declared = None;
        for weights in models {
            count(weights, &mut elements);
            declared = declared.or_else(|| declared_in(weights));
        }
        // The first of those that are equally many, in the order of the file: never by chance.
        let mut most: Option<(DType, u64)> = None;
        for &(dtype, elements) in &elements {
            if most.is_none_or(|(_, best)| elements > best) {
                most = Some((dtype, elements));
            }
        }
        let most = most.map(|(dtype, _)| dtype);
        let is_there = |encoding: &SupportedEncoding| {
            elements.iter().any(|&(dtype, _)| dtype == encoding.stored_dtype())
        };
        let encoding = declared.filter(is_there).or_else(|| SupportedEncoding::from_dtype(most?));
        Content { encoding, declared, most }
    }

    /// The encoding of a file, whose name must not promise another one.
    ///
    /// # Errors
    /// If it does, or the encoding is none that runs.
    pub(crate) fn of_file_named(self, file: &str) -> Result<SupportedEncoding, HubError> {
        let Some(content) = self.encoding else {
            let problem = match self.most {
                Some(dtype) => format!("most of its matrices are {dtype}, which is no encoding that runs"),
                None => "it holds no tensors".to_string(),
            };
            return Err(HubError::UnknownEncoding { file: file.to_string(), problem });
        };
        let fits = |name| {
            name == content
                || self.declared == Some(name)
                || self.most.and_then(SupportedEncoding::from_dtype) == Some(name)
        };
        match SupportedEncoding::parse_from_file_name(file) {
            Some(name) if !fits(name) => {
                Err(HubError::Contradiction { file: file.to_string(), name, content })
            }
            _ => Ok(content),
        }
    }
}

/// Adds the elements of matrices to the sums of their dtypes; of all tensors, where there is no matrix.
fn count(weights: &Weights, elements: &mut Vec<(DType, u64)>) {
    let matrices = weights.tensors().any(|(_, tensor)| tensor.shape().len() > 1);
    for (_, tensor) in weights.tensors().filter(|(_, tensor)| !matrices || tensor.shape().len() > 1) {
        let (dtype, more) = (tensor.dtype(), tensor.elements() as u64);
        match elements.iter_mut().find(|sum| sum.0 == dtype) {
            Some(sum) => sum.1 = sum.1.saturating_add(more),
            None => elements.push((dtype, more)),
        }
    }
}

/// The encoding that GGUF metadata declare: `general.file_type`, numbered as llama.cpp's `llama_ftype`.
fn declared_in(weights: &Weights) -> Option<SupportedEncoding> {
    let file_type = weights.metadata().optional::<u32>("general.file_type").ok().flatten()?;
    Some(match file_type {
        0 => SupportedEncoding::Float32,
        1 => SupportedEncoding::Float16,
        2 => SupportedEncoding::Q4_0,
        3 => SupportedEncoding::Q4_1,
        7 => SupportedEncoding::Q8_0,
        8 => SupportedEncoding::Q5_0,
        9 => SupportedEncoding::Q5_1,
        10 | 21 => SupportedEncoding::Q2K,
        11..=13 => SupportedEncoding::Q3K,
        14 | 15 => SupportedEncoding::Q4K,
        16 | 17 => SupportedEncoding::Q5K,
        18 => SupportedEncoding::Q6K,
        25 => SupportedEncoding::Iq4Nl,
        30 => SupportedEncoding::Iq4Xs,
        32 => SupportedEncoding::Bfloat16,
        _ => return None,
    })
}
