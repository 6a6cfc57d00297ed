//! EXAONE 4: Llama with norms behind its blocks and on each query and key, and, in larger models, a window in three
//! layers of four; the fourth has no positions then.

use graph::ops::RopeStyle;

use super::Architecture;
use super::llama::llama;
use super::mistral::windowed;
use crate::{Config, Decoder, Norm, Norms, QkNorm, Rope, WeightTypes};

/// EXAONE 4.
pub(crate) const EXAONE4: Architecture = Architecture {
    hugging_face: "Exaone4ForCausalLM",
    gguf: "exaone4",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: exaone4,
};

fn exaone4(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm { eps: config.norm_eps };
    let mut decoder = llama(config, ropes, weights);
    for layer in &mut decoder.layers {
        layer.norms = Norms::Post(norm);
        layer.attention.qk_norm = Some(QkNorm::PerHead(norm));
    }
    let mut decoder = windowed(decoder, config, |index| index % 4 != 3);
    if config.window.is_some() {
        for layer in decoder.layers.iter_mut().filter(|layer| layer.attention.window.is_none()) {
            layer.attention.rope = None;
        }
    }
    decoder
}
