//! A weight as a program reads it.

use tensor::Tensor;

use crate::PackedWeight;

/// A weight slot with its contents.
#[derive(Clone)]
pub(crate) enum BoundWeight {
    /// As stored; shared with the registry.
    Raw(Tensor),
    /// In the device's layout.
    Packed(PackedWeight),
}

impl BoundWeight {
    pub(crate) fn raw(&self) -> &[u8] {
        match self {
            BoundWeight::Raw(tensor) => tensor.bytes(),
            BoundWeight::Packed(_) => unreachable!("the program reads this slot as it is stored"),
        }
    }

    pub(crate) fn packed(&self) -> &PackedWeight {
        match self {
            BoundWeight::Packed(weight) => weight,
            BoundWeight::Raw(_) => unreachable!("the program reads this slot packed"),
        }
    }
}
