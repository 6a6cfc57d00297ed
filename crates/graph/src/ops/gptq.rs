//! The product with weights of 4 bits as GPTQ quantizes them (Frantar et al., 2022, <https://arxiv.org/abs/2210.17323>).

use tensor::f16;

use super::prelude::*;

/// `x · Wᵀ` with weights of GPTQ: `x: f32[.., columns]` (or f16, bf16) → `[.., rows]` of the same dtype.
///
/// Operands, in order: `x`; `weight: u8[bytes, rows]`; `permutation: i32[columns]` if `desc_act`;
/// `zeros: i32[groups, rows / 8]` unless `sym`. Their bytes are those of GPTQ's own tensors:
///
/// | rows of `weight` | content |
/// |---|---|
/// | `columns / 2` | `qweight: i32[columns / 8, rows]`: code `i` of a word, from its lowest bits on, is that of column `8 · word + i` |
/// | `2 · groups` | `scales: f16[groups, rows]` |
///
/// `zeros` is `qzeros`, packed along the rows, each number 1 less than the zero point. Without it, all are 8.
///
/// `W[row, j] = scale[j / group_size, row] · (code[permutation[j], row] − zero[j / group_size, row])`. The permutation,
/// `argsort(g_idx)`, sorts columns by their group; the columns of `x` come sorted so (`gather(x, permutation)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GptqMatMul {
    /// Bits of a code: 4.
    pub bits: usize,
    /// Columns that share a scale, a multiple of 32; none means all.
    pub group_size: Option<usize>,
    /// Whether columns are permuted, since they were quantized in the order of their importance.
    pub desc_act: bool,
    /// Whether every zero point is 8.
    pub sym: bool,
}

impl Default for GptqMatMul {
    fn default() -> GptqMatMul {
        GptqMatMul { bits: 4, group_size: Some(128), desc_act: false, sym: true }
    }
}

/// The operands of a [`GptqMatMul`] by role.
#[derive(Debug, Clone, Copy)]
pub struct GptqOperands<'a, T> {
    /// The input.
    pub x: &'a T,
    /// Codes and scales.
    pub weight: &'a T,
    /// The order of the columns.
    pub permutation: Option<&'a T>,
    /// Packed zero points.
    pub zeros: Option<&'a T>,
}

impl GptqMatMul {
    /// How many operands there must be.
    pub fn arity(&self) -> usize {
        2 + usize::from(self.desc_act) + usize::from(!self.sym)
    }

    /// The operands by role.
    ///
    /// # Panics
    /// If their number is not [`GptqMatMul::arity`].
    pub fn operands<'a, T>(&self, inputs: &'a [T]) -> GptqOperands<'a, T> {
        assert_eq!(inputs.len(), self.arity(), "operands of gptq_matmul");
        let (operands, rest) = inputs.split_at(2);
        let (permutation, zeros) = rest.split_at(usize::from(self.desc_act));
        let (x, weight) = (&operands[0], &operands[1]);
        GptqOperands { x, weight, permutation: permutation.first(), zeros: zeros.first() }
    }

    /// How many columns so many rows of bytes hold, if a whole number of groups, and at least one.
    pub fn columns(&self, bytes: usize) -> Option<usize> {
        let columns = match self.group_size {
            Some(size) => bytes.is_multiple_of(group_bytes(size)).then(|| bytes / group_bytes(size) * size),
            None => Some(2 * bytes.checked_sub(2)?).filter(|columns| columns.is_multiple_of(32)),
        };
        columns.filter(|&columns| columns > 0)
    }

    /// The weights `f32[rows, columns]` that operands stand for, with columns in the order of those of `x`.
    ///
    /// # Errors
    /// If the permutation is none.
    ///
    /// # Panics
    /// If the operands do not satisfy the type rule.
    pub fn dequantize(&self, operands: GptqOperands<'_, &Tensor>) -> Result<Tensor, Error> {
        let &[bytes, rows] = &operands.weight.shape()[..] else { panic!("the type rule asks for a matrix") };
        let columns = self.columns(bytes).expect("the type rule asks for whole groups");
        let size = self.group_size.unwrap_or(columns);
        let data = operands.weight.contiguous();
        let (codes, scales) = data.bytes().split_at(columns / 2 * rows);
        let code = |column: usize, row: usize| {
            let byte = codes[4 * (column / 8 * rows + row) + column % 8 / 2];
            byte >> (4 * (column % 2)) & 15
        };
        let order = match operands.permutation {
            Some(permutation) => GptqMatMul::order(&permutation.to_vec::<i32>(), columns)
                .map_err(|message| Error::evaluation(self.name(), message))?,
            None => (0..columns).collect(),
        };
        let zeros = operands.zeros.map(|zeros| zeros.to_vec::<i32>());
        let zero = |group: usize, row: usize| match &zeros {
            Some(zeros) => ((zeros[group * (rows / 8) + row / 8] >> (4 * (row % 8)) & 15) as u8 + 1) & 15,
            None => 8,
        };
        let mut values = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            for (j, &column) in order.iter().enumerate() {
                let group = j / size;
                let at = 2 * (group * rows + row);
                let scale = f16::from_le_bytes([scales[at], scales[at + 1]]).to_f32();
                values.push(scale * f32::from(code(column, row) as i8 - zero(group, row) as i8));
            }
        }
        Ok(Tensor::from_slice([rows, columns], &values))
    }

    /// The numbers of a permutation of `0..columns`.
    ///
    /// # Errors
    /// If one is missing, in words that name the first that is wrong.
    pub fn order(permutation: &[i32], columns: usize) -> Result<Vec<usize>, String> {
        let mut seen = vec![false; columns];
        let order = permutation.iter().enumerate().map(|(position, &column)| {
            let index = usize::try_from(column).ok().filter(|&index| index < columns);
            index.filter(|&index| !std::mem::replace(&mut seen[index], true)).ok_or_else(|| {
                format!("permutation[{position}] is {column}, expected each number below {columns} once")
            })
        });
        order.collect()
    }

    fn expect_attributes(&self) -> Result<(), TypeError> {
        refuse_if!(self.bits != 4, "bits is {}, expected 4", self.bits);
        match self.group_size {
            Some(size) if size == 0 || !size.is_multiple_of(32) || size > u32::MAX as usize => {
                Err(type_error!("group_size is {size}, expected a positive multiple of 32"))
            }
            _ => Ok(()),
        }
    }

    /// The columns and groups of a weight.
    fn sizes(&self, weight: &Type) -> Result<(usize, usize), TypeError> {
        let expected = match self.group_size {
            Some(size) => format!("a whole number of groups of {} bytes", group_bytes(size)),
            None => "2 more than a multiple of 16".to_string(),
        };
        match weight.shape[0].as_static().and_then(|bytes| self.columns(bytes)) {
            Some(columns) => Ok((columns, self.group_size.map_or(1, |size| columns / size))),
            None => Err(type_error!("weight is {weight}, expected {expected} along its first axis")),
        }
    }
}

