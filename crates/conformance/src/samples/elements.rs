//! Problems of functions of elements, and of constants.

use tensor::{DType, Shape, Tensor};

use super::{FLOATS, INTEGERS, List, binary, rounding, unary};
use crate::Tolerance;
use crate::data::{SIZES, awkward, cast};
use graph::Op;
use graph::ops::*;

impl List {
    pub(super) fn constants(&mut self) {
        for size in [0, 1, 17] {
            let value = self.random.floats([size], 1.0);
            self.add(&format!("of {size}"), Constant::new(value), vec![], Tolerance::Exact);
        }
    }

    pub(super) fn unary(&mut self) {
        use Unary::*;
        for &function in Unary::ALL {
            if function == Not {
                let x = self.random.tensor(DType::Bool, [17], 1.0);
                self.add("", Not, vec![x], Tolerance::Exact);
                continue;
            }
            let tolerance = |dtype| match function {
                Abs | Ceil | Floor | Neg | Relu | Round | Trunc => Tolerance::Exact,
                Acos | Atanh | Cos | Erf | Gelu | GeluQuick | GeluTanh | Log | Log1p | Sin | Tanh => {
                    rounding(dtype, 1e-6)
                }
                _ => rounding(dtype, 1e-37),
            };
            for size in SIZES {
                let x = self.random.floats([size], 8.0);
                self.add("", function, vec![x], tolerance(DType::F32));
            }
            // Angles lose their meaning in f32 long before its end; limits of products with infinity are
            // not specified.
            let keep = |x: f32| match function {
                Cos | Sin => x.abs() < 1e4 || !x.is_finite(),
                Gelu | GeluQuick | GeluTanh | Silu => x != f32::NEG_INFINITY,
                _ => true,
            };
            for dtype in FLOATS {
                self.add(
                    "awkward",
                    function,
                    vec![awkward(dtype, |x| keep(cast_to(x, dtype)))],
                    tolerance(dtype),
                );
            }
            if [Abs, Neg, Relu].contains(&function) {
                for dtype in [DType::I8, DType::I32, DType::I64] {
                    let x = self.random.tensor(dtype, [17], 1.0);
                    self.add("", function, vec![x], Tolerance::Exact);
                }
            }
        }
    }

    pub(super) fn binary(&mut self) {
        for &function in Binary::ALL {
            let dtypes: Vec<DType> = match function {
                _ if function.is_logical() => vec![DType::Bool],
                _ => FLOATS.into_iter().chain(INTEGERS).collect(),
            };
            for dtype in dtypes {
                self.binary_of(function, dtype);
            }
            if !function.is_logical() && function != Binary::Pow {
                let x = awkward(DType::F32, |_| true);
                let n = x.elements();
                self.add("awkward", function, vec![x.reshape([n, 1]), x], Tolerance::Exact);
            }
        }
    }

    fn binary_of(&mut self, function: Binary, dtype: DType) {
        let shapes: [[&[usize]; 2]; 5] =
            [[&[17], &[17]], [&[3, 1, 15], &[16, 1]], [&[], &[1000]], [&[2, 16], &[2, 16]], [&[0, 3], &[3]]];
        for [a, b] in shapes {
            let mut x = self.random.tensor(dtype, Shape::new(a), 4.0);
            let mut y = self.random.tensor(dtype, Shape::new(b), 4.0);
            if function == Binary::Pow && dtype.is_float() {
                x = unary(Unary::Abs, &x);
            }
            if function == Binary::Pow && dtype.is_integer() {
                y = binary(Binary::Max, &y, &cast(&Tensor::scalar(0.0f32), dtype));
            }
            if [Binary::Div, Binary::FloorDiv, Binary::Mod].contains(&function) && dtype.is_integer() {
                // No zeros, and quotients other than 0.
                let one = cast(&Tensor::scalar(1.0f32), dtype);
                let three = cast(&Tensor::scalar(3.0f32), dtype);
                y = binary(Binary::Max, &binary(Binary::Div, &y, &three), &one);
            }
            let tolerance = if function == Binary::Pow { rounding(dtype, 1e-37) } else { Tolerance::Exact };
            self.add("", function, vec![x, y], tolerance);
        }
    }

    pub(super) fn select_and_cast(&mut self) {
        for dtype in [DType::F32, DType::I64, DType::U8, DType::F16] {
            let condition = self.random.tensor(DType::Bool, [5, 1], 1.0);
            let (a, b) = (self.random.tensor(dtype, [17], 1.0), self.random.tensor(dtype, [5, 17], 1.0));
            self.add("", Select, vec![condition, a, b], Tolerance::Exact);
        }
        let dtypes: Vec<DType> = FLOATS.into_iter().chain(INTEGERS).chain([DType::Bool]).collect();
        for &to in &dtypes {
            for &from in &dtypes {
                let x = if FLOATS.contains(&from) {
                    awkward(from, |_| true)
                } else {
                    self.random.tensor(from, [17], 1.0)
                };
                self.add(&format!("to {to}"), Cast { to }, vec![x], Tolerance::Exact);
            }
        }
        for to in DType::every().filter(|dtype| dtype.is_float8() || dtype.is_sub_byte()) {
            for from in FLOATS.into_iter().chain([DType::I8, DType::U32, DType::Bool, DType::F8E5M2]) {
                // As many elements as fill bytes.
                let x = self.random.tensor(from, [2, 300], 30.0);
                self.add(&format!("to {to}"), Cast { to }, vec![x], Tolerance::Exact);
            }
        }
    }

    pub(super) fn elementwise(&mut self) {
        let program = |text: &str| {
            let text = Attribute::Text(text.to_string());
            Op::parse("elementwise", Attributes::default().with("program", text)).expect("a program")
        };
        for size in SIZES {
            let [x, bias] = [&[3, size][..], &[size]].map(|shape| self.random.floats(Shape::new(shape), 4.0));
            let op = program("mul(x0, x1); add(t0, x2); gelu(t1); add(t2, x3); mul(t3, x0)");
            let scalar = Tensor::scalar(0.75f32);
            self.add("", op, vec![x, scalar, bias.clone(), bias], rounding(DType::F32, 1e-5));
        }
        for dtype in FLOATS {
            let x = awkward(dtype, |_| true);
            let op = program("neg(x0); max(t0, x1); less(x0, x1); select(t2, t1, x0); cast[bf16](t3)");
            let y = self.random.tensor(dtype, [x.elements(), 1], 4.0);
            self.add("awkward", op, vec![x, y], Tolerance::Exact);
        }
        for dtype in [DType::I8, DType::I64] {
            let [x, y] = [17, 1].map(|n| self.random.tensor(dtype, [n], 50.0));
            let op = program("mul(x0, x1); abs(t0); cast[u8](t1); cast[f32](t2)");
            self.add("", op, vec![x, y], Tolerance::Exact);
        }
        let [p, q] = [[4, 1], [1, 17]].map(|shape| self.random.tensor(DType::Bool, shape, 1.0));
        self.add("", program("and(x0, x1); not(t0); xor(t1, x0)"), vec![p, q], Tolerance::Exact);
    }
}

fn cast_to(value: f32, dtype: DType) -> f32 {
    cast(&Tensor::scalar(value), dtype).to_f32_vec()[0]
}
