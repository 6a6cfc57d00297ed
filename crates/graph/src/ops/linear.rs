//! `y_i = epilogue(norm(x) · W_iᵀ + b_i)`: the linear layer of a network, with what fuses into it.

use super::prelude::*;
use super::rms_norm::normalize;
use super::unary::Unary;

/// Matrix products of one input with one or more weights, `[.., columns] · [rows, columns]ᵀ → [.., rows]`,
/// and what surrounds them. A plain linear layer is `Linear::default()`; passes set the rest.
///
/// Operands, in order: `x: f32[.., columns]`; the norm's weight `f32[columns]` if `norm`; the weights,
/// [rows_i, columns] of any float or block dtype; their biases `f32[rows_i]` if `bias`; `residual`, of the
/// first result's type, if `residual`. Results: `f32[.., rows_i]` for each weight; one if `gate`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    /// How many weights share the input.
    pub weights: usize,
    /// The `eps` of an RMS norm of `x` that comes first.
    pub norm: Option<f32>,
    /// Whether each weight has a bias.
    pub bias: bool,
    /// With two weights: the one result is `gate(y_0) · y_1`.
    pub gate: Option<Unary>,
    /// Without a gate: what is applied to every result, before a residual.
    pub activation: Option<Unary>,
    /// Whether a residual is added to the (one) result.
    pub residual: bool,
}

/// The operands of a [`Linear`] by role.
#[derive(Debug, Clone, Copy)]
pub struct LinearOperands<'a, T> {
    /// The input.
    pub x: &'a T,
    /// The weight of the norm.
    pub norm: Option<&'a T>,
    /// The weights.
    pub weights: &'a [T],
    /// The biases: none, or as many as weights.
    pub biases: &'a [T],
    /// What is added at the end.
    pub residual: Option<&'a T>,
}

impl Default for Linear {
    fn default() -> Linear {
        Linear { weights: 1, norm: None, bias: false, gate: None, activation: None, residual: false }
    }
}

impl Linear {
    /// How many operands there must be.
    pub fn arity(&self) -> usize {
        let weights = self.weights.saturating_mul(1 + usize::from(self.bias));
        weights.saturating_add(1 + usize::from(self.norm.is_some()) + usize::from(self.residual))
    }

    /// The parts of a kernel's name that describe a layer with weights of these dtypes, such as `q4_k`, `norm` and `silu`.
    pub fn label(&self, dtypes: &[DType]) -> Vec<String> {
        let dtypes: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
        let mut parts = vec![dtypes.join("+")];
        parts.extend(self.norm.map(|_| "norm".to_string()));
        parts.extend(self.bias.then(|| "bias".to_string()));
        let function = self.gate.or(self.activation);
        parts.extend(function.map(|function| crate::Op::from(function).name().to_string()));
        parts.extend(self.residual.then(|| "residual".to_string()));
        parts
    }

    /// The operands by role.
    ///
    /// # Panics
    /// If their number is not [`Linear::arity`].
    pub fn operands<'a, T>(&self, inputs: &'a [T]) -> LinearOperands<'a, T> {
        assert_eq!(inputs.len(), self.arity(), "operands of linear");
        let (x, rest) = inputs.split_first().expect("arity is at least 2");
        let (norm, rest) = rest.split_at(usize::from(self.norm.is_some()));
        let (weights, rest) = rest.split_at(self.weights);
        let (biases, residual) = rest.split_at(if self.bias { self.weights } else { 0 });
        LinearOperands { x, norm: norm.first(), weights, biases, residual: residual.first() }
    }
}

