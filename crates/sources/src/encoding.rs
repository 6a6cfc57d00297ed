//! How the weights of a model are encoded, as names, file names and files say it.

use std::path::Path;

use tensor::DType;

use crate::named;

/// A dtype of quantized blocks, as the ops `qmatmul` and `dequantize` take it.
pub type QuantizationEncoding = DType;

named! { "encoding",
    /// How the matrices of a model are stored.
    ///
    /// Real files mix types: a file's encoding is that of most of its matrices, and the others load all the same.
    SupportedEncoding {
        /// IEEE single precision.
        Float32 = "float32" | "f32" | "fp32",
        /// The upper half of single precision.
        Bfloat16 = "bfloat16" | "bf16",
        /// 4-bit weights, one scale per 32.
        Q4_0 = "q4_0",
        /// 4-bit weights, scale and minimum per 32, superscales per 256. Files mix them with `q6_k`.
        Q4K = "q4_k" | "q4_k_s" | "q4_k_m" | "q4_k_l" | "q4_k_xl",
        /// 6-bit weights, scale per 16, superscale per 256.
        Q6K = "q6_k" | "q6_k_l" | "q6_k_xl",
        /// IEEE half precision.
        Float16 = "float16" | "f16" | "fp16",
        /// 4-bit weights, one scale and one minimum per 32.
        Q4_1 = "q4_1",
        /// 5-bit weights, one scale per 32.
        Q5_0 = "q5_0",
        /// 5-bit weights, one scale and one minimum per 32.
        Q5_1 = "q5_1",
        /// 5-bit weights, scale and minimum per 32, superscales per 256.
        Q5K = "q5_k" | "q5_k_s" | "q5_k_m" | "q5_k_l" | "q5_k_xl",
        /// 8-bit weights, one scale per 32.
        Q8_0 = "q8_0",
        /// 2-bit weights, scale and minimum per 16, superscales per 256.
        Q2K = "q2_k" | "q2_k_s" | "q2_k_l" | "q2_k_xl",
        /// 3-bit weights, scale per 16, superscale per 256.
        Q3K = "q3_k" | "q3_k_s" | "q3_k_m" | "q3_k_l" | "q3_k_xl",
        /// 4-bit indices into a table of 16 levels, one scale per 32.
        Iq4Nl = "iq4_nl",
        /// 4-bit indices into a table of 16 levels, scale per 32, superscale per 256.
        Iq4Xs = "iq4_xs",
        /// 4-bit weights as GPTQ stores them in safetensors and PyTorch files: scales for groups of any size, zero points,
        /// columns in an order of their own. They are repacked into blocks.
        Gptq = "gptq" | "awq",
        /// 4-bit floats, one power of two per 32.
        Mxfp4 = "mxfp4",
        /// 8-bit floats (e4m3), with scales per matrix, row or block.
        Fp8 = "fp8",
        /// 8-bit integers, with scales per group or row, and zero points.
        Gptq8 = "gptq8",
        /// 4-bit floats, 8-bit float per 16, one scale for the matrix.
        Nvfp4 = "nvfp4",
        /// 4-bit indices into the quantiles of a normal distribution, as bitsandbytes stores them.
        Nf4 = "nf4",
        /// 4-bit floats as bitsandbytes stores them.
        Fp4 = "fp4",
        /// Grid points of 8 weights near -1, 0 and 1, scale per 32, superscale per 256.
        Iq1S = "iq1_s",
        /// Grid points of 8 weights near -1, 0 and 1, scale per 16, superscale per 256.
        Iq1M = "iq1_m",
        /// Grid points of 8 weights, scale per 32, superscale per 256.
        Iq2Xxs = "iq2_xxs",
        /// Grid points of 8 weights of a finer grid, scale per 16, superscale per 256.
        Iq2Xs = "iq2_xs",
        /// Grid points of 8 weights of the finest grid, scale per 16, superscale per 256.
        Iq2S = "iq2_s" | "iq2_m",
        /// Grid points of 4 weights, scale per 32, superscale per 256.
        Iq3Xxs = "iq3_xxs",
        /// Grid points of 4 weights of a finer grid, scale per 32, superscale per 256.
        Iq3S = "iq3_s" | "iq3_m" | "iq3_xs",
        /// Weights of -1, 0 and 1, five to a byte, scale per 256.
        Tq1_0 = "tq1_0",
        /// Weights of -1, 0 and 1, four to a byte, scale per 256.
        Tq2_0 = "tq2_0",
    }
}

