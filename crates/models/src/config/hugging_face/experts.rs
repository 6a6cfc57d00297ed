//! The experts in a `config.json`.

use serde::Deserialize;

use crate::config::{ExpertConfig, MAX_LAYERS};

/// The keys of experts.
#[derive(Deserialize)]
pub(super) struct File {
    num_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    moe_intermediate_size: Option<usize>,
    shared_expert_intermediate_size: Option<usize>,
    norm_topk_prob: Option<bool>,
    mlp_only_layers: Option<Vec<usize>>,
    decoder_sparse_step: Option<usize>,
}

impl File {
    /// The experts, if there are some; of the width of a dense block unless they have their own.
    pub(super) fn read(&self, width: usize) -> Result<Option<ExpertConfig>, String> {
        let Some(count) = self.num_experts.filter(|&count| count > 0) else {
            return Ok(None);
        };
        Ok(Some(ExpertConfig {
            count,
            per_token: self.num_experts_per_tok.ok_or("experts without `num_experts_per_tok`")?,
            width: self.moe_intermediate_size.unwrap_or(width),
            shared_width: self.shared_expert_intermediate_size.filter(|&width| width > 0),
            normalized: self.norm_topk_prob.unwrap_or(true),
        }))
    }

    /// Which layers have experts, if that is said: the last of every so many, but for those listed.
    pub(super) fn sparse_layers(&self, layers: usize) -> Result<Option<Vec<bool>>, String> {
        let step = match self.decoder_sparse_step {
            None => return Ok(None),
            Some(0) => return Err("`decoder_sparse_step` is 0, expected at least 1".into()),
            Some(step) => step,
        };
        let dense = self.mlp_only_layers.as_deref().unwrap_or_default();
        let is_sparse = |layer: usize| !dense.contains(&layer) && (layer + 1).is_multiple_of(step);
        Ok(Some((0..layers.min(MAX_LAYERS)).map(is_sparse).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_experts() {
        let file = |json: &str| serde_json::from_str::<File>(json).unwrap();
        assert_eq!(file("{}").read(9), Ok(None));
        assert_eq!(file(r#"{"num_experts": 0}"#).read(9), Ok(None));
        let mixtral = file(r#"{"num_experts": 8, "num_experts_per_tok": 2}"#);
        let experts = ExpertConfig { count: 8, per_token: 2, width: 9, shared_width: None, normalized: true };
        assert_eq!((mixtral.read(9), mixtral.sparse_layers(3)), (Ok(Some(experts)), Ok(None)));
        let qwen = file(
            r#"{"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 5, "norm_topk_prob": false,
                "shared_expert_intermediate_size": 7, "decoder_sparse_step": 2, "mlp_only_layers": [3]}"#,
        );
        let experts =
            ExpertConfig { count: 60, per_token: 4, width: 5, shared_width: Some(7), normalized: false };
        assert_eq!(qwen.read(9), Ok(Some(experts)));
        let sparse = qwen.sparse_layers(6).unwrap().unwrap();
        assert_eq!(sparse, [false, true, false, false, false, true]);
        let error = file(r#"{"num_experts": 8}"#).read(9).unwrap_err();
        assert_eq!(error, "experts without `num_experts_per_tok`");
        let error = file(r#"{"decoder_sparse_step": 0}"#).sparse_layers(2).unwrap_err();
        assert_eq!(error, "`decoder_sparse_step` is 0, expected at least 1");
    }
}
