//! The models of the server: found by name, loaded when a request needs them, and kept in memory while requests use them.

mod active_model;
mod additions;
mod catalog;
mod loaded;
mod manager;
mod preset;
mod progress;
mod pull;
mod residency;
mod served_model;
mod shares;
mod table;

pub(crate) use active_model::{ActiveModel, ModelText};
pub(crate) use loaded::{LoadedModel, ModelWorker};
pub(crate) use manager::Models;
pub(crate) use preset::{Preset, PresetSpec};
pub(crate) use progress::{PhaseTimes, Progress};
pub(crate) use pull::{PullState, PulledFile};
pub(crate) use served_model::ServedModel;
pub(crate) use table::{ModelStatus, STATES};
