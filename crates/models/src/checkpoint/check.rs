//! Whether the weights of a checkpoint are those that its graph takes, and the vectors among them as it takes them.

use std::collections::{HashMap, HashSet};

use graph::ops::Weight;
use tensor::{DType, Tensor};

use crate::mix::layer_of;
use crate::stored::{Names, Stored, describe, read};
use crate::{CenteredNorms, Config, Error, Model, Output, WeightTypes};

/// Checks that each weight the graph will declare is there and has its shape. Gives the names of those.
pub(super) fn check_weights(
    config: &Config,
    model: &Model,
    types: &Names<'_>,
) -> Result<HashSet<String>, Error> {
    let stored: HashSet<usize> = types.names.keys().filter_map(|name| layer_of(name)).collect();
    if let Some(layer) = (0..config.layers).find(|layer| !stored.contains(layer)) {
        let message = format!("missing: the configuration says {} layers", config.layers);
        return Err(Error::Weight { name: format!("blk.{layer}.attn_q.weight"), message });
    }
    let output = "output.weight";
    if model.gives(Output::Logits) && types.dtype(output).is_none() && config.tied == Some(false) {
        return Err(Error::Weight {
            name: output.into(),
            message: "missing: the configuration does not tie it to the embedding".into(),
        });
    }
    let mut taken = HashSet::new();
    for part in &model.parts {
        for (_, node) in part.graph(part.output(), types, 16, DType::F32)?.nodes() {
            let graph::Op::Weight(weight) = &node.op else { continue };
            check_weight(weight, types)
                .map_err(|message| Error::Weight { name: weight.name.clone(), message })?;
            taken.insert(weight.name.clone());
        }
    }
    Ok(taken)
}

/// Checks that a weight has the shape that the graph declares, and a dtype that kernels read.
fn check_weight(weight: &Weight, types: &Names<'_>) -> Result<(), String> {
    let (dtype, found) = types.describe(&weight.name).expect("graphs refuse missing weights");
    let expected = weight.ty.static_shape().expect("weights have fixed shapes");
    if found != expected {
        return Err(format!("is {found}, but the configuration makes it {expected}"));
    }
    let is_order = matches!(types.names.get(&weight.name), Some(Stored::Made(_)));
    if dtype.is_block() || dtype.is_float() && !dtype.is_float8() || is_order {
        return Ok(());
    }
    Err(format!("has the dtype {dtype}, expected a float or block dtype"))
}

/// The vectors that have another dtype than f32, or are the weights of norms and stored less 1.
pub(super) fn converted_vectors(
    types: &Names<'_>,
    centered_norms: CenteredNorms,
) -> Result<HashMap<String, Tensor>, Error> {
    let mut converted = HashMap::new();
    for (name, stored) in types.names {
        let described = describe(types.reader.weights, stored);
        if matches!(stored, Stored::Made(_)) || described.is_none_or(|(_, shape)| shape.rank() != 1) {
            continue;
        }
        let Some(tensor) = read(types.reader, stored)? else { continue };
        let centered = centered_norms.include(name);
        if !centered && tensor.as_slice::<f32>().is_some() {
            continue;
        }
        let mut values = tensor.to_f32_vec();
        if centered {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        converted.insert(name.clone(), Tensor::from_slice(*tensor.shape(), &values));
    }
    Ok(converted)
}
