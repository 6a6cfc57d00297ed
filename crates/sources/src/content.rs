//! The encoding of files of weights, read from what is in them.

use std::path::Path;

use tensor::{DType, Tensor};
use weights::{Format, QuantizationConfig, Weights};

use crate::companions::CONFIG;
use crate::{Error, SupportedEncoding};

/// The largest `config.json` that is looked at.
pub(crate) const MAX_CONFIG: u64 = 1 << 20;

/// The encoding of a model's files, from their tensors and metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The encoding of the model.
    pub encoding: Option<SupportedEncoding>,
    /// What GGUF metadata declare. It is that of the model, unless no tensor has it: rows that are no multiple of
    /// 256 cannot have K-quants, and whole models may have fallen back to another encoding. Or that of matrices that
    /// are repacked, however many there are.
    declared: Option<SupportedEncoding>,
    /// Whether these are GGUF files.
    gguf: bool,
    /// The dtype of most elements of matrices.
    most: Option<DType>,
    /// Why the `config.json` next to the files says that they cannot be run, if it does.
    refused: Option<String>,
}

impl Content {
    /// Opens a model in a file, or in several that belong together, and looks at its tensors.
    ///
    /// # Errors
    /// If the files are damaged, or hold what is not read.
    pub fn open(files: &[impl AsRef<Path>]) -> Result<Content, Error> {
        let mut opened = Vec::with_capacity(files.len());
        for file in files {
            opened.push(Weights::open(file.as_ref())?);
            if opened[0].format() == Format::Gguf {
                // Of a split set, any file has opened them all.
                break;
            }
        }
        Ok(Content::from_weights(&opened, files))
    }

    /// As [`Content::open`], of weights that are open, and of files that may have a `config.json` next to them.
    pub fn from_weights<'w>(
        models: impl IntoIterator<Item = &'w Weights>,
        files: &[impl AsRef<Path>],
    ) -> Content {
        let mut elements: Vec<(DType, u64)> = Vec::new();
        let (mut declared, mut gguf) = (None, false);
        for weights in models {
            count(weights, &mut elements);
            declared = declared.or_else(|| declared_in(weights));
            gguf = weights.format() == Format::Gguf;
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
        let refused = if encoding.is_none() { refused_beside(files) } else { None };
        Content { encoding, declared, gguf, most, refused }
    }

    /// Why the encoding is not supported, if it is not.
    pub fn problem(&self) -> Option<String> {
        let problem = match (self.encoding, self.most) {
            (Some(_), _) => return None,
            (None, Some(dtype)) => {
                format!("most of its matrices are {dtype}, which is not a supported encoding")
            }
            (None, None) => "the file has no tensors".to_string(),
        };
        Some(self.refused.clone().unwrap_or(problem))
    }

    /// The encoding of a file, whose name must not promise another one; and a warning if the name is that of a mixture
    /// whose makers name it after what a part of it is (`UD-Q4_K_XL`, `Q4_K_L`).
    ///
    /// # Errors
    /// If it does, or the encoding is not supported.
    pub fn encoding_of_file(&self, file: &str) -> Result<(SupportedEncoding, Option<String>), Error> {
        let Some(content) = self.encoding else {
            let problem = self.problem().unwrap_or_default();
            return Err(Error::UnknownEncoding { file: file.to_string(), problem });
        };
        let fits = |name| {
            name == content
                || self.declared == Some(name)
                || self.most.and_then(SupportedEncoding::from_dtype) == Some(name)
        };
        let stated = SupportedEncoding::stated_in(file);
        match SupportedEncoding::parse_from_file_name(file) {
            // What a GGUF file was made from, perhaps.
            Some(SupportedEncoding::Gptq) if self.gguf => Ok((content, None)),
            Some(name) if stated.contains(&name) && !stated.iter().any(|&name| fits(name)) => {
                if content.is_gguf() && SupportedEncoding::names_mixture(file) {
                    let warning =
                        format!("{file}: most of its matrices are {content}, though its name says {name}");
                    return Ok((content, Some(warning)));
                }
                Err(Error::Contradiction { file: file.to_string(), name, content })
            }
            _ => Ok((content, None)),
        }
    }
}

impl SupportedEncoding {
    /// The encoding of a file of weights on this machine, read from its tensors.
    ///
    /// # Errors
    /// If the file cannot be read, its encoding is none that runs, or its name promises another one.
    pub fn from_file(path: impl AsRef<Path>) -> Result<SupportedEncoding, Error> {
        let path = path.as_ref();
        Ok(Content::open(&[path])?.encoding_of_file(&path.to_string_lossy())?.0)
    }
}

