//! A model as it rests on disk, opened: configuration, architecture, weights under canonical names.

mod check;
mod config_json;
mod contents;
mod description;
mod gguf;
mod gptq;
#[cfg(all(test, target_os = "linux"))]
mod out_of_memory;
mod repacked;
mod schemes;
#[cfg(test)]
pub(crate) mod testing;
mod unused;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph::ops::RopeStyle;
use tensor::{DType, Shape, Tensor};
use weights::{Format, Weights};

use self::contents::Contents;
use self::description::Description;
pub(crate) use self::description::{Family, YES_AND_NO};
use crate::architectures::known_name;
use crate::names::CanonicalNames;
use crate::stored::repacked::Repacked;
use crate::stored::{Names, Stored, TensorReader, is_plain};
use crate::{Config, Decoder, Encoder, Error, Model, Output, Quantizer, WeightTypes};

/// What of a checkpoint its user decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Which dims of queries and keys form a pair in GGUF files, if not those that the architecture says. Other files
    /// leave no choice.
    pub gguf_rope: Option<RopeStyle>,
    /// The longest sequence that will be run, if it is known. It matters to models that turn positions otherwise in
    /// sequences beyond their original context (LongRoPE): they are made for longer ones only if this is longer.
    pub max_length: Option<usize>,
    /// The Hugging Face name of the architecture, if not the one that the files name.
    pub architecture: Option<&'static str>,
    /// What matrices of plain numbers are cast to as they are read, if not what the files store: f32, bf16 or f16.
    /// Quantized ones stay as they are.
    pub dtype: Option<DType>,
    /// The tokens whose logits score a text, of a decoder whose files say so outside of its configuration.
    pub score_tokens: Option<ScoreTokens>,
    /// Replaces the text of `config.json`. GGUF files ignore it: their metadata is their configuration.
    pub config_json: Option<Arc<str>>,
}

impl CheckpointOptions {
    /// What to call a Hugging Face configuration in messages, and its text.
    pub(crate) fn config_json(&self, file: &Path) -> Result<(String, String), Error> {
        if let Some(given) = &self.config_json {
            return Ok(("the given configuration".to_string(), given.to_string()));
        }
        let source = file.display().to_string();
        let json = read_text(file)
            .map_err(|error| Error::config(&source, format!("the model's configuration: {error}")))?;
        Ok((source, json))
    }
}

/// The tokens that a decoder scores texts by: a score is the logit of one after the text, less that of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoreTokens {
    /// The token of high scores, such as `yes`.
    pub high: u32,
    /// The token of low scores, such as `no`; without it, scores are logits.
    pub low: Option<u32>,
}

/// A checkpoint of a supported architecture, with weights that fit its configuration.
#[derive(Debug)]
pub struct Checkpoint {
    /// What it says of itself.
    pub config: Config,
    /// The model.
    pub model: Arc<Model>,
    weights: Arc<Weights>,
    /// By canonical name.
    names: HashMap<String, Stored>,
    /// What files call weights.
    in_files: CanonicalNames,
    options: CheckpointOptions,
    quantization: Option<Quantization>,
    /// Vectors that are not stored as the graph takes them, converted.
    vectors: HashMap<String, Tensor>,
    /// Tensors of the files that no graph of the model takes.
    unused: Vec<String>,
}

/// How the tensors of a checkpoint are quantized as they are read.
#[derive(Debug)]
struct Quantization {
    quantizer: Quantizer,
    /// The GGUF file that would hold them, without the values of matrices.
    header: Weights,
    /// The last tensor that was made, by its canonical name: an embedding that is the output too is read twice in a row.
    last: Mutex<Option<(String, Tensor)>>,
}

impl Checkpoint {
    /// Opens a model: a GGUF file, or a folder (or weights file in a folder) with a Hugging Face `config.json`.
    /// `weights` names another place for the weights than `model`.
    ///
    /// # Errors
    /// If the files cannot be read, the architecture is unknown, or the weights do not fit the configuration.
    pub fn open(model: &Path, weights: Option<&Path>) -> Result<Checkpoint, Error> {
        Checkpoint::open_with(model, weights, CheckpointOptions::default())
    }

