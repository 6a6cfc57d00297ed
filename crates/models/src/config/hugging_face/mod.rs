//! `config.json` of a Hugging Face folder.

mod biases;
mod delta;
mod entries;
mod experts;
mod keys;
mod layers;
mod multipliers;
mod rope;
mod state_space;

use serde::Deserialize;
use serde_json::Value;

pub(crate) use self::keys::ConfigKeys;
use super::{Config, IndexerConfig, LatentConfig, MAX_LAYERS, Multipliers, Scaling};
use crate::architectures::{Architecture, EncoderArchitecture, Frame};
use crate::{Activation, Error};

/// The key that says what the others mean.
#[derive(Deserialize)]
struct Head {
    architectures: Option<Vec<String>>,
    model_type: Option<String>,
    position_embedding_type: Option<String>,
}

/// The keys in the words that all families share. Absent ones have the defaults that `transformers` gives a Llama.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "_name_or_path")]
    name: Option<String>,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    #[serde(default)]
    num_nextn_predict_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    kv_lora_rank: Option<usize>,
    q_lora_rank: Option<usize>,
    qk_rope_head_dim: Option<usize>,
    v_head_dim: Option<usize>,
    index_n_heads: Option<usize>,
    #[serde(default)]
    index_head_dim: usize,
    #[serde(default)]
    index_topk: usize,
    indexer_types: Option<Vec<String>>,
    intermediate_size: usize,
    #[serde(default = "default_context")]
    max_position_embeddings: usize,
    #[serde(default = "default_eps")]
    norm_eps: f32,
    #[serde(flatten)]
    experts: experts::File,
    #[serde(flatten)]
    layers: layers::File,
    #[serde(flatten)]
    delta: delta::File,
    short_convolution: Option<usize>,
    state_space: Option<state_space::File>,
    #[serde(flatten)]
    multipliers: multipliers::File,
    recurrent_layers: Option<Vec<bool>>,
    sparse_layers: Option<Vec<bool>>,
    experts_per_token: Option<Vec<usize>>,
    #[serde(flatten)]
    biases: biases::File,
    #[serde(default)]
    alibi: bool,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    hidden_act: Option<String>,
    #[serde(flatten)]
    rope: rope::File,
    no_rope_layers: Option<Vec<u32>>,
    no_rope_layer_interval: Option<usize>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    sliding_window_pattern: Option<Value>,
    attn_logit_softcapping: Option<f32>,
    final_logit_softcapping: Option<f32>,
    query_pre_attn_scalar: Option<f32>,
    tie_word_embeddings: Option<bool>,
    use_bidirectional_attention: Option<bool>,
    use_parallel_residual: Option<bool>,
    embedding_multiplier: Option<f32>,
    attention_multiplier: Option<f32>,
    residual_multiplier: Option<f32>,
    logit_scale: Option<f32>,
    clip_qkv: Option<f32>,
    swiglu_limit: Option<f32>,
    unit_queries: Option<bool>,
}

fn default_context() -> usize {
    2048
}

fn default_eps() -> f32 {
    1e-6
}

impl Config {
    /// The architecture that a `config.json` names, whatever else is in it: of several the first that is known, and of none
    /// that of its `model_type`.
    ///
    /// # Errors
    /// If it is no JSON, or names none.
    pub(crate) fn architecture_of_hugging_face(source_name: &str, json: &str) -> Result<String, Error> {
        let head: Head = weights::from_json(json.as_bytes())
            .map_err(|error| Error::config(source_name, error.to_string()))?;
        let is_known = |name: &&String| {
            EncoderArchitecture::from_hugging_face(name).is_some()
                || Frame::from_hugging_face(name).is_some()
                || Architecture::from_hugging_face(name).is_ok()
        };
        let names = head.architectures.unwrap_or_default();
        let of_type = || Architecture::from_model_type(head.model_type.as_deref()?).map(str::to_string);
        names.iter().find(is_known).or(names.first()).cloned().or_else(of_type).ok_or_else(|| {
            let message = "`architectures` names none, and `model_type` is no known one: name the architecture with \
                           the model";
            Error::config(source_name, message)
        })
    }

