//! A custom op in one file: `x` where it is positive, else `slope · x`.
//!
//! Give this file where an extension is asked for; it is compiled when it is loaded.

use perihelion_extension::{Call, Op, Operand, Parameter, ParameterKind, Types, extension};

/// `f32[..]` → `f32[..]`.
struct LeakyRelu;

impl Op for LeakyRelu {
    const NAME: &'static str = "leaky_relu";
    const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];
    const PARAMETERS: &'static [Parameter] = &[Parameter::optional("slope", ParameterKind::Float)];

    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        types.set_like(0, 0)
    }

    fn run(call: &mut Call<'_>) -> Result<(), String> {
        let slope = call.parameters().float("slope").unwrap_or(0.01) as f32;
        let (x, y) = (call.operand::<f32>(0)?, call.result::<f32>(0)?);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = if x > 0.0 { x } else { slope * x };
        }
        Ok(())
    }
}

extension! { name: "leaky_relu", version: "1.0", ops: [LeakyRelu] }
