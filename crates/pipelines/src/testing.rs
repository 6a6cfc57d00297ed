//! Models for tests: as a configuration names them, with pages of 64 tokens, on two threads.

use std::path::Path;
use std::sync::Arc;

use engine::InferenceSession;
use engine::devices::Platform;

use crate::config::{Machine, PipelineConfig, ResolvedConfig};
use crate::{EmbeddingModel, TextModel};

static PLATFORM: Platform = Platform::new(|| Arc::new(cpu::Cpu::new(2)));

/// The model at a path, which is to write.
pub(crate) fn text_model(path: &Path) -> Arc<TextModel> {
    let (session, resolved) = resolved(path);
    Arc::new(TextModel::from_config(&session, resolved).unwrap())
}

/// The model at a path, which is to embed.
pub(crate) fn embedding_model(path: &Path) -> Arc<EmbeddingModel> {
    let (session, resolved) = resolved(path);
    Arc::new(EmbeddingModel::from_config(&session, resolved, &mut |_| ()).unwrap())
}

/// Saves the model at a path, compiled and packed.
pub(crate) fn save(path: &Path, target: &Path) {
    let (session, resolved) = resolve(of(path).save_to_serialized_model_path(target.to_path_buf()));
    TextModel::from_config(&session, resolved).unwrap();
}

fn of(path: &Path) -> PipelineConfig {
    PipelineConfig::new(path.display().to_string()).kv_cache_page_size(64_usize)
}

fn resolved(path: &Path) -> (InferenceSession, ResolvedConfig) {
    resolve(of(path))
}

fn resolve(config: PipelineConfig) -> (InferenceSession, ResolvedConfig) {
    let resolved = config.resolve(Machine { devices: &PLATFORM, free_memory: None }).unwrap();
    let session = InferenceSession::new(resolved.config().devices_of(&PLATFORM).unwrap()).unwrap();
    (session, resolved)
}
