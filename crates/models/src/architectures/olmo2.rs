//! OLMo 2: Llama with norms behind its blocks, and on all queries and all keys together. OLMo 3: OLMo 2 with a window
//! in three layers of four.

use graph::ops::RopeStyle;

use super::Architecture;
use super::llama::llama;
use super::mistral::windowed;
use crate::{Config, Decoder, Norm, Norms, QkNorm, Rope, WeightTypes};

/// OLMo 2.
pub(crate) const OLMO2: Architecture = Architecture {
    hugging_face: "Olmo2ForCausalLM",
    gguf: "olmo2",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: olmo2,
};

/// OLMo 3. In GGUF files it calls itself OLMo 2, which has no window.
pub(crate) const OLMO3: Architecture = Architecture { hugging_face: "Olmo3ForCausalLM", ..OLMO2 };

fn olmo2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let norm = Norm { eps: config.norm_eps };
    for layer in &mut decoder.layers {
        layer.norms = Norms::Post(norm);
        layer.attention.qk_norm = Some(QkNorm::Whole(norm));
    }
    windowed(decoder, config, |index| index % 4 != 3)
}