impl Define for GptqMatMul {
    declare!("gptq_matmul" { bits, group_size, desc_act, sym });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        self.expect_attributes()?;
        if inputs.len() != self.arity() {
            let (expected, got) = (self.arity(), inputs.len());
            return Err(type_error!("takes {expected} operands with these attributes, got {got}"));
        }
        let GptqOperands { x, weight, permutation, zeros } = self.operands(inputs);
        expect_dtype("x", x, &[DType::F16, DType::BF16, DType::F32])?;
        expect_dtype("weight", weight, &[DType::U8])?;
        expect_rank("weight", weight, 2)?;
        let (columns, groups) = self.sizes(weight)?;
        refuse_if!(
            *last_axis("x", x)? != Dim::from(columns),
            "inner axes differ: x {x}, weight {weight}, which holds {columns} columns"
        );
        let rows = &weight.shape[1];
        if let Some(permutation) = permutation {
            expect_type("permutation", permutation, DType::I32, &[&Dim::from(columns)])?;
        }
        if let Some(zeros) = zeros {
            let Some(words) = rows.as_static().filter(|rows| rows.is_multiple_of(8)).map(|rows| rows / 8)
            else {
                return Err(type_error!("weight is {weight}, expected a multiple of 8 rows with zeros"));
            };
            expect_type("zeros", zeros, DType::I32, &[&Dim::from(groups), &Dim::from(words)])?;
        }
        Ok(vec![x.with_shape(x.shape[..x.rank() - 1].iter().chain([rows]).cloned())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let operands = self.operands(inputs);
        let weight = self.dequantize(self.operands(inputs))?;
        let (columns, x, weight) = (weight.shape()[1], operands.x.to_f64_vec(), weight.to_f64_vec());
        let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
        let rows = x.chunks(columns).flat_map(|x| weight.chunks(columns).map(move |w| dot(x, w)));
        let values: Vec<f64> = rows.collect();
        Ok(vec![from_f64(operands.x.dtype(), outputs[0], &values)])
    }
}

/// The bytes of a group of one row: its codes and the scale.
fn group_bytes(size: usize) -> usize {
    size / 2 + 2
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;

    #[test]
    fn types() {
        let op = GptqMatMul::default();
        let inner =
            "gptq_matmul: inner axes differ: x bf16[n, 128], weight u8[132, 5], which holds 256 columns";
        check_types(
            op,
            &[
                (&["bf16[b, n, 256]", "u8[132, 5]"], "bf16[b, n, 5]"),
                (&["f32[n, 256]", "u8[132, m]"], "f32[n, m]"),
                (&["bf16[n, 128]", "u8[132, 5]"], inner),
                (&["f64[n, 256]", "u8[132, 5]"], "gptq_matmul: x is f64[n, 256], expected f16, bf16 or f32"),
                (&["f32[n, 256]", "i32[32, 5]"], "gptq_matmul: weight is i32[32, 5], expected u8"),
                (&["f32[n, 256]"], "gptq_matmul: takes 2 operands with these attributes, got 1"),
                (
                    &["f32[n, 0]", "u8[0, 5]"],
                    "gptq_matmul: weight is u8[0, 5], expected a whole number of groups of 66 bytes along its first axis",
                ),
                (
                    &["f32[n, 256]", "u8[130, 5]"],
                    "gptq_matmul: weight is u8[130, 5], expected a whole number of groups of 66 bytes along its first axis",
                ),
            ],
        );
        let whole = GptqMatMul { group_size: None, desc_act: true, sym: false, ..op };
        check_types(
            whole,
            &[
                (&["f32[n, 96]", "u8[50, 16]", "i32[96]", "i32[1, 2]"], "f32[n, 16]"),
                (
                    &["f32[n, 96]", "u8[50, 16]", "i32[95]", "i32[1, 2]"],
                    "gptq_matmul: permutation is i32[95], expected i32[96]",
                ),
                (
                    &["f32[n, 96]", "u8[50, 16]", "i32[96]", "i32[1, 3]"],
                    "gptq_matmul: zeros is i32[1, 3], expected i32[1, 2]",
                ),
                (
                    &["f32[n, 96]", "u8[50, 15]", "i32[96]", "i32[1, 2]"],
                    "gptq_matmul: weight is u8[50, 15], expected a multiple of 8 rows with zeros",
                ),
                (
                    &["f32[n, 96]", "u8[49, 16]", "i32[96]", "i32[1, 2]"],
                    "gptq_matmul: weight is u8[49, 16], expected 2 more than a multiple of 16 along its first axis",
                ),
            ],
        );
        let operands: &[&str] = &["f32[n, 256]", "u8[132, 5]"];
        check_types(GptqMatMul { bits: 3, ..op }, &[(operands, "gptq_matmul: bits is 3, expected 4")]);
        check_types(
            GptqMatMul { group_size: Some(48), ..op },
            &[(operands, "gptq_matmul: group_size is 48, expected a positive multiple of 32")],
        );
    }

    /// One row of 64 columns in groups of 32: code `j % 16` in column `j`, scales 1 and 2.
    fn weight() -> Tensor {
        let words = [0x7654_3210u32, 0xfedc_ba98].repeat(4);
        let scales = [1.0f32, 2.0].map(|scale| tensor::f16::from_f32(scale).to_le_bytes());
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.to_le_bytes()).chain(scales.concat()).collect();
        Tensor::from_slice([36, 1], &bytes)
    }

