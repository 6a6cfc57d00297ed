//! Which dtype each tensor of a model gets when it is quantized.
//!
//! The choices are those of llama.cpp's `llama-quantize` (MIT,
//! <https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp>): more bits where errors cost most, such as
//! the output, values of attention, and the first and last layers.

use tensor::{DType, Shape};

/// A way to quantize a model: a block format for most of its matrices, and others for some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Its name: `q4_k_m`.
    pub name: &'static str,
    /// A shorter name.
    pub alias: Option<&'static str>,
    /// The dtype of most matrices.
    pub dtype: DType,
    /// The number in `general.file_type`.
    pub file_type: u32,
}

const fn mix(name: &'static str, dtype: DType, file_type: u32) -> Mix {
    Mix { name, alias: None, dtype, file_type }
}

const fn usual(name: &'static str, alias: &'static str, dtype: DType, file_type: u32) -> Mix {
    Mix { name, alias: Some(alias), dtype, file_type }
}

/// Every mix, from the fewest bits to the most.
pub const MIXES: &[Mix] = &[
    mix("q2_k_s", DType::Q2K, 21),
    mix("q2_k", DType::Q2K, 10),
    mix("q3_k_s", DType::Q3K, 11),
    usual("q3_k_m", "q3_k", DType::Q3K, 12),
    mix("q3_k_l", DType::Q3K, 13),
    mix("iq4_xs", DType::Iq4Xs, 30),
    mix("iq4_nl", DType::Iq4Nl, 25),
    mix("q4_0", DType::Q4_0, 2),
    mix("q4_1", DType::Q4_1, 3),
    mix("q4_k_s", DType::Q4K, 14),
    usual("q4_k_m", "q4_k", DType::Q4K, 15),
    mix("q5_0", DType::Q5_0, 8),
    mix("q5_1", DType::Q5_1, 9),
    mix("q5_k_s", DType::Q5K, 16),
    usual("q5_k_m", "q5_k", DType::Q5K, 17),
    mix("q6_k", DType::Q6K, 18),
    mix("q8_0", DType::Q8_0, 7),
    usual("bf16", "bfloat16", DType::BF16, 32),
    usual("f16", "float16", DType::F16, 1),
    usual("f32", "float32", DType::F32, 0),
];

/// What the choices depend on, in addition to the tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MixModel<'a> {
    /// The architecture, by its GGUF name.
    pub architecture: &'a str,
    /// The number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Experts of a layer; 0 if there are none.
    pub experts: usize,
    /// Whether the importance of columns is known.
    pub importance: bool,
    /// Whether all matrices get the same dtype, as far as their shapes allow.
    pub pure: bool,
}

/// What a matrix is for, as far as the choices depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Embedding,
    Output,
    AttentionKey,
    AttentionValue,
    AttentionOutput,
    Down,
    Other,
}

impl Role {
    fn for_name(name: &str) -> Role {
        match name {
            "output.weight" => return Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => return Role::Embedding,
            _ => {}
        }
        let parts = [
            // What holds values and other things is treated as values.
            ("attn_qkv.weight", Role::AttentionValue),
            ("attn_v.weight", Role::AttentionValue),
            ("attn_k.weight", Role::AttentionKey),
            ("attn_output.weight", Role::AttentionOutput),
            ("ffn_down", Role::Down),
        ];
        parts.into_iter().find(|(part, _)| name.contains(part)).map_or(Role::Other, |(_, role)| role)
    }
}

impl Mix {
    /// Whether its errors are too large unless the importance of columns is known.
    pub fn needs_importance(&self) -> bool {
        self.name == "q2_k_s"
    }