impl Define for Linear {
    declare!("linear" { weights = 1, norm, bias, gate, activation, residual });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        self.expect_attributes()?;
        if inputs.len() != self.arity() {
            let (expected, got) = (self.arity(), inputs.len());
            return Err(type_error!("takes {expected} operands with these attributes, got {got}"));
        }
        let operands = self.operands(inputs);
        let x = operands.x;
        expect_dtype("x", x, &[DType::F32])?;
        let columns = last_axis("x", x)?;
        if let Some(norm) = operands.norm {
            expect_type("norm", norm, DType::F32, &[columns])?;
        }
        let mut results = Vec::new();
        for weight in operands.weights {
            expect_weight("weight", weight)?;
            refuse_if!(weight.shape[1] != *columns, "inner axes differ: x {x}, weight {weight}");
            results.push(x.with_shape(x.shape[..x.rank() - 1].iter().chain([&weight.shape[0]]).cloned()));
        }
        for (bias, weight) in operands.biases.iter().zip(operands.weights) {
            expect_type("bias", bias, DType::F32, &[&weight.shape[0]])?;
        }
        if self.gate.is_some() {
            if results[0] != results[1] {
                let (gate, up) = (operands.weights[0], operands.weights[1]);
                return Err(type_error!("rows of gated weights differ: {gate}, {up}"));
            }
            results.truncate(1);
        }
        if let Some(residual) = operands.residual {
            expect_type("residual", residual, DType::F32, &results[0].shape.iter().collect::<Vec<&Dim>>())?;
        }
        Ok(results)
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let operands = self.operands(inputs);
        let columns = operands.x.shape().last().copied().expect("x has a last axis");
        let mut x = operands.x.to_f64_vec();
        if let (Some(eps), Some(norm)) = (self.norm, operands.norm) {
            let norm = norm.to_f64_vec();
            x = x.chunks_exact(columns.max(1)).flat_map(|row| normalize(row, &norm, eps)).collect();
        }
        let rows = operands.x.shape()[..operands.x.shape().rank() - 1].iter().product();
        let mut results: Vec<Vec<f64>> =
            operands.weights.iter().map(|weight| product(&x, rows, columns, weight)).collect();
        for (y, bias) in results.iter_mut().zip(operands.biases) {
            let bias = bias.to_f64_vec();
            y.iter_mut().zip(bias.iter().cycle()).for_each(|(y, bias)| *y += bias);
        }
        if let Some(gate) = self.gate {
            let up = results.pop().expect("two weights");
            results[0].iter_mut().zip(up).for_each(|(y, up)| *y = gate.evaluate(*y) * up);
        }
        if let Some(activation) = self.activation {
            results.iter_mut().flatten().for_each(|y| *y = activation.evaluate(*y));
        }
        if let Some(residual) = operands.residual {
            results[0].iter_mut().zip(residual.to_f64_vec()).for_each(|(y, residual)| *y += residual);
        }
        Ok(results.iter().zip(outputs).map(|(y, &shape)| from_f64(DType::F32, shape, y)).collect())
    }
}

impl Linear {
    fn expect_attributes(&self) -> Result<(), TypeError> {
        if self.weights == 0 {
            return Err(TypeError::new("weights is 0, expected at least 1"));
        }
        refuse_if!(self.gate.is_some() && self.weights != 2, "a gate takes 2 weights, got {}", self.weights);
        for (role, function) in [("gate", self.gate), ("activation", self.activation)] {
            refuse_if!(
                function == Some(Unary::Not),
                "{role} `not` takes truth values, expected a function of floats"
            );
        }
        if let (Some(gate), Some(activation)) = (self.gate, self.activation) {
            let (gate, activation) = (gate.name(), activation.name());
            return Err(type_error!("takes a gate or an activation, got {gate} and {activation}"));
        }
        refuse_if!(
            self.residual && self.weights != 1 && self.gate.is_none(),
            "a residual takes 1 result, got {}",
            self.weights
        );
        self.norm.map_or(Ok(()), expect_eps)
    }
}

