//! Unary, binary, select and cast.

use graph::Op;
use graph::ops::{Attribute, Attributes, Binary, Cast, ElementSource, Select, Unary};
use tensor::{DType, Tensor};

use crate::problem::{
    FLOATS, Tolerance, check, check_refused, filled, integers, on_each_device, rounded, tame, wild,
};

/// Lengths around a vector, a block and a thread's chunk.
const LENGTHS: [usize; 8] = [0, 1, 15, 16, 17, 1000, 1025, 16 * 1024 + 3];

/// How many last bits a function of f32 may lose: its own formula and a vectorized `exp` of 1 ulp.
fn steps(function: Unary) -> f64 {
    match function {
        Unary::Abs | Unary::Ceil | Unary::Floor | Unary::Neg | Unary::Relu | Unary::Round | Unary::Trunc => {
            0.0
        }
        Unary::Not | Unary::Reciprocal | Unary::Sqrt => 0.5,
        Unary::Cos | Unary::Exp | Unary::Log | Unary::Rsqrt | Unary::Sin => 1.5,
        Unary::Acos | Unary::Log1p => 1.5,
        Unary::Atanh => 4.0,
        Unary::Sigmoid | Unary::Silu | Unary::Tanh => 4.0,
        Unary::Erf => 4.0,
        // The tails fall like exp(-x²/2), whose argument carries the rounding of x² with it.
        Unary::Gelu | Unary::GeluQuick | Unary::GeluTanh => 100.0,
    }
}

fn tolerance(function: Unary, dtype: DType) -> Tolerance {
    match (function, rounded(dtype, steps(function))) {
        // Where `tanh` is nearly -1 the definition itself cancels, and its f64 loses more than the kernel.
        (Unary::GeluTanh, Tolerance::Near { relative, .. }) => {
            // Half of the smallest f16 is a tie, which the last bit of an f32 decides.
            let absolute = if dtype == DType::F16 { 6e-8 } else { 1e-15 };
            Tolerance::Near { relative, absolute }
        }
        // Where `exp(-x)` is infinite, what would be subnormal becomes 0.
        (
            Unary::Sigmoid | Unary::Silu | Unary::Gelu | Unary::GeluQuick,
            Tolerance::Near { relative, absolute },
        ) => Tolerance::Near { relative, absolute: absolute.max(1e-36) },
        (_, tolerance) => tolerance,
    }
}

#[test]
fn unary() {
    for &function in Unary::ALL.iter().filter(|&&function| function != Unary::Not) {
        for dtype in FLOATS {
            for (seed, &len) in LENGTHS.iter().enumerate() {
                check(function, &[wild(dtype, &[len], seed as u64)], tolerance(function, dtype));
            }
        }
    }
}

#[test]
fn unary_of_integers_and_truth_values() {
    for function in [Unary::Abs, Unary::Neg, Unary::Relu] {
        for dtype in integers().filter(|dtype| dtype.is_signed_integer()) {
            check(function, &[wild(dtype, &[1000], 1)], Tolerance::Exact);
        }
    }
    check(Unary::Not, &[wild(DType::Bool, &[1000], 1)], Tolerance::Exact);
}

/// Pairs of shapes that broadcast.
const PAIRS: [(&[usize], &[usize]); 12] = [
    (&[17], &[17]),
    (&[3, 1000], &[3, 1000]),
    (&[5, 16], &[16]),
    (&[5, 16], &[5, 1]),
    (&[40, 1, 33], &[7, 33]),
    (&[1, 15], &[15, 1]),
    (&[], &[2, 3]),
    (&[2, 3], &[]),
    (&[0, 4], &[4]),
    (&[70, 300], &[1]),
    (&[2, 1, 3, 1], &[1, 4, 1, 5]),
    (&[], &[]),
];

#[test]
fn binary() {
    for &function in Binary::ALL {
        for dtype in FLOATS.into_iter().filter(|_| !function.is_logical()) {
            let tolerance = match function {
                Binary::Pow => rounded(dtype, 1.0),
                _ => rounded(dtype, 0.5),
            };
            for (x, y) in PAIRS {
                check(function, &[wild(dtype, x, 3), wild(dtype, y, 4)], tolerance);
            }
        }
    }
}

#[test]
fn binary_of_integers() {
    for &function in Binary::ALL.iter().filter(|function| !function.is_logical() && **function != Binary::Pow)
    {
        for dtype in integers() {
            for (x, y) in PAIRS {
                let y = match function {
                    // 1 and up, and of signed types the smallest number over -1.
                    Binary::Div | Binary::FloorDiv | Binary::Mod => filled(
                        dtype,
                        y,
                        &mut cycle([1.0, 3.0, 100.0, if dtype.is_signed_integer() { -1.0 } else { 2.0 }]),
                    ),
                    _ => wild(dtype, y, 4),
                };
                check(function, &[wild(dtype, x, 3), y], Tolerance::Exact);
            }
        }
    }
    let by_zero = Tensor::from_slice([3], &[1i32, 0, 2]);
    for function in [Binary::Div, Binary::FloorDiv, Binary::Mod] {
        let operands = [by_zero.clone(), by_zero.clone()];
        check_refused(function, &operands, &["operand 1", "divides by 0", "element 1"]);
    }
    for dtype in integers() {
        let powers = filled(dtype, &[17], &mut cycle([0.0, 1.0, 2.0, 5.0, 90.0]));
        check(Binary::Pow, &[wild(dtype, &[17], 3), powers], Tolerance::Exact);
    }
    let negative = Tensor::from_slice([2], &[1i32, -1]);
    check_refused(Binary::Pow, &[negative.clone(), negative], &["operand 1", "negative power", "element 1"]);
}

