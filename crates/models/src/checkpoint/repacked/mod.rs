//! Finds the weights that files store as blocks of another layout, and gives them the names that the graph knows.

use std::collections::HashMap;
use std::sync::Arc;

use tensor::{DType, Tensor};
use weights::{Format, QuantizationConfig, Weights};

use crate::Error;
use crate::stored::Stored;
use crate::stored::bitsandbytes::{FourBits, Nested};
use crate::stored::fp8::Fp8;
use crate::stored::integers::IntegerMatrix;
use crate::stored::mxfp4::Mxfp4;
use crate::stored::nvfp4::{GgmlNvfp4, Nvfp4};
use crate::stored::repacked::{Part, Refusal, Repack, Repacked};

/// A scheme: the tensor that holds the codes, and what reads all tensors of a weight. `None` if they are not of the scheme.
struct Scheme {
    codes: &'static str,
    read: Reader,
}

type Reader = fn(Part<'_>, &mut Parts<'_>, Option<&QuantizationConfig>) -> Result<Option<Repacked>, Refusal>;

const SCHEMES: &[Scheme] = &[
    Scheme { codes: "qweight", read: awq },
    Scheme { codes: "blocks", read: mxfp4 },
    Scheme { codes: "weight_packed", read: compressed },
    Scheme { codes: "weight", read: by_dtype },
];

/// Tensors that belong to a quantized matrix and change nothing: activations are not quantized, and shapes are known.
const UNUSED: &[&str] =
    &["input_scale", "input_global_scale", "weight_shape", "weight_format", "weight.quant_map"];

/// Names the weights that are repacked as they are read, but for those of GPTQ.
///
/// # Errors
/// If the tensors of a weight do not agree with each other or the configuration.
pub(super) fn gather(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: Option<&QuantizationConfig>,
) -> Result<(), Error> {
    if weights.format() == Format::Gguf {
        return gather_gguf(names, weights);
    }
    let mut orders = Orders::default();
    for scheme in SCHEMES {
        for stem in known_stems(names, scheme.codes) {
            let Some(Stored::Whole(name)) = names.get(&format!("{stem}.{}", scheme.codes)) else { continue };
            let Some(tensor) = weights.get(name) else { continue };
            let codes = Part { leaf: scheme.codes, name: name.clone(), tensor };
            let mut parts = Parts { names, weights, stem: &stem, orders: &mut orders };
            let found = (scheme.read)(codes, &mut parts, config);
            let refusal = |(leaf, message)| Error::Weight { name: format!("{stem}.{leaf}"), message };
            if let Some(weight) = found.map_err(refusal)? {
                names.remove(&format!("{stem}.{}", scheme.codes));
                put(names, &stem, scheme.codes, weight)?;
            }
        }
    }
    Ok(())
}

/// Names the weights of GGUF files whose blocks have a scale in a tensor of its own.
fn gather_gguf(names: &mut HashMap<String, Stored>, weights: &Weights) -> Result<(), Error> {
    let is_scaled = |tensor: &Tensor| tensor.dtype() == DType::GgmlNvfp4 && tensor.shape().rank() >= 2;
    let stem = |(name, stored): (&String, &Stored)| match stored {
        Stored::Whole(own) if weights.get(own).is_some_and(is_scaled) => {
            name.strip_suffix(".weight").map(str::to_string)
        }
        _ => None,
    };
    let mut stems: Vec<String> = names.iter().filter_map(stem).collect();
    stems.sort();
    for stem in stems {
        let orders = &mut Orders::default();
        let mut parts = Parts { names, weights, stem: &stem, orders };
        let Some(blocks) = parts.take("weight") else { continue };
        let (scales, others) = (parts.take("scale"), parts.unused());
        let weight = GgmlNvfp4::new(blocks, scales, others)
            .map_err(|(leaf, message)| Error::Weight { name: format!("{stem}.{leaf}"), message })?;
        put(names, &stem, "blocks", Repacked::new(weight))?;
    }
    Ok(())
}

/// The tensors of one weight.
struct Parts<'a> {
    names: &'a mut HashMap<String, Stored>,
    weights: &'a Weights,
    stem: &'a str,
    orders: &'a mut Orders,
}

