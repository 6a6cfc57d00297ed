//! Functions that are several ops.

use tensor::{DType, Tensor};

use super::Builder;
use crate::{Dim, Error, Value};

impl Builder {
    /// As [`Builder::reshape`], with the size that is left for the axis of size `None`; there may be one.
    #[track_caller]
    pub fn reshape_rest(&mut self, x: Value, shape: &[Option<Dim>]) -> Result<Value, Error> {
        let elements = self.operand("reshape", x)?.elements();
        let known = shape.iter().flatten().fold(Dim::from(1), |product, dim| &product * dim);
        let mut rest = None;
        let mut dims = Vec::with_capacity(shape.len());
        for dim in shape {
            dims.push(match dim {
                Some(dim) => dim.clone(),
                None if rest.is_some() => {
                    return Err(self.refuse("reshape", "more than one size is left open"));
                }
                None if known == Dim::from(0) => {
                    return Err(self.refuse("reshape", "a size is left open next to one of 0"));
                }
                None => rest.insert(elements.floor_div(&known)).clone(),
            });
        }
        match rest {
            Some(rest) if &rest * &known != elements => {
                let message =
                    format!("the {elements} elements of {} are not a multiple of {known}", self.ty(x));
                Err(self.refuse("reshape", message))
            }
            _ => self.reshape(x, dims),
        }
    }