    /// As [`Checkpoint::open`], with options.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_with(
        model: &Path,
        weights: Option<&Path>,
        options: CheckpointOptions,
    ) -> Result<Checkpoint, Error> {
        let weights = Weights::open(weights.unwrap_or(model))?;
        Checkpoint::from_weights(weights, &config_path(model), options)
    }

    /// A model of weights that are open already; `config_json` is read unless the weights are GGUF, which carry
    /// their configuration.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_weights(
        weights: Weights,
        config_json: &Path,
        options: CheckpointOptions,
    ) -> Result<Checkpoint, Error> {
        if let Some(dtype) = options.dtype.filter(|dtype| !is_plain(*dtype)) {
            let message = format!("weights cannot be cast to {dtype}, expected f32, bf16 or f16");
            return Err(Error::config(&config_json.display().to_string(), message));
        }
        let weights = Arc::new(weights);
        Checkpoint::gather((&*weights).into(), Arc::clone(&weights), config_json, options)
    }

    /// The same model with tensors that a quantizer makes as they are read.
    ///
    /// # Errors
    /// If the weights do not fit the configuration, or there is not enough memory for the vectors.
    pub(crate) fn with_quantizer(
        &self,
        quantizer: Quantizer,
        config_json: &Path,
    ) -> Result<Checkpoint, Error> {
        let header = quantizer.header(&self.weights, &self.config.source_name)?;
        // What other files leave open, GGUF files say.
        let own = match self.weights.format() {
            Format::Gguf => self.options.clone(),
            _ => CheckpointOptions {
                gguf_rope: None,
                architecture: None,
                score_tokens: None,
                ..self.options.clone()
            },
        };
        let reader = TensorReader { weights: &header, quantizer: Some(&quantizer) };
        let mut checkpoint = Checkpoint::gather(reader, Arc::clone(&self.weights), config_json, own)?;
        checkpoint.config.architecture.clone_from(&self.config.architecture);
        checkpoint.config.source_name.clone_from(&self.config.source_name);
        checkpoint.unused.clone_from(&self.unused);
        checkpoint.quantization = Some(Quantization { quantizer, header, last: Mutex::default() });
        Ok(checkpoint)
    }

    /// The part of the model that is a decoder.
    ///
    /// # Errors
    /// If it has none.
    pub fn decoder(&self) -> Result<&Decoder, Error> {
        self.model.part().ok_or_else(|| Error::NotADecoder { name: self.config.architecture.clone() })
    }

    /// The part of the model that is an encoder.
    ///
    /// # Errors
    /// If it has none.
    pub fn encoder(&self) -> Result<&Encoder, Error> {
        self.model.part().ok_or_else(|| Error::NotAnEncoder { name: self.config.architecture.clone() })
    }

    /// The graph that gives an output, as [`Model::graph`].
    ///
    /// # Errors
    /// If the model does not give the output, a weight is missing, or no cache keeps `cache_dtype`.
    pub fn graph(&self, output: Output, page_size: usize, cache_dtype: DType) -> Result<graph::Graph, Error> {
        let (model, name) = (&self.model, self.config.architecture.clone());
        if !model.gives(output) {
            return Err(match output {
                Output::Scores => Error::NotAClassifier { name },
                _ if !model.runs_in_steps() => Error::NotADecoder { name },
                _ if model.gives(Output::Scores) => Error::ScoresTexts { name },
                _ => Error::HasNoHead { name },
            });
        }
        let graph = model.graph(output, &self.types(), page_size, cache_dtype);
        graph.map_err(|error| error.naming(|name| self.name_in_files(name)))
    }

    /// The Hugging Face name of the architecture that the files name.
    pub fn hugging_face_name(&self) -> Option<&'static str> {
        let name = &self.config.architecture;
        if self.weights.format() == Format::Gguf { Family::hugging_face_name(name) } else { known_name(name) }
    }

    /// What the files call a weight of the graph; of one that they have not, what they would call it.
    pub fn name_in_files(&self, canonical: &str) -> String {
        self.in_files.in_files(canonical)
    }

    /// The options that it was opened with.
    pub(crate) fn options(&self) -> &CheckpointOptions {
        &self.options
    }

    /// The dtype and shape of a weight as the graph declares it; nothing is read.
    pub fn describe(&self, canonical: &str) -> Option<(DType, Shape)> {
        match self.vectors.get(canonical) {
            Some(vector) => Some((vector.dtype(), *vector.shape())),
            None => self.types().describe(canonical),
        }
    }

    /// The value of a weight as the graph declares it: matrices as stored, cast or quantized, vectors in f32;
    /// row-major. Experts that are stored one by one are copied together. Of weights whose values are not at hand,
    /// `None`.
    ///
    /// # Errors
    /// If there is not enough memory for a copy, a value cannot be quantized, or a file has changed.
    pub fn tensor(&self, canonical: &str) -> Result<Option<Tensor>, Error> {
        if !self.weights.has_values() {
            return Ok(None);
        }
        if let Some(vector) = self.vectors.get(canonical) {
            return Ok(Some(vector.clone()));
        }
        let last = self.quantization.as_ref().map(|quantization| &quantization.last);
        if let Some((name, tensor)) = last.and_then(|last| lock(last).clone())
            && name == canonical
        {
            return Ok(Some(tensor));
        }
        let Some(tensor) = self.types().tensor(canonical)? else { return Ok(None) };
        // A PyTorch checkpoint may hold a transposed view.
        let tensor = tensor.try_contiguous()?;
        if tensor.file().is_none() {
            self.weights.check_files()?;
        }
        if let Some(last) = last {
            *lock(last) = Some((canonical.to_string(), tensor.clone()));
            self.release_files(canonical);
        }
        Ok(Some(tensor))
    }

    /// Gives the memory of a weight back, once it was repacked: that of its file pages, or of the tensor that was made.
    /// It can still be read.
    pub fn release(&self, canonical: &str) {
        if let Some(quantization) = &self.quantization {
            lock(&quantization.last).take_if(|(name, _)| name == canonical);
        }
        self.release_files(canonical);
    }

    fn release_files(&self, canonical: &str) {
        let Some(stored) = self.names.get(canonical) else { return };
        for name in stored.tensors() {
            match &self.quantization {
                Some(Quantization { quantizer, .. }) => {
                    quantizer.files(name).iter().for_each(|name| self.weights.release(name));
                }
                None => self.weights.release(name),
            }
        }
    }

    /// What matrices of plain numbers are cast to as they are read, as [`CheckpointOptions::dtype`] asked.
    pub fn cast(&self) -> Option<DType> {
        self.options.dtype
    }

    /// What quantizes the tensors as they are read.
    pub fn quantizer(&self) -> Option<&Quantizer> {
        self.quantization.as_ref().map(|quantization| &quantization.quantizer)
    }

    /// The weights as they are read: those of the files or, if they are quantized, of the GGUF file that would hold them,
    /// with the values of vectors alone.
    pub fn loaded_weights(&self) -> &Weights {
        self.quantization.as_ref().map_or(&self.weights, |quantization| &quantization.header)
    }

    /// The block dtype that most elements of the files have; `None` if no tensor is quantized.
    pub fn stored_quantization(&self) -> Option<DType> {
        let mut elements: BTreeMap<DType, usize> = BTreeMap::new();
        let mut replaced = HashSet::new();
        for weight in self.names.values().flat_map(Stored::repacked) {
            *elements.entry(weight.scheme()).or_default() += weight.describe().1.elements();
            replaced.extend(weight.tensors());
        }
        let is_used =
            |(name, tensor): &(&str, &Tensor)| tensor.dtype().is_block() && !replaced.contains(name);
        for (_, tensor) in self.weights.tensors().filter(is_used) {
            *elements.entry(tensor.dtype()).or_default() += tensor.elements();
        }
        elements.into_iter().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype)
    }

    /// The weights as the files have them.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Tensors of the files that the model does without, as the files call them: the architecture knows none of their name.
    /// Those that are known to mean nothing here are not among them: tables that follow from the configuration, and
    /// heads for other tasks.
    pub fn unused(&self) -> &[String] {
        &self.unused
    }

    /// How many weights are repacked as they are read, by the dtype of the blocks that they become.
    pub fn repacked(&self) -> BTreeMap<DType, usize> {
        let mut counts = BTreeMap::new();
        for weight in self.names.values().flat_map(Stored::repacked) {
            *counts.entry(weight.describe().0).or_default() += 1;
        }
        counts
    }

    /// The bytes of all tensors as they are loaded: stored, cast or quantized. Those that are repacked count as the blocks that they
    /// become.
    pub fn bytes(&self) -> u64 {
        let repacked: Vec<&Repacked> = self.names.values().flat_map(Stored::repacked).collect();
        let replaced: HashSet<&str> = repacked.iter().flat_map(|weight| weight.tensors()).collect();
        let size = |dtype: DType, shape: &Shape| dtype.bytes_for_shape(shape).unwrap_or_default() as u64;
        let blocks =
            repacked.iter().map(|weight| weight.describe()).map(|(dtype, shape)| size(dtype, &shape));
        let replaced = replaced.iter().filter_map(|name| self.weights.get(name));
        let replaced: u64 = replaced.map(|tensor| size(tensor.dtype(), tensor.shape())).sum();
        (self.loaded_weights().bytes() - replaced + blocks.sum::<u64>())
            .saturating_add_signed(self.types().bytes_of_casts())
    }

    /// The checkpoint of the tensors of `reader`, which those of `weights` become.
    fn gather(
        reader: TensorReader<'_>,
        weights: Arc<Weights>,
        config_json: &Path,
        options: CheckpointOptions,
    ) -> Result<Checkpoint, Error> {
        let description = Description::for_weights(reader.weights, config_json, &options)?;
        let in_files = CanonicalNames::new(reader.weights, &description.names(reader.weights))?;
        let contents = Contents::new(&description, reader, &in_files, config_json, &options);
        let Contents { config, model, names, vectors, unused } = contents
            .map_err(|error| error.naming(|name| in_files.in_files(name)).explained(reader.weights))?;
        let (model, quantization) = (Arc::new(model), None);
        Ok(Checkpoint { config, model, names, in_files, options, vectors, unused, weights, quantization })
    }

    fn types(&self) -> Names<'_> {
        let reader = TensorReader { weights: self.loaded_weights(), quantizer: self.quantizer() };
        Names { reader, names: &self.names, dtype: self.options.dtype }
    }
}

