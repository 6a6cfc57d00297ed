//! Where a tensor is not zero, and what is put where a mask is true.

use super::out_dim::OutDim;
use super::prelude::*;

/// The indices of the elements that are not 0, in row-major order: `x` of any plain dtype → `i64[n, rank of x]`.
/// NaN is not 0; zeros of both signs are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NonZero {
    /// How many there are.
    pub out_dim: OutDim,
}

impl Define for NonZero {
    declare!("nonzero" { out_dim });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        let shape = [self.out_dim.dim()?, Dim::from(x.rank())];
        Ok(vec![x.with_shape(shape).with_dtype(DType::I64)])
    }

    fn defines(&self) -> Vec<&str> {
        self.out_dim.defines()
    }

    fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        Ok(self.out_dim.sizes(nonzero(inputs[0]).len()))
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (shape, positions) = (inputs[0].shape(), nonzero(inputs[0]));
        let fits = self.out_dim.expect(positions.len(), outputs[0][0]);
        fits.map_err(|message| Error::evaluation("nonzero", message))?;
        let strides = shape.row_major_strides();
        let indices = positions.iter().flat_map(|position| {
            (0..shape.rank()).map(move |axis| (position / strides[axis] as usize % shape[axis]) as i64)
        });
        Ok(vec![Tensor::from_slice(outputs[0], &indices.collect::<Vec<i64>>())])
    }
}

/// The positions of the elements that are not 0.
fn nonzero(x: &Tensor) -> Vec<usize> {
    let is_nonzero = |numbers: &Numbers, i: usize| match numbers {
        Numbers::Floats(values) => values[i] != 0.0,
        Numbers::Integers(values) => values[i] != 0,
    };
    let numbers = Numbers::of(x);
    (0..x.elements()).filter(|&i| is_nonzero(&numbers, i)).collect()
}

/// Puts the elements of `updates`, in row-major order, where the mask is true: `x` of any plain dtype, `mask` bool,
/// which broadcasts to the shape of `x`, `updates` of that dtype and any shape → the type of `x`.
///
/// It is an error of the call if there are fewer updates than places; those left over are not used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MaskedScatter {
    /// A new symbol for the number of places, if it is of use elsewhere.
    pub out_dim: Option<String>,
}

impl MaskedScatter {
    /// Refuses fewer updates than places.
    ///
    /// # Errors
    /// With both numbers, in words.
    pub fn check(&self, places: usize, updates: usize) -> Result<(), String> {
        if places <= updates {
            Ok(())
        } else {
            Err(format!("the mask is true at {places} places, but there are {updates} updates"))
        }
    }
}

impl Define for MaskedScatter {
    declare!("masked_scatter" { out_dim });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, mask, updates] = operands(inputs, ["x", "mask", "updates"])?;
        expect_plain("x", x)?;
        expect_dtype("mask", mask, &[DType::Bool])?;
        expect_same_dtype(("x", x), ("updates", updates))?;
        if let Some(out_dim) = &self.out_dim {
            OutDim::New(out_dim.clone()).dim()?;
        }
        let aligned = mask.shape.iter().rev().zip(x.shape.iter().rev());
        let fits = mask.rank() <= x.rank();
        refuse_if!(
            !(fits && aligned.into_iter().all(|(mask, size)| mask == size || mask.as_static() == Some(1))),
            "mask {mask} does not broadcast to x {x}"
        );
        Ok(vec![x.with_shape(x.shape.clone())])
    }

    fn defines(&self) -> Vec<&str> {
        self.out_dim.iter().map(String::as_str).collect()
    }

    fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        let places = |_| {
            let mask = inputs[1].broadcast_to(*inputs[0].shape()).to_vec::<u8>();
            mask.into_iter().filter(|&mask| mask != 0).count()
        };
        Ok(self.out_dim.iter().map(places).collect())
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, updates) = (inputs[0].contiguous(), inputs[2].contiguous());
        let mask = inputs[1].to_vec::<u8>();
        let places = broadcast_positions(inputs[1].shape(), &outputs[0]).enumerate();
        let places: Vec<usize> = places.filter(|&(_, from)| mask[from] != 0).map(|(to, _)| to).collect();
        let checked = self.check(places.len(), updates.elements());
        checked.map_err(|message| Error::evaluation("masked_scatter", message))?;
        let (size, mut bytes) = (x.dtype().block().bytes, x.bytes().to_vec());
        for (place, update) in places.into_iter().zip(updates.bytes().chunks_exact(size)) {
            bytes[place * size..][..size].copy_from_slice(update);
        }
        Ok(vec![from_bytes(x.dtype(), outputs[0], &bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;
    use crate::Graph;

    #[test]
    fn nonzero_finds_indices() {
        check_types(
            NonZero { out_dim: "n".into() },
            &[(&["bool[2, m, 3]"], "i64[n, 3]"), (&["f32[]"], "i64[n, 0]")],
        );
        check_types(
            NonZero { out_dim: "2n".into() },
            &[(&["bool[2]"], "nonzero: out_dim `2n` is no identifier")],
        );
        let text = "graph g(%x: f32[a, b]) {
                      %0 = nonzero(%x) {out_dim = found}
                      %1 = cast(%0) {to = f32}
                      return %0, %1
                    }";
        let graph = Graph::parse(text).unwrap();
        let x = Tensor::from_slice([2, 3], &[0.0f32, f32::NAN, -0.0, 1.0, 0.0, 1e-45]);
        let outputs = graph.evaluate(&[x], &|_| None).unwrap().outputs;
        assert_eq!(outputs[0].to_vec::<i64>(), [0, 1, 1, 0, 1, 2]);
        assert_eq!(outputs[1].shape(), &Shape::new(&[3, 2]));
        let none = graph.evaluate(&[Tensor::zeros(DType::F32, [0, 3])], &|_| None).unwrap();
        assert_eq!(none.outputs[0].shape(), &Shape::new(&[0, 2]));
        let error = run(NonZero { out_dim: OutDim::Known(1.into()) }, &[&Tensor::from_slice([2], &[1i8, 1])]);
        assert_eq!(error.unwrap_err().to_string(), "nonzero: the data gives a size of 2, expected 1");
    }

    #[test]
    fn masks_place_updates() {
        let op = MaskedScatter { out_dim: None };
        check_types(
            op.clone(),
            &[
                (&["f16[n, 3]", "bool[n, 1]", "f16[m]"], "f16[n, 3]"),
                (
                    &["f16[n, 3]", "bool[m, 1]", "f16[m]"],
                    "masked_scatter: mask bool[m, 1] does not broadcast to x f16[n, 3]",
                ),
                (&["f16[n, 3]", "i8[n, 1]", "f16[m]"], "masked_scatter: mask is i8[n, 1], expected bool"),
            ],
        );
        let x = Tensor::from_slice([2, 2], &[1i32, 2, 3, 4]);
        let updates = Tensor::from_slice([3], &[10i32, 20, 30]);
        let mask = Tensor::from_bools([2], &[false, true]);
        assert_eq!(numbers(op.clone(), &[&x, &mask, &updates]), [1., 10., 3., 20.]);
        let error = run(op, &[&x, &Tensor::from_bools([], &[true]), &updates]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "masked_scatter: the mask is true at 4 places, but there are 3 updates"
        );
    }
}
