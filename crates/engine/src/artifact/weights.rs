//! The weights that an artifact holds: where a model finds what no registry gives it.

use std::collections::HashMap;

use graph::Type;
use tensor::Tensor;

use super::container::SourceRecord;
use super::read::Artifact;
use crate::bind::BoundWeight;
use crate::plan::{WeightSlot, WeightSource};
use crate::{ArtifactFault, Device, Error};

/// The weights of one artifact by what they are weights of.
pub(crate) struct StoredWeights {
    artifact: Artifact,
    /// Their layouts, and where each is.
    places: HashMap<SourceRecord, Vec<Place>>,
    /// By the address of its bytes: the section of a constant of the artifact's graphs.
    constants: HashMap<usize, u32>,
}

struct Place {
    layout: Option<String>,
    ty: Type,
    section: u32,
}

/// The bytes of a weight in the layout that a slot asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredWeight {
    pub(crate) section: u32,
    /// How many bytes it takes.
    pub(crate) bytes: usize,
}

impl StoredWeights {
    /// The weights of an artifact, or `None` if it has none. `constants` are those of its graphs, and their sections.
    pub(crate) fn of(
        artifact: &Artifact,
        constants: HashMap<usize, u32>,
    ) -> Result<Option<StoredWeights>, Error> {
        let mut places: HashMap<SourceRecord, Vec<Place>> = HashMap::new();
        for record in &artifact.header().weights {
            let ty: Type = record.ty.parse().map_err(|error| {
                artifact.fault(ArtifactFault::Malformed(format!("the type of a weight: {error}")))
            })?;
            let place = Place { layout: record.layout.clone(), ty, section: record.section };
            places.entry(record.source.clone()).or_default().push(place);
        }
        let artifact = artifact.clone();
        Ok((!places.is_empty()).then_some(StoredWeights { artifact, places, constants }))
    }

    /// The stored weight for a slot: in its layout, and of its type.
    pub(crate) fn find(&self, slot: &WeightSlot) -> Option<StoredWeight> {
        let fits = |place: &&Place| place.layout == slot.packing && place.ty == slot.ty;
        let section = self.layouts(slot).iter().find(fits)?.section;
        Some(StoredWeight { section, bytes: self.artifact.section(section).len() })
    }

    /// In which layouts and of which types the weight of a slot is stored, in words.
    pub(crate) fn describe(&self, slot: &WeightSlot) -> Option<String> {
        let describe = |place: &Place| match &place.layout {
            Some(layout) => format!("{} as {layout}", place.ty),
            None => place.ty.to_string(),
        };
        let words: Vec<String> = self.layouts(slot).iter().map(describe).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Checks that weights are what was written, with several threads; each once.
    pub(crate) fn verify(&self, weights: &[StoredWeight]) -> Result<(), Error> {
        let sections: Vec<u32> = weights.iter().map(|weight| weight.section).collect();
        self.artifact.verify_sections(&sections)
    }

    /// A verified weight as a slot wants it, where it lies.
    pub(crate) fn bind(
        &self,
        slot: &WeightSlot,
        weight: StoredWeight,
        device: &dyn Device,
    ) -> Result<BoundWeight, Error> {
        let bytes = self.artifact.section(weight.section);
        let bound = match &slot.packing {
            Some(layout) => device.load_packed(layout, &slot.ty, bytes).map(BoundWeight::Packed),
            None => {
                let shape = slot.ty.static_shape().expect("lowering asked for sizes in numbers");
                let tensor = Tensor::from_bytes(slot.ty.dtype, shape, bytes);
                tensor.map(BoundWeight::Raw).map_err(|error| error.to_string())
            }
        };
        bound.map_err(|message| {
            let name = slot.source.name().map_or("a constant".to_string(), |name| format!("weight `{name}`"));
            self.artifact.fault(ArtifactFault::Malformed(format!("{name}: {message}")))
        })
    }

    fn layouts(&self, slot: &WeightSlot) -> &[Place] {
        let source = match &slot.source {
            WeightSource::Named(name) => Some(SourceRecord::Named(name.clone())),
            WeightSource::Constant(constant) if !constant.is_contiguous() => None,
            WeightSource::Constant(constant) => {
                self.constants.get(&address(constant)).map(|&section| SourceRecord::Constant(section))
            }
        };
        source.and_then(|source| self.places.get(&source)).map_or(&[], Vec::as_slice)
    }
}

/// Where the bytes of a row-major constant lie, by which it is known for as long as it lives.
pub(super) fn address(constant: &Tensor) -> usize {
    constant.bytes().as_ptr().addr()
}
