//! A checkpoint as a GGUF file holds it: metadata and tensors, by the names and in the layouts of llama.cpp.

mod factors;
mod metadata;

use std::collections::HashSet;
use std::path::Path;

use graph::ops::RopeStyle;
use tensor::Tensor;
use weights::{Format, Metadata};

use crate::checkpoint::Family;
use crate::gguf_file::{ExportTensor, GgufFile, pair_rows, split_latents, stack, tile};
use crate::layers::XIELU;
use crate::mix::layer_of;
use crate::names::NameTable;
use crate::stored::transposed;
use crate::{
    Architecture, CenteredNorms, Checkpoint, Config, Error, Output, QuantizeOptions, Quantizer, RopeConfig,
};

/// The keys of a file that is one of several.
const SPLIT: &str = "split.";

/// How GGUF files of an architecture differ from those of a Hugging Face checkpoint.
struct GgufForm {
    /// The name of the architecture.
    name: &'static str,
    /// What they call weights otherwise than the canonical names.
    names: NameTable,
    /// The norms whose weights the checkpoint holds less 1.
    centered_norms: CenteredNorms,
    /// Whether gates of experts are in one tensor with what they multiply.
    joins_gates: bool,
    /// Whether what makes keys of latents is in one tensor with what makes values of them.
    joins_latents: bool,
    /// Whether the factors of the configuration are in the weights.
    holds_factors: bool,
    /// The order of the rows of queries and keys, here and there.
    styles: [RopeStyle; 2],
}

impl GgufForm {
    /// # Errors
    /// If GGUF files cannot hold the order of rows.
    fn new(checkpoint: &Checkpoint, config: &Config) -> Result<GgufForm, Error> {
        let architecture = match Family::from_hugging_face(&config.architecture)? {
            Family::Decoder(architecture) => architecture,
            Family::Encoder(encoder) => {
                return Ok(GgufForm {
                    name: encoder.gguf,
                    names: &[],
                    centered_norms: encoder.centered_norms,
                    joins_gates: false,
                    joins_latents: false,
                    holds_factors: false,
                    styles: [RopeStyle::HalfSplit; 2],
                });
            }
        };
        let Architecture { centered_norms, gguf_joins_gates, gguf_joins_latents, .. } = *architecture;
        let Architecture { gguf_holds_factors, gguf_rope, .. } = *architecture;
        // Meta's own checkpoints pair neighbours, as GGUF files of these models do.
        let meta = crate::names::are_of_meta(checkpoint.weights().names());
        let own = config.rope.style.unwrap_or(architecture.rope);
        let own = if meta { RopeStyle::Interleaved } else { own };
        if config.latent.is_some() && own != gguf_rope {
            let message = "`rope_interleave` has no key in GGUF files, whose latents turn neighbouring dims";
            return Err(refusal(config, message));
        }
        let name = architecture.gguf_name(config.experts.is_some());
        Ok(GgufForm {
            name: name.ok_or_else(|| not_in_llama_cpp(config))?,
            names: (architecture.gguf_names)(&|name| checkpoint.canonical_names().contains_key(name)),
            centered_norms,
            joins_gates: gguf_joins_gates,
            joins_latents: gguf_joins_latents,
            holds_factors: gguf_holds_factors,
            styles: [own, gguf_rope],
        })
    }

    /// Brings rows of queries and keys into the order of GGUF files.
    fn turn(&self, config: &Config, tensors: &mut [ExportTensor]) -> Result<(), Error> {
        let [own, of_files] = self.styles;
        // llama.cpp's converter turns rows of hybrid models whether or not they rotate.
        let turns_all = config.rope.dims == 0
            && config.state_space.is_some()
            && self.styles == [RopeStyle::HalfSplit, RopeStyle::Interleaved];
        if turns_all {
            let rope = RopeConfig { dims: config.attention.head_dim, ..config.rope.clone() };
            return pair_rows(tensors, &Config { rope, ..config.clone() }, of_files);
        }
        if config.rope.dims == 0 || own == of_files { Ok(()) } else { pair_rows(tensors, config, of_files) }
    }
}

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
            return Err(refusal(&checkpoint.config, message));
        }
        if !checkpoint.repacked().is_empty() {
            let message = "this checkpoint is quantized: take the one that it was made from";
            return Err(refusal(&checkpoint.config, message));
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
        // As it is in the file: that of the checkpoint was made for sequences of some length.
        let mut config =
            Config::from_hugging_face_as(&source, &json, checkpoint.config.architecture.clone())?;
        // Errors name the file of the checkpoint.
        config.source_name.clone_from(&checkpoint.config.source_name);
        let form = GgufForm::new(checkpoint, &config)?;
        config.prediction_layers = prediction_layers(checkpoint, &config);
        let blocks = config.layers + config.prediction_layers;
        let mut tensors = known_tensors(checkpoint, blocks, form.joins_gates);
        let config =
            if form.holds_factors { factors::fold(checkpoint, config, &mut tensors)? } else { config };
        let config = take_activations(checkpoint, config, &mut tensors)?;
        let (config, norms) = factors::as_norms(config);
        let metadata = metadata::for_config(checkpoint, &config, form.name)?;
        stack(&mut tensors);
        if !form.joins_latents {
            split_latents(&mut tensors, &config);
        }
        for tensor in &mut tensors {
            let change = |applies: bool, change: fn(f32) -> f32| applies.then_some(change);
            tensor.change = change(form.centered_norms.include(&tensor.name), |x| x + 1.0)
                .or_else(|| change(checkpoint.is_logarithm(&tensor.name), |x| -x.exp()));
        }
        let read = Config::from_gguf(&metadata, config.vocab)?;
        if let (Some(delta), Some(written)) = (config.delta, read.delta)
            && written.tiled != delta.tiled
        {
            tile(&mut tensors, &delta);
        }
        form.turn(&config, &mut tensors)?;
        tensors.extend(norms);
        for tensor in &mut tensors {
            tensor.name = crate::names::spelled(&tensor.name, form.names);
        }
        for (name, factors) in metadata::rope_factors(&config) {
            let factors = Tensor::from_slice([factors.len()], &factors);
            tensors.push(ExportTensor::whole(name.to_string(), factors));
        }
        Ok(GgufFile::new(metadata, tensors, form.name.to_string(), &config))
    }
}

