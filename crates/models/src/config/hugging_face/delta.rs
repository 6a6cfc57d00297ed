//! The gated delta nets in a `config.json`.

use serde::Deserialize;

use crate::config::DeltaConfig;

/// The keys of gated delta nets.
#[derive(Deserialize)]
pub(super) struct File {
    linear_num_key_heads: Option<usize>,
    linear_key_head_dim: Option<usize>,
    linear_num_value_heads: Option<usize>,
    linear_value_head_dim: Option<usize>,
    linear_conv_kernel_dim: Option<usize>,
}

impl File {
    /// The nets, if all their sizes are there; families that have them add those that files leave out.
    pub(super) fn read(&self) -> Option<DeltaConfig> {
        Some(DeltaConfig {
            key_heads: self.linear_num_key_heads?,
            key_dim: self.linear_key_head_dim?,
            value_heads: self.linear_num_value_heads?,
            value_dim: self.linear_value_head_dim?,
            conv_width: self.linear_conv_kernel_dim?,
            tiled: false,
        })
    }
}