/// Parts of file names and the encodings they promise; the first that a name has counts. As the reference has
/// them, except that every `q4_k` counts, and not only `q4_k_m`.
const IN_FILE_NAMES: &[(&str, SupportedEncoding)] = &[
    ("f32", SupportedEncoding::Float32),
    ("float32", SupportedEncoding::Float32),
    ("fp32", SupportedEncoding::Float32),
    ("bf16", SupportedEncoding::Bfloat16),
    ("bfloat16", SupportedEncoding::Bfloat16),
    ("fp16", SupportedEncoding::Float16),
    ("float16", SupportedEncoding::Float16),
    ("q4_k", SupportedEncoding::Q4K),
    ("q4_0", SupportedEncoding::Q4_0),
    ("q6_k", SupportedEncoding::Q6K),
    ("gptq", SupportedEncoding::Gptq),
];

/// Sizes of mixtures.
const SIZES: [&str; 6] = ["xs", "s", "m", "l", "xl", "xxl"];
/// Sizes that say little of what most matrices are, as they are names of their makers' own.
const MAKERS_SIZES: [&str; 3] = ["l", "xl", "xxl"];

impl SupportedEncoding {
    /// The encoding that a file's name promises. Folders do not count, nor does case. Those that the reference knows count
    /// wherever they stand in the name, all others as words of their own.
    ///
    /// A hint and no more: what is in the file decides.
    pub fn parse_from_file_name(name: impl AsRef<Path>) -> Option<SupportedEncoding> {
        let name = name.as_ref().file_name()?.to_string_lossy().to_ascii_lowercase();
        let known = IN_FILE_NAMES.iter().find(|(part, _)| name.contains(part)).map(|&(_, encoding)| encoding);
        known.or_else(|| SupportedEncoding::stated_in(&name).first().copied())
    }

    /// The encodings that a file's name states in words of their own: at the start, at the end, or between characters
    /// that are no letters or digits. `leaf32-q8_0.gguf` is no `f32`.
    pub(crate) fn stated_in(name: &str) -> Vec<SupportedEncoding> {
        let name = name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let own = SupportedEncoding::ALL.iter().map(|encoding| (encoding.name(), *encoding));
        let words = IN_FILE_NAMES.iter().copied().chain([("f16", SupportedEncoding::Float16)]).chain(own);
        words.filter(|(word, _)| has_word(&name, word)).map(|(_, encoding)| encoding).collect()
    }

    /// Whether a name is that of a mixture: an encoding with a size behind it, as files have it (`Q4_K_M`).
    pub fn is_variant(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        SupportedEncoding::ALL.iter().any(|encoding| {
            let size = name.strip_prefix(encoding.name()).and_then(|rest| rest.strip_prefix('_'));
            size.is_some_and(|size| SIZES.contains(&size))
        })
    }

    /// Whether the name of a file is of a mixture that is not llama.cpp's own: `UD-Q4_K_XL`, `Q4_K_L`.
    pub(crate) fn names_mixture(file: &str) -> bool {
        let name = file.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let words = || name.split(|c: char| !c.is_alphanumeric());
        has_word(&name, "ud") || words().any(|word| MAKERS_SIZES.contains(&word))
    }

    /// What the name of a GGUF file suggests where it is not at hand: more than it promises.
    pub(crate) fn guess_from_file_name(name: &str) -> Option<SupportedEncoding> {
        let lower = name.rsplit('/').next()?.to_ascii_lowercase();
        let in_gguf =
            |encoding: &SupportedEncoding| encoding.is_gguf() || encoding.quantization_encoding().is_none();
        let has = |encoding: &&SupportedEncoding| in_gguf(encoding) && lower.contains(encoding.name());
        let stated = SupportedEncoding::stated_in(name);
        let promised = || SupportedEncoding::parse_from_file_name(name).filter(in_gguf);
        let stated = stated.into_iter().find(in_gguf);
        stated
            .or_else(promised)
            .or_else(|| SupportedEncoding::ALL.iter().find(has).copied())
            .or_else(|| lower.contains("f16").then_some(SupportedEncoding::Float16))
    }

    /// The dtype of the tensors as graphs see them: that of the numbers; of quantized blocks, their bytes.
    pub const fn dtype(self) -> DType {
        if self.stored_dtype().is_block() { DType::U8 } else { self.stored_dtype() }
    }