/// Adds the elements of matrices to the sums of their dtypes; of all tensors, where there is no matrix.
fn count(weights: &Weights, elements: &mut Vec<(DType, u64)>) {
    let matrices = weights.tensors().any(|(_, tensor)| tensor.shape().len() > 1);
    for (name, tensor) in weights.tensors().filter(|(_, tensor)| !matrices || tensor.shape().len() > 1) {
        let (dtype, each) = stored_as(weights, name, tensor).unwrap_or((tensor.dtype(), 1));
        let more = (tensor.elements() as u64).saturating_mul(each);
        match elements.iter_mut().find(|sum| sum.0 == dtype) {
            Some(sum) => sum.1 = sum.1.saturating_add(more),
            None => elements.push((dtype, more)),
        }
    }
}

/// What a tensor of codes is repacked into, whose scales are in other tensors, and how many codes an element has.
fn stored_as(weights: &Weights, name: &str, tensor: &Tensor) -> Option<(DType, u64)> {
    let has = |stem: &str, leaf: &str| weights.get(&format!("{stem}{leaf}")).is_some();
    let suffix = |suffix: &str| name.strip_suffix(suffix);
    match tensor.dtype() {
        DType::GgmlNvfp4 => Some((DType::Nvfp4, 1)),
        DType::I32 => match (suffix(".qweight"), suffix(".weight_packed")) {
            (Some(stem), _) => words_encoding(weights, stem, tensor),
            (None, Some(stem)) => has(stem, ".weight_scale").then_some((DType::Gptq, 8)),
            _ => None,
        },
        DType::U8 => {
            let of_weight = |stem: &str| {
                if has(stem, ".weight_scale_2") {
                    return Some((DType::Nvfp4, 2));
                }
                let is_fp4 = has(stem, ".weight.quant_state.bitsandbytes__fp4");
                has(stem, ".weight.absmax").then_some((if is_fp4 { DType::Fp4 } else { DType::Nf4 }, 2))
            };
            let of_packed = |stem: &str| {
                if has(stem, ".weight_global_scale") {
                    return Some((DType::Nvfp4, 2));
                }
                has(stem, ".weight_scale").then_some((DType::Mxfp4, 2))
            };
            let of_blocks = |stem: &str| has(stem, "_scales").then_some((DType::Mxfp4, 2));
            let packed = suffix(".weight_packed").and_then(of_packed);
            packed.or_else(|| of_blocks(suffix("_blocks")?)).or_else(|| of_weight(suffix(".weight")?))
        }
        DType::I8 => {
            let stem = suffix(".weight")?;
            (has(stem, ".SCB") || has(stem, ".weight_scale")).then_some((DType::Gptq8, 1))
        }
        DType::F8E4M3 => {
            let is_scale = name.ends_with("_scale");
            (tensor.shape().len() > 1 && !is_scale).then_some((DType::Fp8, 1))
        }
        _ => None,
    }
}

/// The codes of a layer that GPTQ or AWQ quantized: the former has as many rows as scales have, the latter an eighth.
fn words_encoding(weights: &Weights, stem: &str, tensor: &Tensor) -> Option<(DType, u64)> {
    let scales = weights.get(&format!("{stem}.scales"))?;
    let ([_, words], [_, rows]) = (&tensor.shape()[..], &scales.shape()[..]) else { return None };
    let zeros = weights.get(&format!("{stem}.qzeros")).and_then(|zeros| zeros.shape().last().copied());
    // Zero points of 8 bits lie four to a word.
    if zeros.is_some_and(|zeros| zeros.checked_mul(4) == Some(*rows)) {
        return Some((DType::Gptq8, 4));
    }
    (words == rows || words.checked_mul(8) == Some(*rows)).then_some((DType::Gptq, 8))
}

/// Why files cannot be run, according to the `config.json` next to them.
fn refused_beside(files: &[impl AsRef<Path>]) -> Option<String> {
    let path = files.first()?.as_ref().with_file_name(CONFIG);
    if path.metadata().ok()?.len() > MAX_CONFIG {
        return None;
    }
    let json = std::fs::read_to_string(&path).ok()?;
    QuantizationConfig::from_hugging_face(CONFIG, &json).err().map(|error| error.to_string())
}

/// The encoding that GGUF metadata declare: `general.file_type`, numbered as llama.cpp's `llama_ftype`. Or that of what is repacked,
/// of which one matrix is enough.
fn declared_in(weights: &Weights) -> Option<SupportedEncoding> {
    let repacked = weights.tensors().find_map(|(name, tensor)| stored_as(weights, name, tensor));
    if let Some((dtype, _)) = repacked {
        return SupportedEncoding::from_dtype(dtype);
    }
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
        19 => SupportedEncoding::Iq2Xxs,
        20 => SupportedEncoding::Iq2Xs,
        22 | 26 => SupportedEncoding::Iq3S,
        23 => SupportedEncoding::Iq3Xxs,
        24 => SupportedEncoding::Iq1S,
        27 => SupportedEncoding::Iq3S,
        28 | 29 => SupportedEncoding::Iq2S,
        31 => SupportedEncoding::Iq1M,
        36 => SupportedEncoding::Tq1_0,
        37 => SupportedEncoding::Tq2_0,
        38 => SupportedEncoding::Mxfp4,
        39 => SupportedEncoding::Nvfp4,
        _ => return None,
    })
}
