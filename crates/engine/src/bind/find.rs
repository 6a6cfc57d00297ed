//! Where each weight comes from: the registry, the graph or an artifact; checked before it is used.

use std::collections::BTreeMap;

use graph::Type;
use tensor::{DType, Shape, Tensor};

use crate::artifact::{StoredWeight, StoredWeights};
use crate::plan::{WeightSlot, WeightSource};
use crate::registry::not_row_major;
use crate::{Error, PackError, Program, WeightsRegistry};

/// Where weights come from: what the registry does not give is looked for in an artifact.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) registry: &'a dyn WeightsRegistry,
    pub(crate) stored: Option<&'a StoredWeights>,
}

/// A weight before it is bound.
pub(super) enum Found {
    /// As the registry or the graph has it.
    Given(Tensor),
    /// In the registry, which has said its type; so many bytes.
    Promised(usize),
    /// In the artifact, in the layout of its slot.
    Stored(StoredWeight),
}

impl Found {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Found::Given(tensor) => tensor.bytes().len(),
            Found::Promised(bytes) => *bytes,
            Found::Stored(weight) => weight.bytes,
        }
    }

    pub(super) fn stored(&self) -> Option<StoredWeight> {
        match self {
            Found::Given(_) | Found::Promised(_) => None,
            Found::Stored(weight) => Some(*weight),
        }
    }
}

/// Some slots of a program, each with its weight: the registry is asked first for what has a name, then the artifact.
pub(super) fn find(
    program: &Program,
    slots: &[usize],
    sources: Sources<'_>,
) -> Result<Vec<(usize, Found)>, Error> {
    let mut known: BTreeMap<&str, Option<Tensor>> = BTreeMap::new();
    let found = slots.iter().map(|&index| {
        let slot = &program.weights[index];
        let stored = || sources.stored.and_then(|stored| stored.find(slot)).map(Found::Stored);
        let found = match &slot.source {
            WeightSource::Constant(tensor) => match slot.packing.as_ref().and_then(|_| stored()) {
                Some(stored) => stored,
                None => Found::Given(tensor.try_contiguous()?),
            },
            WeightSource::Named(name) => {
                if let Some(bytes) = promised(slot, sources.registry)? {
                    return Ok((index, Found::Promised(bytes)));
                }
                if !known.contains_key(&name[..]) {
                    known.insert(name, given(sources.registry, name)?);
                }
                match &known[&name[..]] {
                    Some(tensor) => {
                        check(name, tensor, &slot.ty)?;
                        Found::Given(tensor.clone())
                    }
                    None => stored().ok_or_else(|| missing(program, slot, sources))?,
                }
            }
        };
        Ok((index, found))
    });
    found.collect()
}

fn missing(program: &Program, slot: &WeightSlot, sources: Sources<'_>) -> Error {
    let name = slot.source.name().expect("constants are never missing").to_string();
    let model = program.name.clone();
    match sources.stored.and_then(|stored| stored.describe(slot)) {
        None => Error::MissingWeight { model, name, expected: slot.ty.to_string() },
        Some(found) => {
            let wanted = slot.packing.as_ref().map_or(String::new(), |layout| format!(" as {layout}"));
            let message = format!(
                "the artifact has {found}, but `{model}` needs {}{wanted}, and the registry has none",
                slot.ty
            );
            Error::Weight { name, message }
        }
    }
}

/// What the registry has under a name.
pub(super) fn given(registry: &dyn WeightsRegistry, name: &str) -> Result<Option<Tensor>, Error> {
    registry.get(name).map_err(|error| match error {
        PackError::Unfit(message) => Error::Weight { name: name.to_string(), message },
        PackError::OutOfMemory { bytes } => {
            Error::OutOfMemory { what: format!("reading weight `{name}`"), bytes }
        }
    })
}

/// What the registry says of a weight that it has, if it says it beforehand, checked; so many bytes.
fn promised(slot: &WeightSlot, registry: &dyn WeightsRegistry) -> Result<Option<usize>, Error> {
    let Some(name) = slot.source.name() else { return Ok(None) };
    let failed = |message| Error::Weight { name: name.to_string(), message };
    let Some((dtype, shape)) = registry.describe(name).map_err(failed)? else { return Ok(None) };
    check_type(name, dtype, shape, &slot.ty)?;
    let bytes = dtype.bytes_for(shape.elements());
    bytes.map(Some).ok_or_else(|| failed(format!("{dtype}{shape} is no whole number of blocks")))
}

/// The tensor of a weight that the registry has described.
pub(super) fn redeem(slot: &WeightSlot, registry: &dyn WeightsRegistry) -> Result<Tensor, Error> {
    let name = slot.source.name().expect("constants are not described");
    let missing = || Error::Weight {
        name: name.to_string(),
        message: format!("the registry described {}, but has none", slot.ty),
    };
    let tensor = given(registry, name)?.ok_or_else(missing)?;
    check(name, &tensor, &slot.ty)?;
    Ok(tensor)
}

fn check(name: &str, tensor: &Tensor, expected: &Type) -> Result<(), Error> {
    check_type(name, tensor.dtype(), *tensor.shape(), expected)?;
    check_contiguous(name, tensor)
}

fn check_type(name: &str, dtype: DType, shape: Shape, expected: &Type) -> Result<(), Error> {
    if dtype == expected.dtype && Some(shape) == expected.static_shape() {
        Ok(())
    } else {
        let message = format!("got {dtype}{shape}, expected {expected}");
        Err(Error::Weight { name: name.to_string(), message })
    }
}

pub(super) fn check_contiguous(name: &str, tensor: &Tensor) -> Result<(), Error> {
    if tensor.is_contiguous() {
        Ok(())
    } else {
        let message = not_row_major(tensor.strides(), tensor.shape());
        Err(Error::Weight { name: name.to_string(), message })
    }
}
