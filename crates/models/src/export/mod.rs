//! A checkpoint as a GGUF file holds it: metadata and tensors, by the names and in the layouts of llama.cpp.

mod factors;
mod metadata;

use std::collections::HashSet;
use std::path::Path;

use graph::ops::RopeStyle;
use tensor::Tensor;
use weights::{Format, Metadata};

use crate::checkpoint::is_norm_of_stream;
use crate::gguf_file::{ExportTensor, GgufFile, pair_rows, stack, tile};
use crate::layers::XIELU;
use crate::mix::layer_of;
use crate::names::NameTable;
use crate::stored::transposed;
use crate::{
    Architecture, Checkpoint, Config, EncoderArchitecture, Error, Network, QuantizeOptions, Quantizer,
    RopeConfig,
};

/// The keys of a file that is one of several.
const SPLIT: &str = "split.";

impl Quantizer {
    /// What becomes of a checkpoint. `config_json` is the configuration of one that is no GGUF file.
    ///
    /// # Errors
    /// If GGUF has no way to describe the model; or if the checkpoint was quantized before, but for GGUF files, or is
    /// quantized as it is read.
    pub fn new(
        checkpoint: &Checkpoint,
        config_json: &Path,
        options: &QuantizeOptions,
    ) -> Result<Quantizer, Error> {
        Ok(Quantizer::for_file(GgufFile::for_checkpoint(checkpoint, config_json)?, options))
    }
}

impl Checkpoint {
    /// The same model with its tensors quantized as they are read. It is the model of the GGUF file that would hold them,
    /// to the bit: rows of queries and keys, for example, are in the order of such files. `config_json` is the
    /// configuration of a checkpoint that is no GGUF file.
    ///
    /// # Errors
    /// As [`Quantizer::new`], and if there is not enough memory for the vectors.
    pub fn quantized(&self, config_json: &Path, options: &QuantizeOptions) -> Result<Checkpoint, Error> {
        self.with_quantizer(Quantizer::new(self, config_json, options)?, config_json)
    }
}

impl GgufFile {
    /// What a checkpoint becomes. `config_json` is the configuration of a checkpoint that is no GGUF file.
    ///
    /// # Errors
    /// If the checkpoint is quantized as it is read, or was before, but for GGUF files; or if GGUF has no way to describe its
    /// architecture or something in its configuration.
    fn for_checkpoint(checkpoint: &Checkpoint, config_json: &Path) -> Result<GgufFile, Error> {
        if let Some(quantizer) = checkpoint.quantizer() {
            let message =
                format!("is quantized to {} as it is read: open it as it is stored", quantizer.mix().name);
            return Err(refusal(checkpoint, message));
        }
        if !checkpoint.repacked().is_empty() {
            let message = "this checkpoint is quantized: take the one that it was made from";
            return Err(refusal(checkpoint, message));
        }
        if checkpoint.weights().format() == Format::Gguf {
            GgufFile::from_gguf(checkpoint)
        } else {
            GgufFile::from_hugging_face(checkpoint, config_json)
        }
    }

    fn from_gguf(checkpoint: &Checkpoint) -> Result<GgufFile, Error> {
        let mut metadata = Metadata::new();
        let kept = checkpoint.weights().metadata().iter().filter(|(key, _)| !key.starts_with(SPLIT));
        for (key, value) in kept {
            metadata.insert(key, value.clone());
        }
        let tensors = checkpoint.weights().tensors();
        let export = |(name, tensor): (&str, &Tensor)| {
            ExportTensor::whole(name.to_string(), tensor.clone()).made_of(vec![name.to_string()])
        };
        let tensors = tensors.map(export).collect();
        let architecture = metadata.str("general.architecture")?.to_string();
        Ok(GgufFile::new(metadata, tensors, architecture, &checkpoint.config))
    }

