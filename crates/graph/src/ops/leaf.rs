//! Values without operands: constants, and weights that are bound by name later.

use super::attributes::TensorData;
use super::prelude::*;
use crate::Kind;

/// A value known when the graph is built. It lives on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    /// The value.
    pub value: TensorData,
}

/// A value bound by name when the model is initialized.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// The name in the weights registry.
    pub name: String,
    /// What it must be: a tensor whose sizes are numbers.
    pub ty: Type,
}

impl Constant {
    /// The constant with a tensor's value.
    pub fn new(tensor: Tensor) -> Constant {
        Constant { value: TensorData(tensor) }
    }
}

impl Define for Constant {
    declare!("constant" { value });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [] = operands(inputs, [])?;
        let value = &self.value.0;
        Ok(vec![Type::new(value.dtype(), value.shape().iter().copied())])
    }

    fn reference(&self, _inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![self.value.0.contiguous()])
    }
}

impl Define for Weight {
    declare!("weight" { name, ty as "type" });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [] = operands(inputs, [])?;
        let (name, ty) = (&self.name, &self.ty);
        refuse_if!(ty.kind == Kind::Buffer, "`{name}` is {ty}, expected a tensor");
        let Some(shape) = ty.static_shape() else {
            let limit = tensor::MAX_RANK;
            return Err(type_error!("`{name}` is {ty}, expected at most {limit} sizes in numbers"));
        };
        let columns = shape.last().copied().unwrap_or(1);
        let whole = ty.dtype.bytes_for(columns).is_some();
        if !whole || shape.checked_elements().and_then(|n| ty.dtype.bytes_for(n)).is_none() {
            let block = ty.dtype.block().elements;
            return Err(type_error!("`{name}` is {ty}, no whole number of blocks of {block} in a row"));
        }
        Ok(vec![ty.clone()])
    }

    /// Fails: a weight has the value that its name is bound to. [`crate::Graph::evaluate`] looks it up.
    fn reference(&self, _inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Err(Error::evaluation("weight", format!("`{}` is not bound to a value", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_types;
    use super::*;

    #[test]
    fn types() {
        let weight = |ty: &str| Weight { name: "w".into(), ty: ty.parse().unwrap() };
        check_types(
            weight("q4_k[2, 512]"),
            &[(&[], "q4_k[2, 512]"), (&["f32[1]"], "weight: takes 0 operands, got 1")],
        );
        check_types(
            weight("q4_k[2, 128]"),
            &[(&[], "weight: `w` is q4_k[2, 128], no whole number of blocks of 256 in a row")],
        );
        check_types(
            weight("f32[n]"),
            &[(&[], "weight: `w` is f32[n], expected at most 16 sizes in numbers")],
        );
        check_types(weight("mut f32[1]"), &[(&[], "weight: `w` is mut f32[1], expected a tensor")]);
        let huge = weight("f64[9223372036854775807, 9]");
        check_types(
            huge,
            &[(&[], "weight: `w` is f64[9223372036854775807, 9], no whole number of blocks of 1 in a row")],
        );
        check_types(Constant::new(Tensor::from_bools([1, 2], &[true, false])), &[(&[], "bool[1, 2]")]);
    }
}