    fn unit(column: usize) -> Tensor {
        Tensor::from_slice([1, 64], &std::array::from_fn::<f32, 64, _>(|j| f32::from(j == column)))
    }

    #[test]
    fn codes_scales_and_zeros() {
        let op = GptqMatMul { group_size: Some(32), ..GptqMatMul::default() };
        let entry = |column| numbers(op, &[&unit(column), &weight()])[0];
        assert_eq!(
            [0, 7, 8, 15, 16, 31, 32, 33, 63].map(entry),
            [-8., -1., 0., 7., -8., 7., -16., -14., 14.]
        );
        // Eight rows, the zero points of which are 1 to 8, then 8 to 15.
        let op = GptqMatMul { sym: false, ..op };
        let one = weight().bytes().to_vec();
        let (codes, scales) = one.split_at(32);
        let rows = |bytes: &[u8], size: usize| -> Vec<u8> {
            bytes.chunks(size).flat_map(|item| item.repeat(8)).collect()
        };
        let weight = Tensor::from_slice([36, 8], &[rows(codes, 4), rows(scales, 2)].concat());
        let zeros = Tensor::from_slice([2, 1], &[0x7654_3210i32, 0xedcb_a987u32 as i32]);
        assert_eq!(numbers(op, &[&unit(1), &weight, &zeros]), [0., -1., -2., -3., -4., -5., -6., -7.]);
        assert_eq!(numbers(op, &[&unit(63), &weight, &zeros]), [14., 12., 10., 8., 6., 4., 2., 0.]);
    }

    #[test]
    fn permuted_columns_take_the_scale_of_their_place() {
        let op = GptqMatMul { group_size: Some(32), desc_act: true, ..GptqMatMul::default() };
        let order: [i32; 64] = std::array::from_fn(|j| 63 - j as i32);
        let permutation = Tensor::from_slice([64], &order);
        assert_eq!(numbers(op, &[&unit(0), &weight(), &permutation]), [7.0]);
        assert_eq!(numbers(op, &[&unit(63), &weight(), &permutation]), [-16.0]);
        let twice = Tensor::from_slice([64], &order.map(|j| j.max(1)));
        let error = run(op, &[&unit(0), &weight(), &twice]).unwrap_err();
        let expected = "permutation[63] is 1, expected each number below 64 once";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
}
