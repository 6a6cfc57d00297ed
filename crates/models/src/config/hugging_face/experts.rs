//! The experts in a `config.json`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::key;
use crate::{ExpertConfig, ExpertGroups, Scores};

/// The keys of experts.
#[derive(Deserialize)]
pub(super) struct ExpertKeys {
    mlp_only_layers: Option<Vec<usize>>,
    decoder_sparse_step: Option<usize>,
    first_k_dense_replace: Option<usize>,
    mlp_layer_types: Option<Vec<String>>,
    scoring_func: Option<String>,
    topk_method: Option<String>,
    n_group: Option<usize>,
    topk_group: Option<usize>,
}

impl ExpertKeys {
    /// The experts, if there are some; of the width of a dense block unless they have their own.
    pub(super) fn read(
        &self,
        width: usize,
        keys: &Map<String, Value>,
    ) -> Result<Option<ExpertConfig>, String> {
        let defaults = ExpertConfig { width, ..ExpertConfig::default() };
        let Some(mut experts) = key::block_from_json(defaults, keys)? else { return Ok(None) };
        experts.shared_width = experts.shared_width.filter(|&width| width > 0);
        (experts.routing.scores, experts.routing.groups) = self.routing()?;
        Ok(Some(experts))
    }

    fn routing(&self) -> Result<(Scores, Option<ExpertGroups>), String> {
        let scores = match self.scoring_func.as_deref() {
            None | Some("softmax") => Scores::Softmax,
            Some("sigmoid") => Scores::Sigmoid,
            Some(other) => return Err(format!("`scoring_func` is `{other}`, expected softmax or sigmoid")),
        };
        let best = match self.topk_method.as_deref() {
            None | Some("greedy") => None,
            Some("group_limited_greedy") => Some(1),
            Some("noaux_tc") => Some(2),
            Some(other) => {
                let known = "greedy, group_limited_greedy, noaux_tc";
                return Err(format!("`topk_method` is `{other}`, which is not supported; known: {known}"));
            }
        };
        Ok((scores, best.and_then(|best| ExpertGroups::from_config((self.n_group, self.topk_group), best))))
    }

    /// Which layers have experts, if that is said: each is listed, or all after some, or the last of every so many, but
    /// for those listed.
    pub(super) fn sparse_layers(&self, layers: usize) -> Result<Option<Vec<bool>>, String> {
        let all = 0..layers;
        if let Some(kinds) = &self.mlp_layer_types {
            let sparse = kinds.iter().map(|kind| match kind.as_str() {
                "sparse" => Ok(true),
                "dense" => Ok(false),
                _ => Err(format!("blocks of the type `{kind}` are not supported; known: sparse, dense")),
            });
            return sparse.collect::<Result<_, _>>().map(Some);
        }
        if let Some(dense) = self.first_k_dense_replace {
            return Ok(Some(all.map(|layer| layer >= dense).collect()));
        }
        let step = match self.decoder_sparse_step {
            None => return Ok(None),
            Some(0) => return Err("`decoder_sparse_step` is 0, expected at least 1".into()),
            Some(step) => step,
        };
        let dense = self.mlp_only_layers.as_deref().unwrap_or_default();
        let is_sparse = |layer: usize| !dense.contains(&layer) && (layer + 1).is_multiple_of(step);
        Ok(Some(all.map(is_sparse).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routing;

    #[test]
    fn reads_experts() {
        let file = |json: &str| serde_json::from_str::<ExpertKeys>(json).unwrap();
        let read = |json: &str| file(json).read(9, &serde_json::from_str(json).unwrap());
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"num_experts": 0}"#), Ok(None));
        let mixtral = r#"{"num_experts": 8, "num_experts_per_tok": 2}"#;
        let routing = Routing::default();
        let experts = ExpertConfig { count: 8, per_token: 2, width: 9, routing, ..ExpertConfig::default() };
        assert_eq!((read(mixtral), file(mixtral).sparse_layers(3)), (Ok(Some(experts)), Ok(None)));
        let qwen = r#"{"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 5, "norm_topk_prob": false,
                "shared_expert_intermediate_size": 7, "decoder_sparse_step": 2, "mlp_only_layers": [3]}"#;
        let routing = Routing { normalized: false, ..routing };
        let experts = ExpertConfig {
            count: 60,
            per_token: 4,
            width: 5,
            shared_width: Some(7),
            routing,
            ..ExpertConfig::default()
        };
        assert_eq!(read(qwen), Ok(Some(experts)));
        let sparse = file(qwen).sparse_layers(6).unwrap().unwrap();
        assert_eq!(sparse, [false, true, false, false, false, true]);
        let error = read(r#"{"num_experts": 8}"#).unwrap_err();
        assert_eq!(error, "`num_experts_per_tok` is missing");
        let deepseek = r#"{"num_experts": 16, "num_experts_per_tok": 4, "first_k_dense_replace": 2, "scoring_func": "sigmoid",
                "topk_method": "noaux_tc", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}"#;
        let routing = Routing {
            scores: Scores::Sigmoid,
            groups: Some(ExpertGroups { count: 4, chosen: 2, best: 2 }),
            scale: 2.5,
            ..Routing::default()
        };
        assert_eq!(read(deepseek).unwrap().unwrap().routing, routing);
        assert_eq!(file(deepseek).sparse_layers(4).unwrap().unwrap(), [false, false, true, true]);
        let listed = file(r#"{"mlp_layer_types": ["dense", "sparse"]}"#).sparse_layers(2);
        assert_eq!(listed.unwrap().unwrap(), [false, true]);
        assert!(file(r#"{"mlp_layer_types": ["odd"]}"#).sparse_layers(1).unwrap_err().contains("`odd`"));
        let error = file(r#"{"decoder_sparse_step": 0}"#).sparse_layers(2).unwrap_err();
        assert_eq!(error, "`decoder_sparse_step` is 0, expected at least 1");
    }
}
