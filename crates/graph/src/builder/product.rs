//! Products of matrices and vectors.

use tensor::DType;

use super::{Builder, Operand, widened};
use crate::ops::MatMul;
use crate::{Dim, Error, Value};

impl Builder {
    /// `a` [.., m, k], `b` [.., k, n] → [.., m, n] of the dtype they have in common; the axes before the last two
    /// broadcast, and a vector is one row of `a` or one column of `b`, whose axis the result lacks. Sums of halves and
    /// smaller floats are f32 and rounded once; a sum of truth values is whether a term is true.
    #[track_caller]
    pub fn matmul(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Result<Value, Error> {
        let operands = [a.into(), b.into()];
        let dtype = self.common_dtype("matmul", &operands)?;
        let computed = if dtype == DType::Bool { DType::I32 } else { widened(dtype) };
        let operands = self.promote_to("matmul", &operands, computed)?;
        let [mut a, mut b] = [operands[0], operands[1]];
        let vectors = [a, b].map(|operand| self.ty(operand).rank() == 1);
        if vectors[0] {
            a = self.unsqueeze(a, 0)?;
        }
        if vectors[1] {
            b = self.unsqueeze(b, -1)?;
        }
        let mut product = self.op(MatMul, &[a, b])?;
        if vectors[1] {
            product = self.squeeze(product, -1)?;
        }
        if vectors[0] {
            product = self.squeeze(product, if vectors[1] { -1 } else { -2 })?;
        }
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
        self.mul(column, y)
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
        let [truth, small] = [DType::Bool, DType::F4E2M1].map(|dtype| of(&mut b, dtype.name(), dtype));
        let types = [truth, small].map(|x| {
            let z = b.matmul(x, x).unwrap();
            b.ty(z).dtype
        });
        assert_eq!(types, [DType::Bool, DType::F4E2M1]);
        let (row, batch) =
            (of(&mut b, "row", DType::F32), b.input("batch", Type::new(DType::F32, dims!["m", 3, 2])));
        let row = b.slice_tensor(row, &[crate::Index::At(0)]).unwrap();
        let shapes = [(row, row), (row, single), (batch, row)].map(|(x, y)| {
            let z = b.matmul(x, y).unwrap();
            b.ty(z).to_string()
        });
        assert_eq!(shapes, ["f32[]", "f32[2]", "f32[m, 3]"]);
        let one = b.slice_tensor(row, &[crate::Index::At(0)]).unwrap();
        let error = b.matmul(row, one).unwrap_err().without_location().to_string();
        assert_eq!(error, "matmul: expected at least 2 axes: a f32[1, 2], b f32[]");
        let v = b.input("v", Type::new(DType::F32, dims!["n"]));
        let w = b.outer(v, v).unwrap();
        assert_eq!(b.ty(w).to_string(), "f32[n, n]");
        let error = b.outer(v, single).unwrap_err().without_location().to_string();
        assert_eq!(error, "outer: an operand is f32[2, 2], expected 1 axis");
    }
}
