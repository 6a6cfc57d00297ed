//! Quantization schemes that are not read, known by what their tensors are called or made of, so that they are refused by
//! name.

use tensor::{DType, Tensor};
use weights::Weights;

use crate::Error;

/// The scheme of a tensor, if it is one that is not read.
type Rule = fn(&Weights, &str, &Tensor) -> Option<&'static str>;

/// In order: names before dtypes, as several schemes store the same dtypes.
const RULES: &[Rule] = &[
    // compressed-tensors and ModelOpt: 4-bit floats have a scale for the whole tensor in addition to those of groups.
    |_, name, _| (leaf(name, "weight_global_scale") || leaf(name, "weight_scale_2")).then_some("NVFP4"),
    |_, name, _| leaf(name, "weight_packed").then_some("this format of compressed-tensors"),
    |_, name, _| name.contains(".quant_state.bitsandbytes").then_some("bitsandbytes (4 bits)"),
    |_, name, _| leaf(name, "absmax").then_some("bitsandbytes (4 bits)"),
    |_, name, _| leaf(name, "SCB").then_some("bitsandbytes (LLM.int8)"),
    |_, name, _| (leaf(name, "codebooks") || leaf(name, "codes")).then_some("AQLM"),
    |_, name, _| leaf(name, "Qidxs").then_some("QuIP#"),
    |_, name, _| leaf(name, "W_q").then_some("HQQ"),
    |_, name, _| (name.ends_with(".weight._data") || name.ends_with(".weight._scale")).then_some("quanto"),
    |_, name, _| {
        (name.contains("_weight_qdata") || name.ends_with(".weight.tensor_impl")).then_some("torchao")
    },
    |_, name, _| leaf(name, "weight_scales").then_some("EETQ"),
    |weights, name, tensor| {
        // Eight columns to a word, where GPTQ has eight rows.
        let scales = weights.get(&format!("{}.scales", name.strip_suffix(".qweight")?))?;
        let ([_, words], [_, columns]) = (&tensor.shape()[..], &scales.shape()[..]) else { return None };
        (tensor.dtype() == DType::I32 && words.checked_mul(8) == Some(*columns)).then_some("AWQ")
    },
    |_, name, tensor| {
        let scaled = leaf(name, "weight_scale_inv");
        (scaled || tensor.dtype().is_float8() && tensor.shape().rank() > 1).then_some("FP8")
    },
    |_, name, tensor| {
        let integers = matches!(tensor.dtype(), DType::I8 | DType::U8);
        (leaf(name, "weight") && integers && tensor.shape().rank() > 1).then_some("8-bit integers")
    },
];

/// Refuses weights of a scheme that is not read, among tensors other than those that `is_read`.
///
/// # Errors
/// With the scheme, the file, the tensor that shows it, and what is read.
pub(super) fn refuse(weights: &Weights, is_read: impl Fn(&str) -> bool) -> Result<(), Error> {
    for rule in RULES {
        let others = || weights.tensors().filter(|(name, _)| !is_read(name));
        let shown = others().find_map(|(name, tensor)| Some((rule(weights, name, tensor)?, name, tensor)));
        if let Some((scheme, name, tensor)) = shown {
            let file = weights.file_of(name).map(|file| file.path().display().to_string());
            return Err(Error::Scheme {
                file: file.unwrap_or_default(),
                scheme,
                tensor: name.to_string(),
                ty: format!("{}{}", tensor.dtype(), tensor.shape()),
            });
        }
    }
    Ok(())
}

/// Whether a name has a last part.
fn leaf(name: &str, leaf: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, last)| last == leaf)
}

#[cfg(test)]
mod tests {
    use tensor::Bytes;

    use super::*;
    use crate::checkpoint::testing::safetensors_start;

    /// A file of tensors of zeros: name, dtype, shape, bytes.
    fn file(tensors: &[(&str, &str, &[usize], u64)]) -> Weights {
        let (mut bytes, zeros) = safetensors_start(tensors);
        bytes.resize(bytes.len() + zeros as usize, 0);
        Weights::from_bytes("tiny.safetensors", Bytes::new(bytes)).unwrap()
    }

