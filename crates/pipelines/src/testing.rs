//! Models for tests: as a configuration names them, with pages of 64 tokens, on two threads.

use std::path::Path;
use std::sync::Arc;

use engine::InferenceSession;
use engine::devices::Platform;

use crate::config::PipelineConfig;
use crate::plan::{Machine, Plan};
use crate::{EmbeddingModel, TextModel};

static PLATFORM: Platform = Platform::new(|| Arc::new(cpu::Cpu::new(2)));

/// The model at a path, which is to write.
pub(crate) fn text_model(path: &Path) -> Arc<TextModel> {
    let (session, plan) = planned(path);
    Arc::new(TextModel::from_plan(&session, plan).unwrap())
}

/// The model at a path, which is to embed.
pub(crate) fn embedding_model(path: &Path) -> Arc<EmbeddingModel> {
    let (session, plan) = planned(path);
    Arc::new(EmbeddingModel::from_plan(&session, plan, &mut |_| ()).unwrap())
}

/// The plan of the model at a path.
pub(crate) fn plan(path: &Path) -> Plan {
    planned(path).1
}

/// Saves the model at a path, compiled and packed.
pub(crate) fn save(path: &Path, target: &Path) {
    let (session, plan) = plan_of(config(path).save_to_serialized_model_path(target.to_path_buf()));
    TextModel::from_plan(&session, plan).unwrap();
}

fn config(path: &Path) -> PipelineConfig {
    PipelineConfig::new(path.display().to_string()).kv_cache_page_size(64_usize)
}

fn planned(path: &Path) -> (InferenceSession, Plan) {
    plan_of(config(path))
}

fn plan_of(config: PipelineConfig) -> (InferenceSession, Plan) {
    let plan = config.plan(Machine { devices: &PLATFORM, free_memory: None }).unwrap();
    let session = InferenceSession::new(plan.config().devices_of(&PLATFORM).unwrap()).unwrap();
    (session, plan)
}