impl WeightTypes for Checkpoint {
    fn dtype(&self, name: &str) -> Option<DType> {
        self.types().dtype(name)
    }

    fn order(&self, name: &str) -> Option<&str> {
        self.names.get(name)?.order()
    }

    fn rows(&self, name: &str) -> Option<usize> {
        self.types().rows(name)
    }
}

fn lock(last: &Mutex<Option<(String, Tensor)>>) -> MutexGuard<'_, Option<(String, Tensor)>> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of a file next to the weights.
fn read_text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(weights::read_file(path)?).map_err(std::io::Error::other)
}

/// `config.json` in the folder of a model.
fn config_path(model: &Path) -> PathBuf {
    let folder = if model.is_dir() { Some(model) } else { model.parent() };
    folder.unwrap_or(Path::new("")).join("config.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The graph of one step of a real model prints, verifies, and declares all that is stored.
    fn check(checkpoint: &Checkpoint, parameters: usize) {
        assert_eq!(checkpoint.model.parameters().unwrap().all, parameters);
        let graph = checkpoint.graph(Output::Logits, 16, DType::F32).unwrap();
        let declared = graph.nodes().filter(|(_, node)| matches!(node.op, graph::Op::Weight(_))).count();
        let tied = usize::from(checkpoint.decoder().unwrap().tied);
        assert_eq!(declared, checkpoint.names.len() + tied, "each weight once, a tied one twice");
    }

    #[test]
    fn the_storyteller_opens() {
        let path = testdata::asset("storyteller/model.gguf");
        let checkpoint = Checkpoint::open(&path, None).unwrap();
        assert!(checkpoint.decoder().unwrap().tied);
        check(&checkpoint, 7_344_384);
        assert_eq!(checkpoint.model.state.bytes_per_token(DType::F32), 8 * 2 * 4 * 32 * 4);
        assert_eq!(checkpoint.model.state.bytes_per_token(DType::BF16), 8 * 2 * 4 * 32 * 2);
        let norm = checkpoint.tensor("blk.7.ffn_norm.weight").unwrap().unwrap();
        assert_eq!((norm.dtype(), norm.shape().dims()), (DType::F32, &[256][..]));
    }

    #[test]
    fn every_format_gives_the_same_model() {
        let Some(folder) = testdata::shared("stories260k") else { return };
        let hf = folder.join("hf");
        let reference = Checkpoint::open(&hf, None).unwrap();
        check(&reference, 260_032);
        for file in ["pytorch_model.bin", "pytorch_model.bf16.pth", "ckpt_nested.pt", "legacy_tar_f16.bin"] {
            let weights = folder.join("pytorch").join(file);
            let checkpoint = Checkpoint::open(&hf, Some(&weights)).unwrap_or_else(|e| panic!("{file}: {e}"));
            assert_eq!(checkpoint.decoder().unwrap(), reference.decoder().unwrap(), "{file}");
            check(&checkpoint, 260_032);
        }
        let gguf = Checkpoint::open(&folder.join("gguf/stories260K-F32.gguf"), None).unwrap();
        assert_eq!(gguf.decoder().unwrap().layers, reference.decoder().unwrap().layers);
        assert_eq!(
            gguf.decoder().unwrap().ropes[0].inverse_frequencies,
            reference.decoder().unwrap().ropes[0].inverse_frequencies
        );
        assert_eq!(gguf.decoder().unwrap().ropes[0].style, RopeStyle::Interleaved);
        check(&gguf, 260_032);
    }

    #[test]
    fn damaged_metadata_is_refused() {
        let Some(folder) = testdata::shared("stories260k") else { return };
        let original = std::fs::read(folder.join("gguf/stories260K-Q4_0.gguf")).unwrap();
        type Patch = (&'static str, &'static [(usize, u8)], &'static str);
        let cases: [Patch; 5] = [
            ("block_count 6", &[(253, 6)], "blk.5.attn_q.weight`: missing: the configuration says 6 layers"),
            ("block_count 100000", &[(253, 0xa0), (254, 0x86), (255, 1)], "the number of layers is 100000"),
            ("head_count 0", &[(336, 0)], "head_count` is 0"),
            ("head_count_kv 0", &[(381, 0)], "the number of key-value heads is 0"),
            (
                "embedding_length 128",
                &[(220, 128)],
                "is [512, 64], but the configuration makes it [512, 128]",
            ),
        ];
        for (what, patch, expected) in cases {
            let mut bytes = original.clone();
            for &(offset, byte) in patch {
                bytes[offset] = byte;
            }
            let path = std::env::temp_dir().join(format!(
                "perihelion-{}-{}.gguf",
                std::process::id(),
                what.replace(' ', "-")
            ));
            std::fs::write(&path, bytes).unwrap();
            let error = Checkpoint::open(&path, None).unwrap_err().to_string();
            std::fs::remove_file(&path).unwrap();
            assert!(error.contains(expected), "{what}: {error}");
        }
    }
}
