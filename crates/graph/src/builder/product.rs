//! Products of matrices and vectors.

use super::{Builder, Operand};
use crate::ops::{Binary, MatMul};
use crate::{Dim, Error, Value};

impl Builder {
    /// `a` [.., m, k], `b` [.., k, n] → [.., m, n] of the dtype they have in common; the axes before the last two
    /// broadcast. Sums of halves are f32 and rounded once.
    #[track_caller]
    pub fn matmul(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Result<Value, Error> {
        let operands = self.promote("matmul", &[a.into(), b.into()])?;
        let dtype = self.ty(operands[0]).dtype;
        let product = self.op(MatMul, &operands)?;
        self.cast(product, dtype)
    }

    /// `x: [m]`, `y: [n]` → `[m, n]`: the product of each pair.
    #[track_caller]
    pub fn outer(&mut self, x: impl Into<Operand>, y: impl Into<Operand>) -> Result<Value, Error> {
        let operands = self.promote("outer", &[x.into(), y.into()])?;
        let [x, y] = [operands[0], operands[1]];
        if let Some(ty) = [x, y].map(|value| self.ty(value)).into_iter().find(|ty| ty.rank() != 1) {
            return Err(self.refuse("outer", format!("an operand is {ty}, expected 1 axis")));
        }
        let column = [self.dim(x, 0)?, Dim::from(1)];
        let column = self.reshape(x, column)?;
        self.op(Binary::Mul, &[column, y])
    }
}

#[cfg(test)]
mod tests {
    use tensor::DType;

    use super::*;
    use crate::{Type, dims};

    #[test]
    fn products_have_the_dtype_of_their_operands() {
        let mut b = Builder::new("g");
        let of = |b: &mut Builder, name: &str, dtype| b.input(name, Type::new(dtype, dims![2, 2]));
        let (half, single, whole) =
            (of(&mut b, "h", DType::BF16), of(&mut b, "s", DType::F32), of(&mut b, "i", DType::I32));
        let types = [(half, half), (half, single), (whole, whole), (whole, single)].map(|(x, y)| {
            let z = b.matmul(x, y).unwrap();
            b.ty(z).dtype
        });
        assert_eq!(types, [DType::BF16, DType::F32, DType::I32, DType::F32]);
        let v = b.input("v", Type::new(DType::F32, dims!["n"]));
        let w = b.outer(v, v).unwrap();
        assert_eq!(b.ty(w).to_string(), "f32[n, n]");
        let error = b.outer(v, single).unwrap_err().without_location().to_string();
        assert_eq!(error, "outer: an operand is f32[2, 2], expected 1 axis");
    }
}
