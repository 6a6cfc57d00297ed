//! One name per weight: what Hugging Face, Meta and GGUF call it, in GGUF's words.
//!
//! The canonical scheme is GGUF's: `token_embd.weight`, `blk.3.attn_q.weight`, `output_norm.weight`. It is flat,
//! short, and the same for all architectures. A name is taken apart into prefix, layer, stem and leaf:
//!
//! ```text
//! _orig_mod.model.layers.3.self_attn.q_proj.weight
//! └── prefixes ──┘└ layer ┘└─── stem ─────┘└ leaf ┘  →  blk.3.attn_q.weight
//! ```
//!
//! Only names are mapped. Rows of `attn_q` and `attn_k` stay in the order of their source: half-split pairs in
//! Hugging Face checkpoints, interleaved pairs in Meta's (`wq`, `wk`) and in GGUF files of the `llama` architecture.
//! Experts stay one tensor each where the source has one each: `blk.0.ffn_up.7.weight`, beside GGUF's stacked
//! `blk.0.ffn_up_exps.weight`.

/// Wrappers that training code and model classes put in front, any number of them.
const PREFIXES: &[&str] = &[
    "_orig_mod.",      // torch.compile
    "module.",         // DistributedDataParallel
    "model.",          // Hugging Face's …ForCausalLM
    "language_model.", // the text half of a model that sees
    "transformer.",
    "bert.",
    "mpnet.",
    "roberta.",
];

/// What the numbered layers are called.
const LAYERS: &[&str] = &["layers.", "encoder.layer.", "blk."];

/// What a layer's tensors are called: a weight and a bias, or what GPTQ and others make of a weight.
const LEAVES: &[&str] = &["weight", "bias", "qweight", "scales", "qzeros", "g_idx"];

