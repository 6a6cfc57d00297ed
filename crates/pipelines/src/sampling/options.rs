//! How tokens are chosen where something is left open: what a request says, else what the configuration says, else what
//! the model's own files recommend, else greedily.

use std::path::Path;

use serde::Deserialize;
use weights::Metadata;

use super::SamplingParams;
use crate::Error;

/// What of [`SamplingParams`] has defaults, each given or left open. Layers of them are laid over each other with
/// [`SamplingOptions::or`], the one that counts most first.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SamplingOptions {
    /// [`SamplingParams::temperature`].
    pub temperature: Option<f32>,
    /// [`SamplingParams::top_k`]; 0 is all tokens.
    pub top_k: Option<usize>,
    /// [`SamplingParams::top_p`].
    pub top_p: Option<f32>,
    /// [`SamplingParams::min_p`].
    pub min_p: Option<f32>,
    /// [`SamplingParams::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// [`SamplingParams::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// [`SamplingParams::presence_penalty`].
    pub presence_penalty: Option<f32>,
}

/// What we read of a `generation_config.json`. Other keys are none of our business.
#[derive(Deserialize)]
struct GenerationConfig {
    do_sample: Option<bool>,
    temperature: Option<f32>,
    /// 0 and negative numbers are all tokens.
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl SamplingOptions {
    /// The most probable token, always.
    pub const GREEDY: SamplingOptions = SamplingOptions { temperature: Some(0.0), ..SamplingOptions::OPEN };

    /// Nothing said.
    pub(crate) const OPEN: SamplingOptions = SamplingOptions {
        temperature: None,
        top_k: None,
        top_p: None,
        min_p: None,
        repetition_penalty: None,
        frequency_penalty: None,
        presence_penalty: None,
    };

    /// What a `generation_config.json` recommends; nothing, if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read, is not JSON of this kind, or has parameters outside their ranges.
    pub fn from_generation_config(path: &Path) -> Result<SamplingOptions, Error> {
        if !path.is_file() {
            return Ok(SamplingOptions::default());
        }
        let bad = |problem: String| Error::GenerationConfig { path: path.to_owned(), problem };
        let json =
            weights::read_file(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let options = SamplingOptions::parse(&json).map_err(|error| bad(error.to_string()))?;
        match options.params().validate(usize::MAX) {
            Ok(()) => Ok(options),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    fn parse(json: &[u8]) -> serde_json::Result<SamplingOptions> {
        let config: GenerationConfig = weights::from_json(json)?;
        // `transformers` ignores the temperature of a model that is not to be sampled.
        let greedy = (config.do_sample == Some(false)).then_some(0.0);
        Ok(SamplingOptions {
            temperature: greedy.or(config.temperature),
            top_k: config.top_k.map(all_if_not_positive),
            top_p: config.top_p,
            min_p: config.min_p,
            repetition_penalty: config.repetition_penalty,
            ..SamplingOptions::OPEN
        })
    }

    /// What the metadata of a GGUF file recommends, under the keys `general.sampling.*`; nothing, if it has none.
    ///
    /// # Errors
    /// If a key has a value of another type, or outside its range.
    pub fn from_gguf(metadata: &Metadata) -> Result<SamplingOptions, Error> {
        let number = |name: &str| metadata.optional::<f32>(&format!("general.sampling.{name}"));
        let options = SamplingOptions {
            temperature: number("temp")?,
            top_k: metadata.optional::<i32>("general.sampling.top_k")?.map(|k| all_if_not_positive(k.into())),
            top_p: number("top_p")?,
            min_p: number("min_p")?,
            repetition_penalty: number("penalty_repeat")?,
            ..SamplingOptions::OPEN
        };
        options.params().validate(usize::MAX)?;
        Ok(options)
    }

    /// These, and what they leave open from `other`. Who says among how many tokens to draw, and not how warmly, wants to
    /// draw: greedy defaults do not count then.
    pub fn or(self, other: SamplingOptions) -> SamplingOptions {
        let draws = self.top_k.is_some();
        SamplingOptions {
            temperature: self.temperature.or(other.temperature.filter(|&t| t > 0.0 || !draws)),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
        }
    }

    /// The parameters. Without a temperature, they are greedy if `top_k` is open too, and else drawn as the model
    /// predicts.
    pub fn params(self) -> SamplingParams {
        let none = SamplingParams::default();
        let drawn = if self.top_k.is_some() { 1.0 } else { 0.0 };
        SamplingParams {
            temperature: self.temperature.unwrap_or(drawn),
            top_k: self.top_k.filter(|&k| k > 0),
            top_p: self.top_p.unwrap_or(none.top_p),
            min_p: self.min_p.unwrap_or(none.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(none.repetition_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(none.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(none.presence_penalty),
            ..none
        }
    }
}

/// A `top_k` as files write it.
fn all_if_not_positive(k: i64) -> usize {
    usize::try_from(k).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(temperature, top-k, top-p)` of layers and the content of a `generation_config.json` below them.
    fn check(layers: SamplingOptions, file: &str, expected: (f32, Option<usize>, f32)) {
        let params = layers.or(SamplingOptions::parse(file.as_bytes()).unwrap()).params();
        assert_eq!((params.temperature, params.top_k, params.top_p), expected, "{file}");
    }

    #[test]
    fn requests_before_recommendations_before_greedy() {
        let none = SamplingOptions::default();
        check(none, "{}", (0.0, None, 1.0));
        check(none, r#"{"temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}"#, (0.6, None, 0.9));
        check(none, r#"{"top_k": 20}"#, (1.0, Some(20), 1.0));
        check(none, r#"{"top_k": 0, "temperature": null}"#, (1.0, None, 1.0));
        check(none, r#"{"top_k": -1}"#, (1.0, None, 1.0));
        check(none, r#"{"max_time": Infinity, "top_p": NaN, "temperature": 0.6}"#, (0.6, None, 1.0));
        check(none, r#"{"do_sample": false, "temperature": 0.6, "top_k": 50}"#, (0.0, Some(50), 1.0));
        let house = SamplingOptions { temperature: Some(0.7), top_k: Some(40), ..none };
        check(house, r#"{"top_p": 0.5}"#, (0.7, Some(40), 0.5));
        check(SamplingOptions { top_k: Some(9), ..none }, r#"{"do_sample": false}"#, (1.0, Some(9), 1.0));
        let request = SamplingOptions { temperature: Some(1.5), top_k: Some(0), ..none };
        check(request.or(house), r#"{"do_sample": false, "top_k": 7, "top_p": 0.5}"#, (1.5, None, 0.5));
    }

    #[test]
    fn files_are_checked() {
        let folder = std::env::temp_dir().join(format!("perihelion-sampling-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("generation_config.json");
        assert_eq!(SamplingOptions::from_generation_config(&path).unwrap(), SamplingOptions::default());
        for (json, problem) in
            [(r#"{"top_p": 7}"#, "top_p is 7"), ("[]", "invalid"), (r#"{"temperature": "hot"}"#, "hot")]
        {
            std::fs::write(&path, json).unwrap();
            let message = SamplingOptions::from_generation_config(&path).unwrap_err().to_string();
            assert!(message.contains(problem) && message.contains("generation_config.json"), "{message}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn gguf_files_recommend_too() {
        let mut metadata = Metadata::new();
        assert_eq!(SamplingOptions::from_gguf(&metadata).unwrap(), SamplingOptions::default());
        metadata.insert("general.sampling.temp", 0.6_f32);
        metadata.insert("general.sampling.top_k", -1_i32);
        metadata.insert("general.sampling.penalty_repeat", 1.1_f32);
        let options = SamplingOptions::from_gguf(&metadata).unwrap();
        let expected = SamplingOptions { temperature: Some(0.6), top_k: Some(0), ..SamplingOptions::OPEN };
        assert_eq!(options, SamplingOptions { repetition_penalty: Some(1.1), ..expected });
        metadata.insert("general.sampling.top_p", 7.0_f32);
        assert!(SamplingOptions::from_gguf(&metadata).unwrap_err().to_string().contains("top_p is 7"));
        metadata.insert("general.sampling.top_p", "much");
        assert!(
            SamplingOptions::from_gguf(&metadata).unwrap_err().to_string().contains("general.sampling.top_p")
        );
    }
}
