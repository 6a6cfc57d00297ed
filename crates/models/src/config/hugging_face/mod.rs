//! `config.json` of a Hugging Face folder.

mod biases;
mod experts;
mod keys;
mod layers;
mod rope;
mod state_space;

use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) use self::keys::{COMMON, ConfigKeys};
use super::{Config, LayerLists, LoneBlock, Scaling};
use crate::key::{self, MAX_LAYERS};
use crate::{AttentionConfig, DeltaConfig, Error, IndexerConfig, LatentConfig};

/// The keys that need more than a table says: several make one number, or one has several forms.
#[derive(Deserialize)]
struct IrregularKeys {
    #[serde(rename = "_name_or_path")]
    name: Option<String>,
    qk_rope_head_dim: Option<usize>,
    indexer_types: Option<Vec<String>>,
    #[serde(flatten)]
    experts: experts::ExpertKeys,
    #[serde(flatten)]
    layers: layers::LayerKeys,
    state_space: Option<Map<String, Value>>,
    /// Set for families whose layers have one block: a letter for each layer.
    lone_blocks: Option<String>,
    #[serde(flatten)]
    biases: biases::BiasKeys,
    #[serde(flatten)]
    rope: rope::RopeKeys,
    no_rope_layers: Option<Vec<u32>>,
    no_rope_layer_interval: Option<usize>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    sliding_window_pattern: Option<Value>,
    query_pre_attn_scalar: Option<f32>,
    use_bidirectional_attention: Option<bool>,
}

/// What `transformers` gives a Llama whose file does not say it.
const DEFAULT_CONTEXT: usize = 2048;
const DEFAULT_EPS: f32 = 1e-6;

impl Config {
    /// Reads a `config.json` whose keys have the names that all families share.
    pub(crate) fn from_keys(
        source_name: &str,
        architecture: String,
        keys: ConfigKeys,
    ) -> Result<Config, Error> {
        let error = |message: String| Error::config(source_name, message);
        let keys = keys.into_map();
        let file: IrregularKeys = serde_json::from_value(Value::Object(keys.clone()))
            .map_err(|invalid| error(invalid.to_string()))?;
        let mut config = file.read(&keys).map_err(error)?;
        config.source_name = source_name.to_string();
        config.architecture = architecture;
        config.checked()
    }
}

impl IrregularKeys {
    /// The configuration, without the names of file and architecture.
    fn read(&self, keys: &Map<String, Value>) -> Result<Config, String> {
        if self.use_bidirectional_attention == Some(true) {
            return Err(
                "tokens see later ones (`use_bidirectional_attention`), which is not supported".into()
            );
        }
        let mut config =
            Config { context_length: DEFAULT_CONTEXT, norm_eps: DEFAULT_EPS, ..Config::default() };
        key::read_json(&mut config, keys)?;
        config.name = self.name.clone().filter(|name| !name.is_empty());
        config.attention = self.attention(config.hidden, keys)?;
        self.read_positions(&mut config)?;
        let defaults = LatentConfig { value_dims: config.attention.head_dim, ..LatentConfig::default() };
        config.latent = key::block_from_json(defaults, keys)?;
        if let Some(latent) = &mut config.latent {
            latent.indexer = key::block_from_json(IndexerConfig::default(), keys)?;
        }
        config.delta = key::block_from_json(DeltaConfig::default(), keys)?;
        let space = self.state_space.as_ref().map(|space| state_space::read(space, config.hidden));
        config.state_space = space.transpose()?;
        config.experts = self.experts.read(config.feed_forward, keys)?;
        config.additions = self.layers.additions(config.vocab, keys)?;
        config.lists = self.lists(&config, keys)?;
        key::read_json(&mut config.multipliers, keys)?;
        let query_scale = self.query_pre_attn_scalar.map(|scalar| 1.0 / scalar.sqrt());
        config.multipliers.attention = config.multipliers.attention.or(query_scale);
        key::read_json(&mut config.layer_multipliers, keys)?;
        config.without_bias = self.biases.absent();
        Ok(config)
    }

    /// Reads the heads. By default there are as many key-value heads as query heads, of `hidden / heads` dims each.
    fn attention(&self, hidden: usize, keys: &Map<String, Value>) -> Result<AttentionConfig, String> {
        let heads = keys.get("num_attention_heads").and_then(Value::as_u64).unwrap_or(0) as usize;
        if heads == 0 {
            return Err("`num_attention_heads` is 0".into());
        }
        let head_dim = hidden / heads;
        let mut attention = AttentionConfig { kv_heads: heads, head_dim, ..AttentionConfig::default() };
        key::read_json(&mut attention, keys)?;
        attention.global_heads = self.layers.global_heads(attention.kv_heads);
        let has_window = self.use_sliding_window.unwrap_or(true);
        attention.window = self.sliding_window.filter(|&window| has_window && window > 0);
        Ok(attention)
    }

    fn read_positions(&self, config: &mut Config) -> Result<(), String> {
        let dims = [config.attention.global_head_dim(), config.attention.head_dim];
        let dims = dims.map(|dim| self.qk_rope_head_dim.unwrap_or(dim));
        let stated = config.context_length;
        (config.rope, config.local_rope) = self.rope.read(dims, stated)?;
        config.rope.style = self.rope.style();
        config.rope.sections = self.rope.sections()?;
        config.temperature = self.rope.temperature(stated);
        config.context_length = Scaling::reach(config.rope.scaling, stated);
        Ok(())
    }