/// Stems outside the layers.
const GLOBAL: &[(&str, &str)] = &[
    ("embed_tokens", "token_embd"),
    ("tok_embeddings", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", "output"),
    ("output", "output"),
    // Encoders (BERT, MPNet).
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("encoder.relative_attention_bias", "attn_rel_b"),
];

/// Stems within a layer.
const LAYER: &[(&str, &str)] = &[
    // Attention.
    ("input_layernorm", "attn_norm"),
    ("attention_norm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.sinks", "attn_sinks"),
    ("attention.wq", "attn_q"),
    ("attention.wk", "attn_k"),
    ("attention.wv", "attn_v"),
    ("attention.wo", "attn_output"),
    // Feed-forward. With sandwich norms `post_attention_layernorm` means something else: see SANDWICH.
    ("post_attention_layernorm", "ffn_norm"),
    ("ffn_norm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate_up_proj", "ffn_up"), // Phi-3: gate and up stacked, as in GGUF
    ("feed_forward.w1", "ffn_gate"),
    ("feed_forward.w2", "ffn_down"),
    ("feed_forward.w3", "ffn_up"),
    // Experts: the router, shared experts, and `#` for the number of one expert.
    ("mlp.gate", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("mlp.experts.#.gate_proj", "ffn_gate.#"),
    ("mlp.experts.#.up_proj", "ffn_up.#"),
    ("mlp.experts.#.down_proj", "ffn_down.#"),
    ("block_sparse_moe.experts.#.w1", "ffn_gate.#"),
    ("block_sparse_moe.experts.#.w2", "ffn_down.#"),
    ("block_sparse_moe.experts.#.w3", "ffn_up.#"),
    // All experts stacked; those of gate and up one on the other within each.
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
    ("block_sparse_moe.experts.gate_up_proj", "ffn_gate_up_exps"),
    ("block_sparse_moe.experts.down_proj", "ffn_down_exps"),
    ("block_sparse_moe.router", "ffn_gate_inp"),
    ("block_sparse_moe.input_linear", "ffn_gate_up_exps"),
    ("block_sparse_moe.output_linear", "ffn_down_exps"),
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    // Encoders (BERT, MPNet).
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("attention.attn.q", "attn_q"),
    ("attention.attn.k", "attn_k"),
    ("attention.attn.v", "attn_v"),
    ("attention.attn.o", "attn_output"),
    ("attention.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// Stems within a layer that normalizes each block's output too (Gemma 2, Gemma 3, OLMo 2). Asked before LAYER.
const SANDWICH: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Which names a checkpoint uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// GGUF's names, which are canonical as they are.
    Gguf,
    /// Meta's own (`attention.wq`), also llama2.c's.
    Meta,
    /// Hugging Face's, where each block has a norm before it.
    HuggingFace,
    /// Hugging Face's, where each block has a norm behind it.
    HuggingFaceSandwich,
}

impl Scheme {
    /// The scheme of a checkpoint with these names.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Scheme {
        let mut scheme = Scheme::HuggingFace;
        for name in names {
            if name.starts_with("blk.") || name == "token_embd.weight" {
                return Scheme::Gguf;
            }
            if name.ends_with(".attention.wq.weight") {
                return Scheme::Meta;
            }
            if name.contains(".post_feedforward_layernorm.") {
                scheme = Scheme::HuggingFaceSandwich;
            }
        }
        scheme
    }
}

/// The canonical name of a tensor, or `None` if the tables do not know it.
pub fn canonical(name: &str, scheme: Scheme) -> Option<String> {
    if scheme == Scheme::Gguf {
        return Some(name.to_string());
    }
    let name = without_prefixes(name);
    // `self_attn.sinks` is a parameter by itself: its name has no leaf.
    let (path, leaf) = match name.rsplit_once('.') {
        Some((path, leaf)) if LEAVES.contains(&leaf) => (path, leaf),
        _ => (name, "weight"),
    };
    let Some((layer, stem)) = layer_and_stem(path) else {
        return lookup(GLOBAL, path).map(|canonical| format!("{canonical}.{leaf}"));
    };
    let sandwich = if scheme == Scheme::HuggingFaceSandwich { SANDWICH } else { &[] };
    let canonical = lookup(sandwich, stem).or_else(|| lookup(LAYER, stem))?;
    Some(format!("blk.{layer}.{canonical}.{leaf}"))
}

fn without_prefixes(mut name: &str) -> &str {
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest;
    }
    name
}

/// `layers.3.self_attn.q_proj` → `3`, `self_attn.q_proj`.
fn layer_and_stem(path: &str) -> Option<(usize, &str)> {
    let rest = LAYERS.iter().find_map(|layers| path.strip_prefix(layers))?;
    let (layer, stem) = rest.split_once('.')?;
    Some((layer.parse().ok()?, stem))
}

/// The row of a table whose left side is `stem`, `#` standing for any one number.
fn lookup(table: &[(&str, &str)], stem: &str) -> Option<String> {
    table.iter().find_map(|(pattern, canonical)| {
        let Some((before, after)) = pattern.split_once('#') else {
            return (*pattern == stem).then(|| canonical.to_string());
        };
        let number: usize = stem.strip_prefix(before)?.strip_suffix(after)?.parse().ok()?;
        Some(canonical.replace('#', &number.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_to_one_scheme() {
        fn check(name: &str, expected: &str) {
            assert_eq!(canonical(name, Scheme::HuggingFace).as_deref(), Some(expected), "{name}");
        }
        check("model.embed_tokens.weight", "token_embd.weight");
        check("embed_tokens.weight", "token_embd.weight");
        check("lm_head.weight", "output.weight");
        check("model.norm.weight", "output_norm.weight");
        check("model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight");
        check("layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias");
        check("_orig_mod.module.model.layers.10.mlp.down_proj.weight", "blk.10.ffn_down.weight");
        check("model.layers.3.self_attn.q_proj.qweight", "blk.3.attn_q.qweight");
        check("model.layers.3.mlp.experts.7.up_proj.g_idx", "blk.3.ffn_up.7.g_idx");
        check("model.layers.0.self_attn.k_norm.weight", "blk.0.attn_k_norm.weight");
        check("model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight");
        check("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight");
        check("model.layers.1.mlp.experts.63.up_proj.weight", "blk.1.ffn_up.63.weight");
        check("model.layers.1.block_sparse_moe.experts.7.w2.weight", "blk.1.ffn_down.7.weight");
        check("model.layers.1.mlp.experts.gate_up_proj", "blk.1.ffn_gate_up_exps.weight");
        check("model.layers.1.block_sparse_moe.output_linear.weight", "blk.1.ffn_down_exps.weight");
        check("layers.2.attention.wq.weight", "blk.2.attn_q.weight");
        check("_orig_mod.tok_embeddings.weight", "token_embd.weight");
        check("output.weight", "output.weight");
        check("bert.encoder.layer.5.attention.self.query.bias", "blk.5.attn_q.bias");
        check("embeddings.LayerNorm.bias", "token_embd_norm.bias");
    }

    #[test]
    fn sandwich_norms_shift_the_names() {
        let names = ["model.embed_tokens.weight", "model.layers.0.post_feedforward_layernorm.weight"];
        let scheme = Scheme::of(names);
        assert_eq!(scheme, Scheme::HuggingFaceSandwich);
        let norm = |stem: &str| canonical(&format!("model.layers.0.{stem}.weight"), scheme).unwrap();
        assert_eq!(norm("input_layernorm"), "blk.0.attn_norm.weight");
        assert_eq!(norm("post_attention_layernorm"), "blk.0.post_attention_norm.weight");
        assert_eq!(norm("pre_feedforward_layernorm"), "blk.0.ffn_norm.weight");
        assert_eq!(norm("post_feedforward_layernorm"), "blk.0.post_ffw_norm.weight");
    }

    #[test]
    fn unknown_names_are_none() {
        for name in ["", "model.", "vision.patch.weight", "layers.x.self_attn.q_proj.weight", "layers.1"] {
            assert_eq!(canonical(name, Scheme::HuggingFace), None, "{name}");
        }
        assert_eq!(Scheme::of(["tok_embeddings.weight", "layers.0.attention.wq.weight"]), Scheme::Meta);
        let gguf = Scheme::of(["token_embd.weight", "blk.0.attn_q.weight"]);
        assert_eq!(canonical("blk.0.ssm_a", gguf).as_deref(), Some("blk.0.ssm_a"));
    }
}
