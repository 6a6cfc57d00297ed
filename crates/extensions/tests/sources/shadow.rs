//! An op that stands for a built-in one, and shows that it does.

use perihelion_extension::{Call, Op, Operand, Types, extension};

/// `x + 1000` under the name of a function that graphs have anyway.
struct Silu;

impl Op for Silu {
    const NAME: &'static str = "silu";
    const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];

    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        types.set_like(0, 0)
    }

    fn run(call: &mut Call<'_>) -> Result<(), String> {
        let (x, y) = (call.operand::<f32>(0)?, call.result::<f32>(0)?);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1000.0);
        Ok(())
    }
}

/// The name of an op whose operands are others.
struct Concat;

impl Op for Concat {
    const NAME: &'static str = "concat";
    const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];

    fn run(_call: &mut Call<'_>) -> Result<(), String> {
        Err("nobody calls this".to_string())
    }
}

extension! { name: "shadow", version: "1.0", ops: [Silu, Concat] }
