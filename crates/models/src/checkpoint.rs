//! A model as it rests on disk, opened: configuration, architecture, weights under canonical names.

mod experts;
mod gptq;
mod unused;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use graph::ops::RopeStyle;
use tensor::{DType, Shape, Tensor};
use weights::names::Scheme;
use weights::{Format, Metadata, Weights};

use crate::architectures::{Architecture, EncoderArchitecture};
use crate::{Config, Decoder, Encoder, EncoderConfig, Error, GptqConfig, Rope, WeightTypes};

/// What of a checkpoint its user decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Which dims of queries and keys form a pair in GGUF files, if not those that the architecture says. Other files
    /// leave no choice.
    pub gguf_rope: Option<RopeStyle>,
    /// The longest sequence that will be run, if it is known. It matters to models that turn positions otherwise in
    /// sequences beyond their original context (LongRoPE): they are made for longer ones only if this is longer.
    pub max_length: Option<usize>,
    /// The Hugging Face name of the architecture, if not the one that the files name.
    pub architecture: Option<&'static str>,
}

/// A checkpoint of a supported architecture, with weights that fit its configuration.
#[derive(Debug)]
pub struct Checkpoint {
    /// What it says of itself.
    pub config: Config,
    /// The model.
    pub network: Network,
    weights: Weights,
    /// By canonical name.
    names: HashMap<String, Stored>,
    /// Vectors that are not stored as the graph takes them, converted.
    vectors: HashMap<String, Tensor>,
    /// Tensors of the files that no graph of the model takes.
    unused: Vec<String>,
}

/// The model of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub enum Network {
    /// It makes text.
    Decoder(Decoder),
    /// It makes embeddings.
    Encoder(Encoder),
}

impl Network {
    /// The model that a `config.json` describes, whose weights are not there. What only weights say is taken as it is in
    /// most models: no biases but those of the architecture, and an output of its own unless the configuration ties it.
    /// `source` stands for the file in messages; `architecture` is the Hugging Face name, if not the one in the file.
    ///
    /// # Errors
    /// If the configuration cannot be read, or the architecture is unknown.
    pub fn from_config_json(
        source: &str,
        json: &str,
        architecture: Option<&str>,
    ) -> Result<(Config, Network), Error> {
        let architecture = match architecture {
            Some(name) => name.to_string(),
            None => Config::architecture_of_hugging_face(source, json)?,
        };
        let config = Config::from_hugging_face_as(source, json, architecture.clone())?;
        GptqConfig::from_hugging_face(source, json)?;
        let types = Unseen { tied: config.tied == Some(true) };
        let network = match EncoderArchitecture::from_hugging_face(&architecture) {
            Some(encoder) => {
                let own = EncoderConfig::from_hugging_face(source, json)?;
                Network::Encoder((encoder.encoder)(&config, &own, &types)?)
            }
            None => {
                let architecture = Architecture::from_hugging_face(&architecture)?;
                let ropes = Rope::all(&config, RopeStyle::HalfSplit)?;
                Network::Decoder((architecture.decoder)(&config, ropes, &types))
            }
        };
        Ok((config, network))
    }

    /// Tokens of the longest sequence it was made for.
    pub fn context_length(&self) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.context_length,
            Network::Encoder(encoder) => encoder.context_length(),
        }
    }

    /// Rows of its embedding.
    pub fn vocab(&self) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.vocab,
            Network::Encoder(encoder) => encoder.vocab,
        }
    }

    /// Bytes of cache for each token; encoders have none.
    pub fn cache_bytes_per_token(&self, cache_dtype: DType) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.cache_bytes_per_token(cache_dtype),
            Network::Encoder(_) => 0,
        }
    }

    /// The number of weights.
    pub fn parameters(&self) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.parameters(),
            Network::Encoder(encoder) => encoder.parameters(),
        }
    }
}

/// Where in the files a weight is, by the names of tensors.
#[derive(Debug, Clone)]
enum Stored {
    /// In a tensor of its own.
    Whole(String),
    /// In a range of an axis of a tensor that holds other weights too.
    Part { name: String, axis: usize, range: Range<usize> },
    /// In a tensor with more axes of size 1 than the weight, which is a vector.
    Vector(String),
    /// As GPTQ stores it, in several tensors.
    Gptq(gptq::Layer),
    /// Apart, of the same type, one for each expert.
    Experts(Vec<Stored>),
    /// Nowhere: it was made when the checkpoint was opened.
    Made(Tensor),
}

