//! What `config.json` says of a model that Transformers runs, in the names that its architectures use.

use serde_json::Value;
use tensor::DType;
use weights::Weights;

use crate::Error;
use crate::error::InvalidField;
use crate::plan::config::{PipelineConfig, SupportedEncoding};

/// What is known of such a model before it is loaded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TransformersFacts {
    /// The class that the files name.
    pub(crate) architecture: String,
    /// Whether it predicts tokens; else it gives hidden states.
    pub(crate) writes: bool,
    /// Rows of its embedding, if that is known.
    pub(crate) vocab: Option<usize>,
    /// The most tokens that it takes.
    pub(crate) context_length: usize,
    /// Its parameters; `None` if the headers of its files are not read.
    pub(crate) parameters: Option<usize>,
    /// Numbers in the cache for each token, as far as the configuration tells.
    pub(crate) cache_width: usize,
    /// The encoding of its files, if they hold plain numbers.
    pub(crate) encoding: Option<SupportedEncoding>,
}

/// The context of a model that names none. Its cache, or `max_length`, is what limits texts then.
const NO_LIMIT: usize = 1 << 20;

/// Names of the most tokens that a model takes.
const CONTEXT: &[&str] =
    &["max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "n_head_kv"];
const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "dim"];
/// Configurations of the part that makes text, of models that also see or hear.
const TEXT: &[&str] = &["text_config", "llm_config", "language_config"];
/// Endings of the names of classes that predict tokens.
const WRITERS: &[&str] = &["ForCausalLM", "LMHeadModel", "LMHead", "ForConditionalGeneration"];
/// Endings of the names of classes that score texts.
const CLASSIFIERS: &[&str] = &["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"];

impl TransformersFacts {
    /// The facts of a `config.json`, and of the weights if they are open.
    ///
    /// # Errors
    /// If the model scores texts, or reads a text before it writes another.
    pub(crate) fn new(config: &Value, weights: Option<&Weights>) -> Result<TransformersFacts, Error> {
        let architecture = architecture(config)?;
        let ends = |endings: &[&str]| endings.iter().any(|ending| architecture.ends_with(ending));
        let writes = ends(WRITERS) || config["auto_map"].get("AutoModelForCausalLM").is_some();
        if ends(CLASSIFIERS) {
            return Err(refuse(
                "it makes text and embeddings, and no scores of texts; for those, leave it out",
            ));
        }
        if writes && config["is_encoder_decoder"] == true {
            return Err(refuse(
                "it makes text with models that continue a text; this one reads one text and writes another",
            ));
        }
        let text = TEXT.iter().find_map(|name| config.get(name)).unwrap_or(config);
        let heads = number(text, HEADS);
        let head_dim = number(text, &["head_dim"]).or_else(|| Some(number(text, HIDDEN)? / heads?.max(1)));
        // Of Falcon: one head of keys for all.
        let shared = text["multi_query"] == true && text["new_decoder_architecture"] != true;
        let kv_heads = if shared { Some(1) } else { number(text, KV_HEADS).or(heads) };
        let per_layer = kv_heads.and_then(|heads| heads.checked_mul(head_dim?)?.checked_mul(2));
        let cache_width = per_layer.and_then(|width| width.checked_mul(number(text, LAYERS)?));
        Ok(TransformersFacts {
            architecture,
            writes,
            vocab: number(text, &["vocab_size"]),
            context_length: number(text, CONTEXT).filter(|&most| most > 0).unwrap_or(NO_LIMIT),
            parameters: weights.map(|weights| weights.tensors().map(|(_, tensor)| tensor.elements()).sum()),
            cache_width: cache_width.filter(|_| writes).unwrap_or(0),
            encoding: weights.and_then(encoding),
        })
    }

    /// Bytes of cache for each token, in a dtype.
    pub(crate) fn cache_bytes_per_token(&self, dtype: DType) -> u64 {
        let block = dtype.block();
        (self.cache_width as u64).saturating_mul(block.bytes as u64) / block.elements as u64
    }

