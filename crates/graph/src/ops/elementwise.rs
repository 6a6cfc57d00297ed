//! Functions of elements one after another: a small program over operands that broadcast to one shape.

use std::fmt;
use std::str::FromStr;

use super::field::AttributeType;
use super::prelude::*;
use super::{Attribute, Binary, Cast, Op, Select, Unary};

/// A program whose steps are functions of elements; the result is that of the last step.
///
/// Each step means what its op means by itself, rounded to its own dtype, so a program gives the same bits as its
/// steps one by one. Text names operands `x0`, `x1`, … and steps `t0`, `t1`, …: the program of `gelu(x · a + b)` is
/// `"mul(x0, x1); add(t0, x2); gelu(t1)"`. Every operand is read, and every step but the last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Elementwise {
    /// What is computed, in order.
    pub program: Vec<ElementStep>,
}

/// One step of an [`Elementwise`] program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ElementStep {
    /// What is computed.
    pub function: ElementFunction,
    /// What it is computed from.
    pub operands: Vec<ElementSource>,
}

/// A function of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementFunction {
    /// Of one.
    Unary(Unary),
    /// Of two.
    Binary(Binary),
    /// One of two, as a third says.
    Select,
    /// In another dtype.
    Cast(DType),
}

/// Where a step finds an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementSource {
    /// Among the operands of the op.
    Operand(usize),
    /// The result of an earlier step.
    Step(usize),
}

impl ElementFunction {
    /// The function that an op computes, if it is one.
    pub fn of(op: &Op) -> Option<ElementFunction> {
        match *op {
            Op::Unary(function) => Some(ElementFunction::Unary(function)),
            Op::Binary(function) => Some(ElementFunction::Binary(function)),
            Op::Select(Select) => Some(ElementFunction::Select),
            Op::Cast(Cast { to }) if !to.is_sub_byte() => Some(ElementFunction::Cast(to)),
            _ => None,
        }
    }

    /// The op that computes it alone.
    pub fn op(self) -> Op {
        match self {
            ElementFunction::Unary(function) => function.into(),
            ElementFunction::Binary(function) => function.into(),
            ElementFunction::Select => Select.into(),
            ElementFunction::Cast(to) => Cast { to }.into(),
        }
    }
}

impl Elementwise {
    /// The type of each step's result.
    ///
    /// # Errors
    /// If a step's operands do not fit, or something is never read.
    pub fn types(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        self.expect_all_read(inputs.len())?;
        let mut types: Vec<Type> = Vec::with_capacity(self.program.len());
        for (position, step) in self.program.iter().enumerate() {
            let operands = step.operands.iter().map(|&source| match source {
                ElementSource::Operand(i) => inputs[i],
                ElementSource::Step(i) => &types[i],
            });
            let results = step.function.op().infer(&operands.collect::<Vec<_>>());
            let results = results.map_err(|error| type_error!("step {position}, {step}: {error}"))?;
            types.extend(results);
        }
        Ok(types)
    }

    /// Refuses references to what is not there, and operands and steps that nothing refers to.
    fn expect_all_read(&self, operands: usize) -> Result<(), TypeError> {
        let (mut operands_read, mut steps_read) = (vec![false; operands], vec![false; self.program.len()]);
        for (position, step) in self.program.iter().enumerate() {
            for &source in &step.operands {
                let read = match source {
                    ElementSource::Operand(i) => operands_read.get_mut(i),
                    ElementSource::Step(i) => steps_read[..position].get_mut(i),
                };
                let missing = || type_error!("step {position}, {step}: there is no {source} to read");
                *read.ok_or_else(missing)? = true;
            }
        }
        let Some(last) = steps_read.pop() else { return Err(TypeError::new("the program has no steps")) };
        debug_assert!(!last, "a step reads earlier ones only");
        let unread = |read: &[bool]| read.iter().position(|read| !read);
        match (unread(&operands_read), unread(&steps_read)) {
            (Some(i), _) => Err(type_error!("no step reads {}", ElementSource::Operand(i))),
            (_, Some(i)) => Err(type_error!("no step reads {}", ElementSource::Step(i))),
            _ => Ok(()),
        }
    }
}

impl Define for Elementwise {
    declare!("elementwise" { program });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        Ok(self.types(inputs)?.pop().into_iter().collect())
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let types: Vec<Type> =
            inputs.iter().map(|x| Type::new(x.dtype(), x.shape().iter().copied())).collect();
        let types = self
            .types(&types.iter().collect::<Vec<_>>())
            .map_err(|error| Error::evaluation("elementwise", error.to_string()))?;
        let mut results: Vec<Tensor> = Vec::with_capacity(self.program.len());
        for (step, ty) in self.program.iter().zip(types) {
            let operands = step.operands.iter().map(|&source| match source {
                ElementSource::Operand(i) => inputs[i],
                ElementSource::Step(i) => &results[i],
            });
            let shape = ty.static_shape().expect("tensors have sizes");
            let result = step.function.op().reference(&operands.collect::<Vec<_>>(), &[shape])?;
            results.extend(result);
        }
        Ok(results.pop().into_iter().collect())
    }
}

impl fmt::Display for ElementStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands: Vec<String> = self.operands.iter().map(ElementSource::to_string).collect();
        write!(f, "{}({})", self.function, operands.join(", "))
    }
}

impl fmt::Display for ElementFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementFunction::Cast(to) => write!(f, "cast[{to}]"),
            function => f.write_str(function.op().name()),
        }
    }
}

impl fmt::Display for ElementSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementSource::Operand(i) => write!(f, "x{i}"),
            ElementSource::Step(i) => write!(f, "t{i}"),
        }
    }
}

