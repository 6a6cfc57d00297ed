//! `GET /debug/memory`: the memory of loaded models.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use engine::Model;
use serde::Serialize;
use utoipa::ToSchema;

use crate::models::{ModelStatus, ModelWorker};
use crate::state::ServerState;

/// The memory of the models. All numbers are bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Memory {
    /// The most that all models together may take, on all devices; `null` if the system does not say how much is free.
    budget: Option<u64>,
    /// The weights and caches of the models that are in memory, come or go.
    used: u64,
    models: Vec<ModelMemory>,
}

/// The memory of a model.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ModelMemory {
    model: String,
    weights: u64,
    /// The cache of requests that run.
    kv_live: u64,
    /// The cache of earlier requests, which others may share or take.
    kv_cached: u64,
    /// The part of the cache that holds nothing.
    kv_free: u64,
    /// The most that a step has needed for values between its inputs and its outputs.
    scratch: u64,
}

/// Shows the memory of the models.
#[utoipa::path(get, path = "/debug/memory", tag = "Admin", responses((status = 200, body = Memory)))]
pub(crate) async fn show(State(server): State<Arc<ServerState>>) -> Json<Memory> {
    let models = server.models.statuses().iter().filter_map(ModelMemory::from_status).collect();
    let (used, budget) = server.models.memory();
    Json(Memory { budget, used, models })
}

impl ModelMemory {
    /// The parts and their bytes.
    pub(super) fn parts(&self) -> [(&'static str, u64); 5] {
        [
            ("weights", self.weights),
            ("kv_live", self.kv_live),
            ("kv_cached", self.kv_cached),
            ("kv_free", self.kv_free),
            ("scratch", self.scratch),
        ]
    }

    /// The memory of a model that is loaded.
    pub(super) fn from_status(status: &ModelStatus) -> Option<ModelMemory> {
        let (model, loaded) = (status.model.id().to_string(), status.loaded.as_deref()?);
        let weights = status.model.facts.weight_bytes;
        let without_cache = |scratch: usize| ModelMemory {
            model: model.clone(),
            weights,
            kv_live: 0,
            kv_cached: 0,
            kv_free: 0,
            scratch: scratch as u64,
        };
        Some(match loaded.worker() {
            ModelWorker::Embedding(embedder) => {
                without_cache(embedder.model().model().map_or(0, Model::scratch_bytes))
            }
            ModelWorker::Classifier(classifier) => without_cache(classifier.model().model().scratch_bytes()),
            ModelWorker::Text(generator) => {
                let counts = generator.status().unwrap_or_default();
                let page = counts.page_size as u64 * loaded.plan().cache_bytes_per_token();
                let slot = loaded.plan().state_bytes_per_slot();
                let bytes = |pages: usize, slots: usize| pages as u64 * page + slots as u64 * slot;
                ModelMemory {
                    kv_live: bytes(
                        counts.num_pages - counts.free_pages,
                        counts.num_state_slots - counts.free_state_slots,
                    ),
                    kv_cached: bytes(counts.cached_pages, counts.cached_state_slots),
                    kv_free: bytes(
                        counts.free_pages - counts.cached_pages,
                        counts.free_state_slots - counts.cached_state_slots,
                    ),
                    ..without_cache(generator.model().model().map_or(0, Model::scratch_bytes))
                }
            }
        })
    }
}
