//! The weights that an artifact holds: where a model finds what no registry gives it.

use std::collections::HashMap;

use graph::Type;
use tensor::Tensor;

use super::container::SourceRecord;
use super::read::Artifact;
use crate::bound_weight::BoundWeight;
use crate::plan::{WeightSlot, WeightSource};
use crate::{ArtifactFault, Device, Error, Program};

/// The weights of one artifact by what they are weights of.
pub(crate) struct StoredWeights {
    artifact: Artifact,
    /// The forms that each is stored in.
    forms: HashMap<SourceRecord, Vec<StoredForm>>,
    /// By the address of its bytes: the section of a constant of the artifact's graphs.
    constants: HashMap<usize, u32>,
}

/// One form of a weight: its layout, if not as graphs describe it, and where it lies.
struct StoredForm {
    layout: Option<String>,
    ty: Type,
    section: u32,
}

/// The bytes of a weight for a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredWeight {
    pub(crate) section: u32,
    /// Whether it is in a layout of the device.
    is_packed: bool,
    /// How many bytes it takes.
    pub(crate) bytes: usize,
}

impl StoredWeights {
    /// The weights of an artifact, or `None` if it has none; `constants` as [`Artifact::graphs`] gives them.
    pub(crate) fn of(
        artifact: &Artifact,
        constants: HashMap<usize, u32>,
    ) -> Result<Option<StoredWeights>, Error> {
        let mut forms: HashMap<SourceRecord, Vec<StoredForm>> = HashMap::new();
        for record in &artifact.header().weights {
            let ty: Type = record.ty.parse().map_err(|error| {
                artifact.fault(ArtifactFault::Malformed(format!("the type of a weight: {error}")))
            })?;
            let form = StoredForm { layout: record.layout.clone(), ty, section: record.section };
            forms.entry(record.source.clone()).or_default().push(form);
        }
        let artifact = artifact.clone();
        Ok((!forms.is_empty()).then_some(StoredWeights { artifact, forms, constants }))
    }

    /// The stored weight for a slot, of its type: in its layout, or else as graphs describe it.
    pub(crate) fn find(&self, slot: &WeightSlot) -> Option<StoredWeight> {
        // Wherever it is read.
        let (forms, ty) = (self.forms(slot), slot.ty.here());
        let with =
            |layout: &Option<String>| forms.iter().find(|form| form.layout == *layout && form.ty == ty);
        let form = with(&slot.packing).or_else(|| with(&None))?;
        let bytes = self.artifact.section(form.section).len();
        Some(StoredWeight { section: form.section, is_packed: form.layout.is_some(), bytes })
    }

    /// Whether a weight of a program is stored, but in layouts that the program does not read.
    pub(crate) fn lacks_layouts(&self, program: &Program) -> bool {
        program.weights.iter().any(|slot| self.find(slot).is_none() && !self.forms(slot).is_empty())
    }

    /// In which layouts and of which types the weight of a slot is stored, in words.
    pub(crate) fn describe(&self, slot: &WeightSlot) -> Option<String> {
        let describe = |form: &StoredForm| match &form.layout {
            Some(layout) => format!("{} as {layout}", form.ty),
            None => form.ty.to_string(),
        };
        let words: Vec<String> = self.forms(slot).iter().map(describe).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Checks that weights are what was written, with several threads; each once.
    pub(crate) fn verify(&self, weights: &[StoredWeight]) -> Result<(), Error> {
        let sections: Vec<u32> = weights.iter().map(|weight| weight.section).collect();
        self.artifact.verify_sections(&sections)
    }

    /// A verified weight where it lies, in the form that is stored.
    pub(crate) fn bind(
        &self,
        slot: &WeightSlot,
        weight: StoredWeight,
        device: &dyn Device,
    ) -> Result<BoundWeight, Error> {
        let bytes = self.artifact.section(weight.section);
        let file = bytes.file().cloned();
        let bound = match slot.packing.as_ref().filter(|_| weight.is_packed) {
            Some(layout) => {
                device.load_packed(layout, &slot.ty, bytes).map(|packed| BoundWeight::Packed(packed, file))
            }
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

    fn forms(&self, slot: &WeightSlot) -> &[StoredForm] {
        let source = match &slot.source {
            WeightSource::Named(name) => Some(SourceRecord::Named(name.clone())),
            WeightSource::Constant(constant) if !constant.is_contiguous() => None,
            WeightSource::Constant(constant) => {
                self.constants.get(&address(constant)).map(|&section| SourceRecord::Constant(section))
            }
        };
        source.and_then(|source| self.forms.get(&source)).map_or(&[], Vec::as_slice)
    }
}

/// Where the bytes of a row-major constant lie, by which it is known for as long as it lives.
pub(crate) fn address(constant: &Tensor) -> usize {
    constant.bytes().as_ptr().addr()
}