impl FromStr for ElementStep {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<ElementStep, TypeError> {
        let text = text.trim();
        let parts = text.strip_suffix(')').and_then(|text| text.split_once('('));
        let (function, operands) =
            parts.ok_or_else(|| type_error!("`{text}` is no step such as `add(x0, t0)`"))?;
        let operands = operands.split(',').map(|operand| operand.trim().parse()).collect::<Result<_, _>>()?;
        Ok(ElementStep { function: function.trim().parse()?, operands })
    }
}

impl FromStr for ElementFunction {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<ElementFunction, TypeError> {
        let unknown = || type_error!("`{text}` is no function of elements");
        if let Some(dtype) = text.strip_prefix("cast[") {
            let dtype = dtype.strip_suffix(']').and_then(|dtype| dtype.parse().ok());
            return dtype.map(ElementFunction::Cast).ok_or_else(unknown);
        }
        let known = Unary::NAMES.iter().chain(Binary::NAMES).chain(Select::NAMES).any(|&name| name == text);
        let op =
            Some(text).filter(|_| known).map(|name| Op::parse(name, Attributes::default())).transpose()?;
        op.as_ref().and_then(ElementFunction::of).ok_or_else(unknown)
    }
}

impl FromStr for ElementSource {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<ElementSource, TypeError> {
        let index = |prefix| text.strip_prefix(prefix).and_then(|digits| digits.parse().ok());
        let operand = index("x").map(ElementSource::Operand);
        operand
            .or_else(|| index("t").map(ElementSource::Step))
            .ok_or_else(|| type_error!("`{text}` is neither an operand such as `x0` nor a step such as `t0`"))
    }
}

/// The steps, one after another: `neg(x0); add(s0, x1)`.
impl AttributeType for Vec<ElementStep> {
    fn to_attribute(&self) -> Attribute {
        let steps: Vec<String> = self.iter().map(ElementStep::to_string).collect();
        Attribute::Text(steps.join("; "))
    }

    fn take(name: &str, attributes: &mut Attributes) -> Result<Option<Vec<ElementStep>>, TypeError> {
        let program = String::take(name, attributes)?;
        program.map(|program| program.split(';').map(str::parse).collect()).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;

    fn program(text: &str) -> Result<Op, TypeError> {
        Op::parse("elementwise", Attributes::default().with("program", Attribute::Text(text.to_string())))
    }

    #[test]
    fn types() {
        check_types(
            program("mul(x0, x1); add(t0, x2); gelu(t1)").unwrap(),
            &[
                (&["f32[n, 4]", "f32[]", "f32[4]"], "f32[n, 4]"),
                (&["f32[n, 1]", "f32[m]", "f32[1]"], "f32[n, m]"),
                (
                    &["f32[n]", "f32[m]", "f32[1]"],
                    "elementwise: step 0, mul(x0, x1): shapes do not broadcast: x f32[n], y f32[m]",
                ),
                (
                    &["f32[n]", "f32[n]", "f16[n]"],
                    "elementwise: step 1, add(t0, x2): dtypes differ: x f32[n], y f16[n]",
                ),
                (&["f32[n]", "f32[n]"], "elementwise: step 1, add(t0, x2): there is no x2 to read"),
                (&["f32[1]", "f32[1]", "f32[1]", "f32[1]"], "elementwise: no step reads x3"),
            ],
        );
        check_types(
            program("less(x0, x1); select(t0, x0, x1); cast[f16](t1)").unwrap(),
            &[(&["f32[n]", "f32[]"], "f16[n]")],
        );
        check_types(
            program("neg(t0)").unwrap(),
            &[(&[], "elementwise: step 0, neg(t0): there is no t0 to read")],
        );
        check_types(
            program("neg(x0); abs(x0); exp(t1)").unwrap(),
            &[(&["f32[2]"], "elementwise: no step reads t0")],
        );
    }

    #[test]
    fn text() {
        let text = "less(x0, x1); select(t0, x0, x1); cast[bf16](t1)";
        let op = program(&text.replace("; ", " ;  ")).unwrap();
        assert_eq!(op.attributes().iter().next().unwrap().1, &Attribute::Text(text.to_string()));
        for (text, message) in [
            ("", "`` is no step such as `add(x0, t0)`"),
            ("neg(x0);", "`` is no step such as `add(x0, t0)`"),
            ("neg x0", "`neg x0` is no step such as `add(x0, t0)`"),
            ("matmul(x0, x1)", "`matmul` is no function of elements"),
            ("cast(x0)", "`cast` is no function of elements"),
            ("cast[f99](x0)", "`cast[f99]` is no function of elements"),
            ("neg(y0)", "`y0` is neither an operand such as `x0` nor a step such as `t0`"),
            ("neg()", "`` is neither an operand such as `x0` nor a step such as `t0`"),
        ] {
            assert_eq!(program(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn values_are_rounded_at_each_step() {
        let x = Tensor::from_slice([2, 1], &[1.0f32, 3.0]);
        let y = Tensor::from_slice([2], &[0.5f32, -2.0]);
        let op = program("mul(x0, x1); relu(t0); add(t1, x0)").unwrap();
        assert_eq!(numbers(op, &[&x, &y]), [1.5, 1.0, 4.5, 3.0]);
        let third = Tensor::from_slice([1], &[1.0f32 / 3.0]);
        let through_f16 = numbers(program("cast[f16](x0); cast[f32](t0)").unwrap(), &[&third]);
        assert_eq!(through_f16, [f64::from(tensor::f16::from_f32(1.0 / 3.0))]);
        let zero = Tensor::scalar(0i32);
        let error = run(program("neg(x0); div(t0, x0)").unwrap(), &[&zero]).unwrap_err();
        assert_eq!(error.to_string(), "div: an integer is divided by 0");
    }
}
