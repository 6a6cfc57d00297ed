//! Weights for a program: each found by name, checked, and packed where a kernel wants it so.

mod find;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tensor::Tensor;

pub(crate) use self::find::Sources;
use self::find::{Found, check_contiguous, find, given, redeem};
use crate::artifact::StoredWeight;
use crate::bound_weight::BoundWeight;
use crate::device::far::FarBytes;
use crate::plan::WeightSource;
use crate::{Device, Error, PackError, PackedWeight, Program, WeightsRegistry};

/// How far one model's weights are bound. A weight that is read in two layouts counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of weights, as stored, that are bound.
    pub done: usize,
    /// Bytes of all its weights.
    pub total: usize,
}

/// The weights of a program in the order of its slots. Every weight is checked before the first is packed.
pub(crate) fn bind(
    program: &Program,
    sources: Sources<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<BoundWeight>, Error> {
    let slots: Vec<usize> = (0..program.weights.len()).collect();
    let mut bound: Vec<Option<BoundWeight>> = vec![None; slots.len()];
    bind_each(program, &slots, sources, progress, &mut |slot, weight| {
        bound[slot] = Some(weight);
        Ok(())
    })?;
    Ok(bound.into_iter().map(|weight| weight.expect("each slot is bound once")).collect())
}

/// Gives the weights of some slots of a program to `sink`, one by one. Every weight is checked before the first is packed.
///
/// The largest are packed first: both forms of a weight are in memory while it is packed, and least else then.
pub(crate) fn bind_each(
    program: &Program,
    slots: &[usize],
    sources: Sources<'_>,
    progress: &mut dyn FnMut(Progress),
    sink: &mut dyn FnMut(usize, BoundWeight) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut found = find(program, slots, sources)?;
    if let Some(stored) = sources.stored {
        let used: Vec<StoredWeight> = found.iter().filter_map(|(_, weight)| weight.stored()).collect();
        stored.verify(&used)?;
    }
    found.sort_by_key(|(slot, weight)| (std::cmp::Reverse(weight.bytes()), *slot));
    let total = found.iter().map(|(_, weight)| weight.bytes()).sum();
    let mut left = packings_left(program, &found);
    let mut done = 0;
    for (index, weight) in found {
        let slot = &program.weights[index];
        done += weight.bytes();
        let bound = match weight {
            Found::Promised(_) => BoundWeight::Raw(redeem(slot, sources.registry)?),
            Found::Given(tensor) => BoundWeight::Raw(tensor),
            Found::Stored(weight) => {
                let stored = sources.stored.expect("where it was found");
                stored.bind(slot, weight, &**program.device_of(slot))?
            }
        };
        let bound = match (bound, &slot.packing) {
            (BoundWeight::Raw(tensor), Some(layout)) => {
                let packed = pack(&**program.device_of(slot), &slot.source, layout, &tensor)?;
                tensor.file().map_or(Ok(()), |file| file.check())?;
                drop(tensor);
                if program.device_of(slot).file_of(&packed).is_none() {
                    release_last(&slot.source, &mut left, sources.registry);
                }
                BoundWeight::Packed(packed, None)
            }
            (bound, None) => there(&**program.device_of(slot), bound)?,
            (bound, Some(_)) => bound,
        };
        sink(index, bound)?;
        progress(Progress { done, total });
    }
    Ok(())
}

/// The names that the registry offers and no program uses; none if the registry does not tell its names.
pub(crate) fn unused_names<'p>(
    programs: impl IntoIterator<Item = &'p Program>,
    registry: &dyn WeightsRegistry,
) -> Vec<String> {
    let mut used = BTreeSet::new();
    for program in programs {
        used.extend(program.weights.iter().filter_map(|slot| slot.source.name()));
    }
    let mut unused = registry.names().unwrap_or_default();
    unused.retain(|name| !used.contains(&name[..]));
    unused.sort();
    unused
}

/// Refuses what is not row-major among the weights that no program uses, so that all of a registry is treated alike.
pub(crate) fn check_unused<'p>(
    programs: impl IntoIterator<Item = &'p Program>,
    registry: &dyn WeightsRegistry,
) -> Result<(), Error> {
    unused_names(programs, registry).iter().try_for_each(|name| match given(registry, name)? {
        Some(tensor) => check_contiguous(name, &tensor),
        None => Ok(()),
    })
}

/// How many weights of each name are to be packed.
fn packings_left<'p>(program: &'p Program, found: &[(usize, Found)]) -> BTreeMap<&'p str, usize> {
    let mut left = BTreeMap::new();
    for (slot, weight) in found {
        let slot = &program.weights[*slot];
        let is_here = !matches!(weight, Found::Stored(_));
        if let (true, Some(_), Some(name)) = (is_here, &slot.packing, slot.source.name()) {
            *left.entry(name).or_default() += 1;
        }
    }
    left
}

/// A weight as it is stored, on the device that reads it.
fn there(device: &dyn Device, bound: BoundWeight) -> Result<BoundWeight, Error> {
    let (Some(far), BoundWeight::Raw(tensor)) = (device.far(), &bound) else { return Ok(bound) };
    let there = FarBytes::allocate(far.allocator(), tensor.bytes().len())?;
    there.write(tensor.bytes())?;
    Ok(BoundWeight::Far(there))
}

/// Tells the registry that a weight is no longer needed, if it was packed for the last time.
fn release_last(source: &WeightSource, left: &mut BTreeMap<&str, usize>, registry: &dyn WeightsRegistry) {
    let Some((name, left)) = source.name().and_then(|name| Some((name, left.get_mut(name)?))) else { return };
    *left -= 1;
    if *left == 0 {
        registry.release(name);
    }
}

fn pack(
    device: &dyn Device,
    source: &WeightSource,
    layout: &str,
    tensor: &Tensor,
) -> Result<PackedWeight, Error> {
    device.pack(layout, tensor).map_err(|error| {
        let name = source.name().unwrap_or("a constant");
        match error {
            PackError::Unfit(message) => {
                Error::Weight { name: name.to_string(), message: format!("packing as {layout}: {message}") }
            }
            PackError::OutOfMemory { bytes } => {
                Error::OutOfMemory { what: format!("packing weight `{name}` as {layout}"), bytes }
            }
        }
    })
}
