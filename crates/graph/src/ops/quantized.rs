//! Weights in quantized blocks that come as bytes: `u8[rows, bytes]`.

use super::linear::Linear;
use super::prelude::*;

/// The elements of quantized blocks: `x: u8[.., bytes]` → `f32[.., elements]`; the last axis holds whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dequantize {
    /// A block dtype.
    pub encoding: DType,
}

/// `x · Wᵀ` with quantized weights: `x: f32[.., columns]`, `weight: u8[rows, bytes]` whose rows are blocks of `columns`
/// elements → `f32[.., rows]`. The same as a `Linear` whose weight has the block dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QMatMul {
    /// A block dtype.
    pub encoding: DType,
}

impl Define for Dequantize {
    declare!("dequantize" { encoding });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        let columns = columns("x", x, self.encoding)?;
        let shape = x.shape[..x.rank() - 1].iter().chain([&columns]).cloned();
        Ok(vec![x.with_shape(shape).with_dtype(DType::F32)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let blocks = blocks(self.name(), inputs[0], self.encoding)?;
        Ok(vec![from_f64(DType::F32, outputs[0], &blocks.to_f64_vec())])
    }
}

impl Define for QMatMul {
    declare!("qmatmul" { encoding });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, weight] = operands(inputs, ["x", "weight"])?;
        expect_dtype("x", x, &[DType::F32])?;
        expect_rank("weight", weight, 2)?;
        let columns = columns("weight", weight, self.encoding)?;
        refuse_if!(
            *last_axis("x", x)? != columns,
            "inner axes differ: x {x}, weight {weight}, which holds {columns} columns of {}",
            self.encoding
        );
        Ok(vec![x.with_shape(x.shape[..x.rank() - 1].iter().chain([&weight.shape[0]]).cloned())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let weight = blocks(self.name(), inputs[1], self.encoding)?;
        Linear::default().reference(&[inputs[0], &weight], outputs)
    }
}

/// How many elements the blocks along the last axis hold.
fn columns(name: &str, ty: &Type, encoding: DType) -> Result<Dim, TypeError> {
    refuse_if!(!encoding.is_block(), "encoding is {encoding}, expected a dtype of quantized blocks");
    expect_dtype(name, ty, &[DType::U8])?;
    let (bytes, block) = (last_axis(name, ty)?, encoding.block());
    match bytes.as_static() {
        Some(count) if !count.is_multiple_of(block.bytes) => Err(type_error!(
            "{name} is {ty}, whose last axis is no whole number of {encoding} blocks of {} bytes",
            block.bytes
        )),
        _ => Ok(&bytes.floor_div(&Dim::from(block.bytes)) * &Dim::from(block.elements)),
    }
}

/// The blocks that bytes are.
fn blocks(op: &'static str, bytes: &Tensor, encoding: DType) -> Result<Tensor, Error> {
    let (mut shape, block) = (bytes.shape().to_vec(), encoding.block());
    let last = shape.last_mut().expect("the type rule asks for a last axis");
    if !last.is_multiple_of(block.bytes) {
        let message = format!("{last} bytes are no whole number of {encoding} blocks of {}", block.bytes);
        return Err(Error::evaluation(op, message));
    }
    *last = *last / block.bytes * block.elements;
    Ok(from_bytes(encoding, Shape::new(&shape), bytes.contiguous().bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types() {
        check_types(
            Dequantize { encoding: DType::Q4K },
            &[
                (&["u8[n, 288]"], "f32[n, 512]"),
                (
                    &["u8[n, 100]"],
                    "dequantize: x is u8[n, 100], whose last axis is no whole number of q4_k blocks of 144 bytes",
                ),
                (&["i8[n, 288]"], "dequantize: x is i8[n, 288], expected u8"),
            ],
        );
        check_types(
            Dequantize { encoding: DType::F16 },
            &[(&["u8[n, 288]"], "dequantize: encoding is f16, expected a dtype of quantized blocks")],
        );
        check_types(
            QMatMul { encoding: DType::Q4_0 },
            &[
                (&["f32[b, n, 64]", "u8[5, 36]"], "f32[b, n, 5]"),
                (
                    &["f32[n, 32]", "u8[5, 36]"],
                    "qmatmul: inner axes differ: x f32[n, 32], weight u8[5, 36], which holds 64 columns of q4_0",
                ),
                (&["f16[n, 64]", "u8[5, 36]"], "qmatmul: x is f16[n, 64], expected f32"),
            ],
        );
    }

    #[test]
    fn values() {
        // One block of Q4_0: the scale 0.5, then codes of which 8 stands for 0.
        let mut block = [0x99u8; 18];
        block[..2].copy_from_slice(&tensor::f16::from_f32(0.5).to_le_bytes());
        block[2] = 0x0a;
        let bytes = Tensor::from_slice([1, 18], &block);
        let values = numbers(Dequantize { encoding: DType::Q4_0 }, &[&bytes]);
        assert_eq!(values[..3], [1.0, 0.5, 0.5]);
        assert_eq!(values[16], -4.0);
        let one = Tensor::from_slice([1, 32], &[1.0f32; 32]);
        assert_eq!(numbers(QMatMul { encoding: DType::Q4_0 }, &[&one, &bytes]), [12.0]);
    }
}