    fn from_hugging_face(checkpoint: &Checkpoint, config_json: &Path) -> Result<GgufFile, Error> {
        let (source, json) = checkpoint.options().config_json(config_json)?;
        let name = checkpoint.config.architecture.clone();
        // As it is in the file: that of the checkpoint was made for sequences of some length.
        let config = Config::from_hugging_face_as(&source, &json, name.clone())?;
        let (gguf, norms_lack_1, joins_gates, styles, names): (_, _, _, _, NameTable) = match &checkpoint
            .network
        {
            Network::Decoder(_) => {
                let architecture = Architecture::from_hugging_face(&name)?;
                // Meta's own checkpoints pair neighbours, as GGUF files of these models do.
                let meta = crate::names::are_of_meta(checkpoint.weights().names());
                let rope = config.rope.style.unwrap_or(architecture.rope);
                let rope = if meta { RopeStyle::Interleaved } else { rope };
                if config.latent.is_some() && rope != architecture.gguf_rope {
                    let message =
                        "`rope_interleave` has no key in GGUF files, whose latents turn neighbouring dims";
                    return Err(refusal(checkpoint, message));
                }
                let styles = [rope, architecture.gguf_rope];
                let has = |name: &str| checkpoint.canonical_names().contains_key(name);
                let names = (architecture.gguf_names)(&has);
                let Architecture { zero_centered_norms, gguf_joins_gates, .. } = *architecture;
                let gguf = architecture.gguf_name(config.experts.is_some());
                let gguf = gguf.ok_or_else(|| not_in_llama_cpp(checkpoint))?;
                (gguf, zero_centered_norms, gguf_joins_gates, styles, names)
            }
            Network::Encoder(_) => {
                let architecture = EncoderArchitecture::from_hugging_face(&name);
                let gguf = architecture.map_or("", |architecture| architecture.gguf);
                let norms_lack_1 = architecture.is_some_and(|architecture| architecture.zero_centered_norms);
                (gguf, norms_lack_1, false, [RopeStyle::HalfSplit; 2], &[])
            }
        };
        let mut tensors = known_tensors(checkpoint, joins_gates);
        let holds_factors = Architecture::from_hugging_face(&name).is_ok_and(|own| own.gguf_holds_factors);
        let config = if holds_factors { factors::fold(checkpoint, config, &mut tensors)? } else { config };
        let config = take_activations(checkpoint, config, &mut tensors)?;
        let metadata = metadata::of_config(checkpoint, &config, gguf)?;
        stack(&mut tensors, &config);
        for tensor in &mut tensors {
            let change = |applies: bool, change: fn(f32) -> f32| applies.then_some(change);
            tensor.change = change(norms_lack_1 && is_norm_of_stream(&tensor.name), |x| x + 1.0)
                .or_else(|| change(checkpoint.is_logarithm(&tensor.name), |x| -x.exp()));
        }
        let read = Config::from_gguf(&metadata, config.vocab)?;
        if let (Some(delta), Some(written)) = (config.delta, read.delta)
            && written.tiled != delta.tiled
        {
            tile(&mut tensors, &delta);
        }
        match styles {
            // llama.cpp's converter turns rows of hybrid models whether or not they rotate.
            [RopeStyle::HalfSplit, RopeStyle::Interleaved]
                if config.rope.dims == 0 && config.state_space.is_some() =>
            {
                let rope = RopeConfig { dims: config.attention.head_dim, ..config.rope.clone() };
                pair_rows(&mut tensors, &Config { rope, ..config.clone() }, styles[1])?;
            }
            _ if config.rope.dims == 0 => {}
            [own, of_files] if own != of_files => pair_rows(&mut tensors, &config, of_files)?,
            _ => {}
        }
        for tensor in &mut tensors {
            tensor.name = crate::names::spelled(&tensor.name, names);
        }
        for (name, factors) in metadata::rope_factors(&config) {
            let factors = Tensor::from_slice([factors.len()], &factors);
            tensors.push(ExportTensor::whole(name.to_string(), factors));
        }
        Ok(GgufFile::new(metadata, tensors, gguf.to_string(), &config))
    }
}