/// `x` [rows, columns] times a weight [outputs, columns] transposed.
fn product(x: &[f64], rows: usize, columns: usize, weight: &Tensor) -> Vec<f64> {
    let outputs = weight.shape()[0];
    let weight = weight.to_f64_vec();
    let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).fold(0.0, |sum, (x, w)| sum + x * w);
    let mut y = Vec::with_capacity(rows * outputs);
    for row in 0..rows {
        let x = &x[row * columns..][..columns];
        y.extend((0..outputs).map(|output| dot(x, &weight[output * columns..][..columns])));
    }
    y
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers, run};
    use super::*;

    const PLAIN: Linear =
        Linear { weights: 1, norm: None, bias: false, gate: None, activation: None, residual: false };

    #[test]
    fn types() {
        check_types(
            PLAIN,
            &[
                (&["f32[b, tokens, 256]", "q4_k[64, 256]"], "f32[b, tokens, 64]"),
                (
                    &["f32[tokens, 8]", "f32[4, 9]"],
                    "linear: inner axes differ: x f32[tokens, 8], weight f32[4, 9]",
                ),
                (&["f16[tokens, 8]", "f32[4, 8]"], "linear: x is f16[tokens, 8], expected f32"),
                (&["f32[1, 8]", "i8[4, 8]"], "linear: weight is i8[4, 8], expected a float or block dtype"),
                (&["f32[1, 8]", "f32[8]"], "linear: weight is f32[8], expected 2 axes"),
                (
                    &["f32[1, 48]", "q8_0[4, 48]"],
                    "linear: weight is q8_0[4, 48], whose rows do not divide into blocks of 32",
                ),
                (&["f32[1, 8]"], "linear: takes 2 operands with these attributes, got 1"),
            ],
        );
        let all = Linear {
            weights: 2,
            norm: Some(1e-5),
            bias: true,
            gate: Some(Unary::Silu),
            residual: true,
            ..PLAIN
        };
        let x = ["f32[n, 8]", "f32[8]", "f16[4, 8]", "f16[4, 8]", "f32[4]", "f32[4]", "f32[n, 4]"];
        let with = |position: usize, ty: &'static str| {
            let mut types = x;
            types[position] = ty;
            super::super::testing::infer(all, &types)
        };
        assert_eq!(with(0, x[0]), "f32[n, 4]");
        assert_eq!(with(1, "f32[4]"), "linear: norm is f32[4], expected f32[8]");
        assert_eq!(with(3, "f16[5, 8]"), "linear: bias is f32[4], expected f32[5]");
        assert_eq!(with(5, "f32[4, 1]"), "linear: bias is f32[4, 1], expected f32[4]");
        assert_eq!(with(6, "f32[n, 5]"), "linear: residual is f32[n, 5], expected f32[n, 4]");
        let gated = Linear { weights: 2, gate: Some(Unary::Silu), ..PLAIN };
        let rows = "linear: rows of gated weights differ: f32[4, 8], f32[5, 8]";
        check_types(gated, &[(&["f32[1, 8]", "f32[4, 8]", "f32[5, 8]"], rows)]);
        let three = Linear { weights: 3, ..PLAIN };
        check_types(
            three,
            &[(&["f32[1, 8]", "f32[4, 8]", "f32[5, 8]", "f32[6, 8]"], "f32[1, 4], f32[1, 5], f32[1, 6]")],
        );
    }

    #[test]
    fn attributes_fit_together() {
        let cases = [
            (Linear { weights: 0, ..PLAIN }, "linear: weights is 0, expected at least 1"),
            (Linear { gate: Some(Unary::Silu), ..PLAIN }, "linear: a gate takes 2 weights, got 1"),
            (
                Linear { weights: 2, gate: Some(Unary::Not), ..PLAIN },
                "linear: gate `not` takes truth values, expected a function of floats",
            ),
            (
                Linear { activation: Some(Unary::Not), ..PLAIN },
                "linear: activation `not` takes truth values, expected a function of floats",
            ),
            (
                Linear { weights: 2, gate: Some(Unary::Silu), activation: Some(Unary::Relu), ..PLAIN },
                "linear: takes a gate or an activation, got silu and relu",
            ),
            (Linear { weights: 2, residual: true, ..PLAIN }, "linear: a residual takes 1 result, got 2"),
            (
                Linear { norm: Some(f32::NAN), ..PLAIN },
                "linear: eps is NaN, expected a finite number of at least 0",
            ),
            (
                Linear { weights: usize::MAX, bias: true, ..PLAIN },
                "linear: takes 18446744073709551615 operands with these attributes, got 1",
            ),
        ];
        for (linear, message) in cases {
            check_types(linear, &[(&["f32[1, 8]"], message)]);
        }
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice([2, 2], &[3.0f32, 4.0, 1.0, -1.0]);
        let [gate, up] =
            [[1.0f32, 0.0, 0.0, 1.0], [1.0, 1.0, 2.0, 0.0]].map(|w| Tensor::from_slice([2, 2], &w));
        assert_eq!(numbers(PLAIN, &[&x, &up]), [7.0, 6.0, 0.0, 2.0]);
        let bias = Tensor::from_slice([2], &[10.0f32, 20.0]);
        assert_eq!(numbers(Linear { bias: true, ..PLAIN }, &[&x, &up, &bias]), [17.0, 26.0, 10.0, 22.0]);
        assert_eq!(numbers(Linear { residual: true, ..PLAIN }, &[&x, &up, &x]), [10.0, 10.0, 1.0, 1.0]);
        let both = run(Linear { weights: 2, ..PLAIN }, &[&x, &gate, &up]).unwrap();
        assert_eq!(both[0].to_f64_vec(), [3.0, 4.0, 1.0, -1.0]);
        assert_eq!(both[1].to_f64_vec(), [7.0, 6.0, 0.0, 2.0]);
        let activated = Linear { activation: Some(Unary::Neg), ..PLAIN };
        assert_eq!(numbers(activated, &[&x, &up]), [-7.0, -6.0, 0.0, -2.0]);
        assert_eq!(numbers(Linear { residual: true, ..activated }, &[&x, &up, &x]), [-4.0, -2.0, 1.0, -3.0]);
        let gated = Linear { weights: 2, gate: Some(Unary::Relu), ..PLAIN };
        assert_eq!(numbers(gated, &[&x, &gate, &up]), [21.0, 24.0, 0.0, 0.0]);
        // Rows become (3, 4)/√12.5 and (1, -1), then times (2, 1).
        let norm = Tensor::from_slice([2], &[2.0f32, 1.0]);
        let normalized = numbers(Linear { norm: Some(0.0), ..PLAIN }, &[&x, &norm, &gate]);
        assert_close(&normalized, &[6.0 / 12.5f64.sqrt(), 4.0 / 12.5f64.sqrt(), 2.0, -1.0], 1e-7);
    }

    #[test]
    fn blocks_are_dequantized() {
        // A block of q8_0: the scale as f16 (0x3800 is 0.5), then 32 codes.
        let codes = (1..=32).map(|code: u8| if code == 32 { (-32i8) as u8 } else { code });
        let block: Vec<u8> = [0x00, 0x38].into_iter().chain(codes).collect();
        let weight = super::super::elements::from_bytes(DType::Q8_0, [1, 32].into(), &block);
        let x = Tensor::from_slice([1, 32], &[1.0f32; 32]);
        assert_eq!(numbers(PLAIN, &[&x, &weight]), [0.5 * (496.0 - 32.0)]);
    }
}