    /// The architecture that a name stands for in a `config.json`: that of the text part of a frame, and of the first files
    /// of Jina v3, which have the name of the model that it was made from.
    pub(crate) fn meant_architecture(json: &str, name: String) -> String {
        if let Some(frame) = Frame::from_hugging_face(&name) {
            return frame.text_architecture(json);
        }
        let head = weights::from_json::<Head>(json.as_bytes());
        let is_rotary = |head: Head| head.position_embedding_type.as_deref() == Some("rotary");
        if name == "XLMRobertaModel" && head.is_ok_and(is_rotary) {
            return "JinaEmbeddingsV3Model".to_string();
        }
        name
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// If it is no JSON, a key is missing or of the wrong kind, or the numbers contradict each other.
    pub fn from_hugging_face(source_name: &str, json: &str) -> Result<Config, Error> {
        let architecture = Config::architecture_of_hugging_face(source_name, json)?;
        let architecture = Config::meant_architecture(json, architecture);
        Config::from_hugging_face_as(source_name, json, architecture)
    }

    /// As [`Config::from_hugging_face`], of an architecture that its reader knows.
    pub(crate) fn from_hugging_face_as(
        source_name: &str,
        json: &str,
        architecture: String,
    ) -> Result<Config, Error> {
        let json = weights::from_json(json.as_bytes())
            .map_err(|error| Error::config(source_name, error.to_string()))?;
        let (keys, of_text) = ConfigKeys::of_text_half(json);
        if let Some(encoder) = EncoderArchitecture::from_hugging_face(&architecture) {
            let mut keys = keys;
            encoder.renames.iter().for_each(|(own, shared)| keys.rename(own, shared));
            let mut keys = keys.of_family(encoder.family, None);
            if let Some(family) = encoder.family {
                (family.complete)(&mut keys).map_err(|message| Error::config(source_name, message))?;
            }
            return Config::of_keys(source_name, architecture, keys);
        }
        let family = Architecture::from_hugging_face(&architecture)?.of_text_half(of_text.as_deref());
        let read = |more: Option<&str>| {
            let mut keys = keys.of_family(Some(family), more);
            (family.complete)(&mut keys).map_err(|message| Error::config(source_name, message))?;
            Config::of_keys(source_name, architecture.clone(), keys)
        };
        let mut config = read(None)?;
        // Files keep many keys that make no difference, such as a factor of 1.
        let matters = |key: &&str| read(Some(key)).map_or(true, |other| other != config);
        let ignored = keys.of_others(family).into_iter().filter(matters).map(str::to_string).collect();
        config.ignored_keys = ignored;
        Ok(config)
    }

    /// Reads keys in the words that all families share.
    fn of_keys(source_name: &str, architecture: String, keys: ConfigKeys) -> Result<Config, Error> {
        let error = |message: String| Error::config(source_name, message);
        let file: File =
            serde_json::from_value(keys.into_value()).map_err(|invalid| error(invalid.to_string()))?;
        if file.num_attention_heads == 0 {
            return Err(error("`num_attention_heads` is 0".into()));
        }
        if file.use_bidirectional_attention == Some(true) {
            return Err(error(
                "tokens see later ones (`use_bidirectional_attention`), which is not supported".into(),
            ));
        }
        let head_dim = file.head_dim.unwrap_or(file.hidden_size / file.num_attention_heads);
        let kv_heads = file.num_key_value_heads.unwrap_or(file.num_attention_heads);
        let global_heads = file.layers.global_heads(kv_heads);
        let global_head_dim = global_heads.map_or(head_dim, |heads| heads.head_dim);
        let [global_dim, local_dim] =
            [global_head_dim, head_dim].map(|dim| file.qk_rope_head_dim.unwrap_or(dim));
        let (rope, local_rope) =
            file.rope.read([global_dim, local_dim], file.max_position_embeddings).map_err(error)?;
        let window = file.window();
        let windowed_layers = file.windowed_layers().map_err(error)?.filter(|_| window.is_some());
        let activation = file.hidden_act.as_deref().map(Activation::from_hugging_face);
        Config {
            source_name: source_name.to_string(),
            architecture,
            name: file.name.clone().filter(|name| !name.is_empty()),
            vocab: file.vocab_size,
            hidden: file.hidden_size,
            layers: file.num_hidden_layers,
            prediction_layers: file.num_nextn_predict_layers,
            heads: file.num_attention_heads,
            kv_heads,
            head_dim,
            global_heads,
            keys_as_values: file.layers.attention_k_eq_v,
            shared_layers: file.layers.num_kv_shared_layers.unwrap_or(0),
            latent: file.latent(head_dim),
            indexed_layers: file.indexed_layers().map_err(error)?,
            feed_forward: file.intermediate_size,
            gate_cutoffs: file.layers.gate_cutoffs(file.num_hidden_layers.min(MAX_LAYERS)).map_err(error)?,
            layer_embedding: file.layers.layer_embedding(file.vocab_size),
            streams: file.layers.streams(),
            low_rank: file.layers.laurel_rank,
            layer_widths: file.layers.layer_widths.clone(),
            experts: file.experts.read(file.intermediate_size).map_err(error)?,
            gate_limit: file.swiglu_limit,
            delta: file.delta.read(),
            short_convolution: file.short_convolution,
            state_space: file
                .state_space
                .as_ref()
                .map(|space| space.read(file.hidden_size))
                .transpose()
                .map_err(error)?,
            layer_multipliers: file.multipliers.read(),
            lone_blocks: file.multipliers.lone_blocks().map_err(error)?,
            recurrent_layers: file.recurrent_layers(),
            sparse_layers: match &file.sparse_layers {
                Some(layers) => Some(layers.clone()),
                None => file.experts.sparse_layers(file.num_hidden_layers).map_err(error)?,
            },
            experts_per_token: file.experts_per_token.clone(),
            context_length: Scaling::reach(rope.scaling, file.max_position_embeddings),
            norm_eps: file.norm_eps,
            activation: activation.transpose().map_err(error)?,
            temperature: file.rope.temperature(file.max_position_embeddings),
            alibi: file.alibi,
            rope,
            local_rope,
            rope_style: file.rope.style(),
            rope_sections: file.rope.sections().map_err(error)?,
            rotated_layers: file.rotated_layers(),
            window,
            windowed_layers,
            parallel_residual: file.use_parallel_residual,
            clip_qkv: file.clip_qkv,
            unit_queries: file.unit_queries.unwrap_or(false),
            multipliers: file.multipliers(),
            attention_softcap: file.attn_logit_softcapping,
            logit_softcap: file.final_logit_softcapping,
            scores_fall: file.scale_attn_by_inverse_layer_idx,
            tied: file.tie_word_embeddings,
            without_bias: file.biases.absent(),
            ignored_keys: Vec::new(),
        }
        .checked()
    }
}

impl File {
    fn latent(&self, head_dim: usize) -> Option<LatentConfig> {
        let value_dims = self.v_head_dim.unwrap_or(head_dim);
        let indexer = self.index_n_heads.map(|heads| {
            let (dims, positions) = (self.index_head_dim, self.index_topk);
            IndexerConfig { heads, dims, positions }
        });
        let query_rank = self.q_lora_rank;
        self.kv_lora_rank.map(|rank| LatentConfig { rank, query_rank, value_dims, indexer })
    }

