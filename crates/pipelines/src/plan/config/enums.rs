//! Choices that have a few values, each with a name: in files, in flags, and in what is printed.

use graph::ops::RopeStyle;
use sources::named;
use tensor::DType;

named! { "engine",
    /// What runs a model.
    PipelineEngine {
        /// The engine of this project.
        Max = "max",
        /// Transformers runs the model in a Python process of its own, for architectures that do not run here.
        HuggingFace = "huggingface",
    }
}

named! { "rope type",
    /// How the rows of queries and keys pair up in rotary embeddings. Matters for GGUF files only, which do not say.
    RopeType {
        /// As the architecture has it.
        None = "none",
        /// Neighbours: `2i` and `2i + 1`.
        Normal = "normal",
        /// Halves: `i` and `i + head_dim / 2`.
        Neox = "neox",
    }
}

named! { "cache strategy",
    /// How the keys and values of earlier tokens are kept.
    KVCacheStrategy {
        /// What the architecture prefers.
        ModelDefault = "model_default",
        /// Room for the longest text, in padded batches that run to their end together.
        Naive = "naive",
        /// Room for the longest text in a slot of its own, for each text.
        Continuous = "continuous",
        /// Pages, taken as a text grows and shared by texts that begin alike.
        Paged = "paged",
    }
}

named! { "dtype",
    /// What plain numbers are stored as: weights that are not quantized, and keys and values.
    FloatType {
        /// IEEE single precision.
        F32 = "f32" | "float32" | "fp32",
        /// The upper half of single precision.
        Bf16 = "bf16" | "bfloat16",
        /// IEEE half precision.
        F16 = "f16" | "float16" | "fp16",
    }
}

impl FloatType {
    /// The dtype of tensors.
    pub const fn dtype(self) -> DType {
        match self {
            FloatType::F32 => DType::F32,
            FloatType::Bf16 => DType::BF16,
            FloatType::F16 => DType::F16,
        }
    }
}

impl RopeType {
    /// The pairs, unless the architecture says.
    pub fn style(self) -> Option<RopeStyle> {
        match self {
            RopeType::None => None,
            RopeType::Normal => Some(RopeStyle::Interleaved),
            RopeType::Neox => Some(RopeStyle::HalfSplit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::config::{RepoType, SupportedEncoding, UnknownName, WeightsFormat};

    /// Names are those of the page, and survive printing, parsing and JSON.
    fn check<T>(all: &[T], names: &[&str])
    where
        T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display + std::str::FromStr<Err = UnknownName>,
        T: serde::Serialize + for<'de> serde::Deserialize<'de>,
    {
        assert_eq!(all.iter().map(T::to_string).collect::<Vec<_>>(), names);
        for &value in all {
            assert_eq!(value.to_string().to_uppercase().parse::<T>(), Ok(value));
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(json, format!("\"{value}\""));
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value);
        }
    }

    #[test]
    fn names_are_those_that_users_know() {
        check(PipelineEngine::ALL, &["max", "huggingface"]);
        check(RepoType::ALL, &["local", "online"]);
        check(RopeType::ALL, &["none", "normal", "neox"]);
        check(FloatType::ALL, &["f32", "bf16", "f16"]);
        check(WeightsFormat::ALL, &["gguf", "safetensors", "pytorch"]);
        check(KVCacheStrategy::ALL, &["model_default", "naive", "continuous", "paged"]);
        let encodings = ["float32", "bfloat16", "q4_0", "q4_k", "q6_k"];
        let more = ["float16", "q4_1", "q5_0", "q5_1", "q5_k", "q8_0", "q2_k", "q3_k", "iq4_nl", "iq4_xs"];
        let repacked = ["gptq", "mxfp4", "fp8", "gptq8", "nvfp4", "nf4", "fp4"];
        let grids = ["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "tq1_0", "tq2_0"];
        check(SupportedEncoding::ALL, &[&encodings[..], &more, &repacked, &grids].concat());
    }

    #[test]
    fn dtypes_have_the_names_of_other_programs_too() {
        for (name, dtype) in [("float32", DType::F32), ("bfloat16", DType::BF16), ("Float16", DType::F16)] {
            assert_eq!(name.parse().map(FloatType::dtype), Ok(dtype));
        }
    }

    #[test]
    fn unknown_names_are_told_what_there_is() {
        let error = "pagd".parse::<KVCacheStrategy>().unwrap_err();
        let text = "unknown cache strategy `pagd`: give model_default, naive, continuous, paged (did you mean paged?)";
        assert_eq!((error.to_string().as_str(), error.nearest()), (text, Some("paged")));
        let error = "zip".parse::<WeightsFormat>().unwrap_err();
        assert_eq!(error.to_string(), "unknown format of weights `zip`: give gguf, safetensors, pytorch");
        let error = serde_json::from_str::<RopeType>("\"neo\"").unwrap_err();
        assert!(error.to_string().contains("did you mean neox?"), "{error}");
    }
}
