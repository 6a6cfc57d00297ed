//! One name per weight: what checkpoints call it, in GGUF's words.
//!
//! Canonical names are GGUF's: `token_embd.weight`, `blk.3.attn_q.weight`, `output_norm.weight`. They are flat, short, and
//! the same for all architectures, each of which has a table of what its files say instead. Wrappers and the leaf are
//! taken off before a name is looked up:
//!
//! ```text
//! _orig_mod.model.layers.3.self_attn.q_proj.weight
//! └── wrappers ──┘└──────── stem ──────────┘└ leaf ┘  →  blk.3.attn_q.weight
//! ```
//!
//! Only names are mapped, no values. Experts that are stored one by one keep their numbers: `blk.0.ffn_up.7.weight`.

use std::collections::HashMap;

use weights::{Format, Weights};

use crate::Error;

/// What files call weights, and the canonical names; without wrappers and leaves. `#` stands for any number: the numbers
/// of the left side are those of the right side, in order. A right side with a leaf is for names without, which are then
/// not weights but what it says: biases or scales.
pub(crate) type NameTable = &'static [(&'static str, &'static str)];

/// Wrappers that training code and model classes put in front, any number of them.
const WRAPPERS: &[&str] = &[
    "_orig_mod.",      // torch.compile
    "module.",         // DistributedDataParallel
    "model.",          // Hugging Face's …ForCausalLM
    "language_model.", // the text half of a model that sees
    "text_model.",
    "transformer.", // GPT-2, Falcon
    "gpt_neox.",
    "backbone.", // Mamba
    "bert.",
    "distilbert.",
    "mpnet.",
    "roberta.",
    "gte.",
    "nomic_bert.",
    "new.",
];

/// Heads, which stand outside of wrappers.
const HEADS: &[&str] = &["lm_head", "classifier", "pre_classifier", "head", "score"];

/// The last parts of tensor names: weights and biases, and the tensors that replace a weight when it is quantized.
const LEAVES: &[&str] = &[
    "weight",
    "bias",
    // GPTQ and AWQ
    "qweight",
    "scales",
    "qzeros",
    "g_idx",
    // MXFP4
    "blocks",
    // FP8, compressed-tensors and ModelOpt
    "weight_scale_inv",
    "weight_scale",
    "weight_scale_2",
    "weight_packed",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
    "weight_global_scale",
    "input_scale",
    "input_global_scale",
    // bitsandbytes
    "SCB",
    "weight_format",
    "weight.absmax",
    "weight.quant_map",
    "weight.nested_absmax",
    "weight.nested_quant_map",
    "weight.quant_state.bitsandbytes__nf4",
    "weight.quant_state.bitsandbytes__fp4",
];

/// What the names of parameters of experts end with, and the leaves that these stand for.
const ENDINGS: &[(&str, &str)] =
    &[("_bias", "bias"), ("_blocks", "blocks"), ("_scales", "scales"), ("_scale_inv", "weight_scale_inv")];

/// The tensors of a checkpoint under canonical names.
#[derive(Debug)]
pub(crate) struct CanonicalNames {
    /// By canonical name. Tensors that the tables do not know keep their own.
    pub(crate) stored: HashMap<String, String>,
    tables: Vec<NameTable>,
    /// What is in front of names in these files.
    wrapper: String,
}

impl CanonicalNames {
    /// The names of open weights. The first table that knows a name counts; GGUF names are canonical but for those
    /// that `tables` know.
    ///
    /// # Errors
    /// If two tensors have one canonical name.
    pub(crate) fn new(weights: &Weights, tables: &[NameTable]) -> Result<CanonicalNames, Error> {
        let gguf = weights.format() == Format::Gguf;
        let mut stored: HashMap<String, String> = HashMap::with_capacity(weights.len());
        let mut wrapper = String::new();
        for name in weights.names() {
            let known = canonical(name, tables);
            if let (Some(_), false) = (&known, gguf) {
                let own = without_wrappers(name);
                wrapper = longer(wrapper, &name[..name.len() - own.len()]);
            }
            let key = known.unwrap_or_else(|| name.to_string());
            if let Some(first) = stored.insert(key.clone(), name.to_string()) {
                let second = name.to_string();
                return Err(weights::Error::AmbiguousName { canonical: key, first, second }.into());
            }
        }
        Ok(CanonicalNames { stored, tables: tables.to_vec(), wrapper })
    }