    /// Sizes as data: `i64[rank]` on the host. Their symbols must be those of types in the graph.
    #[track_caller]
    pub fn sizes_to_tensor(&mut self, sizes: &[Dim]) -> Result<Value, Error> {
        let numbers: Option<Vec<i64>> = sizes.iter().map(Dim::as_integer).collect();
        if let Some(numbers) = numbers {
            return Ok(self.constant(Tensor::from_slice([numbers.len()], &numbers)));
        }
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(match size.as_integer() {
                Some(number) => self.constant(Tensor::from_slice([1], &[number])),
                None => {
                    let zero = self.constant(Tensor::scalar(0u8));
                    let zeros = self.broadcast(zero, [size.clone()])?;
                    self.shape_to_tensor(zeros)?
                }
            });
        }
        self.concat(&parts, 0)
    }

    /// `x` with two axes swapped.
    #[track_caller]
    pub fn swap_axes(&mut self, x: Value, first: isize, second: isize) -> Result<Value, Error> {
        let (first, second) = (self.axis("transpose", x, first)?, self.axis("transpose", x, second)?);
        let mut order: Vec<usize> = (0..self.ty(x).rank()).collect();
        order.swap(first, second);
        self.transpose(x, &order)
    }

    /// The mean of the squared distances from the mean, along an axis, which stays with size 1; of integers and truth
    /// values in f64.
    #[track_caller]
    pub fn variance(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let dtype = self.operand("variance", x)?.dtype;
        let x = if dtype.is_float() { x } else { self.cast(x, DType::F64)? };
        let mean = self.mean(x, axis)?;
        let distance = self.sub(x, mean)?;
        let square = self.mul(distance, distance)?;
        self.mean(square, axis)
    }

    /// The square root of [`Builder::variance`].
    #[track_caller]
    pub fn standard_deviation(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let variance = self.variance(x, axis)?;
        self.sqrt(variance)
    }

    /// As [`Builder::rms_norm_with_offset`], but casts the normalized values to the dtype of `x` first and multiplies
    /// them with the weight in that dtype. Some 16-bit models compute their norms so.
    #[track_caller]
    pub fn rms_norm_cast_first(
        &mut self,
        x: Value,
        weight: Value,
        eps: f32,
        offset: f32,
    ) -> Result<Value, Error> {
        let one = self.scalar_like(weight, 1)?;
        let ones = self.broadcast(one, self.ty(weight).shape.clone())?;
        let y = self.rms_norm(x, ones, eps)?;
        let weight = if offset == 0.0 { weight } else { self.add(weight, offset)? };
        let weight = self.cast(weight, self.ty(y).dtype)?;
        self.mul(y, weight)
    }

    /// Complex numbers with the real parts `x` and imaginary parts of 0: [..] → [.., 2].
    #[track_caller]
    pub fn real_as_complex(&mut self, x: Value) -> Result<Value, Error> {
        let zero = self.scalar_like(x, 0)?;
        let zeros = self.broadcast(zero, self.ty(x).shape.clone())?;
        self.stack(&[x, zeros], -1)
    }

    /// The product of complex numbers, `(a + bi)(c + di)`. Their last axis holds the real and the imaginary part.
    #[track_caller]
    pub fn complex_mul(&mut self, x: Value, y: Value) -> Result<Value, Error> {
        for value in [x, y] {
            let ty = self.operand("complex_mul", value)?;
            if ty.shape.last() != Some(&Dim::from(2)) {
                let message =
                    format!("an operand is {ty}, expected a last axis of 2: real and imaginary part");
                return Err(self.refuse("complex_mul", message));
            }
        }
        let (x, y) = (self.split(x, -1, &[1, 1])?, self.split(y, -1, &[1, 1])?);
        let products = [(0, 0), (1, 1), (0, 1), (1, 0)].map(|(i, j)| self.mul(x[i], y[j]));
        let [ac, bd, ad, bc] = products;
        let (real, imaginary) = (self.sub(ac?, bd?)?, self.add(ad?, bc?)?);
        self.concat(&[real, imaginary], -1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Type, dims};

    fn check(
        build: impl FnOnce(&mut Builder, Value) -> Result<Value, Error>,
        expected: Result<(&str, &[f32]), &str>,
    ) {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n", 3, 2]));
        let result = build(&mut b, x).and_then(|y| {
            let ty = b.ty(y).to_string();
            let x: Vec<f32> = (0..6).map(|i| i as f32).collect();
            let outputs = b.finish(&[y])?.evaluate(&[Tensor::from_slice([1, 3, 2], &x)], &|_| None)?.outputs;
            Ok((ty, outputs[0].to_vec::<f32>()))
        });
        let result = result.map_err(|error| error.without_location().to_string());
        let result = result.as_ref().map(|(ty, values)| (&ty[..], &values[..])).map_err(|error| &error[..]);
        assert_eq!(result, expected);
    }

    #[test]
    fn one_size_is_left_open() {
        let shape = |sizes: &[usize]| -> Vec<Option<Dim>> {
            sizes.iter().map(|&size| (size != 9).then(|| Dim::from(size))).collect()
        };
        let all = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        check(|b, x| b.reshape_rest(x, &shape(&[9, 6])), Ok(("f32[n, 6]", all)));
        check(|b, x| b.reshape_rest(x, &shape(&[2, 9])), Ok(("f32[2, 3*n]", all)));
        check(|b, x| b.reshape_rest(x, &shape(&[9, 9])), Err("reshape: more than one size is left open"));
        check(
            |b, x| b.reshape_rest(x, &shape(&[9, 0])),
            Err("reshape: a size is left open next to one of 0"),
        );
        let message = "reshape: the 6*n elements of f32[n, 3, 2] are not a multiple of 4";
        check(|b, x| b.reshape_rest(x, &shape(&[9, 4])), Err(message));
    }

    #[test]
    fn sizes_are_data() {
        let mut b = Builder::new("g");
        b.input("x", Type::new(DType::F32, dims!["n"]));
        let n = Dim::from("n");
        let sizes = b.sizes_to_tensor(&[&n + &n, Dim::from(3)]).unwrap();
        let known = b.sizes_to_tensor(&dims![4]).unwrap();
        let graph = b.finish(&[sizes, known]).unwrap();
        let outputs = graph.evaluate(&[Tensor::zeros(DType::F32, [5])], &|_| None).unwrap().outputs;
        assert_eq!(outputs[0].to_vec::<i64>(), [10, 3]);
        assert_eq!(outputs[1].to_vec::<i64>(), [4]);
    }

    #[test]
    fn norms_of_halves() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::BF16, dims![3]));
        let w = b.input("w", Type::new(DType::BF16, dims![3]));
        let norms = [b.rms_norm(x, w, 0.0).unwrap(), b.rms_norm_cast_first(x, w, 0.0, 0.0).unwrap()];
        let inputs = [[1.0, 2.0, 3.0], [1.0, 1.0, 1.5]].map(|values| {
            let values = values.map(tensor::bf16::from_f32);
            Tensor::from_slice([3], &values)
        });
        let outputs = b.finish(&norms).unwrap().evaluate(&inputs, &|_| None).unwrap().outputs;
        // 3 / √(14/3) is 1.38873, and 1.390625 in bf16; so 1.5 of it are 2.0831 and 2.0859.
        assert_eq!(outputs[0].to_f64_vec()[2], 2.078125);
        assert_eq!(outputs[1].to_f64_vec()[2], 2.09375);
    }

    #[test]
    fn values() {
        check(|b, x| b.swap_axes(x, -1, 1), Ok(("f32[n, 2, 3]", &[0.0, 2.0, 4.0, 1.0, 3.0, 5.0])));
        check(|b, x| b.swap_axes(x, 0, 3), Err("transpose: f32[n, 3, 2] has no axis 3"));
        check(|b, x| b.variance(x, 2), Ok(("f32[n, 3, 1]", &[0.25; 3])));
        check(|b, x| b.standard_deviation(x, 2), Ok(("f32[n, 3, 1]", &[0.5; 3])));
        check(|b, x| b.complex_mul(x, x), Ok(("f32[n, 3, 2]", &[-1.0, 0.0, -5.0, 12.0, -9.0, 40.0])));
        check(
            |b, x| {
                let x = b.real_as_complex(x)?;
                b.slice(x, 1, 2, None)
            },
            Ok(("f32[n, 1, 2, 2]", &[4.0, 0.0, 5.0, 0.0])),
        );
        let message =
            "complex_mul: an operand is f32[n, 3], expected a last axis of 2: real and imaginary part";
        check(
            |b, x| {
                b.slice_tensor(x, &[crate::Index::Ellipsis, crate::Index::At(0)])
                    .and_then(|x| b.complex_mul(x, x))
            },
            Err(message),
        );
    }
}
