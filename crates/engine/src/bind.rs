//! Weights for a plan: each found by name, checked, and packed where a kernel wants it so.

use std::collections::{BTreeMap, BTreeSet};

use graph::Type;
use tensor::Tensor;

use crate::plan::{Plan, WeightSource};
use crate::{Error, PackedWeight, WeightsRegistry};

/// A weight slot with its contents.
#[derive(Clone)]
pub(crate) enum BoundWeight {
    /// As stored; shared with the registry.
    Raw(Tensor),
    /// In the device's layout.
    Packed(PackedWeight),
}

/// How far the packing of weights has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights, as stored, that are bound.
    pub done: usize,
    /// Bytes of all weights.
    pub total: usize,
}

impl BoundWeight {
    pub(crate) fn raw(&self) -> &[u8] {
        match self {
            BoundWeight::Raw(tensor) => tensor.bytes(),
            BoundWeight::Packed(_) => unreachable!("the plan reads this slot as it is stored"),
        }
    }

    pub(crate) fn packed(&self) -> &PackedWeight {
        match self {
            BoundWeight::Packed(weight) => weight,
            BoundWeight::Raw(_) => unreachable!("the plan reads this slot packed"),
        }
    }
}

/// The weights of a plan in the order of its slots. Every weight is checked before the first is packed.
pub(crate) fn bind(
    plan: &Plan,
    registry: &dyn WeightsRegistry,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<BoundWeight>, Error> {
    let tensors = find(plan, registry)?;
    let total = tensors.iter().map(|tensor| tensor.bytes().len()).sum();
    let mut done = 0;
    let mut bound = Vec::with_capacity(tensors.len());
    let mut slots_left = slots_by_name(plan);
    for (slot, tensor) in plan.weights.iter().zip(tensors) {
        let bytes = tensor.bytes().len();
        bound.push(match &slot.packing {
            None => BoundWeight::Raw(tensor),
            Some(layout) => BoundWeight::Packed(pack(plan, &slot.source, layout, &tensor)?),
        });
        if let WeightSource::Named(name) = &slot.source {
            let left = slots_left.get_mut(&name[..]).expect("counted above");
            left.slots -= 1;
            if left.slots == 0 && !left.raw {
                registry.release(name);
            }
        }
        done += bytes;
        progress(Progress { done, total });
    }
    Ok(bound)
}

/// The names that the registry offers and no plan uses; none if the registry does not tell its names.
pub(crate) fn unused_names<'p>(
    plans: impl IntoIterator<Item = &'p Plan>,
    registry: &dyn WeightsRegistry,
) -> Vec<String> {
    let mut used = BTreeSet::new();
    for plan in plans {
        used.extend(slots_by_name(plan).into_keys());
    }
    let mut unused = registry.names().unwrap_or_default();
    unused.retain(|name| !used.contains(&name[..]));
    unused.sort();
    unused
}

struct SlotsLeft {
    slots: usize,
    /// Whether one of the slots keeps the tensor as it is stored.
    raw: bool,
}

fn slots_by_name(plan: &Plan) -> BTreeMap<&str, SlotsLeft> {
    let mut names = BTreeMap::new();
    for slot in &plan.weights {
        if let WeightSource::Named(name) = &slot.source {
            let left = names.entry(&name[..]).or_insert(SlotsLeft { slots: 0, raw: false });
            left.slots += 1;
            left.raw |= slot.packing.is_none();
        }
    }
    names
}

fn find(plan: &Plan, registry: &dyn WeightsRegistry) -> Result<Vec<Tensor>, Error> {
    let mut found: BTreeMap<&str, Tensor> = BTreeMap::new();
    let tensors = plan.weights.iter().map(|slot| match &slot.source {
        WeightSource::Constant(tensor) => Ok(tensor.contiguous()),
        WeightSource::Named(name) => {
            if let Some(tensor) = found.get(&name[..]) {
                return Ok(tensor.clone());
            }
            let missing = || Error::MissingWeight {
                model: plan.name.clone(),
                name: name.clone(),
                expected: slot.ty.to_string(),
            };
            let tensor = registry.get(name).ok_or_else(missing)?;
            check(name, &tensor, &slot.ty)?;
            found.insert(name, tensor.clone());
            Ok(tensor)
        }
    });
    tensors.collect()
}

fn check(name: &str, tensor: &Tensor, expected: &Type) -> Result<(), Error> {
    let fail = |message| Err(Error::Weight { name: name.to_string(), message });
    if tensor.dtype() != expected.dtype || Some(*tensor.shape()) != expected.static_shape() {
        return fail(format!("got {}{}, expected {expected}", tensor.dtype(), tensor.shape()));
    }
    if !tensor.is_contiguous() {
        let strides = tensor.strides();
        return fail(format!(
            "got strides {strides:?} with shape {}, expected a row-major tensor",
            tensor.shape()
        ));
    }
    Ok(())
}

fn pack(plan: &Plan, source: &WeightSource, layout: &str, tensor: &Tensor) -> Result<PackedWeight, Error> {
    plan.device.pack(layout, tensor).map_err(|message| {
        let name = match source {
            WeightSource::Named(name) => name.clone(),
            WeightSource::Constant(_) => "a constant".to_string(),
        };
        Error::Weight { name, message: format!("packing as {layout}: {message}") }
    })
}