    fn lists(&self, config: &Config, keys: &Map<String, Value>) -> Result<LayerLists, String> {
        let layers = config.layers.min(MAX_LAYERS);
        let mut lists = LayerLists {
            indexed: self.indexed_layers()?,
            gate_cutoffs: self.layers.gate_cutoffs(layers)?,
            lone_blocks: self.lone_blocks()?,
            recurrent: self.recurrent_layers(config),
            sparse: self.experts.sparse_layers(layers)?,
            rotated: self.rotated_layers(layers),
            ..LayerLists::default()
        };
        key::read_json(&mut lists, keys)?;
        lists.windowed = self.windowed_layers(config)?.filter(|_| config.attention.window.is_some());
        Ok(lists)
    }

    fn lone_blocks(&self) -> Result<Option<Vec<LoneBlock>>, String> {
        let Some(letters) = &self.lone_blocks else { return Ok(None) };
        let blocks = letters.chars().map(|letter| match letter {
            'M' => Ok(LoneBlock::StateSpace),
            '*' => Ok(LoneBlock::Attention),
            '-' | 'E' => Ok(LoneBlock::FeedForward),
            _ => Err(format!("layers of the kind `{letter}` are not supported; known: M, *, -, E")),
        });
        blocks.collect::<Result<_, _>>().map(Some)
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

    fn rotated_layers(&self, layers: usize) -> Option<Vec<bool>> {
        // Despite its name the list holds 1 where a layer rotates.
        let listed = || Some(self.no_rope_layers.as_ref()?.iter().map(|&rotates| rotates != 0).collect());
        let interval = || {
            let interval = self.no_rope_layer_interval?;
            Some((1..=layers).map(|i| !i.is_multiple_of(interval)).collect())
        };
        listed().or_else(interval)
    }

    /// Newer files list the kind of each layer; older ones say every how many layers one has no window, or how many
    /// of the first have none.
    fn windowed_layers(&self, config: &Config) -> Result<Option<Vec<bool>>, String> {
        let all = |windowed: &dyn Fn(usize) -> bool| {
            Ok(Some((0..config.layers.min(MAX_LAYERS)).map(windowed).collect()))
        };
        if let Some(kinds) = &self.layer_types {
            let windowed = kinds.iter().map(|kind| match kind.as_str() {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                kind if is_recurrent(kind, config) => Ok(false),
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

    fn recurrent_layers(&self, config: &Config) -> Option<Vec<bool>> {
        let kinds = self.layer_types.as_ref()?.iter();
        let recurrent: Vec<bool> = kinds.map(|kind| is_recurrent(kind, config)).collect();
        recurrent.contains(&true).then_some(recurrent)
    }
}

/// Whether layers of a type keep a state per sequence, in a model that says how large it is.
fn is_recurrent(kind: &str, config: &Config) -> bool {
    kind == "linear_attention" && config.delta.is_some()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Multipliers;

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
        assert_eq!((config.attention.head_dim, config.rope.dims, config.attention.kv_heads), (64, 64, 8));
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
        assert_eq!((mistral.attention.window, mistral.lists.windowed), (Some(4096), None));
        let qwen = |extra: &str| of_family("Qwen2ForCausalLM", extra);
        assert_eq!(qwen(r#", "sliding_window": 4096, "max_window_layers": 28"#).attention.window, None);
        let on = qwen(r#", "sliding_window": 9, "max_window_layers": 3, "use_sliding_window": true"#);
        assert_eq!(on.attention.window, Some(9));
        assert_eq!(on.lists.windowed, Some([vec![false; 3], vec![true; 13]].concat()));
        let moe = r#", "sliding_window": 9, "max_window_layers": 3, "use_sliding_window": true"#;
        let moe = of_family("Qwen2MoeForCausalLM", moe).lists.windowed.unwrap();
        assert_eq!(moe[..5], [true, false, true, false, false]);
        let next = of_family("Qwen3NextForCausalLM", r#", "linear_num_value_heads": 16"#);
        assert_eq!(next.lists.recurrent, Some([true, true, true, false].repeat(4)));
        assert_eq!(
            next.delta.map(|delta| (delta.key_heads, delta.value_heads, delta.key_dim)),
            Some((16, 16, 128))
        );
        assert_eq!(next.rope.dims, 64);
        let rotated = of_family("SmolLM3ForCausalLM", r#", "no_rope_layer_interval": 4"#).lists.rotated;
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
        assert!(refusal(sizeless).contains("`vocab_size` is missing"));
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
            (
                "LlamaForCausalLM",
                r#""hidden_act": "magic""#,
                "`hidden_act` is \"magic\", expected silu, gelu,",
            ),
            (
                "Step3p5ForCausalLM",
                r#""moe_layers_enum": "3,four""#,
                "`moe_layers_enum` is \"3,four\", expected numbers of layers",
            ),
            (
                "Step3p5ForCausalLM",
                r#""swiglu_limits": [7.0]"#,
                "16 layers, but 1 in the list of limits of gates",
            ),
            (
                "LongcatFlashForCausalLM",
                r#""zero_expert_num": 5000"#,
                "5000 experts give what they read, expected at most 4096",
            ),
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
        assert!(refusal(&negative).contains("`hidden_size` is -2048, expected a whole number"));
    }
}
