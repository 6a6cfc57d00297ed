//! The matrices of experts, which files store one by one, all together, or gate and up in one.

use std::collections::HashMap;

use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};
use weights::Weights;

use super::{Names, Stored, take_apart};
use crate::{Config, Error, ExpertConfig};

/// Gives all matrices of a layer's experts the name of one weight [experts, rows, columns], and the gate of a shared
/// expert that of a vector.
pub(super) fn gather(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: &Config,
) -> Result<(), Error> {
    let Some(experts) = config.experts else { return Ok(()) };
    for layer in 0..config.layers {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let parts = [name("ffn_gate_exps"), name("ffn_up_exps")].map(|name| (name, experts.width));
        take_apart(names, weights, &name("ffn_gate_up_exps"), 1, &parts)?;
        for stem in ["ffn_gate", "ffn_up", "ffn_down"] {
            stack(names, weights, &experts, &format!("blk.{layer}.{stem}"))?;
        }
        let gate = name("ffn_gate_inp_shexp");
        if let Some(Stored::Whole(stored)) = names.get(&gate).cloned() {
            names.insert(gate, Stored::Vector(stored));
        }
    }
    Ok(())
}

/// Names matrices that are stored one by one as one weight.
fn stack(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    experts: &ExpertConfig,
    stem: &str,
) -> Result<(), Error> {
    let name = |expert: usize| format!("{stem}.{expert}.weight");
    if !names.contains_key(&name(0)) {
        return Ok(());
    }
    let refuse = |expert: usize, message: String| Err(Error::Weight { name: name(expert), message });
    let mut stored = Vec::new();
    for expert in 0..experts.count {
        let Some(matrix) = names.remove(&name(expert)) else {
            return refuse(expert, format!("missing: the configuration says {} experts", experts.count));
        };
        stored.push(matrix);
    }
    if names.contains_key(&name(experts.count)) {
        return refuse(experts.count, format!("the configuration says {} experts", experts.count));
    }
    let known = Names { weights, names };
    let types: Vec<(DType, Shape)> =
        stored.iter().filter_map(|matrix| known.describe_stored(matrix)).collect();
    if let Some(other) = types.iter().position(|ty| *ty != types[0]) {
        let [(dtype, shape), (first, first_shape)] = [types[other], types[0]];
        return refuse(
            other,
            format!("is {dtype}{shape}, but that of the first expert is {first}{first_shape}"),
        );
    }
    names.insert(format!("{stem}_exps.weight"), Stored::Experts(stored));
    Ok(())
}

/// A tensor of parts that follow each other in memory.
pub(super) fn concatenate(dtype: DType, shape: Shape, parts: impl Iterator<Item = Tensor>) -> Tensor {
    let mut bytes = AlignedBytes::zeroed(dtype.bytes_for(shape.elements()).expect("parts of whole blocks"));
    let mut rest = &mut bytes[..];
    for part in parts {
        let part = part.contiguous();
        let (slot, after) = rest.split_at_mut(part.bytes().len());
        slot.copy_from_slice(part.bytes());
        rest = after;
    }
    Tensor::from_bytes(dtype, shape, Bytes::new(bytes)).expect("as many bytes as the shape asks for")
}