    /// The blocks, if these are quantized.
    pub fn quantization_encoding(self) -> Option<QuantizationEncoding> {
        Some(self.stored_dtype()).filter(|dtype| dtype.is_block())
    }

    /// The dtype of cached keys and values: f16 for quantized weights, whose own rounding is much coarser; otherwise the
    /// dtype of the weights.
    pub const fn cache_dtype(self) -> DType {
        if self.stored_dtype().is_block() { DType::F16 } else { self.stored_dtype() }
    }

    /// Whether GGUF files store these blocks. Those of GPTQ and its like are made while files of other formats are read.
    pub fn is_gguf(self) -> bool {
        let elsewhere = [DType::Gptq, DType::Gptq8, DType::Fp8, DType::Nf4, DType::Fp4];
        self.quantization_encoding().is_some_and(|dtype| !elsewhere.contains(&dtype))
    }

    /// The dtype of the tensors in files; of GPTQ and its like, whose weights are several tensors there, that of what they become.
    pub const fn stored_dtype(self) -> DType {
        match self {
            SupportedEncoding::Float32 => DType::F32,
            SupportedEncoding::Bfloat16 => DType::BF16,
            SupportedEncoding::Float16 => DType::F16,
            SupportedEncoding::Q4_0 => DType::Q4_0,
            SupportedEncoding::Q4_1 => DType::Q4_1,
            SupportedEncoding::Q5_0 => DType::Q5_0,
            SupportedEncoding::Q5_1 => DType::Q5_1,
            SupportedEncoding::Q8_0 => DType::Q8_0,
            SupportedEncoding::Q2K => DType::Q2K,
            SupportedEncoding::Q3K => DType::Q3K,
            SupportedEncoding::Q4K => DType::Q4K,
            SupportedEncoding::Q5K => DType::Q5K,
            SupportedEncoding::Q6K => DType::Q6K,
            SupportedEncoding::Iq4Nl => DType::Iq4Nl,
            SupportedEncoding::Iq4Xs => DType::Iq4Xs,
            SupportedEncoding::Gptq => DType::Gptq,
            SupportedEncoding::Mxfp4 => DType::Mxfp4,
            SupportedEncoding::Fp8 => DType::Fp8,
            SupportedEncoding::Gptq8 => DType::Gptq8,
            SupportedEncoding::Nvfp4 => DType::Nvfp4,
            SupportedEncoding::Nf4 => DType::Nf4,
            SupportedEncoding::Fp4 => DType::Fp4,
            SupportedEncoding::Iq1S => DType::Iq1S,
            SupportedEncoding::Iq1M => DType::Iq1M,
            SupportedEncoding::Iq2Xxs => DType::Iq2Xxs,
            SupportedEncoding::Iq2Xs => DType::Iq2Xs,
            SupportedEncoding::Iq2S => DType::Iq2S,
            SupportedEncoding::Iq3Xxs => DType::Iq3Xxs,
            SupportedEncoding::Iq3S => DType::Iq3S,
            SupportedEncoding::Tq1_0 => DType::Tq1_0,
            SupportedEncoding::Tq2_0 => DType::Tq2_0,
        }
    }

    /// The encoding of tensors of a dtype.
    pub fn from_dtype(dtype: DType) -> Option<SupportedEncoding> {
        let dtype = if dtype == DType::GgmlNvfp4 { DType::Nvfp4 } else { dtype };
        SupportedEncoding::ALL.iter().copied().find(|encoding| encoding.stored_dtype() == dtype)
    }
}