fn cycle<const N: usize>(values: [f64; N]) -> impl FnMut() -> f64 {
    let mut values = values.into_iter().cycle();
    move || values.next().expect("a cycle has no end")
}

#[test]
fn binary_of_truth_values() {
    for function in [Binary::And, Binary::Or, Binary::Xor, Binary::Equal, Binary::NotEqual] {
        for (x, y) in PAIRS {
            check(function, &[wild(DType::Bool, x, 3), wild(DType::Bool, y, 4)], Tolerance::Exact);
        }
    }
}

#[test]
fn select() {
    for &dtype in DType::ALL.iter().filter(|dtype| !dtype.is_block()) {
        for (x, y) in PAIRS {
            check(Select, &[wild(DType::Bool, x, 1), wild(dtype, y, 2), wild(dtype, x, 3)], Tolerance::Exact);
            check(
                Select,
                &[wild(DType::Bool, x, 1), wild(dtype, x, 2), wild(dtype, &[], 3)],
                Tolerance::Exact,
            );
        }
    }
}

#[test]
fn cast() {
    let targets = || DType::ALL.iter().copied().filter(|dtype| !dtype.is_block() && !dtype.is_float8());
    for &from in DType::ALL {
        for to in targets() {
            let last = if from.is_block() { 512 } else { 1000 };
            for shape in [&[last][..], &[35, last], &[0, last]] {
                check(Cast { to }, &[wild(from, shape, 5)], Tolerance::Exact);
            }
        }
    }
    check(Cast { to: DType::F32 }, &[tame(DType::F64, &[17], 1)], Tolerance::Exact);
}

fn program(text: &str) -> Op {
    let text = Attribute::Text(text.to_string());
    Op::parse("elementwise", Attributes::default().with("program", text)).unwrap()
}

/// A program gives the bits that its steps give one by one, whatever the sizes and the broadcasting.
#[test]
fn programs_are_their_steps() {
    for dtype in FLOATS {
        for shape in [&[0usize][..], &[1], &[511], &[513], &[3, 1000], &[40, 1025], &[2, 1, 16 * 1024 + 3]] {
            let last = *shape.last().unwrap();
            let [x, row] = [shape, &[last]].map(|shape| wild(dtype, shape, 3));
            let (scalar, one) = (wild(dtype, &[], 4), wild(dtype, &[1; 3][..shape.len()], 5));
            let mut column = shape.to_vec();
            *column.last_mut().unwrap() = 1;
            let column = wild(dtype, &column, 6);
            check_bits(
                &program(
                    "mul(x0, x1); add(t0, x2); gelu(t1); max(t2, x3); sub(t3, x4); less(t4, x0); select(t5, t4, t2)",
                ),
                &[x.clone(), scalar, row, one, column],
            );
            check_bits(&program("exp(x0); mul(t0, t0); tanh(t1)"), &[x]);
        }
    }
    let [x, y] = [1, 2].map(|seed| wild(DType::I32, &[70, 300], seed));
    check_bits(
        &program("mul(x0, x1); cast[f16](t0); sigmoid(t1); cast[u8](t2); not_equal(t3, t3); not(t4)"),
        &[x, y],
    );
    let [p, q] = [1, 2].map(|seed| wild(DType::Bool, &[1000], seed));
    check_bits(&program("and(x0, x1); cast[f64](t0); sqrt(t1)"), &[p, q]);
}

/// Large enough to be streamed past the caches.
#[test]
fn streamed_programs_are_their_steps() {
    let x = tame(DType::F32, &[(32 << 20) / 4 + 1000], 1);
    check_bits(&program("mul(x0, x1); silu(t0); add(t1, x0)"), &[x, Tensor::scalar(0.3f32)]);
}

/// Compares with the steps' own kernels on each device.
fn check_bits(op: &Op, inputs: &[Tensor]) {
    let Op::Elementwise(elementwise) = op else { panic!("{op:?} is no program") };
    on_each_device(&|solve| {
        let mut results: Vec<Tensor> = Vec::new();
        for step in &elementwise.program {
            let operands = step.operands.iter().map(|&source| match source {
                ElementSource::Operand(i) => inputs[i].clone(),
                ElementSource::Step(i) => results[i].clone(),
            });
            results.extend(solve(step.function.op(), &operands.collect::<Vec<_>>()));
        }
        let got = solve(op.clone(), inputs);
        assert!(got[0].bytes() == results.last().unwrap().bytes(), "{op:?} of {inputs:?}");
    });
    // Every way operands can lie, whose results `check` compares to the bit; how close the reference is, steps' own
    // tests say.
    check(op.clone(), inputs, Tolerance::OfLargest(f64::INFINITY));
}
