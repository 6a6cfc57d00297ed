//! Models for tests: as a configuration names them, with pages of 64 tokens, on two threads.

use std::path::Path;
use std::sync::Arc;

use engine::InferenceSession;
use engine::devices::Platform;

use crate::plan::config::PipelineConfig;
use crate::plan::{Machine, Plan};
use crate::{EmbeddingModel, Error, TextModel};

static PLATFORM: Platform = Platform::new(|| Arc::new(cpu::Cpu::new(2)));

/// The model at a path, which is to write.
pub(crate) fn text_model(path: &Path) -> Arc<TextModel> {
    model_of(config(path))
}

/// The model at a path, which is to embed.
pub(crate) fn embedding_model(path: &Path) -> Arc<EmbeddingModel> {
    let (session, plan) = planned(path);
    Arc::new(EmbeddingModel::from_plan(&session, plan, &mut |_| ()).unwrap())
}

/// The model of a configuration, which is to write.
pub(crate) fn model_of(config: PipelineConfig) -> Arc<TextModel> {
    Arc::new(try_model(config).unwrap())
}

/// The same, of one that may be refused.
pub(crate) fn try_model(config: PipelineConfig) -> Result<TextModel, Error> {
    let (session, plan) = plan_of(config);
    TextModel::from_plan(&session, plan)
}

/// The plan of a configuration that may be refused.
pub(crate) fn try_plan(config: PipelineConfig) -> Result<Plan, Error> {
    config.plan(Machine { devices: &PLATFORM, free_memory: None })
}

/// The plan of the model at a path.
pub(crate) fn plan(path: &Path) -> Plan {
    planned(path).1
}

/// Saves the model at a path, compiled and packed.
pub(crate) fn save(path: &Path, target: &Path) {
    model_of(config(path).save_to_serialized_model_path(target.to_path_buf()));
}

/// The configuration of the model at a path.
pub(crate) fn config(path: &Path) -> PipelineConfig {
    PipelineConfig::new(path.display().to_string()).kv_cache_page_size(64_usize)
}

fn planned(path: &Path) -> (InferenceSession, Plan) {
    plan_of(config(path))
}

fn plan_of(config: PipelineConfig) -> (InferenceSession, Plan) {
    let plan = try_plan(config).unwrap();
    let session = InferenceSession::new(plan.config().devices_of(&PLATFORM).unwrap()).unwrap();
    (session, plan)
}