impl Stored {
    /// The tensors it is in, by their names in the files.
    fn tensors(&self) -> Vec<&str> {
        match self {
            Stored::Whole(name) | Stored::Part { name, .. } | Stored::Vector(name) => vec![name],
            Stored::Gptq(layer) => layer.stored().collect(),
            Stored::Experts(experts) => experts.iter().flat_map(Stored::tensors).collect(),
            Stored::Made(_) => Vec::new(),
        }
    }

    /// The layers among what it is made of that GPTQ quantized.
    fn layers(&self) -> Vec<&gptq::Layer> {
        match self {
            Stored::Gptq(layer) => vec![layer],
            Stored::Experts(experts) => experts.iter().flat_map(Stored::layers).collect(),
            Stored::Whole(_) | Stored::Part { .. } | Stored::Vector(_) | Stored::Made(_) => Vec::new(),
        }
    }

    /// The weight that holds the order of its columns, if they have one of their own.
    fn order(&self) -> Option<&str> {
        match self {
            Stored::Gptq(layer) => layer.order(),
            Stored::Experts(experts) => experts.iter().find_map(Stored::order),
            Stored::Whole(_) | Stored::Part { .. } | Stored::Vector(_) | Stored::Made(_) => None,
        }
    }
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
        Checkpoint::from_weights_with(weights, &config_path(model), options)
    }

    /// A model of weights that are open already; `config_json` is read unless the weights are GGUF, which carry
    /// their configuration.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_weights(weights: Weights, config_json: &Path) -> Result<Checkpoint, Error> {
        Checkpoint::from_weights_with(weights, config_json, CheckpointOptions::default())
    }

    /// As [`Checkpoint::from_weights`], with options.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_weights_with(
        weights: Weights,
        config_json: &Path,
        options: CheckpointOptions,
    ) -> Result<Checkpoint, Error> {
        let names = weights.canonical_names()?;
        let mut names: HashMap<String, Stored> =
            names.into_iter().map(|(name, stored)| (name, Stored::Whole(stored.to_string()))).collect();
        let description = Description::of(&weights, config_json, options.architecture)?;
        gptq::gather(&mut names, &weights, description.quantization()?.as_ref(), config_json)?;
        let (config, network, zero_centered) = match description.encoder()? {
            Some(architecture) => encoder(architecture, &description, &weights, &mut names)?,
            None => decoder(&description, &weights, &mut names, options)?,
        };
        let types = Names { weights: &weights, names: &names };
        let taken = check_weights(&config, &network, &types)?;
        let unused = unused::tensors(&types, &taken, &network);
        let vectors = converted_vectors(&types, zero_centered);
        Ok(Checkpoint { config, network, names, vectors, unused, weights })
    }

    /// The model, if it makes text.
    ///
    /// # Errors
    /// If it is an encoder.
    pub fn decoder(&self) -> Result<&Decoder, Error> {
        match &self.network {
            Network::Decoder(decoder) => Ok(decoder),
            Network::Encoder(_) => Err(Error::NotADecoder { name: self.config.architecture.clone() }),
        }
    }

    /// The model, if it is an encoder.
    ///
    /// # Errors
    /// If it makes text.
    pub fn encoder(&self) -> Result<&Encoder, Error> {
        match &self.network {
            Network::Encoder(encoder) => Ok(encoder),
            Network::Decoder(_) => Err(Error::NotAnEncoder { name: self.config.architecture.clone() }),
        }
    }

    /// The graph of one step of a decoder; see [`Decoder::build`].
    ///
    /// # Errors
    /// If a weight is missing, no cache keeps `cache_dtype`, or the model is an encoder.
    pub fn graph(&self, page_size: usize, cache_dtype: DType) -> Result<graph::Graph, Error> {
        self.decoder()?.build("decoder", &self.types(), page_size, cache_dtype)
    }

    /// The graph of hidden states: of a batch of texts, [`Encoder::build`], which has no cache, or of one step,
    /// [`Decoder::build_hidden`].
    ///
    /// # Errors
    /// If a weight is missing, or no cache keeps `cache_dtype`.
    pub fn hidden_graph(&self, page_size: usize, cache_dtype: DType) -> Result<graph::Graph, Error> {
        match &self.network {
            Network::Decoder(decoder) => {
                decoder.build_hidden("decoder", &self.types(), page_size, cache_dtype)
            }
            Network::Encoder(encoder) => encoder.build("encoder", &self.types()),
        }
    }

    /// The dtype and shape of a weight as the graph declares it; nothing is read.
    pub fn describe(&self, canonical: &str) -> Option<(DType, Shape)> {
        match self.vectors.get(canonical) {
            Some(vector) => Some((vector.dtype(), *vector.shape())),
            None => self.types().describe(canonical),
        }
    }

    /// The value of a weight as the graph declares it: matrices as stored, vectors in f32;
    /// row-major. Experts that are stored one by one are copied together. Of weights whose values are not at hand,
    /// `None`.
    pub fn tensor(&self, canonical: &str) -> Option<Tensor> {
        if !self.weights.has_values() {
            return None;
        }
        let stored = || self.types().tensor(canonical);
        // A PyTorch checkpoint may hold a transposed view.
        Some(self.vectors.get(canonical).cloned().or_else(stored)?.contiguous())
    }

    /// Gives the memory of a weight's file pages back, once it was repacked. What else is in them can still be
    /// read.
    pub fn release(&self, canonical: &str) {
        if let Some(stored) = self.names.get(canonical) {
            stored.tensors().into_iter().for_each(|name| self.weights.release(name));
        }
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

    /// How many weights GPTQ quantized, by the dtype of the blocks that they become.
    pub fn repacked(&self) -> BTreeMap<DType, usize> {
        let mut counts = BTreeMap::new();
        for layer in self.names.values().flat_map(Stored::layers) {
            *counts.entry(layer.describe().0).or_default() += 1;
        }
        counts
    }

    /// The bytes of all tensors together, as stored, and of layers that GPTQ quantized, as the blocks that they become.
    pub fn bytes(&self) -> u64 {
        let layers: Vec<&gptq::Layer> = self.names.values().flat_map(Stored::layers).collect();
        let replaced: HashSet<&str> = layers.iter().flat_map(|layer| layer.stored()).collect();
        let size = |dtype: DType, shape: &Shape| dtype.bytes_for_shape(shape).unwrap_or_default() as u64;
        let repacked = layers.iter().map(|layer| layer.describe()).map(|(dtype, shape)| size(dtype, &shape));
        let replaced = replaced.iter().filter_map(|name| self.weights.get(name));
        let replaced: u64 = replaced.map(|tensor| size(tensor.dtype(), tensor.shape())).sum();
        self.weights.bytes() - replaced + repacked.sum::<u64>()
    }

    fn types(&self) -> Names<'_> {
        Names { weights: &self.weights, names: &self.names }
    }
}

