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

fn resolved(path: &Path) -> (InferenceSession, ResolvedConfig) {
    let config = PipelineConfig::new(path.display().to_string()).kv_cache_page_size(64_usize);
    let resolved = config.resolve(Machine { devices: &PLATFORM, free_memory: None }).unwrap();
    let session = InferenceSession::new(resolved.config().devices_of(&PLATFORM).unwrap()).unwrap();
    (session, resolved)
}
