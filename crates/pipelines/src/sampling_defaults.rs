//! How tokens are chosen where a request leaves it open: what it says, else what the configuration says, else what
//! the model's `generation_config.json` recommends, else greedy.

use std::path::Path;

use serde::Deserialize;

use crate::Error;
use crate::sampler::SamplingParams;

/// Sampling parameters, each given or left open. Layers of them are laid over each other with
/// [`SamplingDefaults::or`], the one that counts most first.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SamplingDefaults {
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

impl SamplingDefaults {
    /// What a `generation_config.json` recommends; nothing, if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read, is not JSON of this kind, or has parameters outside their ranges.
    pub fn from_generation_config(path: &Path) -> Result<SamplingDefaults, Error> {
        if !path.is_file() {
            return Ok(SamplingDefaults::default());
        }
        let bad = |problem: String| Error::GenerationConfig { path: path.to_owned(), problem };
        let json = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let defaults = SamplingDefaults::parse(&json).map_err(|error| bad(error.to_string()))?;
        match defaults.params().validate(usize::MAX) {
            Ok(()) => Ok(defaults),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    fn parse(json: &[u8]) -> serde_json::Result<SamplingDefaults> {
        let config: GenerationConfig = serde_json::from_slice(json)?;
        // `transformers` ignores the temperature of a model that is not to be sampled.
        let greedy = (config.do_sample == Some(false)).then_some(0.0);
        Ok(SamplingDefaults {
            temperature: greedy.or(config.temperature),
            top_k: config.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
            top_p: config.top_p,
            min_p: config.min_p,
            repetition_penalty: config.repetition_penalty,
        })
    }

    /// These, and what they leave open from `other`.
    pub fn or(self, other: SamplingDefaults) -> SamplingDefaults {
        SamplingDefaults {
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
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
            ..none
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(temperature, top-k, top-p)` of layers and the content of a `generation_config.json` below them.
    fn check(layers: SamplingDefaults, file: &str, expected: (f32, Option<usize>, f32)) {
        let params = layers.or(SamplingDefaults::parse(file.as_bytes()).unwrap()).params();
        assert_eq!((params.temperature, params.top_k, params.top_p), expected, "{file}");
    }

    #[test]
    fn requests_before_recommendations_before_greedy() {
        let none = SamplingDefaults::default();
        check(none, "{}", (0.0, None, 1.0));
        check(none, r#"{"temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}"#, (0.6, None, 0.9));
        check(none, r#"{"top_k": 20}"#, (1.0, Some(20), 1.0));
        check(none, r#"{"top_k": 0, "temperature": null}"#, (1.0, None, 1.0));
        check(none, r#"{"top_k": -1}"#, (1.0, None, 1.0));
        check(none, r#"{"do_sample": false, "temperature": 0.6, "top_k": 50}"#, (0.0, Some(50), 1.0));
        let house = SamplingDefaults { temperature: Some(0.7), top_k: Some(40), ..none };
        check(house, r#"{"top_p": 0.5}"#, (0.7, Some(40), 0.5));
        let request = SamplingDefaults { temperature: Some(1.5), top_k: Some(0), ..none };
        check(request.or(house), r#"{"do_sample": false, "top_k": 7, "top_p": 0.5}"#, (1.5, None, 0.5));
    }

    #[test]
    fn files_are_checked() {
        let folder = std::env::temp_dir().join(format!("perihelion-sampling-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("generation_config.json");
        assert_eq!(SamplingDefaults::from_generation_config(&path).unwrap(), SamplingDefaults::default());
        for (json, problem) in
            [(r#"{"top_p": 7}"#, "top_p is 7"), ("[]", "invalid"), (r#"{"temperature": "hot"}"#, "hot")]
        {
            std::fs::write(&path, json).unwrap();
            let message = SamplingDefaults::from_generation_config(&path).unwrap_err().to_string();
            assert!(message.contains(problem) && message.contains("generation_config.json"), "{message}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