    #[test]
    fn schemes_that_are_not_read_are_named() {
        let layer = |leaf: &str| format!("model.layers.0.self_attn.q_proj.{leaf}");
        type Tensors<'a> = Vec<(&'a str, &'a str, &'a [usize], u64)>;
        let cases: Vec<(&str, Tensors<'_>)> = vec![
            ("FP8", vec![("weight", "F8_E4M3", &[4, 8], 32), ("weight_scale_inv", "F32", &[1, 1], 4)]),
            ("FP8", vec![("weight", "F8_E5M2", &[4, 8], 32)]),
            (
                "AWQ",
                vec![
                    ("qweight", "I32", &[32, 2], 256),
                    ("qzeros", "I32", &[1, 2], 8),
                    ("scales", "F16", &[1, 16], 32),
                ],
            ),
            (
                "bitsandbytes (4 bits)",
                vec![("weight", "U8", &[64, 1], 64), ("weight.absmax", "F32", &[2], 8)],
            ),
            (
                "bitsandbytes (4 bits)",
                vec![("weight", "U8", &[64, 1], 64), ("weight.quant_state.bitsandbytes__nf4", "U8", &[9], 9)],
            ),
            ("bitsandbytes (LLM.int8)", vec![("weight", "I8", &[4, 8], 32), ("SCB", "F32", &[4], 16)]),
            (
                "this format of compressed-tensors",
                vec![("weight_packed", "I32", &[4, 1], 16), ("weight_scale", "BF16", &[4, 1], 8)],
            ),
            (
                "NVFP4",
                vec![
                    ("weight_packed", "U8", &[4, 8], 32),
                    ("weight_scale", "F8_E4M3", &[4, 1], 4),
                    ("weight_global_scale", "F32", &[1], 4),
                ],
            ),
            ("NVFP4", vec![("weight", "U8", &[4, 8], 32), ("weight_scale_2", "F32", &[], 4)]),
            ("EETQ", vec![("weight", "I8", &[4, 8], 32), ("weight_scales", "F16", &[8], 16)]),
            ("HQQ", vec![("W_q", "U8", &[4, 8], 32), ("scale", "F16", &[4, 1], 8)]),
            ("quanto", vec![("weight._data", "I8", &[4, 8], 32), ("weight._scale", "F32", &[4, 1], 16)]),
            ("torchao", vec![("_weight_qdata", "I8", &[4, 8], 32), ("_weight_scale", "F32", &[4], 16)]),
            ("AQLM", vec![("codes", "I8", &[4, 1, 1], 4), ("codebooks", "F16", &[1, 4, 1, 2], 16)]),
            ("8-bit integers", vec![("weight", "I8", &[4, 8], 32)]),
        ];
        for (scheme, tensors) in cases {
            let names: Vec<String> = tensors.iter().map(|(name, ..)| layer(name)).collect();
            let tensors: Vec<_> = tensors
                .iter()
                .zip(&names)
                .map(|(&(_, dtype, shape, bytes), name)| (&name[..], dtype, shape, bytes))
                .collect();
            let error = refuse(&file(&tensors), |_| false).unwrap_err().to_string();
            assert!(error.starts_with(&format!("tiny.safetensors: {scheme} is not supported")), "{error}");
            assert!(error.contains("model.layers.0.self_attn.q_proj."), "{error}");
            assert!(error.contains("GPTQ"), "{error}");
        }
    }

    #[test]
    fn what_is_read_is_not_refused() {
        let fp8: &[(&str, &str, &[usize], u64)] =
            &[("a.weight", "F8_E4M3", &[4, 64], 256), ("a.weight_scale_inv", "F32", &[1, 1], 4)];
        assert!(refuse(&file(fp8), |name| name.starts_with("a.")).is_ok());
        assert!(refuse(&file(fp8), |name| name == "a.weight").is_err());
        let plain = file(&[("a.weight", "BF16", &[2, 2], 8), ("a.mask", "U8", &[2, 2], 4)]);
        assert!(refuse(&plain, |_| false).is_ok());
    }
}
