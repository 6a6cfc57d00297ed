//! Ops that do what ops must not do.

use perihelion_extension::{Call, DType, Op, Operand, Types, extension};

macro_rules! op {
    ($op:ident, $name:literal, |$types:ident| $infer:expr, |$call:ident| $run:expr) => {
        struct $op;

        impl Op for $op {
            const NAME: &'static str = $name;
            const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];

            fn infer($types: &mut Types<'_>) -> Result<(), String> {
                $infer
            }

            fn run($call: &mut Call<'_>) -> Result<(), String> {
                $run
            }
        }
    };
}

/// The operand, doubled.
fn double(call: &mut Call<'_>) -> Result<(), String> {
    let (x, y) = (call.operand::<f32>(0)?, call.result::<f32>(0)?);
    y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
    Ok(())
}

op!(Panics, "panics", |types| types.set_like(0, 0), |call| {
    let x = call.operand::<f32>(0)?;
    assert!(x[0] >= 0.0, "{} is negative", x[0]);
    double(call)
});
op!(ThreadPanics, "thread_panics", |types| types.set_like(0, 0), |call| {
    call.parallel_for(8, |i| assert_ne!(i, 5, "the sixth chunk"));
    Ok(())
});
op!(InferPanics, "infer_panics", |types| panic!("{} operands", types.operand_count()), |call| double(call));
op!(Refuses, "refuses", |types| types.set_like(0, 0), |call| Err(format!("{:?} is too much", call.shape(0))));
op!(Silent, "silent", |types| types.set_like(0, 0), |_call| Err(String::new()));
op!(Talks, "talks", |types| types.set_like(0, 0), |_call| Err("ä".repeat(5000)));
op!(LiesAboutShape, "lies_about_shape", |types| types.set(0, DType::F32, &[7, 7]), |call| double(call));
op!(LiesAboutDType, "lies_about_dtype", |types| types.set(0, DType(9), types.shape(0)), |call| double(call));
op!(WrongType, "wrong_type", |types| types.set_like(0, 0), |call| call.operand::<i64>(0).map(|_| ()));
op!(Twice, "twice", |types| types.set_like(0, 0), |call| {
    call.result::<f32>(0)?;
    call.result::<f32>(0).map(|_| ())
});
op!(NoSuchOperand, "no_such_operand", |types| types.set_like(0, 0), |call| {
    call.operand::<f32>(3).map(|_| ())
});
op!(Overruns, "overruns", |types| types.set_like(0, 0), |call| {
    let y = call.result::<f32>(0)?;
    // SAFETY: there is none: this is what guards are for.
    unsafe { y.as_mut_ptr().add(y.len()).write(1.0) };
    Ok(())
});
op!(Underruns, "underruns", |types| types.set_like(0, 0), |call| {
    let y = call.result::<f32>(0)?;
    // SAFETY: as above.
    unsafe { y.as_mut_ptr().sub(1).write(1.0) };
    Ok(())
});

op!(Scribbles, "scribbles", |types| types.set_like(0, 0), |call| {
    let x = call.operand::<f32>(0)?;
    // SAFETY: as above.
    unsafe { x.as_ptr().cast_mut().add(1).write(7.0) };
    double(call)
});
op!(LiesAboutElements, "lies_about_elements", |types| types.set(0, DType::F64, types.shape(0)), |call| double(call));

extension! {
    name: "faulty",
    version: "0",
    ops: [
        Panics, ThreadPanics, InferPanics, Refuses, Silent, Talks, LiesAboutShape, LiesAboutDType, WrongType, Twice,
        NoSuchOperand, Overruns, Underruns, Scribbles, LiesAboutElements,
    ]
}