    /// Settings that mean nothing, or more than one may think.
    pub(crate) fn warnings(&self, config: &PipelineConfig) -> Vec<String> {
        let mut warnings = Vec::new();
        if config.trust_remote_code {
            warnings.push(format!(
                "trust_remote_code lets the Python files of {} run with your rights: they can read, change and send all \
                 that you can",
                config.huggingface_repo_id
            ));
        }
        let mut idle = |given: bool, field: &str, why: &str| {
            if given {
                warnings.push(format!("{field} has no effect: {why}"));
            }
        };
        idle(
            config.enable_prefix_caching,
            "enable_prefix_caching",
            "the huggingface engine keeps a cache for each sequence, and shares none",
        );
        idle(config.rope_type.is_some(), "rope_type", "it is for GGUF files only");
        let other = config.architecture.as_ref().is_some_and(|name| *name != self.architecture);
        idle(other, "architecture", "the huggingface engine takes the one of config.json");
        idle(
            config._weights_converter.is_some(),
            "_weights_converter",
            "the huggingface engine reads the weights by the names that they have",
        );
        warnings
    }
}

/// The first class that the files name.
fn architecture(config: &Value) -> Result<String, Error> {
    let listed = config["architectures"].get(0).and_then(Value::as_str);
    let mapped = || {
        let names = ["AutoModelForCausalLM", "AutoModel"];
        let class = names.iter().find_map(|name| config["auto_map"].get(name)?.as_str())?;
        class.rsplit('.').next()
    };
    let name = listed.or_else(mapped).map(str::to_string);
    name.ok_or_else(|| refuse("config.json must name a class, in architectures or auto_map"))
}

fn refuse(fix: &str) -> Error {
    let value = "huggingface".to_string();
    Error::Config(vec![InvalidField { field: "engine", value, fix: fix.to_string() }])
}

fn number(config: &Value, names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| usize::try_from(config.get(name)?.as_u64()?).ok())
}

/// The encoding of most bytes, of plain numbers.
fn encoding(weights: &Weights) -> Option<SupportedEncoding> {
    let mut most =
        [(0, SupportedEncoding::Float32), (0, SupportedEncoding::Bfloat16), (0, SupportedEncoding::Float16)];
    for (_, tensor) in weights.tensors() {
        let own = most.iter_mut().find(|(_, encoding)| encoding.dtype() == tensor.dtype());
        own.into_iter().for_each(|(count, _)| *count += tensor.elements());
    }
    most.into_iter()
        .filter(|&(count, _)| count > 0)
        .max_by_key(|&(count, _)| count)
        .map(|(_, encoding)| encoding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(config: Value) -> Result<TransformersFacts, String> {
        TransformersFacts::new(&config, None).map_err(|error| error.to_string())
    }

    #[test]
    fn configurations_of_several_families_are_understood() {
        let gpt = json!({"architectures": ["GPTBigModel", "x"], "n_positions": 64, "n_layer": 2, "n_head": 4,
            "n_embd": 32, "auto_map": {"AutoModelForCausalLM": "modeling.GPTBigModel"}});
        let found = facts(gpt).unwrap();
        assert_eq!((found.context_length, found.cache_width, found.writes), (64, 2 * 2 * 4 * 8, true));
        assert_eq!(found.cache_bytes_per_token(DType::BF16), 256);
        let seeing = json!({"architectures": ["SeeForConditionalGeneration"], "text_config": {
            "max_position_embeddings": 100, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 32}});
        let found = facts(seeing).unwrap();
        assert_eq!((found.context_length, found.cache_width), (100, 3 * 2 * 2 * 16));
        let falcon = json!({"architectures": ["FalconForCausalLM"], "multi_query": true, "num_hidden_layers": 1,
            "num_attention_heads": 4, "hidden_size": 32});
        assert_eq!(facts(falcon).unwrap().cache_width, 16);
        let encoder = facts(json!({"architectures": ["NewModel"], "num_hidden_layers": 1})).unwrap();
        assert_eq!((encoder.writes, encoder.cache_width, encoder.context_length), (false, 0, NO_LIMIT));
        let mapped = json!({"auto_map": {"AutoModelForCausalLM": "org/code--modeling_odd.OddForCausalLM"}});
        assert_eq!(facts(mapped).unwrap().architecture, "OddForCausalLM");
    }

    #[test]
    fn models_for_other_tasks_are_refused() {
        let refused = |config, part: &str| {
            let error = facts(config).unwrap_err();
            assert!(error.contains("engine is huggingface: ") && error.contains(part), "{error}");
        };
        refused(json!({"architectures": ["BertForSequenceClassification"]}), "no scores of texts");
        refused(
            json!({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true}),
            "writes another",
        );
        refused(json!({}), "must name a class");
    }
}