    /// The canonical name of a tensor, or `None` if no table knows it.
    pub(crate) fn canonical(&self, name: &str) -> Option<String> {
        canonical(name, &self.tables)
    }

    /// What the files call a weight, or would if they had it.
    pub(crate) fn in_files(&self, canonical: &str) -> String {
        if let Some(name) = self.stored.get(canonical) {
            return name.clone();
        }
        let (path, leaf) = apart(canonical);
        let look = |path: &str| {
            let mut rows = self.tables.iter().copied().flatten();
            rows.find_map(|(theirs, ours)| replace(ours, path, theirs))
        };
        if let Some(spelled) = look(canonical) {
            return format!("{}{spelled}", self.wrapper);
        }
        match look(path) {
            Some(path) if HEADS.iter().any(|head| path.starts_with(head)) => format!("{path}.{leaf}"),
            Some(path) => format!("{}{path}.{leaf}", self.wrapper),
            None => canonical.to_string(),
        }
    }
}

/// The canonical name of a tensor, or `None` if the tables do not know it.
fn canonical(name: &str, tables: &[NameTable]) -> Option<String> {
    let own = without_wrappers(name);
    let look = |(path, leaf): (&str, &str)| {
        let of = |table: &NameTable| table.iter().find_map(|(theirs, ours)| replace(theirs, path, ours));
        let found = tables.iter().find_map(of)?;
        let is_whole = [".bias", ".scale"].iter().any(|leaf| found.ends_with(leaf));
        Some(if is_whole { found } else { format!("{found}.{leaf}") })
    };
    let ending = || ENDINGS.iter().find_map(|(ending, leaf)| Some((own.strip_suffix(ending)?, *leaf)));
    look(apart(own)).or_else(|| look(ending()?))
}

/// What files with a table call a weight. Rows whose sides are the same, or whose right side has a leaf, are of parameters
/// without one.
pub(crate) fn spelled(canonical: &str, table: NameTable) -> String {
    let (path, leaf) = apart(canonical);
    let row = |(theirs, ours): &(&str, &str)| {
        let whole = |path| if theirs == ours { path } else { format!("{path}.{leaf}") };
        replace(ours, canonical, theirs).or_else(|| replace(ours, path, theirs).map(whole))
    };
    table.iter().find_map(row).unwrap_or_else(|| canonical.to_string())
}

/// The path and the leaf of a name. A parameter by itself, such as `self_attn.sinks`, has no leaf, and is a weight unless
/// it is called a bias.
fn apart(name: &str) -> (&str, &'static str) {
    let leaf = |leaf: &&'static str| Some((name.strip_suffix(*leaf)?.strip_suffix('.')?, *leaf));
    // A matrix to which adapters are added (torch.nn.utils.parametrize).
    if let Some(path) = name.strip_suffix(".parametrizations.weight.original") {
        return (path, "weight");
    }
    let alone = if name.ends_with("_correction_bias") { "bias" } else { "weight" };
    LEAVES.iter().find_map(leaf).unwrap_or((name, alone))
}

fn without_wrappers(mut name: &str) -> &str {
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)) {
        name = rest;
    }
    name
}

fn longer(a: String, b: &str) -> String {
    if b.len() > a.len() { b.to_string() } else { a }
}

/// `to` with the numbers that stand in `name` where `from` has `#`, if `name` is otherwise `from`.
fn replace(from: &str, name: &str, to: &str) -> Option<String> {
    let mut numbers = Vec::new();
    let mut rest = name;
    let mut parts = from.split('#');
    rest = rest.strip_prefix(parts.next()?)?;
    for part in parts {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        // As a number, so that no two names are one.
        let number: usize = rest[..end].parse().ok()?;
        numbers.push(number.to_string());
        rest = rest[end..].strip_prefix(part)?;
    }
    if !rest.is_empty() {
        return None;
    }
    let mut numbers = numbers.iter();
    let mut parts = to.split('#');
    let mut result = parts.next()?.to_string();
    for part in parts {
        result.push_str(numbers.next()?);
        result.push_str(part);
    }
    Some(result)
}

