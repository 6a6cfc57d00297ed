//! Where a model finds its weights by name.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use tensor::{Buffer, DType, DlpackTensor, Shape, Tensor};

use crate::PackError;

/// Names and their tensors. Maps to any [`WeightValue`] are registries, and so are functions from a name to a tensor.
///
/// Tensors are shared, not copied, unless a kernel packs them.
pub trait WeightsRegistry {
    /// The tensor with a name, if there is one.
    ///
    /// # Errors
    /// If there is one that cannot be read where it lies, or not enough memory to make it.
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError>;

    /// The dtype and shape of the tensor with a name, if the registry knows them before it gives the tensor. One that
    /// makes tensors as they are asked for, such as by stacking others, then makes each when it is packed, and not all of
    /// them before.
    ///
    /// # Errors
    /// If that cannot be found out, in words.
    fn describe(&self, _name: &str) -> Result<Option<(DType, Shape)>, String> {
        Ok(None)
    }

    /// Every name, if that is known; a strict init checks that each is used.
    fn names(&self) -> Option<Vec<String>> {
        None
    }

    /// The tensor was packed: it is not read again, or, where a step reads it as it is stored too, in few places.
    /// A registry over a mapped file may drop its pages, which come back when read.
    fn release(&self, _name: &str) {}
}

/// What a map of weights may hold: a [`Tensor`], a [`Buffer`], or what another library shares, as
/// `Arc<`[`DlpackTensor`]`>`.
pub trait WeightValue {
    /// The value without a copy. It lives as long as a model uses it, whatever the caller drops.
    ///
    /// # Errors
    /// If it is not row-major, is being written, or is nothing that a tensor can be, in words.
    fn as_weight(&self) -> Result<Tensor, String>;
}

impl WeightValue for Tensor {
    fn as_weight(&self) -> Result<Tensor, String> {
        if self.is_contiguous() { Ok(self.clone()) } else { Err(not_row_major(self.strides(), self.shape())) }
    }
}

/// While a model reads the buffer where it lies, it cannot be written.
impl WeightValue for Buffer {
    fn as_weight(&self) -> Result<Tensor, String> {
        if self.is_contiguous() {
            self.as_tensor().map_err(|error| error.to_string())
        } else {
            Err(not_row_major(self.strides(), self.shape()))
        }
    }
}

impl WeightValue for Arc<DlpackTensor> {
    fn as_weight(&self) -> Result<Tensor, String> {
        Tensor::from_shared_dlpack(self).map_err(|error| error.to_string())
    }
}

impl<V: WeightValue, S: BuildHasher> WeightsRegistry for HashMap<String, V, S> {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        Ok(self.get(name).map(V::as_weight).transpose()?)
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.keys().cloned().collect())
    }
}

impl<V: WeightValue> WeightsRegistry for BTreeMap<String, V> {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        Ok(self.get(name).map(V::as_weight).transpose()?)
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.keys().cloned().collect())
    }
}

/// No weights, for graphs that have none.
impl WeightsRegistry for () {
    fn get(&self, _name: &str) -> Result<Option<Tensor>, PackError> {
        Ok(None)
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

impl<F: Fn(&str) -> Option<Tensor>> WeightsRegistry for F {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        Ok(self(name))
    }
}

/// Why strides are refused.
pub(crate) fn not_row_major(strides: &[isize], shape: &Shape) -> String {
    format!(
        "got strides {strides:?} with shape {shape}, expected a row-major tensor; .contiguous() makes one"
    )
}

#[cfg(test)]
mod tests {
    use tensor::Index;

    use super::*;
    use crate::testing::{build, f32, session};
    use crate::{Error, Model};

    fn load(weights: &dyn WeightsRegistry) -> Result<Model, Error> {
        let graph = build("g", |b| {
            let x = b.input("x", f32(&["2"]));
            let w = b.weight("w", f32(&["2"]))?;
            Ok(vec![b.mul(x, w)?])
        });
        session().load(&graph, weights)
    }

    fn run(model: &Model) -> Vec<f32> {
        model.execute(&[Buffer::from_slice([2], &[10f32, 20.0])]).unwrap()[0].to_vec()
    }

    #[test]
    fn buffers_are_weights_where_they_lie() {
        let buffer = Buffer::from_slice([2], &[1f32, 2.0]);
        let address = buffer.read().unwrap().as_ptr();
        assert_eq!(buffer.as_weight().unwrap().bytes().as_ptr(), address);
        let weights = BTreeMap::from([("w".to_string(), buffer.clone())]);
        let model = load(&weights).unwrap();
        drop(weights);
        assert_eq!(run(&model), [10.0, 40.0]);
        assert_eq!(buffer.write().err().unwrap().to_string(), "the buffer is being read by another call");
        drop(model);
        assert!(buffer.write().is_ok());
    }

    #[test]
    fn what_other_libraries_share_are_weights_where_they_lie() {
        let buffer = Buffer::from_slice([2], &[1f32, 3.0]);
        let address = buffer.read().unwrap().as_ptr();
        let shared = Arc::new(buffer.to_dlpack().unwrap());
        drop(buffer);
        assert_eq!(shared.as_weight().unwrap().bytes().as_ptr(), address);
        let model = load(&HashMap::from([("w".to_string(), shared)])).unwrap();
        assert_eq!(run(&model), [10.0, 60.0]);
    }

    #[test]
    fn what_is_not_row_major_is_refused_used_or_not() {
        let gaps = Buffer::zeros(tensor::DType::F32, [4]).slice(&[Index::ALL.step(2)]).unwrap();
        let message = |name: &str| {
            format!(
                "weight `{name}`: got strides [2] with shape [2], expected a row-major tensor; .contiguous() makes one"
            )
        };
        let error = load(&HashMap::from([("w".to_string(), gaps.clone())])).unwrap_err();
        assert_eq!(error.to_string(), message("w"));
        let good = Buffer::from_slice([2], &[1f32, 2.0]);
        let weights = BTreeMap::from([("v".to_string(), gaps.clone()), ("w".to_string(), good)]);
        assert_eq!(load(&weights).unwrap_err().to_string(), message("v"));
        let shared = Arc::new(gaps.to_dlpack().unwrap());
        let error = load(&HashMap::from([("w".to_string(), shared)])).unwrap_err().to_string();
        assert_eq!(
            error,
            "weight `w`: DLPack: strides [2] of shape [2], expected a row-major array; .contiguous() makes one"
        );
    }
}