impl WeightTypes for Checkpoint {
    fn dtype(&self, name: &str) -> Option<DType> {
        self.types().dtype(name)
    }

    fn order(&self, name: &str) -> Option<&str> {
        self.names.get(name)?.order()
    }
}

/// Weights by canonical name.
struct Names<'a> {
    weights: &'a Weights,
    names: &'a HashMap<String, Stored>,
}

impl Names<'_> {
    /// A view, or a copy of what lies apart or is stored otherwise.
    fn tensor(&self, canonical: &str) -> Option<Tensor> {
        self.read(self.names.get(canonical)?)
    }

    fn read(&self, stored: &Stored) -> Option<Tensor> {
        match stored {
            Stored::Whole(name) => self.weights.get(name).cloned(),
            Stored::Vector(name) => self.weights.get(name).map(|tensor| tensor.reshape([tensor.elements()])),
            Stored::Part { name, axis: 0, range } => Some(self.weights.get(name)?.narrow(0, range.clone())),
            Stored::Part { name, axis, range } => {
                let tensor = self.weights.get(name)?;
                let parts =
                    (0..tensor.shape()[0]).map(|i| tensor.narrow(0, i..i + 1).narrow(*axis, range.clone()));
                let (dtype, shape) = self.describe_stored(stored)?;
                Some(experts::concatenate(dtype, shape, parts))
            }
            Stored::Gptq(layer) => layer.repack(self.weights),
            Stored::Experts(experts) => {
                let parts = experts.iter().filter_map(|expert| self.read(expert));
                let (dtype, shape) = self.describe_stored(stored)?;
                Some(experts::concatenate(dtype, shape, parts))
            }
            Stored::Made(tensor) => Some(tensor.clone()),
        }
    }

    /// The dtype and shape of what [`Names::tensor`] gives.
    fn describe(&self, canonical: &str) -> Option<(DType, Shape)> {
        self.describe_stored(self.names.get(canonical)?)
    }

    fn describe_stored(&self, stored: &Stored) -> Option<(DType, Shape)> {
        let of = |name: &str| self.weights.get(name).map(|tensor| (tensor.dtype(), *tensor.shape()));
        match stored {
            Stored::Whole(name) => of(name),
            Stored::Vector(name) => {
                let (dtype, shape) = of(name)?;
                Some((dtype, Shape::new(&[shape.elements()])))
            }
            Stored::Part { name, axis, range } => {
                let (dtype, shape) = of(name)?;
                let mut shape = shape.to_vec();
                shape[*axis] = range.len();
                Some((dtype, Shape::new(&shape)))
            }
            Stored::Gptq(layer) => Some(layer.describe()),
            Stored::Experts(experts) => {
                let (dtype, shape) = self.describe_stored(experts.first()?)?;
                Some((dtype, Shape::new(&[&[experts.len()], &shape[..]].concat())))
            }
            Stored::Made(tensor) => Some((tensor.dtype(), *tensor.shape())),
        }
    }
}