/// Whether names are those of Meta's own checkpoints (and llama2.c's), whose rotated pairs are neighbours.
pub(crate) fn are_of_meta<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| name.ends_with(".attention.wq.weight"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architectures::Architecture;
    use crate::architectures::EncoderArchitecture;

    fn check(tables: &[NameTable], name: &str, expected: &str) {
        assert_eq!(canonical(name, tables).as_deref(), Some(expected), "{name}");
    }

    fn tables(architecture: &str) -> &'static [NameTable] {
        Architecture::from_hugging_face(architecture).unwrap().names
    }

    #[test]
    fn names_map_to_one_scheme() {
        let llama = tables("LlamaForCausalLM");
        check(llama, "model.embed_tokens.weight", "token_embd.weight");
        check(llama, "embed_tokens.weight", "token_embd.weight");
        check(llama, "lm_head.weight", "output.weight");
        check(llama, "model.norm.weight", "output_norm.weight");
        check(llama, "model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight");
        check(llama, "layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias");
        check(llama, "_orig_mod.module.model.layers.10.mlp.down_proj.weight", "blk.10.ffn_down.weight");
        check(llama, "model.layers.3.self_attn.q_proj.qweight", "blk.3.attn_q.qweight");
        check(llama, "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight");
        check(llama, "layers.2.attention.wq.weight", "blk.2.attn_q.weight");
        check(llama, "_orig_mod.tok_embeddings.weight", "token_embd.weight");
        check(llama, "output.weight", "output.weight");
        let qwen = tables("Qwen3MoeForCausalLM");
        check(qwen, "model.layers.3.mlp.experts.7.up_proj.g_idx", "blk.3.ffn_up.7.g_idx");
        check(qwen, "model.layers.0.self_attn.k_norm.weight", "blk.0.attn_k_norm.weight");
        check(qwen, "model.layers.1.mlp.experts.63.up_proj.weight", "blk.1.ffn_up.63.weight");
        check(qwen, "model.layers.1.mlp.experts.gate_up_proj", "blk.1.ffn_gate_up_exps.weight");
        check(qwen, "model.layers.1.mlp.experts.gate_up_proj_blocks", "blk.1.ffn_gate_up_exps.blocks");
        check(qwen, "model.layers.1.mlp.experts.down_proj_scales", "blk.1.ffn_down_exps.scales");
        check(qwen, "model.layers.1.mlp.experts.down_proj_bias", "blk.1.ffn_down_exps.bias");
        check(
            qwen,
            "model.layers.1.mlp.experts.gate_up_proj_scale_inv",
            "blk.1.ffn_gate_up_exps.weight_scale_inv",
        );
        check(llama, "model.layers.1.mlp.up_proj.weight_scale_inv", "blk.1.ffn_up.weight_scale_inv");
        check(llama, "model.layers.1.mlp.up_proj.weight.absmax", "blk.1.ffn_up.weight.absmax");
        let mixtral = tables("MixtralForCausalLM");
        check(mixtral, "model.layers.1.block_sparse_moe.experts.7.w2.weight", "blk.1.ffn_down.7.weight");
        let gpt_oss = tables("GptOssForCausalLM");
        check(gpt_oss, "model.layers.1.mlp.experts.gate_up_proj_bias", "blk.1.ffn_gate_up_exps.bias");
        check(gpt_oss, "model.layers.1.self_attn.sinks", "blk.1.attn_sinks.weight");
        let granite = tables("GraniteMoeForCausalLM");
        check(granite, "model.layers.1.block_sparse_moe.output_linear.weight", "blk.1.ffn_down_exps.weight");
        let bert = EncoderArchitecture::from_hugging_face("BertModel").unwrap().names;
        check(bert, "bert.encoder.layer.5.attention.self.query.bias", "blk.5.attn_q.bias");
        check(bert, "embeddings.LayerNorm.bias", "token_embd_norm.bias");
        let classifier = |name: &str| EncoderArchitecture::from_hugging_face(name).unwrap().names;
        check(classifier("BertForSequenceClassification"), "bert.pooler.dense.weight", "cls.weight");
        check(classifier("RobertaForSequenceClassification"), "classifier.dense.weight", "cls.weight");
        let distilbert = classifier("DistilBertForSequenceClassification");
        check(distilbert, "distilbert.transformer.layer.1.attention.q_lin.bias", "blk.1.attn_q.bias");
        check(distilbert, "classifier.weight", "cls.output.weight");
    }

    #[test]
    fn norms_have_other_names_where_blocks_have_two() {
        let gemma2 = tables("Gemma2ForCausalLM");
        let norm = |stem: &str| canonical(&format!("model.layers.0.{stem}.weight"), gemma2).unwrap();
        assert_eq!(norm("input_layernorm"), "blk.0.attn_norm.weight");
        assert_eq!(norm("post_attention_layernorm"), "blk.0.post_attention_norm.weight");
        assert_eq!(norm("pre_feedforward_layernorm"), "blk.0.ffn_norm.weight");
        assert_eq!(norm("post_feedforward_layernorm"), "blk.0.post_ffw_norm.weight");
    }

    #[test]
    fn unknown_names_are_none() {
        let llama = tables("LlamaForCausalLM");
        for name in ["", "model.", "vision.patch.weight", "layers.x.self_attn.q_proj.weight", "layers.1"] {
            assert_eq!(canonical(name, llama), None, "{name}");
        }
        assert!(are_of_meta(["tok_embeddings.weight", "layers.0.attention.wq.weight"].into_iter()));
    }

    #[test]
    fn weights_have_the_names_of_the_files_in_messages() {
        let file = |name: &str| {
            let header = format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#);
            let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0]].concat();
            Weights::from_bytes("one.safetensors", tensor::Bytes::new(bytes)).unwrap()
        };
        let in_files = |stored: &str, architecture: &str, canonical: &str| {
            CanonicalNames::new(&file(stored), tables(architecture)).unwrap().in_files(canonical)
        };
        let norm = "model.norm.weight";
        assert_eq!(in_files(norm, "LlamaForCausalLM", "output_norm.weight"), norm);
        let missing = in_files(norm, "LlamaForCausalLM", "blk.3.attn_q.bias");
        assert_eq!(missing, "model.layers.3.self_attn.q_proj.bias");
        assert_eq!(in_files(norm, "LlamaForCausalLM", "output.weight"), "lm_head.weight");
        let missing = in_files("transformer.wte.weight", "GPT2LMHeadModel", "blk.0.ffn_up.weight");
        assert_eq!(missing, "transformer.h.0.mlp.c_fc.weight");
        assert_eq!(in_files("norm.weight", "LlamaForCausalLM", "blk.0.ssm_a"), "blk.0.ssm_a");
        let missing = in_files(norm, "GptOssForCausalLM", "blk.2.ffn_down_exps.bias");
        assert_eq!(missing, "model.layers.2.mlp.experts.down_proj_bias");
    }

    #[test]
    fn two_tensors_of_one_name_are_refused() {
        let header = r#"{"model.norm.weight":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"norm.weight":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0, 0]].concat();
        let weights = Weights::from_bytes("twice.safetensors", tensor::Bytes::new(bytes)).unwrap();
        let error = CanonicalNames::new(&weights, tables("LlamaForCausalLM")).unwrap_err().to_string();
        assert_eq!(error, "tensors `model.norm.weight` and `norm.weight` are both `output_norm.weight`");
    }

    #[test]
    fn numbers_keep_their_order() {
        assert_eq!(replace("a.#.b.#", "a.3.b.14", "x#.y#").as_deref(), Some("x3.y14"));
        assert_eq!(replace("a.#", "a.", "x#"), None);
        assert_eq!(replace("a.#", "a.1.b", "x#"), None);
        assert_eq!(replace("a.#", "a.99999999999999999999999", "x#"), None);
    }
}
