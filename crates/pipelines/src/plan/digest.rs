//! The digest of a model, from its headers, the files next to its weights, and samples of the weights: milliseconds, however
//! large it is.

use std::path::{Path, PathBuf};

use blake3::Hasher;
use sources::{WeightsFormat, is_beside_weights, is_settings};
use weights::WeightFile;

use super::{Identity, Plan, has_tokenizer};
use crate::plan::model_files::transformers::TransformersFacts;

/// Bytes at the beginning of a file that count whole. GGUF files have their metadata there.
const HEAD: usize = 16 << 20;
/// Samples of the bytes after those, at equal distances.
const SAMPLES: usize = 64;
/// Bytes of a sample.
const SAMPLE: usize = 4096;

impl Plan {
    /// A digest of the model's files and of the settings that its results depend on, in 64 hexadecimal digits; `None` if
    /// the weights are not on this machine. Of weights, the beginning of each file counts, and samples of the rest.
    pub fn digest(&self) -> Option<String> {
        if let Some(facts) = self.transformers().filter(|_| self.is_local()) {
            return Some(self.digest_of_folder(facts));
        }
        let checkpoint = self.checkpoint().filter(|_| self.is_local())?;
        let identity = Identity::new(&self.config, checkpoint);
        let mut hasher = Hasher::new();
        hasher.update(serde_json::to_string(&identity).expect("an identity is numbers and text").as_bytes());
        checkpoint.weights().files().iter().for_each(|file| add_samples(&mut hasher, file));
        // Other files next to a GGUF file may be of other models.
        let counts = if has_tokenizer(checkpoint.weights()) { is_settings } else { is_beside_weights };
        add_files_beside(&mut hasher, self.folder(), counts);
        Some(hasher.finalize().to_hex().to_string())
    }

    /// The digest of a model that Transformers runs: of all files of its folder that count.
    fn digest_of_folder(&self, facts: &TransformersFacts) -> String {
        let mut hasher = Hasher::new();
        hasher.update(format!("{facts:?} {:?}", self.config.weights_dtype).as_bytes());
        let entries = std::fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let mut weights: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        weights.retain(|path| WeightsFormat::from_file_name(path).is_some());
        weights.sort();
        // One that cannot be read is an error of Transformers.
        weights.iter().filter_map(|path| WeightFile::open(path).ok()).for_each(|file| {
            add_samples(&mut hasher, &file);
        });
        add_files_beside(&mut hasher, self.folder(), |name| is_beside_weights(name) || name.ends_with(".py"));
        hasher.finalize().to_hex().to_string()
    }
}

/// Adds a file of weights.
fn add_samples(hasher: &mut Hasher, file: &WeightFile) {
    let (head, rest) = file.split_at(file.len().min(HEAD));
    hasher.update(&(file.len() as u64).to_le_bytes()).update(head);
    if rest.len() <= SAMPLES * SAMPLE {
        hasher.update(rest);
        return;
    }
    for index in 0..SAMPLES {
        let start = (rest.len() - SAMPLE) / (SAMPLES - 1) * index;
        hasher.update(&rest[start..start + SAMPLE]);
    }
}

/// Adds the files in a folder that count, in the order of their names.
fn add_files_beside(hasher: &mut Hasher, folder: &Path, counts: fn(&str) -> bool) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| counts(name)).collect();
    names.sort();
    for name in names {
        // One that cannot be read is an error of those who need it.
        let Ok(content) = weights::read_file(&folder.join(&name)) else { continue };
        for part in [name.as_bytes(), &content] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::plan::config::{PipelineConfig, Reproducible};
    use crate::testing::try_plan;

    #[test]
    fn a_digest_changes_with_any_file_and_setting_and_not_with_limits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        fs::copy(testdata::asset("storyteller/model.gguf"), &path).unwrap();
        let config = || PipelineConfig::new(path.display().to_string());
        let digest = |config: PipelineConfig| try_plan(config).unwrap().digest().unwrap();
        let whole = digest(config());
        assert_eq!(whole.len(), 64);
        assert_eq!(digest(config().max_length(100).max_cache_batch_size(3)), whole);
        assert_ne!(digest(config().kv_cache_page_size(64_usize)), whole);
        assert_ne!(digest(config().reproducible(Reproducible::Machine)), whole);
        assert_ne!(digest(config().exact_activations(true)), whole);
        fs::write(folder.path().join("generation_config.json"), "{}").unwrap();
        assert_ne!(digest(config()), whole);
        fs::remove_file(folder.path().join("generation_config.json")).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_ne!(digest(config()), whole);
    }
}