    /// The mix with a name, whatever its case.
    pub fn find(name: &str) -> Option<&'static Mix> {
        let name = name.to_ascii_lowercase();
        MIXES.iter().find(|mix| mix.name == name || mix.alias == Some(&name[..]))
    }

    /// The dtype that each tensor gets, by its GGUF name; `None` where it keeps its own. Tensors must come by layer, as
    /// `order` sorts them.
    pub fn dtypes(&self, model: &MixModel<'_>, tensors: &[(&str, Shape)]) -> Vec<Option<DType>> {
        let is_tied = tensors.iter().all(|(name, _)| *name != "output.weight");
        let of_role = |role: Role| tensors.iter().filter(|(name, _)| Role::for_name(name) == role).count();
        let values = of_role(Role::AttentionValue);
        let (mut value, mut down) = (0, 0);
        let choose = |(name, shape): &(&str, Shape)| {
            if !is_quantized(name, shape) {
                return None;
            }
            if !self.dtype.is_block() {
                return Some(self.dtype);
            }
            let role = match Role::for_name(name) {
                Role::Embedding if is_tied => Role::Output,
                role => role,
            };
            let columns = shape.last().copied().unwrap_or(0);
            let mut dtype = self.dtype;
            if !model.pure {
                // Files may hold the experts of a layer in any number of tensors.
                let layer = if model.experts > 1 { layer_of(name).unwrap_or(0) } else { down };
                dtype = match role {
                    Role::Output => self.output(columns),
                    Role::AttentionValue => self.value(model, value, values),
                    Role::Down => self.down(model, layer),
                    Role::AttentionKey if model.experts == 8 => DType::Q8_0,
                    Role::AttentionOutput => self.attention_output(model),
                    _ => self.dtype,
                };
                value += usize::from(role == Role::AttentionValue);
                down += usize::from(role == Role::Down);
            }
            Some(fitting(dtype, columns))
        };
        tensors.iter().map(choose).collect()
    }

    /// The matrix that gives logits, which may be the embedding too.
    fn output(&self, columns: usize) -> DType {
        match self.dtype {
            DType::Q8_0 => DType::Q8_0,
            dtype if !columns.is_multiple_of(dtype.block().elements) => DType::Q8_0,
            _ => DType::Q6K,
        }
    }

    /// The matrix of values of attention, the `index`th of `count`.
    fn value(&self, model: &MixModel<'_>, index: usize, count: usize) -> DType {
        let is_shared = model.heads / model.kv_heads.max(1) >= 4;
        let dtype = match self.name {
            "q2_k" => {
                if is_shared {
                    DType::Q4K
                } else {
                    DType::Q3K
                }
            }
            "q2_k_s" if is_shared => DType::Q4K,
            "q3_k_m" => {
                if index < 2 {
                    DType::Q5K
                } else {
                    DType::Q4K
                }
            }
            "q3_k_l" => DType::Q5K,
            "iq4_nl" | "iq4_xs" if is_shared => DType::Q5K,
            "q4_k_m" | "q5_k_m" if matters(index, count) => DType::Q6K,
            "q4_k_s" if index < 4 => DType::Q5K,
            _ => self.dtype,
        };
        // Models of 70 billion weights share values among 8 heads, so that these are small.
        let is_70b = model.layers == 80 && matches!(model.architecture, "llama" | "qwen2");
        match dtype {
            _ if model.experts == 8 => DType::Q8_0,
            DType::Q3K | DType::Q4K if is_70b => DType::Q5K,
            dtype => dtype,
        }
    }

    /// The last matrix of the feed-forward block of a layer.
    fn down(&self, model: &MixModel<'_>, layer: usize) -> DType {
        let is_early = layer < model.layers / 8;
        match self.name {
            "q2_k" => DType::Q3K,
            "q2_k_s" if is_early => DType::Q4K,
            "q3_k_m" => {
                if layer < model.layers / 16 {
                    DType::Q5K
                } else {
                    DType::Q4K
                }
            }
            "q3_k_l" => DType::Q5K,
            "q4_k_m" | "q5_k_m" if matters(layer, model.layers) => DType::Q6K,
            "iq4_nl" | "iq4_xs" if is_early && !model.importance => DType::Q5K,
            "q4_k_s" if is_early => DType::Q5K,
            "q4_0" if is_early && model.importance => DType::Q4_1,
            "q5_0" if is_early && model.importance => DType::Q5_1,
            _ => self.dtype,
        }
    }

    fn attention_output(&self, model: &MixModel<'_>) -> DType {
        if model.experts == 8 {
            let is_raised = ["q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "iq4_nl", "iq4_xs"];
            return if is_raised.contains(&self.name) { DType::Q5K } else { self.dtype };
        }
        match self.name {
            "q2_k" => DType::Q3K,
            "q3_k_m" => DType::Q4K,
            "q3_k_l" => DType::Q5K,
            _ => self.dtype,
        }
    }
}