/// Whether a text has a word, with neither letter nor digit next to it.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_promise_encodings() {
        use SupportedEncoding::*;
        let cases = [
            ("llama-3.1-8b-instruct-q4_k_m.gguf", Some(Q4K)),
            ("tiny.Q4_K_S.gguf", Some(Q4K)),
            ("tiny-Q4_K.gguf", Some(Q4K)),
            ("tiny-q4_0.gguf", Some(Q4_0)),
            ("tiny-Q6_K.gguf", Some(Q6K)),
            ("tiny-F32.gguf", Some(Float32)),
            ("tiny-float32.gguf", Some(Float32)),
            ("tiny.fp32.gguf", Some(Float32)),
            ("bf32-like.gguf", Some(Float32)),
            ("tiny-f32-q4_0.gguf", Some(Float32)),
            ("TINY-BF16.gguf", Some(Bfloat16)),
            ("tiny.bfloat16.safetensors", Some(Bfloat16)),
            ("tiny.fp16.bin", Some(Float16)),
            ("tiny.f16.gguf", Some(Float16)),
            ("tiny-q5_k_m.gguf", Some(Q5K)),
            ("tiny_Q8_0.gguf", Some(Q8_0)),
            ("tiny-q4_1.gguf", Some(Q4_1)),
            ("leaf16-2.gguf", None),
            ("model.safetensors", None),
            ("GPTQ_model-4bit-128g.safetensors", Some(Gptq)),
            ("llama-gptq-q4_0.gguf", Some(Q4_0)),
            ("Llama-GPTQ/model.safetensors", None),
            ("snapshots/0af32c/tiny.gguf", None),
            ("q4_0/tiny-q6_k.gguf", Some(Q6K)),
            ("", None),
            ("..", None),
        ];
        for (name, encoding) in cases {
            assert_eq!(SupportedEncoding::parse_from_file_name(name), encoding, "{name}");
        }
        for &encoding in SupportedEncoding::ALL {
            let name = format!("tiny-{encoding}.gguf");
            // The reference finds the shorter name in the longer one.
            let expected = if encoding == Gptq8 { Gptq } else { encoding };
            assert_eq!(SupportedEncoding::parse_from_file_name(&name), Some(expected), "{name}");
        }
    }

    #[test]
    fn encodings_are_read_under_the_names_of_files() {
        use SupportedEncoding::*;
        let cases = [
            ("q4_k_m", Q4K),
            ("Q4_K_S", Q4K),
            ("IQ4_XS", Iq4Xs),
            ("Q8_0", Q8_0),
            ("BF16", Bfloat16),
            ("f16", Float16),
            ("Q3_K_L", Q3K),
        ];
        for (name, encoding) in cases {
            assert_eq!(name.parse(), Ok(encoding), "{name}");
        }
        assert!(["q4_k_m", "Q5_K_XL"].iter().all(|name| SupportedEncoding::is_variant(name)));
        assert!(!["q4_k", "q4_0", "bf16", "iq4_xs"].iter().any(|name| SupportedEncoding::is_variant(name)));
    }

    #[test]
    fn whole_words_state_encodings() {
        use SupportedEncoding::*;
        let cases = [
            ("leaf32-q8_0.gguf", &[Q8_0][..]),
            ("elf32.gguf", &[]),
            ("bf32-like.gguf", &[]),
            ("f32.gguf", &[Float32]),
            ("TINY.Q4_K_M.gguf", &[Q4K]),
            ("tiny-f32-q4_0.gguf", &[Float32, Q4_0]),
            ("tiny-iq4_xs.gguf", &[Iq4Xs]),
            ("tiny.f16", &[Float16]),
            ("f32/tiny.gguf", &[]),
        ];
        for (name, expected) in cases {
            let mut stated = SupportedEncoding::stated_in(name);
            stated.sort();
            stated.dedup();
            assert_eq!(stated, expected, "{name}");
        }
    }

    #[test]
    fn encodings_have_dtypes() {
        let facts = |encoding: SupportedEncoding| {
            (encoding.dtype(), encoding.quantization_encoding(), encoding.cache_dtype())
        };
        assert_eq!(facts(SupportedEncoding::Float32), (DType::F32, None, DType::F32));
        assert_eq!(facts(SupportedEncoding::Bfloat16), (DType::BF16, None, DType::BF16));
        assert_eq!(facts(SupportedEncoding::Float16), (DType::F16, None, DType::F16));
        assert_eq!(facts(SupportedEncoding::Q4K), (DType::U8, Some(DType::Q4K), DType::F16));
        assert_eq!(facts(SupportedEncoding::Gptq), (DType::U8, Some(DType::Gptq), DType::F16));
        let gguf = [SupportedEncoding::Q6K, SupportedEncoding::Gptq, SupportedEncoding::Float32];
        assert_eq!(gguf.map(SupportedEncoding::is_gguf), [true, false, false]);
        for dtype in DType::every() {
            let stored = SupportedEncoding::from_dtype(dtype);
            let runs = dtype.is_block() && !dtype.is_float()
                || matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
            // GGUF files have blocks of their own.
            let own = if dtype == DType::GgmlNvfp4 { DType::Nvfp4 } else { dtype };
            assert_eq!(stored.map(SupportedEncoding::stored_dtype), runs.then_some(own));
        }
    }
}