impl WeightTypes for Names<'_> {
    fn dtype(&self, name: &str) -> Option<DType> {
        self.describe(name).map(|(dtype, _)| dtype)
    }

    fn order(&self, name: &str) -> Option<&str> {
        self.names.get(name)?.order()
    }
}

/// The weights of a model of which only the configuration is there.
struct Unseen {
    /// Whether the embedding is the output as well.
    tied: bool,
}

impl WeightTypes for Unseen {
    fn dtype(&self, name: &str) -> Option<DType> {
        (name == "output.weight" && !self.tied).then_some(DType::BF16)
    }
}

/// What says which model the weights are of.
enum Description<'a> {
    /// The architecture is the one that was asked for, by its Hugging Face name.
    Gguf { metadata: &'a Metadata, architecture: Option<&'static str> },
    /// The architecture is the one that was asked for, or else that of the configuration.
    HuggingFace { source: String, json: String, architecture: String },
}

impl<'a> Description<'a> {
    fn of(
        weights: &'a Weights,
        config_json: &Path,
        architecture: Option<&'static str>,
    ) -> Result<Description<'a>, Error> {
        if weights.format() == Format::Gguf {
            return Ok(Description::Gguf { metadata: weights.metadata(), architecture });
        }
        let source = config_json.display().to_string();
        let json = read_text(config_json)
            .map_err(|error| Error::config(&source, format!("the model's configuration: {error}")))?;
        let architecture = match architecture {
            Some(name) => name.to_string(),
            None => Config::architecture_of_hugging_face(&source, &json)?,
        };
        Ok(Description::HuggingFace { source, json, architecture })
    }

    /// How matrices were quantized, if the configuration says it. GGUF files say it of each tensor.
    fn quantization(&self) -> Result<Option<GptqConfig>, Error> {
        match self {
            Description::Gguf { .. } => Ok(None),
            Description::HuggingFace { source, json, .. } => GptqConfig::from_hugging_face(source, json),
        }
    }

    /// The architecture, if it is that of an encoder.
    fn encoder(&self) -> Result<Option<&'static EncoderArchitecture>, Error> {
        Ok(match self {
            Description::Gguf { metadata, architecture: None } => {
                EncoderArchitecture::from_gguf(metadata.str("general.architecture")?)
            }
            Description::Gguf { architecture: Some(name), .. } => {
                EncoderArchitecture::from_hugging_face(name)
            }
            Description::HuggingFace { architecture, .. } => {
                EncoderArchitecture::from_hugging_face(architecture)
            }
        })
    }

    /// The architecture, if it is that of a decoder.
    fn decoder(&self) -> Result<&'static Architecture, Error> {
        match self {
            Description::Gguf { metadata, architecture: None } => {
                Architecture::from_gguf(metadata.str("general.architecture")?)
            }
            Description::Gguf { architecture: Some(name), .. } => Architecture::from_hugging_face(name),
            Description::HuggingFace { architecture, .. } => Architecture::from_hugging_face(architecture),
        }
    }

    fn config(&self, types: &Names<'_>) -> Result<Config, Error> {
        match self {
            Description::Gguf { metadata, .. } => {
                let rows = |tensor: (DType, Shape)| tensor.1.first().copied();
                let vocab = types.describe("token_embd.weight").and_then(rows);
                Config::from_gguf(metadata, vocab.unwrap_or(0))
            }
            Description::HuggingFace { source, json, architecture } => {
                Config::from_hugging_face_as(source, json, architecture.clone())
            }
        }
    }
}

