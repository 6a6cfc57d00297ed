//! Finds the encodings of models: in their files or, before these are downloaded, from names, the hub and `config.json`.

use weights::QuantizationConfig;

use super::ModelFiles;
use crate::companions::CONFIG;
use crate::content::{Content, MAX_CONFIG};
use crate::hub::Online;
use crate::repo::{HuggingFaceRepo, RepoLocation};
use crate::{Error, SupportedEncoding, WeightsFormat};

impl HuggingFaceRepo {
    /// Adds the encodings of models, or why they have none.
    pub(super) fn look_into_all(&self, models: &mut [ModelFiles]) -> Result<(), Error> {
        models.iter_mut().try_for_each(|model| self.look_into(model))
    }

    /// Adds the encoding of a model, or why it has none. If its files are not on this machine, the encoding is guessed.
    pub(super) fn look_into(&self, model: &mut ModelFiles) -> Result<(), Error> {
        if model.problem.is_some() || model.encoding.is_some() {
            return Ok(());
        }
        let first = &model.files[0];
        if model.missing.is_some() && model.format == WeightsFormat::Gguf {
            // Parts of a split file open together or not at all.
            model.encoding = SupportedEncoding::guess_from_file_name(first);
            return Ok(());
        }
        let mut paths = Vec::new();
        for name in &model.files {
            paths.extend(self.cached(name)?);
        }
        if let RepoLocation::Online(online) = &self.place
            && paths.len() < model.files.len()
        {
            match guess_encoding(online, model.format, first) {
                Err(Error::UnknownEncoding { problem, .. }) => model.problem = Some(problem),
                guess => model.encoding = guess?,
            }
            return Ok(());
        }
        match Content::open(&paths) {
            Ok(content) => (model.encoding, model.problem) = (content.encoding, content.problem()),
            Err(error) => model.problem = Some(error.to_string()),
        }
        Ok(())
    }
}

/// Guesses the encoding of files that are not on this machine: of safetensors from the hub's statistics, of GGUF files
/// from the name, of all others from `config.json`.
fn guess_encoding(
    online: &Online,
    format: WeightsFormat,
    name: &str,
) -> Result<Option<SupportedEncoding>, Error> {
    match format {
        WeightsFormat::Gguf => Ok(SupportedEncoding::guess_from_file_name(name)),
        WeightsFormat::Safetensors if online.can_ask() => {
            let elements = &online.info()?.safetensors;
            let most = elements.iter().max_by_key(|(_, elements)| **elements);
            match most.map(|(dtype, _)| dtype.as_str()) {
                // Codes of 4 bits, eight to a word; whose they are, the configuration says.
                _ if elements.contains_key("I32") => configured_encoding(online),
                Some("F32") => Ok(Some(SupportedEncoding::Float32)),
                Some("F16") => Ok(Some(SupportedEncoding::Float16)),
                Some("BF16") => Ok(Some(SupportedEncoding::Bfloat16)),
                Some(_) => Ok(None),
                None => configured_encoding(online),
            }
        }
        WeightsFormat::Safetensors | WeightsFormat::Pytorch => configured_encoding(online),
    }
}

/// The dtype, or the encoding of the quantization, in `config.json`.
fn configured_encoding(online: &Online) -> Result<Option<SupportedEncoding>, Error> {
    let path = match online.cached(CONFIG)? {
        Some(path) => path,
        None if online.can_ask() && online.info()?.siblings.iter().any(|file| file.name == CONFIG) => {
            online.download(&[CONFIG.to_string()], false, &|_| ())?.remove(0)
        }
        None => return Ok(None),
    };
    if path.metadata().map_err(Error::io(&path))?.len() > MAX_CONFIG {
        return Ok(None);
    }
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let config: serde_json::Value = weights::from_json(&text)
        .map_err(|error| Error::Cache { path: path.clone(), problem: error.to_string() })?;
    match QuantizationConfig::from_hugging_face(CONFIG, &config.to_string()) {
        Ok(Some(found)) => return Ok(SupportedEncoding::from_dtype(found.dtype())),
        Ok(None) => {}
        Err(refusal) => {
            return Err(Error::UnknownEncoding { file: CONFIG.to_string(), problem: refusal.to_string() });
        }
    }
    let dtype = ["dtype", "torch_dtype"].iter().find_map(|key| config.get(key)?.as_str());
    Ok(dtype.and_then(|dtype| dtype.trim_start_matches("torch.").parse().ok()))
}