    fn indexed_layers(&self) -> Result<Option<Vec<bool>>, String> {
        let Some(kinds) = &self.indexer_types else { return Ok(None) };
        let indexed = kinds.iter().map(|kind| match kind.as_str() {
            "full" => Ok(true),
            "shared" => Ok(false),
            _ => Err(format!("indexers of the type `{kind}` are not supported; known: full, shared")),
        });
        indexed.collect::<Result<_, _>>().map(Some)
    }

    fn rotated_layers(&self) -> Option<Vec<bool>> {
        // Despite its name the list holds 1 where a layer rotates.
        let listed = || Some(self.no_rope_layers.as_ref()?.iter().map(|&rotates| rotates != 0).collect());
        let interval = || {
            let interval = self.no_rope_layer_interval?;
            Some((1..=self.num_hidden_layers.min(MAX_LAYERS)).map(|i| !i.is_multiple_of(interval)).collect())
        };
        listed().or_else(interval)
    }

    fn window(&self) -> Option<usize> {
        let on = self.use_sliding_window.unwrap_or(true);
        self.sliding_window.filter(|&window| on && window > 0)
    }

    /// Newer files list the kind of each layer; older ones say every how many layers one has no window, or how many
    /// of the first have none.
    fn windowed_layers(&self) -> Result<Option<Vec<bool>>, String> {
        let all = |windowed: &dyn Fn(usize) -> bool| {
            Ok(Some((0..self.num_hidden_layers.min(MAX_LAYERS)).map(windowed).collect()))
        };
        if let Some(kinds) = &self.layer_types {
            let windowed = kinds.iter().map(|kind| match kind.as_str() {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                kind if self.is_recurrent(kind) => Ok(false),
                _ => Err(format!(
                    "layers of the type `{kind}` are not supported; known: full_attention, sliding_attention"
                )),
            });
            return windowed.collect::<Result<_, _>>().map(Some);
        }
        match (&self.sliding_window_pattern, self.max_window_layers) {
            (Some(Value::Number(every)), _) => match every.as_u64() {
                Some(0) => all(&|_| false),
                Some(every) => all(&|index| !(index as u64 + 1).is_multiple_of(every)),
                None => Err(format!("`sliding_window_pattern` is {every}, expected a number of layers")),
            },
            // A letter for each layer of the pattern: L has the window.
            (Some(Value::String(letters)), _) if !letters.is_empty() => {
                all(&|index| letters.as_bytes()[index % letters.len()] == b'L')
            }
            (Some(Value::Null) | None, Some(full)) => all(&|index| index >= full),
            (Some(Value::Null) | None, None) => Ok(None),
            (Some(other), _) => {
                Err(format!("`sliding_window_pattern` is {other}, expected a number of layers"))
            }
        }
    }