/// Whether a layer is among those that get more bits: the first and the last eighth, and every third between.
fn matters(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// Whether a tensor is quantized at all: matrices are, but for small ones that steer others.
fn is_quantized(name: &str, shape: &Shape) -> bool {
    // As in ggml, whose axes run the other way, those of size 1 at the end do not count.
    let axes = shape.iter().skip_while(|&&dim| dim == 1).count();
    let is_steering = [
        "_norm.weight",
        "ffn_gate_inp",
        "attn_rel_b.weight",
        "ssm_conv1d.weight",
        "shortconv.conv.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
    ]
    .iter()
    .any(|part| name.contains(part))
        || matches!(name, "position_embd.weight" | "token_types.weight");
    axes >= 2 && name.ends_with("weight") && !is_steering
}

/// The dtype, or where rows are not in blocks of it, the nearest whose blocks fit.
fn fitting(dtype: DType, columns: usize) -> DType {
    let fits = |dtype: DType| columns.is_multiple_of(dtype.block().elements);
    let other = match dtype {
        dtype if fits(dtype) => return dtype,
        DType::Iq4Xs => DType::Iq4Nl,
        DType::Q2K | DType::Q3K => DType::Q4_0,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        _ => DType::F16,
    };
    if fits(other) { other } else { DType::F16 }
}

/// The number of the layer that a tensor belongs to, if it belongs to one.
pub(crate) fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Where a tensor stands among others: those of no layer first, then layer by layer, by name.
pub(crate) fn order(name: &str) -> (Option<usize>, &str) {
    (layer_of(name), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: MixModel<'_> = MixModel {
        architecture: "llama",
        layers: 32,
        heads: 32,
        kv_heads: 8,
        experts: 0,
        importance: false,
        pure: false,
    };

    /// The tensors of layers whose dtype is another than that of the mix.
    fn raised(mix: &str, model: &MixModel<'_>, stem: &str) -> Vec<(usize, DType)> {
        let names: Vec<String> = (0..model.layers).map(|i| format!("blk.{i}.{stem}.weight")).collect();
        let mut tensors: Vec<(&str, Shape)> =
            names.iter().map(|name| (&name[..], Shape::new(&[1024, 4096]))).collect();
        tensors.push(("output.weight", Shape::new(&[1024, 4096])));
        let mix = Mix::find(mix).unwrap();
        let dtypes = mix.dtypes(model, &tensors).into_iter().map(Option::unwrap).take(model.layers);
        dtypes.enumerate().filter(|(_, dtype)| *dtype != mix.dtype).collect()
    }

    #[test]
    fn layers_that_matter_get_more_bits() {
        let sixes = [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31].map(|i| (i, DType::Q6K));
        assert_eq!(raised("q4_k_m", &MODEL, "ffn_down"), sixes);
        assert_eq!(raised("q5_k_m", &MODEL, "attn_v"), sixes);
        assert_eq!(raised("Q4_K_S", &MODEL, "attn_v"), [0, 1, 2, 3].map(|i| (i, DType::Q5K)));
        assert_eq!(raised("q4_0", &MODEL, "ffn_down"), []);
        let important = MixModel { importance: true, ..MODEL };
        assert_eq!(raised("q4_0", &important, "ffn_down"), [0, 1, 2, 3].map(|i| (i, DType::Q4_1)));
        assert_eq!(raised("iq4_xs", &important, "ffn_down"), []);
        assert_eq!(raised("iq4_xs", &MODEL, "ffn_down").len(), 4);
        assert_eq!(raised("q3_k_m", &MODEL, "attn_output").len(), 32);
        let mixtral = MixModel { experts: 8, ..MODEL };
        assert_eq!(
            raised("q4_k_m", &mixtral, "attn_k"),
            (0..32).map(|i| (i, DType::Q8_0)).collect::<Vec<_>>()
        );
        let large = MixModel { layers: 80, ..MODEL };
        assert!(raised("q4_k_s", &large, "attn_v").iter().all(|(_, dtype)| *dtype == DType::Q5K));
        assert_eq!(raised("q4_k_m", &MixModel { pure: true, ..MODEL }, "attn_v"), []);
    }

    #[test]
    fn shapes_and_names_decide() {
        let dtypes = |mix: &str, tensors: &[(&str, &[usize])]| {
            let tensors: Vec<(&str, Shape)> =
                tensors.iter().map(|(name, shape)| (*name, Shape::new(shape))).collect();
            Mix::find(mix).unwrap().dtypes(&MODEL, &tensors)
        };
        let tensors: &[(&str, &[usize])] = &[
            ("token_embd.weight", &[512, 256]),
            ("blk.0.attn_norm.weight", &[256]),
            ("blk.0.attn_q.bias", &[256]),
            ("blk.0.attn_q.weight", &[256, 256]),
            ("blk.0.attn_q_norm.weight", &[2, 256]),
            ("blk.0.ffn_gate_inp.weight", &[4, 256]),
            ("blk.9.ffn_up_exps.weight", &[4, 96, 160]),
            ("blk.9.ffn_gate.weight", &[96, 172]),
        ];
        // The embedding is the output as well.
        let expected =
            [Some(DType::Q6K), None, None, Some(DType::Q4K), None, None, Some(DType::Q5_0), Some(DType::F16)];
        assert_eq!(dtypes("q4_k", tensors), expected);
        assert_eq!(dtypes("q8_0", &tensors[..1]), [Some(DType::Q8_0)]);
        assert_eq!(dtypes("bf16", &tensors[..2]), [Some(DType::BF16), None]);
        assert_eq!(dtypes("q6_k", &[("output.weight", &[64, 172])]), [Some(DType::F16)]);
        assert!(Mix::find("q9_k").is_none());
    }
}