/// The encoder that is described; none has norms whose weights are less by 1.
fn encoder(
    architecture: &EncoderArchitecture,
    description: &Description<'_>,
    weights: &Weights,
    names: &mut HashMap<String, Stored>,
) -> Result<(Config, Network, bool), Error> {
    let config = description.config(&Names { weights, names })?;
    let own = match description {
        Description::Gguf { metadata, .. } => EncoderConfig::from_gguf(metadata)?,
        Description::HuggingFace { source, json, .. } => EncoderConfig::from_hugging_face(source, json)?,
    };
    unstack_attention(names, weights, &config)?;
    let encoder = (architecture.encoder)(&config, &own, &Names { weights, names })?;
    Ok((config, Network::Encoder(encoder), false))
}

/// The decoder that is described, and whether the weights of its norms are stored less by 1.
fn decoder(
    description: &Description<'_>,
    weights: &Weights,
    names: &mut HashMap<String, Stored>,
    options: CheckpointOptions,
) -> Result<(Config, Network, bool), Error> {
    // First, so that an unknown one is refused as such, and not for a key that it does without.
    let architecture = description.decoder()?;
    let types = Names { weights, names };
    let mut config = description.config(&types)?;
    let gguf = matches!(description, Description::Gguf { .. });
    if gguf {
        let factors = |name: &str| types.tensor(name).map(|factors| factors_of(&factors, weights));
        config.rope.factors = factors("rope_freqs.weight").or_else(|| factors("rope_factors_short.weight"));
        config.rope.long_factors = factors("rope_factors_long.weight");
    }
    let style = match weights.scheme() {
        _ if gguf => options.gguf_rope.unwrap_or(architecture.gguf_rope),
        // Meta's own checkpoints pair neighbouring rows, as the model was trained.
        Scheme::Meta => RopeStyle::Interleaved,
        _ => RopeStyle::HalfSplit,
    };
    let config = config.for_length(options.max_length);
    unstack_attention(names, weights, &config)?;
    unstack_gates(names, weights, &config)?;
    experts::gather(names, weights, &config)?;
    let decoder = (architecture.decoder)(&config, Rope::all(&config, style)?, &Names { weights, names });
    Ok((config, Network::Decoder(decoder), architecture.zero_centered_norms && !gguf))
}

/// Rope factors, or as many that change nothing where values are not at hand.
fn factors_of(factors: &Tensor, weights: &Weights) -> Vec<f32> {
    if weights.has_values() { factors.to_f32_vec() } else { vec![1.0; factors.elements()] }
}

/// The text of a file beside the weights.
fn read_text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(weights::read_file(path)?).map_err(std::io::Error::other)
}

/// `config.json` in the folder of a model.
fn config_path(model: &Path) -> PathBuf {
    let folder = if model.is_dir() { Some(model) } else { model.parent() };
    folder.unwrap_or(Path::new("")).join("config.json")
}

