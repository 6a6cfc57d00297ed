//! Where a model finds its weights by name.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

use tensor::Tensor;

/// Names and their tensors. Maps are registries, and so are functions from a name to a tensor.
///
/// Tensors are shared, not copied, unless a kernel packs them.
pub trait WeightsRegistry {
    /// The tensor with a name, if there is one.
    fn get(&self, name: &str) -> Option<Tensor>;

    /// Every name, if that is known; a strict init checks that each is used.
    fn names(&self) -> Option<Vec<String>> {
        None
    }

    /// The tensor was packed: it is not read again, or, where a step reads it as it is stored too, in few places.
    /// A registry over a mapped file may drop its pages, which come back when read.
    fn release(&self, _name: &str) {}
}

impl<S: BuildHasher> WeightsRegistry for HashMap<String, Tensor, S> {
    fn get(&self, name: &str) -> Option<Tensor> {
        self.get(name).cloned()
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.keys().cloned().collect())
    }
}

impl WeightsRegistry for BTreeMap<String, Tensor> {
    fn get(&self, name: &str) -> Option<Tensor> {
        self.get(name).cloned()
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.keys().cloned().collect())
    }
}

/// No weights, for graphs that have none.
impl WeightsRegistry for () {
    fn get(&self, _name: &str) -> Option<Tensor> {
        None
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

impl<F: Fn(&str) -> Option<Tensor>> WeightsRegistry for F {
    fn get(&self, name: &str) -> Option<Tensor> {
        self(name)
    }
}
