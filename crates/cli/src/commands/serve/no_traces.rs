//! What takes the place of `traces.rs` without the feature `otlp`: no flags for traces.

use serve::TraceConfig;

#[derive(clap::Args)]
pub(super) struct TraceFlags {}

impl TraceFlags {
    pub(super) fn config(&self) -> Option<TraceConfig> {
        None
    }
}