/// Names the queries, keys and values of matrices that hold them one on the other.
fn unstack_attention(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: &Config,
) -> Result<(), Error> {
    let (query, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    for layer in 0..config.layers {
        for leaf in ["weight", "bias"] {
            let name = |stem: &str| format!("blk.{layer}.{stem}.{leaf}");
            let parts = [(name("attn_q"), query), (name("attn_k"), keys), (name("attn_v"), keys)];
            take_apart(names, weights, &name("attn_qkv"), 0, &parts)?;
        }
    }
    Ok(())
}

/// Names the gates of matrices that hold them on the matrices they gate.
fn unstack_gates(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: &Config,
) -> Result<(), Error> {
    for layer in 0..config.layers {
        for leaf in ["weight", "bias"] {
            let name = |stem: &str| format!("blk.{layer}.{stem}.{leaf}");
            if !names.contains_key(&name("ffn_gate")) {
                let parts = [name("ffn_gate"), name("ffn_up")].map(|name| (name, config.feed_forward));
                take_apart(names, weights, &name("ffn_up"), 0, &parts)?;
            }
        }
    }
    Ok(())
}

/// Replaces a name by those of its parts, each so many rows, which lie along an axis.
fn take_apart(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    stacked: &str,
    axis: usize,
    parts: &[(String, usize)],
) -> Result<(), Error> {
    let Some(whole) = names.remove(stacked) else { return Ok(()) };
    let expected: usize = parts.iter().map(|(_, rows)| rows).sum();
    let (dtype, shape) = Names { weights, names }.describe_stored(&whole).expect("names lead to tensors");
    let found = shape.get(axis).copied().unwrap_or(0);
    if found != expected {
        let message = format!("has {found} rows for {} weights, expected {expected}", parts.len());
        return Err(Error::Weight { name: stacked.to_string(), message });
    }
    if dtype.is_block() && shape.rank() < axis + 2 {
        let message = format!("has the dtype {dtype}, whose blocks cannot be taken apart");
        return Err(Error::Weight { name: stacked.to_string(), message });
    }
    let mut start = 0;
    for (part, rows) in parts {
        let range = start..start + rows;
        let stored = match &whole {
            Stored::Whole(name) => Stored::Part { name: name.clone(), axis, range },
            Stored::Gptq(layer) => Stored::Gptq(layer.with_rows(range)),
            _ => unreachable!("nothing is taken apart twice"),
        };
        names.insert(part.clone(), stored);
        start += rows;
    }
    Ok(())
}

/// Checks that each weight the graph will declare is there and has its shape. Gives the names of those.
fn check_weights(config: &Config, network: &Network, types: &Names<'_>) -> Result<HashSet<String>, Error> {
    let layers_stored =
        (0..).take_while(|i| types.tensor(&format!("blk.{i}.attn_q.weight")).is_some()).count();
    if layers_stored < config.layers {
        return Err(Error::Weight {
            name: format!("blk.{layers_stored}.attn_q.weight"),
            message: format!("missing: the configuration says {} layers", config.layers),
        });
    }
    if matches!(network, Network::Decoder(decoder) if decoder.tied) && config.tied == Some(false) {
        return Err(Error::Weight {
            name: "output.weight".into(),
            message: "missing: the configuration does not tie it to the embedding".into(),
        });
    }
    let graph = match network {
        Network::Decoder(decoder) => decoder.build("check", types, 16, DType::F32)?,
        Network::Encoder(encoder) => encoder.build("check", types)?,
    };
    let mut taken = HashSet::new();
    for (_, node) in graph.nodes() {
        let graph::Op::Weight(weight) = &node.op else { continue };
        taken.insert(weight.name.clone());
        let (dtype, found) = types.describe(&weight.name).expect("build refuses missing weights");
        let expected = weight.ty.static_shape().expect("weights have fixed shapes");
        if found != expected {
            let message = format!("is {found}, but the configuration makes it {expected}");
            return Err(Error::Weight { name: weight.name.clone(), message });
        }
        let is_order = matches!(types.names.get(&weight.name), Some(Stored::Made(_)));
        let usable = dtype.is_block() || dtype.is_float() && !dtype.is_float8() || is_order;
        if !usable {
            let message = format!("has the dtype {dtype}, expected a float or block dtype");
            return Err(Error::Weight { name: weight.name.clone(), message });
        }
    }
    Ok(taken)
}

/// The vectors that have another dtype than f32, or are the weights of norms and stored less 1.
fn converted_vectors(types: &Names<'_>, zero_centered_norms: bool) -> HashMap<String, Tensor> {
    let is_vector = |(name, stored): &(&String, &Stored)| {
        !matches!(stored, Stored::Made(_)) && types.describe(name).is_some_and(|(_, shape)| shape.rank() == 1)
    };
    let vectors = types.names.iter().filter(is_vector);
    let vectors = vectors.filter_map(|(name, stored)| Some((name, types.read(stored)?)));
    let converted = vectors.filter_map(|(name, tensor)| {
        let centered = zero_centered_norms && name.ends_with("norm.weight");
        if !centered && tensor.as_slice::<f32>().is_some() {
            return None;
        }
        let mut values = tensor.to_f32_vec();
        if centered {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        Some((name.clone(), Tensor::from_slice(*tensor.shape(), &values)))
    });
    converted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The graph of one step of a real model prints, verifies, and declares all that is stored.
    fn check(checkpoint: &Checkpoint, parameters: usize) {
        assert_eq!(checkpoint.decoder().unwrap().parameters(), parameters);
        let graph = checkpoint.graph(16, DType::F32).unwrap();
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
        assert_eq!(checkpoint.decoder().unwrap().cache_bytes_per_token(DType::F32), 8 * 2 * 4 * 32 * 4);
        assert_eq!(checkpoint.decoder().unwrap().cache_bytes_per_token(DType::BF16), 8 * 2 * 4 * 32 * 2);
        let norm = checkpoint.tensor("blk.7.ffn_norm.weight").unwrap();
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