/// The tensors of a checkpoint that the model takes, by their GGUF names; gates in one with what they multiply
/// only if `joins_gates`.
fn known_tensors(checkpoint: &Checkpoint, joins_gates: bool) -> Vec<ExportTensor> {
    let unused: HashSet<&str> = checkpoint.unused().iter().map(String::as_str).collect();
    let makes_no_text =
        matches!(checkpoint.network, Network::Encoder(_)) || checkpoint.network.head().is_some();
    let mut tensors = Vec::new();
    if let Some((stored, rows)) = checkpoint.score_rows() {
        let tensor = checkpoint.weights().get(stored).expect("a name of the weights").clone();
        let tensor = ExportTensor::whole_float("cls.output.weight".to_string(), tensor);
        tensors.push(tensor.made_of(vec![stored.to_string()]).with_rows(rows.to_vec()));
    }
    for (name, stored) in checkpoint.canonical_names() {
        // The vocabulary head of a model that makes no text is for other tasks.
        let is_of_model = layer_of(name).is_none_or(|layer| layer < checkpoint.config.layers);
        let is_known = names_weight(name) && is_of_model && !(makes_no_text && name.starts_with("output."));
        if is_known && !unused.contains(&stored[..]) {
            let gates = checkpoint.gate_views(name);
            if !gates.is_empty() && !joins_gates {
                let whole =
                    |(name, tensor)| ExportTensor::whole_float(name, tensor).made_of(vec![stored.clone()]);
                tensors.extend(gates.into_iter().map(whole));
                continue;
            }
            let tensor = checkpoint.weights().get(stored).expect("a name of the weights");
            let (is_transposed, mut rows) = checkpoint.gguf_rows(name);
            let tensor =
                if is_transposed && tensor.shape().rank() >= 2 { transposed(tensor) } else { tensor.clone() };
            if let Network::Encoder(encoder) = &checkpoint.network
                && name == "position_embd.weight"
                && let Some(positions) = encoder.positions
                && positions.first > 0
            {
                let used = positions.first..positions.rows;
                rows = vec![used];
            }
            let tensor = ExportTensor::whole_float(name.clone(), tensor).made_of(vec![stored.clone()]);
            let parts = if joins_gates { Vec::new() } else { checkpoint.gguf_parts(name) };
            for (part, rows) in &parts {
                tensors.push(tensor.clone().named(part).with_rows(rows.to_vec()));
            }
            if !parts.is_empty() {
                continue;
            }
            let tensor = columns(&checkpoint.config, name).into_iter().fold(tensor, ExportTensor::in_rows_of);
            // The block that every token gets is all that there is of a feed-forward block.
            let dense = name.replace("ffn_down_shexp", "ffn_down");
            let tensor = if checkpoint.describe(name).is_none() && checkpoint.describe(&dense).is_some() {
                tensor.named(&dense)
            } else {
                tensor
            };
            tensors.push(if rows.is_empty() { tensor } else { tensor.with_rows(rows) });
        }
    }
    tensors
}

/// Moves the numbers of activations, which GGUF files hold in their metadata, from the tensors to the configuration.
fn take_activations(
    checkpoint: &Checkpoint,
    mut config: Config,
    tensors: &mut Vec<ExportTensor>,
) -> Result<Config, Error> {
    let is_number = |tensor: &ExportTensor| tensor.name.contains(".ffn_act_");
    if !tensors.iter().any(is_number) {
        return Ok(config);
    }
    tensors.retain(|tensor| !is_number(tensor));
    let mut all = vec![[0.0; XIELU.len()]; config.layers];
    for (layer, numbers) in all.iter_mut().enumerate() {
        for (number, name) in numbers.iter_mut().zip(XIELU) {
            // Of a header that is planned with, there are no values.
            let tensor = checkpoint.tensor(&format!("blk.{layer}.ffn_act_{name}.weight"))?;
            *number = tensor.map_or(0.0, |tensor| tensor.to_f32_vec()[0]);
        }
    }
    config.lists.xielu = Some(all);
    Ok(config)
}

/// The columns of what is a vector to the graph and a matrix in files.
fn columns(config: &Config, name: &str) -> Option<usize> {
    let stem = name.strip_suffix(".weight")?.rsplit('.').next()?;
    let space = config.state_space;
    let of_heads = space.and_then(|space| Some((space.channels, space.heads?)));
    match (stem, of_heads) {
        ("ssm_conv1d", _) => {
            config.delta.map(|delta| delta.conv_width).or(space.map(|space| space.conv_width))
        }
        ("conv", _) => config.short_convolution.filter(|_| name.contains(".shortconv.")),
        ("ssm_a" | "ssm_d", Some(_)) => Some(1),
        ("ssm_norm", Some((channels, heads))) => Some(channels / heads.groups),
        _ => None,
    }
}

/// Whether a name is one of GGUF's.
fn names_weight(name: &str) -> bool {
    const GLOBAL: &[&str] = &[
        "token_embd",
        "output",
        "output_norm",
        "position_embd",
        "token_types",
        "token_embd_norm",
        "cls",
        "cls.output",
        "cls.norm",
        "per_layer_token_embd",
        "per_layer_model_proj",
        "per_layer_proj_norm",
    ];
    name.starts_with("blk.")
        || name.starts_with("altup_")
        || name
            .rsplit_once('.')
            .is_some_and(|(stem, leaf)| GLOBAL.contains(&stem) && ["weight", "bias"].contains(&leaf))
}

/// A complaint about what a checkpoint is.
fn refusal(checkpoint: &Checkpoint, message: impl Into<String>) -> Error {
    Error::config(&checkpoint.config.source_name, message)
}

/// That there are no GGUF files of a checkpoint's architecture.
fn not_in_llama_cpp(checkpoint: &Checkpoint) -> Error {
    let name = &checkpoint.config.architecture;
    refusal(checkpoint, format!("llama.cpp has no architecture for {name}: take its own files"))
}