/// The number of layers that predict tokens further ahead and that GGUF files hold. These have the names of such layers,
/// and experts that are stored one by one.
fn prediction_layers(checkpoint: &Checkpoint, config: &Config) -> usize {
    let has = |layer: usize, weight: &str| {
        checkpoint.canonical_names().contains_key(&format!("blk.{layer}.{weight}.weight"))
    };
    let layers = config.layers..config.layers.saturating_add(config.prediction_layers);
    layers.take_while(|&layer| has(layer, "nextn.eh_proj") && !has(layer, "ffn_gate_up_exps")).count()
}

/// The tensors of a checkpoint that are in one of so many blocks of the model or in none, by their GGUF names; gates in one
/// with what they multiply only if `joins_gates`.
fn known_tensors(checkpoint: &Checkpoint, blocks: usize, joins_gates: bool) -> Vec<ExportTensor> {
    let unused: HashSet<&str> = checkpoint.unused().iter().map(String::as_str).collect();
    let makes_text = checkpoint.model.gives(Output::Logits);
    let mut tensors = Vec::new();
    if let Some((stored, rows)) = checkpoint.score_rows() {
        let tensor = stored_tensor(checkpoint, stored);
        let tensor = ExportTensor::whole_float("cls.output.weight".to_string(), tensor.clone());
        tensors.push(tensor.made_of(vec![stored.to_string()]).with_rows(rows.to_vec()));
    }
    for (name, stored) in checkpoint.canonical_names() {
        // The vocabulary head of a model that makes no text is for other tasks.
        let is_of_model = layer_of(name).is_none_or(|layer| layer < blocks);
        let is_known = names_weight(name) && is_of_model && (makes_text || !name.starts_with("output."));
        if is_known && !unused.contains(&stored[..]) {
            tensors.extend(tensors_for(checkpoint, name, stored, joins_gates));
        }
    }
    tensors
}

/// What a tensor of the files, `stored`, becomes.
fn tensors_for(checkpoint: &Checkpoint, name: &str, stored: &str, joins_gates: bool) -> Vec<ExportTensor> {
    let export = |name: &str, tensor: Tensor| {
        ExportTensor::whole_float(name.to_string(), tensor).made_of(vec![stored.to_string()])
    };
    let gates = checkpoint.gate_views(name);
    if !gates.is_empty() && !joins_gates {
        return gates.into_iter().map(|(name, tensor)| export(&name, tensor)).collect();
    }
    let tensor = stored_tensor(checkpoint, stored);
    let (is_transposed, rows) = checkpoint.gguf_rows(name);
    let rows = checkpoint.model.text().gguf_rows(name).map_or(rows, |used| vec![used]);
    let is_turned = is_transposed && tensor.shape().rank() >= 2;
    let tensor = export(name, if is_turned { transposed(tensor) } else { tensor.clone() });
    let parts = if joins_gates { Vec::new() } else { checkpoint.gguf_parts(name) };
    if !parts.is_empty() {
        let part = |(part, rows): &(String, &[_])| tensor.clone().named(part).with_rows(rows.to_vec());
        return parts.iter().map(part).collect();
    }
    let tensor = columns(&checkpoint.config, name).into_iter().fold(tensor, ExportTensor::in_rows_of);
    // The block that every token gets is all that there is of a feed-forward block.
    let dense = name.replace("ffn_down_shexp", "ffn_down");
    let is_dense = checkpoint.describe(name).is_none() && checkpoint.describe(&dense).is_some();
    let tensor = if is_dense { tensor.named(&dense) } else { tensor };
    vec![if rows.is_empty() { tensor } else { tensor.with_rows(rows) }]
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

fn stored_tensor<'a>(checkpoint: &'a Checkpoint, name: &str) -> &'a Tensor {
    checkpoint.weights().get(name).expect("a name of the weights")
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
fn refusal(config: &Config, message: impl Into<String>) -> Error {
    Error::config(&config.source_name, message)
}

/// That there are no GGUF files of a configuration's architecture.
fn not_in_llama_cpp(config: &Config) -> Error {
    let name = &config.architecture;
    refusal(config, format!("llama.cpp has no architecture for {name}: take its own files"))
}
