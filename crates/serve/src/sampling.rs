//! The fields that choose tokens, which several protocols share under the same names.

use std::collections::BTreeMap;

use pipelines::config::UseCase;
use pipelines::sampler::LARGEST_BIAS;
use pipelines::{AddSpecial, ParseSpecial, Request, SamplingOptions, Tokenizer, random_seed};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;

/// How tokens are chosen, and where answers end.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct Sampling {
    /// Divides the logits; 0 takes the likeliest token. The default is the model's, else 1.
    #[schema(minimum = 0)]
    temperature: Option<f32>,
    /// Draws only from the likeliest tokens with this total probability.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Draws only from this many of the likeliest tokens; 0 or -1 is all.
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    /// Draws only tokens at least this many times as likely as the likeliest.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f32>,
    /// Taken off a token's logit once it stands in the answer.
    #[schema(minimum = -100, maximum = 100)]
    presence_penalty: Option<f32>,
    /// Taken off a token's logit for each time it stands in the answer.
    #[schema(minimum = -100, maximum = 100)]
    frequency_penalty: Option<f32>,
    /// Divides the logits of tokens that occurred before.
    #[serde(alias = "repeat_penalty")]
    repetition_penalty: Option<f32>,
    /// The same seed, prompt and options give the same answer. The default, and -1, is random.
    #[serde(alias = "random_seed")]
    seed: Option<i64>,
    /// Added to the logits of tokens: ids, or texts whose tokens all get the number.
    #[schema(value_type = Option<BTreeMap<String, f32>>)]
    logit_bias: Option<LogitBias>,
    /// Up to 256 texts that end the answer and are not part of it. Empty ones end none.
    stop: Option<OneOrMany>,
    /// Tokens that end the answer and are not part of it.
    stop_token_ids: Option<Vec<u32>>,
    /// The answer has at least this many tokens.
    min_tokens: Option<usize>,
    /// Whether the model's end-of-text token does not end the answer.
    ignore_eos: Option<bool>,
    /// Cached prefixes are shared only with requests of the same salt.
    cache_salt: Option<String>,
}

/// The numbers that choose the tokens of a request without fields of its own.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct SamplingDefaults {
    temperature: f32,
    top_p: f32,
    /// -1 is all tokens.
    top_k: i64,
    min_p: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    repetition_penalty: f32,
}

/// How many tokens there may be, under Ollama's names.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub(crate) struct Lengths {
    /// The most tokens of the answer; a negative number is all that the context has room for, which is the default.
    pub(crate) num_predict: Option<i64>,
    /// The most tokens of the prompt and the answer together, up to the model's length, which is the default.
    #[schema(minimum = 1)]
    pub(crate) num_ctx: Option<usize>,
}

impl Lengths {
    /// These lengths, and where one is not set, that of `other`.
    pub(crate) fn or(self, other: Lengths) -> Lengths {
        Lengths {
            num_predict: self.num_predict.or(other.num_predict),
            num_ctx: self.num_ctx.or(other.num_ctx),
        }
    }

    /// The most tokens of the answer, unless the context is the only limit.
    pub(crate) fn answer(self) -> Option<usize> {
        self.num_predict.and_then(|count| usize::try_from(count).ok())
    }
}

/// The most tokens of an answer; -1, or -2, is all that the context has room for, as in llama.cpp.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "i64")]
pub(crate) struct TokenLimit(usize);

impl TokenLimit {
    pub(crate) fn count(self) -> usize {
        self.0
    }
}

impl TryFrom<i64> for TokenLimit {
    type Error = String;

    fn try_from(count: i64) -> Result<TokenLimit, String> {
        match count {
            -2 | -1 => Ok(TokenLimit(usize::MAX)),
            _ => usize::try_from(count)
                .map(TokenLimit)
                .map_err(|_| format!("{count} is no count: give 0 or more, or -1 for no limit")),
        }
    }
}

/// A text or several.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        }
    }
}

/// The most bytes that the texts of biases may have together.
const MAX_BIASED_TEXT: usize = 4096;

/// Biases that are added to the logits of tokens: an object, or a list as llama.cpp takes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "give an object of token ids and numbers, or a list of pairs of these")]
enum LogitBias {
    Object(BTreeMap<String, f32>),
    List(Vec<(BiasedToken, Bias)>),
}

/// The id of a token, or a text whose tokens all get the bias.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum BiasedToken {
    Id(u32),
    Text(String),
}

impl BiasedToken {
    /// The token of a key of an object: keys that are whole numbers are ids.
    ///
    /// # Errors
    /// If a whole number is no id.
    fn from_key(key: String) -> Result<BiasedToken, ApiError> {
        let digits = key.strip_prefix('-').unwrap_or(&key);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(BiasedToken::Text(key));
        }
        let wrong = || ApiError::invalid("logit_bias", format!("logit_bias: {key} is not a token id"));
        key.parse().map(BiasedToken::Id).map_err(|_| wrong())
    }
}