    fn recurrent_layers(&self) -> Option<Vec<bool>> {
        if self.recurrent_layers.is_some() {
            return self.recurrent_layers.clone();
        }
        let kinds = self.layer_types.as_ref()?.iter();
        let recurrent: Vec<bool> = kinds.map(|kind| self.is_recurrent(kind)).collect();
        recurrent.contains(&true).then_some(recurrent)
    }

    /// Whether layers of a type keep a state per sequence, in a model that says how large it is.
    fn is_recurrent(&self, kind: &str) -> bool {
        kind == "linear_attention" && self.delta.read().is_some()
    }

    fn multipliers(&self) -> Multipliers {
        let query_scale = self.query_pre_attn_scalar.map(|scalar| 1.0 / scalar.sqrt());
        Multipliers {
            embedding: self.embedding_multiplier.unwrap_or(1.0),
            attention: self.attention_multiplier.or(query_scale),
            residual: self.residual_multiplier.unwrap_or(1.0),
            logits: self.logit_scale.unwrap_or(1.0),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) fn llama(extra: &str) -> String {
        format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
                "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
                "intermediate_size": 8192, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
                "rope_theta": 500000.0 {extra}}}"#
        )
    }

    #[test]
    fn reads_llama() {
        let scaling = r#", "rope_scaling": {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}"#;
        let config = Config::from_hugging_face("config.json", &llama(scaling)).unwrap();
        assert_eq!((config.head_dim, config.rope.dims, config.kv_heads), (64, 64, 8));
        assert_eq!(
            config.rope.scaling,
            Some(Scaling::Llama3 {
                factor: 32.0,
                low_frequency: 1.0,
                high_frequency: 4.0,
                original_context: 8192.0
            })
        );
        let newer = r#", "rope_parameters": {"rope_theta": 7.5, "rope_type": "default"}"#;
        let config = Config::from_hugging_face("config.json", &llama(newer)).unwrap();
        assert_eq!((config.rope.theta, config.rope.scaling), (7.5, None));
    }

    /// The small Llama as a model of another family.
    fn of_family(name: &str, extra: &str) -> Config {
        let json = llama(extra).replace("LlamaForCausalLM", name);
        Config::from_hugging_face("config.json", &json).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn reads_what_other_families_say() {
        let mistral = of_family("MistralForCausalLM", r#", "sliding_window": 4096"#);
        assert_eq!((mistral.window, mistral.windowed_layers), (Some(4096), None));
        let qwen = |extra: &str| of_family("Qwen2ForCausalLM", extra);
        assert_eq!(qwen(r#", "sliding_window": 4096, "max_window_layers": 28"#).window, None);
        let on = qwen(r#", "sliding_window": 9, "max_window_layers": 3, "use_sliding_window": true"#);
        assert_eq!(on.window, Some(9));
        assert_eq!(on.windowed_layers, Some([vec![false; 3], vec![true; 13]].concat()));
        let moe = r#", "sliding_window": 9, "max_window_layers": 3, "use_sliding_window": true"#;
        let moe = of_family("Qwen2MoeForCausalLM", moe).windowed_layers.unwrap();
        assert_eq!(moe[..5], [true, false, true, false, false]);
        let next = of_family("Qwen3NextForCausalLM", r#", "linear_num_value_heads": 16"#);
        assert_eq!(next.recurrent_layers, Some([true, true, true, false].repeat(4)));
        assert_eq!(
            next.delta.map(|delta| (delta.key_heads, delta.value_heads, delta.key_dim)),
            Some((16, 16, 128))
        );
        assert_eq!(next.rope.dims, 64);
        let rotated = of_family("SmolLM3ForCausalLM", r#", "no_rope_layer_interval": 4"#).rotated_layers;
        assert_eq!(rotated, Some([true, true, true, false].repeat(4)));
        let granite = r#", "attention_multiplier": 0.5, "logits_scaling": 8.0"#;
        let expected = Multipliers { attention: Some(0.5), logits: 0.125, ..Multipliers::default() };
        assert_eq!(of_family("GraniteForCausalLM", granite).multipliers, expected);
    }

    #[test]
    fn keys_of_other_families_change_nothing_and_are_named() {
        let base = of_family("LlamaForCausalLM", "");
        assert_eq!(base.ignored_keys, [""; 0]);
        for (key, extra) in [
            ("attn_logit_softcapping", r#""attn_logit_softcapping": 50.0"#),
            ("final_logit_softcapping", r#""final_logit_softcapping": 30.0"#),
            ("partial_rotary_factor", r#""partial_rotary_factor": 0.5"#),
            (
                "rope_parameters.partial_rotary_factor",
                r#""rope_parameters": {"rope_theta": 500000.0, "partial_rotary_factor": 0.5}"#,
            ),
            ("query_pre_attn_scalar", r#""query_pre_attn_scalar": 256"#),
            ("sliding_window", r#""sliding_window": 4096"#),
            ("no_rope_layer_interval", r#""no_rope_layer_interval": 4"#),
            ("attention_multiplier", r#""attention_multiplier": 0.5"#),
            ("use_parallel_residual", r#""use_parallel_residual": true"#),
            ("clip_qkv", r#""clip_qkv": 8.0"#),
            ("rope_local_base_freq", r#""rope_local_base_freq": 10000.0"#),
            ("key_multiplier", r#""key_multiplier": 0.5"#),
            ("ssm_multipliers", r#""ssm_multipliers": [1.0, 1.0, 1.0, 2.0, 1.0]"#),
            ("swiglu_limit", r#""swiglu_limit": 7.0"#),
        ] {
            let config = of_family("LlamaForCausalLM", &format!(", {extra}"));
            assert_eq!(config.ignored_keys, [key]);
            assert_eq!(Config { ignored_keys: Vec::new(), ..config }, base, "{key}");
        }
        // A key whose value would change nothing is not worth a warning.
        let neutral = r#", "sliding_window": null, "partial_rotary_factor": 1.0, "max_window_layers": 28,
            "layer_types": ["full_attention"], "use_sliding_window": false, "moe_intermediate_size": 9"#;
        assert_eq!(of_family("LlamaForCausalLM", neutral), base);
        let phi = r#", "partial_rotary_factor": 0.5, "layer_norm_eps": 0.1, "rms_norm_eps": 0.2"#;
        let json = llama("").replace(r#""rms_norm_eps": 1e-05,"#, "");
        let json = json.replace("LlamaForCausalLM", "PhiForCausalLM").replace("}", &format!("{phi}}}"));
        let phi = Config::from_hugging_face("config.json", &json).unwrap();
        assert_eq!((phi.rope.dims, phi.norm_eps, &phi.ignored_keys[..]), (32, 0.1, &[][..]));
    }

    #[test]
    fn biases_that_are_said_not_to_be_used_are_left_out() {
        let absent = |family: &str, extra: &str| of_family(family, extra).without_bias;
        let no_bias = r#", "attention_bias": false, "mlp_bias": false"#;
        let of_llama = absent("LlamaForCausalLM", no_bias);
        for stem in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
            assert!(of_llama.contains(&stem), "{stem}: {of_llama:?}");
        }
        // Qwen2 has biases whatever the file says, and Seed-OSS has another key for its output.
        assert_eq!(absent("Qwen2ForCausalLM", no_bias), [""; 0]);
        let output = r#", "attention_bias": false, "attention_out_bias": true"#;
        assert!(!absent("SeedOssForCausalLM", output).contains(&"attn_output"));
        assert_eq!(absent("LlamaForCausalLM", ""), [""; 0]);
    }

    #[test]
    fn files_without_a_name_are_known_by_their_type() {
        let json = |model_type: &str| {
            let of_type = format!(r#""model_type": "{model_type}""#);
            llama("").replace(r#""architectures": ["LlamaForCausalLM"]"#, &of_type)
        };
        let found = |model_type: &str| Config::architecture_of_hugging_face("config.json", &json(model_type));
        for (model_type, name) in [
            ("mistral", "MistralForCausalLM"),
            ("gpt2", "GPT2LMHeadModel"),
            ("xlm-roberta", "XLMRobertaModel"),
            ("llava_next", "LlavaNextForConditionalGeneration"),
        ] {
            assert_eq!(found(model_type).unwrap(), name);
        }
        assert_eq!(Config::from_hugging_face("config.json", &json("llama")).unwrap().layers, 16);
        assert!(found("odd").unwrap_err().to_string().contains("`model_type` is no known one"));
    }

    #[test]
    fn layers_that_all_choose_positions_are_no_surprise() {
        let kinds = |kind: &str| {
            let kinds = vec![format!(r#""{kind}""#); 16].join(", ");
            format!(r#", "n_group": 1, "topk_group": 1, "q_lora_rank": 8, "layer_types": [{kinds}]"#)
        };
        for family in ["DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"] {
            assert_eq!(of_family(family, &kinds("indexed_attention")).ignored_keys, [""; 0], "{family}");
            let odd = llama(&kinds("full_attention")).replace("LlamaForCausalLM", family);
            let error = Config::from_hugging_face("config.json", &odd).unwrap_err().to_string();
            assert!(error.contains("layers of the type \"full_attention\" are not supported"), "{error}");
        }
    }

    #[test]
    fn shares_of_deepseek_v2_never_sum_to_1() {
        let experts = r#", "n_routed_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": true"#;
        let normalized = |family: &str| of_family(family, experts).experts.unwrap().routing.normalized;
        assert!(!normalized("DeepseekV2ForCausalLM"));
        let groups = r#", "n_group": 1, "topk_group": 1"#;
        let v3 = of_family("DeepseekV3ForCausalLM", &format!("{experts}{groups}"));
        assert!(v3.experts.unwrap().routing.normalized);
    }

    #[test]
    fn says_what_is_wrong() {
        let refusal = |json: &str| Config::from_hugging_face("config.json", json).unwrap_err().to_string();
        assert!(refusal("{}").contains("`architectures` names none"));
        let sizeless = r#"{"architectures": ["Qwen2ForCausalLM"]}"#;
        assert!(refusal(sizeless).contains("missing field `vocab_size`"));
        assert!(refusal("[").starts_with("config.json: "));
        let unknown = llama(r#", "rope_scaling": {"type": "magic", "factor": 2.0}"#);
        assert!(refusal(&unknown).contains("rope scaling `magic` is not supported"));
        let encoder = llama(r#", "use_bidirectional_attention": true"#);
        assert!(refusal(&encoder).contains("tokens see later ones"));
        for (family, kinds, said) in [
            (
                "Olmo3ForCausalLM",
                r#""layer_types": ["linear_attention"]"#,
                "layers of the type `linear_attention` are not supported",
            ),
            (
                "Olmo3ForCausalLM",
                r#""layer_types": ["full_attention"]"#,
                "16 layers, but 1 in the list of windowed ones",
            ),
            (
                "Qwen3_5ForCausalLM",
                r#""full_attention_interval": 0"#,
                "attention comes every 0 layers, expected at least 1",
            ),
            (
                "Qwen3NextForCausalLM",
                r#""linear_num_key_heads": 3"#,
                "32 value heads of delta nets cannot share 3 key heads evenly",
            ),
            ("Exaone4ForCausalLM", r#""sliding_window_pattern": -1"#, "`sliding_window_pattern` is -1"),
            ("LlamaForCausalLM", r#""hidden_act": "magic""#, "the activation `magic` is not supported"),
            (
                "FalconForCausalLM",
                r#""alibi": true, "max_position_embeddings": 1048576"#,
                "1048576 positions have too many biases for 32 heads",
            ),
        ] {
            let json = llama(&format!(r#", "sliding_window": 9, {kinds}"#));
            let error = refusal(&json.replace("LlamaForCausalLM", family));
            assert!(error.contains(said), "{error}");
        }
        let negative = llama("").replace("2048", "-2048");
        assert!(refusal(&negative).contains("invalid value: integer `-2048`"));
    }
}
