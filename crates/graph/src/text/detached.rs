//! Text without its large constants, which are kept apart from it as bytes: what artifacts store.

use std::collections::HashMap;

use tensor::{DType, Tensor};

use super::data::MAX_NUMBERS;
use crate::Graph;

/// The constants that were taken out of a text.
#[derive(Default)]
pub(super) struct Detached {
    constants: Vec<Tensor>,
    /// Address and length of the bytes, and the dtype → place in the list.
    known: HashMap<(usize, usize, DType), usize>,
}

impl Detached {
    /// The place of a constant in the list, or `None` where it is so small that the text may hold it.
    pub(super) fn index(&mut self, constant: &Tensor) -> Option<usize> {
        if constant.elements() <= MAX_NUMBERS {
            return None;
        }
        let constant = constant.contiguous();
        let bytes = constant.bytes();
        let key = (bytes.as_ptr().addr(), bytes.len(), constant.dtype());
        let index = *self.known.entry(key).or_insert(self.constants.len());
        if index == self.constants.len() {
            // Kept, so that no other constant comes to lie at its address.
            self.constants.push(constant);
        }
        Some(index)
    }
}

impl Graph {
    /// The text with `constant @0`, `constant @1`, … in place of large constants, and these in that order, row-major.
    /// One that several nodes share is there once. [`Graph::parse_detached`] puts them together again.
    pub fn detached_text(&self) -> (String, Vec<Tensor>) {
        let (mut text, mut detached) = (String::new(), Detached::default());
        self.write_detached(&mut text, &mut detached).expect("writing to a string");
        (text, detached.constants)
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Bytes, Shape};

    use super::*;
    use crate::Builder;

    fn bytes(constants: &[Tensor]) -> Vec<Bytes> {
        constants.iter().map(|constant| Bytes::new(constant.bytes().to_vec())).collect()
    }

    #[test]
    fn large_constants_stand_beside_the_text() {
        let mut b = Builder::new("g");
        let large = Tensor::from_slice([20], &[1f32; 20]);
        let other = Tensor::from_slice([5, 4], &(0..20).map(|i| i as f32).collect::<Vec<_>>());
        let values = [
            b.constant(large.clone()),
            b.constant(Tensor::scalar(2f32)),
            b.constant(other.permute(&[1, 0])),
            b.constant(large),
        ];
        let graph = b.finish(&values).unwrap();
        let (text, constants) = graph.detached_text();
        let expected = "graph g() {
  %0 = constant @0 : f32[20]
  %1 = constant [2.0] : f32[]
  %2 = constant @1 : f32[4, 5]
  %3 = constant @0 : f32[20]
  return %0, %1, %2, %3
}
";
        assert_eq!(text, expected);
        assert_eq!(constants.len(), 2);
        assert_eq!(constants[1].shape(), &Shape::new(&[4, 5]));
        let again = Graph::parse_detached(&text, &bytes(&constants)).unwrap();
        assert_eq!(again.to_string(), graph.to_string());
    }

    #[test]
    fn what_is_not_beside_the_text_is_an_error() {
        let check = |text: &str, message: &str| {
            let error = Graph::parse_detached(text, &[Bytes::new([0; 8])]).unwrap_err();
            assert_eq!(error.to_string(), format!("line 1: {message}"));
        };
        let constant = |data: &str| format!("graph g() {{ %0 = constant {data} return %0 }}");
        check(&constant("@1 : f32[2]"), "there is no constant @1 with the text, which has 1");
        check(&constant("@x : f32[2]"), "expected a constant's number, found `x`");
        check(&constant("@0 : f32[3]"), "f32[3] needs 12 bytes, got 8");
        let error = Graph::parse(&constant("@0 : f32[2]")).unwrap_err();
        assert_eq!(error.to_string(), "line 1: there is no constant @0 with the text, which has 0");
    }
}