/// The orders of columns, and the names of the weights that hold them. Layers of the same order share one.
#[derive(Default)]
pub(super) struct Orders(HashMap<Arc<[u32]>, String>);

impl Orders {
    /// The name of the weight that holds an order of columns, which is that of a layer.
    pub(super) fn name(
        &mut self,
        names: &mut HashMap<String, Stored>,
        stem: &str,
        order: &Arc<[u32]>,
    ) -> String {
        let name = self.0.entry(Arc::clone(order)).or_insert_with(|| format!("{stem}.order")).clone();
        let indices: Vec<i32> = order.iter().map(|&column| column as i32).collect();
        names.insert(name.clone(), Stored::Made(Tensor::from_slice([order.len()], &indices)));
        name
    }
}

impl<'a> Parts<'a> {
    fn has(&self, leaf: &str) -> bool {
        self.names.contains_key(&format!("{}.{leaf}", self.stem))
    }

    fn take(&mut self, leaf: &'static str) -> Option<Part<'a>> {
        take(self.names, self.weights, self.stem, leaf)
    }

    /// The names of those that change nothing.
    fn unused(&mut self) -> Vec<String> {
        UNUSED.iter().filter_map(|leaf| self.take(leaf)).map(|part| part.name).collect()
    }
}

fn awq(
    codes: Part<'_>,
    parts: &mut Parts<'_>,
    config: Option<&QuantizationConfig>,
) -> Result<Option<Repacked>, Refusal> {
    let Some(QuantizationConfig::Awq { group_size }) = config else { return Ok(None) };
    let (scales, zeros) = (parts.take("scales"), parts.take("qzeros"));
    some(IntegerMatrix::from_awq(codes, scales, zeros, *group_size)?)
}

fn mxfp4(
    codes: Part<'_>,
    parts: &mut Parts<'_>,
    _: Option<&QuantizationConfig>,
) -> Result<Option<Repacked>, Refusal> {
    some(Mxfp4::new(codes, parts.take("scales"))?)
}

/// Words or pairs of codes of compressed-tensors.
fn compressed(
    codes: Part<'_>,
    parts: &mut Parts<'_>,
    _: Option<&QuantizationConfig>,
) -> Result<Option<Repacked>, Refusal> {
    if let Some(of_matrix) = parts.take("weight_global_scale") {
        let scales = parts.take("weight_scale");
        return some(Nvfp4::new(codes, scales, of_matrix, parts.unused())?);
    }
    match codes.tensor.dtype() {
        DType::I32 => {}
        DType::U8 => {
            let scales = parts.take("weight_scale");
            return some(Mxfp4::from_rows(codes, scales, parts.unused())?);
        }
        _ => return Ok(None),
    }
    let shape = parts
        .take("weight_shape")
        .ok_or_else(|| ("weight_shape", "missing next to its weight_packed".to_string()))?;
    let bits = bits_of(&codes, &shape)?;
    let (scales, zeros) = (parts.take("weight_scale"), parts.take("weight_zero_point"));
    let groups = parts.take("weight_g_idx");
    let mut others = parts.unused();
    others.push(shape.name);
    let mut matrix = IntegerMatrix::from_rows(codes, scales, zeros, bits, groups, others)?;
    if let Some(order) = &matrix.order {
        matrix.order_name = Some(parts.orders.name(parts.names, parts.stem, order));
    }
    some(matrix)
}

/// The bits of codes in words, after the shape of the matrix.
fn bits_of(codes: &Part<'_>, shape: &Part<'_>) -> Result<usize, Refusal> {
    let [rows, words] = codes.matrix(&[DType::I32])?;
    let stored = match shape.tensor.dtype() {
        DType::I64 => shape.tensor.to_vec::<i64>(),
        DType::I32 => shape.tensor.to_vec::<i32>().into_iter().map(i64::from).collect(),
        _ => return Err(shape.refuse("i64[2]")),
    };
    let is_of = |each: usize| stored == [rows as i64, (words as i64).saturating_mul(each as i64)];
    match (is_of(8), is_of(4)) {
        (true, _) => Ok(4),
        (_, true) => Ok(8),
        _ => {
            let found = format!(
                "is {stored:?}, expected [{rows}, 8 · {words}] or [{rows}, 4 · {words}], for 4 or 8 bits"
            );
            Err((shape.leaf, format!("{found}, after weight_packed")))
        }
    }
}

/// Codes in a tensor that is called as plain numbers are: its dtype and the tensors next to it say what they are.
fn by_dtype(
    codes: Part<'_>,
    parts: &mut Parts<'_>,
    config: Option<&QuantizationConfig>,
) -> Result<Option<Repacked>, Refusal> {
    if codes.tensor.shape().rank() < 2 {
        return Ok(None);
    }
    match codes.tensor.dtype() {
        DType::F8E4M3 => {
            let scales = parts.take("weight_scale_inv").or_else(|| parts.take("weight_scale"));
            let Some(scales) = scales else { return Ok(None) };
            let block = match config {
                Some(
                    QuantizationConfig::Fp8 { block } | QuantizationConfig::CompressedTensors { block, .. },
                ) => *block,
                _ => None,
            };
            some(Fp8::new(codes, scales, parts.unused(), block)?)
        }
        DType::U8 if parts.has("weight_scale_2") => {
            let (scales, of_matrix) = (parts.take("weight_scale"), parts.take("weight_scale_2"));
            some(Nvfp4::new(codes, scales, of_matrix.expect("it is there"), parts.unused())?)
        }
        DType::U8 if parts.has("weight.absmax") => {
            let absmax = parts.take("weight.absmax").expect("it is there");
            let states = ["weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"];
            let state = states.into_iter().find_map(|leaf| parts.take(leaf));
            let nested = ["weight.nested_quant_map", "weight.nested_absmax"].map(|leaf| parts.take(leaf));
            let nested = match nested {
                [Some(map), Some(absmax)] => Some(Nested { map, absmax }),
                _ => None,
            };
            some(FourBits::new(codes, absmax, state, nested, parts.unused())?)
        }
        DType::I8 if parts.has("SCB") || parts.has("weight_scale") => {
            let scales = parts.take("SCB").or_else(|| parts.take("weight_scale"));
            let zeros = parts.take("weight_zero_point");
            some(IntegerMatrix::from_rows(codes, scales, zeros, 8, None, parts.unused())?)
        }
        _ => Ok(None),
    }
}

fn some(weight: impl Repack + 'static) -> Result<Option<Repacked>, Refusal> {
    Ok(Some(Repacked::new(weight)))
}

/// What stands before a leaf in canonical names, sorted. Tensors that the tables of names do not know keep their own names,
/// and do not belong to the model.
pub(super) fn known_stems(names: &HashMap<String, Stored>, leaf: &str) -> Vec<String> {
    let stem = |name: &String| name.strip_suffix(leaf)?.strip_suffix('.').map(str::to_string);
    let is_known = |(name, stored): &(&String, &Stored)| matches!(stored, Stored::Whole(own) if own != *name);
    let mut stems: Vec<String> = names.iter().filter(is_known).filter_map(|(name, _)| stem(name)).collect();
    stems.sort();
    stems
}

/// Takes a tensor of a weight out of the names.
pub(super) fn take<'w>(
    names: &mut HashMap<String, Stored>,
    weights: &'w Weights,
    stem: &str,
    leaf: &'static str,
) -> Option<Part<'w>> {
    match names.remove(&format!("{stem}.{leaf}")) {
        Some(Stored::Whole(name)) => weights.get(&name).map(|tensor| Part { leaf, name, tensor }),
        _ => None,
    }
}

/// Names a weight whose codes are in the tensor with a leaf.
pub(super) fn put(
    names: &mut HashMap<String, Stored>,
    stem: &str,
    leaf: &str,
    weight: Repacked,
) -> Result<(), Error> {
    let name = format!("{stem}.weight");
    if names.insert(name.clone(), Stored::Repacked(weight)).is_some() {
        let message = format!("has both plain and quantized ({leaf}) tensors, expected one of them");
        return Err(Error::Weight { name, message });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
