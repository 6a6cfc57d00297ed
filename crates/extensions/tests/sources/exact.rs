//! An op that shows its parameters: every bit of them counts.

use perihelion_extension::{Call, DType, Op, Operand, Parameter, ParameterKind, Types, extension};

/// `[number]` as f64, and `[whole]` as i64.
struct Parameters;

impl Op for Parameters {
    const NAME: &'static str = "parameters";
    const OPERANDS: &'static [Operand] = &[];
    const RESULTS: std::ops::RangeInclusive<u32> = 2..=2;
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::required("number", ParameterKind::Float),
        Parameter::required("whole", ParameterKind::Int),
    ];

    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        types.set(0, DType::F64, &[1])?;
        types.set(1, DType::I64, &[1])
    }

    fn run(call: &mut Call<'_>) -> Result<(), String> {
        let number = call.parameters().float("number").ok_or("no number")?;
        let whole = call.parameters().int("whole").ok_or("no whole number")?;
        call.result::<f64>(0)?[0] = number;
        call.result::<i64>(1)?[0] = whole;
        Ok(())
    }
}

extension! { name: "exact", version: "1.0", ops: [Parameters] }