/// A number, or `false` for a token that is never chosen.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Bias {
    Number(f32),
    Switch(bool),
}

impl LogitBias {
    /// The biases of tokens. Without a tokenizer, texts have none.
    ///
    /// # Errors
    /// If a text has no tokens, the texts are too long, or a bias is not a number.
    fn into_map(self, tokenizer: Option<&Tokenizer>) -> Result<BTreeMap<u32, f32>, ApiError> {
        let refuse = |message: String| Err(ApiError::invalid("logit_bias", message));
        let pairs: Vec<(BiasedToken, Bias)> = match self {
            LogitBias::Object(pairs) => {
                let pair = |(key, bias)| Ok((BiasedToken::from_key(key)?, Bias::Number(bias)));
                pairs.into_iter().map(pair).collect::<Result<_, ApiError>>()?
            }
            LogitBias::List(pairs) => pairs,
        };
        let (mut map, mut bytes) = (BTreeMap::new(), 0);
        for (token, bias) in pairs {
            let bias = match bias {
                Bias::Number(bias) => bias,
                Bias::Switch(false) => -LARGEST_BIAS,
                Bias::Switch(true) => {
                    return refuse("logit_bias: true is no bias; give a number, or false".into());
                }
            };
            let text = match token {
                BiasedToken::Id(id) => {
                    map.insert(id, bias);
                    continue;
                }
                BiasedToken::Text(text) => text,
            };
            bytes += text.len();
            if bytes > MAX_BIASED_TEXT {
                return refuse(format!(
                    "logit_bias: its texts have more than {MAX_BIASED_TEXT} bytes; give ids of tokens"
                ));
            }
            let Some(tokenizer) = tokenizer else { continue };
            let ids =
                tokenizer.encode(&text, AddSpecial::No, ParseSpecial::No).map_err(pipelines::Error::from)?;
            if ids.is_empty() {
                return refuse(format!("logit_bias: the text {text:?} has no tokens"));
            }
            map.extend(ids.into_iter().map(|id| (id, bias)));
        }
        Ok(map)
    }
}

impl Sampling {
    /// These fields; fields that are not set come from `other`.
    pub(crate) fn or(self, other: Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.or(other.temperature),
            top_p: self.top_p.or(other.top_p),
            top_k: self.top_k.or(other.top_k),
            min_p: self.min_p.or(other.min_p),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            seed: self.seed.or(other.seed),
            logit_bias: self.logit_bias.or(other.logit_bias),
            stop: self.stop.or(other.stop),
            stop_token_ids: self.stop_token_ids.or(other.stop_token_ids),
            min_tokens: self.min_tokens.or(other.min_tokens),
            ignore_eos: self.ignore_eos.or(other.ignore_eos),
            cache_salt: self.cache_salt.or(other.cache_salt),
        }
    }

    /// A request without a prompt. `defaults` fill in the rest, then those of the OpenAI API: temperature 1 and all tokens.
    /// Without the model's tokenizer, biases of texts are left out.
    ///
    /// # Errors
    /// If a field has a value that the library cannot be given.
    pub(crate) fn request(
        self,
        defaults: SamplingOptions,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Request, ApiError> {
        let top_k = match self.top_k {
            None => None,
            Some(0 | -1) => Some(usize::MAX),
            Some(count) => Some(usize::try_from(count).map_err(|_| {
                ApiError::invalid("top_k", format!("top_k is {count}: give 1 or more, or -1 for all"))
            })?),
        };
        let stop = self.stop.map(OneOrMany::into_vec).unwrap_or_default();
        let given = SamplingOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k,
            min_p: self.min_p,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            repetition_penalty: self.repetition_penalty,
        };
        let logit_bias =
            self.logit_bias.map(|bias| bias.into_map(tokenizer)).transpose()?.unwrap_or_default();
        Ok(Request {
            sampling: given.or(defaults).or(UseCase::Server.sampling()),
            seed: self.seed.filter(|&seed| seed != -1).map_or_else(random_seed, i64::cast_unsigned),
            logit_bias,
            min_new_tokens: self.min_tokens.unwrap_or(0),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            stop: stop.into_iter().filter(|text| !text.is_empty()).collect(),
            stop_token_ids: self.stop_token_ids.unwrap_or_default(),
            cache_salt: self.cache_salt,
            ..Request::default()
        })
    }

    /// The numbers of a request without other fields.
    ///
    /// # Errors
    /// If a field has a value that the library cannot be given.
    pub(crate) fn defaults(self, of_model: SamplingOptions) -> Result<SamplingDefaults, ApiError> {
        let params = self.request(of_model, None)?.sampling.params();
        Ok(SamplingDefaults {
            temperature: params.temperature,
            top_p: params.top_p,
            top_k: params.top_k.and_then(|count| i64::try_from(count).ok()).unwrap_or(-1),
            min_p: params.min_p,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            repetition_penalty: params.repetition_penalty,
        })
    }
}
