//! Ops that libraries bring: a name, the types of the results as the graph states them, and parameters.
//!
//! What such an op computes is known to its library alone. What it takes and gives, a [`CustomSignature`] says.

use std::ops::RangeInclusive;

use super::attributes::Attribute;
use super::define::Effect;
use super::prelude::*;
use crate::Kind;

/// Attributes of the op itself, which parameters cannot be called.
const RESERVED: [&str; 4] = ["op", "results", "reads", "writes"];

/// An op of a library: any operands → results of the types stated. Its results depend on operands and parameters
/// alone.
///
/// Prints as `custom {op = leaky_relu, results = [f32[n]], slope = 0.1}`, or, where operands are buffers, as
/// `inplace_custom` with their positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Custom {
    /// What libraries are searched for.
    pub op: String,
    /// The types of the results.
    pub results: Vec<Type>,
    /// The positions of the buffers that it only reads.
    pub reads: Vec<usize>,
    /// The positions of the buffers that it changes.
    pub writes: Vec<usize>,
    /// What it is told besides its operands.
    pub parameters: Attributes,
}

/// What an op of a library takes and gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomSignature {
    /// Where the op is from, for messages.
    pub library: String,
    /// The name of each operand, and what the op does to it.
    pub operands: Vec<(String, Effect)>,
    /// Whether the last operand, a tensor, may come any number of times, also none.
    pub variadic: bool,
    /// How many results there may be.
    pub results: RangeInclusive<usize>,
    /// The parameters.
    pub parameters: Vec<CustomParameter>,
}

/// What an op of a library is told besides its operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomParameter {
    /// The name.
    pub name: String,
    /// What it can be.
    pub kind: ParameterKind,
    /// Whether it must be given.
    pub required: bool,
}

/// What a parameter can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Text.
    Text,
    /// A dtype.
    DType,
    /// Whole numbers.
    Ints,
}

/// Where ops are looked up: libraries that are loaded.
pub trait CustomOps {
    /// What the op with a name takes and gives, if there is one.
    fn signature(&self, op: &str) -> Option<CustomSignature>;

    /// The libraries that are searched, for messages.
    fn searched(&self) -> Vec<String>;

    /// What the op with a name takes and gives.
    ///
    /// # Errors
    /// If no library has it; names the libraries.
    fn find(&self, op: &str) -> Result<CustomSignature, TypeError> {
        self.signature(op).ok_or_else(|| {
            let searched = self.searched();
            let place = if searched.is_empty() {
                "no extensions are loaded".to_string()
            } else {
                format!("searched: {}", searched.join(", "))
            };
            type_error!("unknown op `{op}` ({place})")
        })
    }
}

impl Custom {
    /// The op of a library with results of these types and these parameters.
    ///
    /// # Errors
    /// If no library has it, or it does not fit operands of these types, with the two facts that disagree.
    pub fn new(
        ops: &dyn CustomOps,
        op: &str,
        inputs: &[&Type],
        results: Vec<Type>,
        parameters: Attributes,
    ) -> Result<Custom, TypeError> {
        let signature = ops.find(op)?;
        let positions = |effect| {
            let has = |&position: &usize| signature.effect(position) == effect;
            (0..inputs.len()).filter(has).collect()
        };
        let (reads, writes) = (positions(Effect::Read), positions(Effect::Write));
        let custom = Custom { op: op.to_string(), results, reads, writes, parameters };
        signature.check(&custom, inputs)?;
        Ok(custom)
    }
}

impl CustomSignature {
    /// Checks that parameters can be told from what else is printed with an op.
    ///
    /// # Errors
    /// If one is called as an attribute of the op itself.
    pub fn check_names(&self) -> Result<(), TypeError> {
        match self.parameters.iter().find(|parameter| RESERVED.contains(&&parameter.name[..])) {
            None => Ok(()),
            Some(other) => Err(type_error!("a parameter cannot be named `{}`", other.name)),
        }
    }

    /// Checks an op, as it stands in a graph, against this.
    ///
    /// # Errors
    /// If the number of operands or results differs, an operand is a buffer and should not be or the other way
    /// round, or a parameter is missing, unknown, or of another kind.
    pub fn check(&self, custom: &Custom, inputs: &[&Type]) -> Result<(), TypeError> {
        let refuse = |message: String| Err(type_error!("`{}` of {}: {message}", custom.op, self.library));
        let fixed = self.operands.len() - usize::from(self.variadic);
        if inputs.len() < fixed || (inputs.len() > fixed && !self.variadic) {
            let names: Vec<&str> = self.operands.iter().map(|(name, _)| &name[..]).collect();
            let more = if self.variadic { "at least " } else { "" };
            let expected = format!("{more}{fixed} operands ({})", names.join(", "));
            return refuse(format!("takes {expected}, got {}", inputs.len()));
        }
        if !self.results.contains(&custom.results.len()) {
            let (least, most) = (self.results.start(), self.results.end());
            let range = if least == most { format!("{least}") } else { format!("{least} to {most}") };
            return refuse(format!("gives {range} results, the graph states {}", custom.results.len()));
        }
        for (position, ty) in inputs.iter().enumerate() {
            let expected = self.effect(position);
            let is_buffer = ty.kind == Kind::Buffer;
            if is_buffer != (expected != Effect::None) || custom.effect(position) != expected {
                let name = self.operand(position).map_or("", |(name, _)| &name[..]);
                let wanted = describe(expected);
                return refuse(format!("operand {position} ({name}) is {ty}, expected {wanted}"));
            }
        }
        self.check_parameters(&custom.parameters).or_else(refuse)
    }

    fn check_parameters(&self, given: &Attributes) -> Result<(), String> {
        for (i, (name, value)) in given.iter().enumerate() {
            let declared = self.parameters.iter().find(|parameter| parameter.name == name);
            let Some(parameter) = declared else { return Err(format!("there is no parameter `{name}`")) };
            if given.iter().take(i).any(|(other, _)| other == name) {
                return Err(format!("the parameter `{name}` is given twice"));
            }
            if !parameter.kind.admits(value) {
                let expected = parameter.kind.describe();
                return Err(format!("the parameter `{name}` is {value}, expected {expected}"));
            }
        }
        let is_given = |name: &str| given.iter().any(|(other, _)| other == name);
        match self.parameters.iter().find(|parameter| parameter.required && !is_given(&parameter.name)) {
            None => Ok(()),
            Some(parameter) => Err(format!("the parameter `{}` is missing", parameter.name)),
        }
    }

    /// What the op does to an operand.
    fn effect(&self, position: usize) -> Effect {
        self.operand(position).map_or(Effect::None, |&(_, effect)| effect)
    }

    /// What is declared at a position; the last one stands for all behind it.
    fn operand(&self, position: usize) -> Option<&(String, Effect)> {
        self.operands.get(position).or_else(|| self.operands.last().filter(|_| self.variadic))
    }
}

impl ParameterKind {
    /// Whether an attribute is of this kind. Whole numbers that an f64 holds are numbers.
    fn admits(self, value: &Attribute) -> bool {
        match value {
            Attribute::Bool(_) => self == ParameterKind::Bool,
            Attribute::Int(value) => match self {
                ParameterKind::Float => *value as f64 as i128 == i128::from(*value),
                kind => kind == ParameterKind::Int,
            },
            Attribute::Float(value) => self == ParameterKind::Float && value.is_finite(),
            Attribute::Text(_) => self == ParameterKind::Text,
            Attribute::DType(_) => self == ParameterKind::DType,
            Attribute::Ints(_) => self == ParameterKind::Ints,
            _ => false,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            ParameterKind::Bool => "true or false",
            ParameterKind::Int => "a whole number",
            ParameterKind::Float => "a finite f64",
            ParameterKind::Text => "text",
            ParameterKind::DType => "a dtype",
            ParameterKind::Ints => "a list of whole numbers",
        }
    }
}

fn describe(effect: Effect) -> &'static str {
    match effect {
        Effect::None => "a tensor",
        Effect::Read => "a buffer to read",
        Effect::Write => "a buffer to write",
    }
}

const NAMES: &[&str] = &["custom", "inplace_custom"];

impl Define for Custom {
    declare!(NAMES[|op| usize::from(!(op.reads.is_empty() && op.writes.is_empty()))] {
        op, results = Vec::new(), reads = Vec::new(), writes = Vec::new(), parameters
    });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let mut positions = [&self.reads[..], &self.writes].concat();
        positions.sort_unstable();
        let twice = positions.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        if let Some(position) = twice.or(positions.last().copied().filter(|&last| last >= inputs.len())) {
            let count = inputs.len();
            return Err(type_error!("operand {position} of {count} cannot be a buffer, or is named twice"));
        }
        Ok(self.results.clone())
    }

    /// The graph states it with their types.
    fn places_results(&self) -> bool {
        true
    }

    fn effect(&self, position: usize) -> Effect {
        match (self.reads.contains(&position), self.writes.contains(&position)) {
            (_, true) => Effect::Write,
            (true, false) => Effect::Read,
            (false, false) => Effect::None,
        }
    }

    fn reference(&self, _inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let message = format!("what `{}` computes is known to its library alone", self.op);
        Err(Error::evaluation(self.name(), message))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_types;
    use super::*;
    use crate::{Builder, Graph};

    struct Library;

    impl CustomOps for Library {
        fn signature(&self, op: &str) -> Option<CustomSignature> {
            let parameter =
                |name: &str, kind, required| CustomParameter { name: name.into(), kind, required };
            let plain = CustomSignature {
                library: "test 1".into(),
                operands: vec![("x".into(), Effect::None)],
                variadic: false,
                results: 1..=1,
                parameters: vec![
                    parameter("slope", ParameterKind::Float, true),
                    parameter("mode", ParameterKind::Text, false),
                    parameter("axes", ParameterKind::Ints, false),
                    parameter("to", ParameterKind::DType, false),
                    parameter("exact", ParameterKind::Bool, false),
                    parameter("times", ParameterKind::Int, false),
                ],
            };
            match op {
                "plain" => Some(plain),
                "append" => Some(CustomSignature {
                    operands: vec![
                        ("cache".into(), Effect::Write),
                        ("table".into(), Effect::Read),
                        ("x".into(), Effect::None),
                    ],
                    variadic: true,
                    results: 0..=1,
                    parameters: vec![],
                    ..plain
                }),
                _ => None,
            }
        }

        fn searched(&self) -> Vec<String> {
            vec!["test 1".into()]
        }
    }

    fn slope() -> Attributes {
        Attributes::default().with("slope", Attribute::Float(0.5))
    }

    #[test]
    fn graphs_with_custom_ops_round_trip() {
        let mut b = Builder::new("g");
        let f32 = |text: &str| text.parse::<Type>().unwrap();
        let x = b.input("x", f32("f32[n, 2]"));
        let cache = b.input("cache", f32("mut f32[n]"));
        let table = b.input("table", f32("mut i64[4]"));
        let parameters = slope()
            .with("mode", Attribute::Text("a b".into()))
            .with("axes", Attribute::Ints(vec![0, -1]))
            .with("to", Attribute::DType(tensor::DType::F16))
            .with("exact", Attribute::Bool(true))
            .with("times", Attribute::Int(-3));
        let results = vec![f32("f16[2*n, 2]")];
        let y = b.custom(&Library, "plain", &[x], results, parameters).unwrap();
        b.inplace_custom(&Library, "append", &[cache, table], vec![], Attributes::default()).unwrap();
        let inputs = [cache, table, x, x];
        let z = b
            .inplace_custom(&Library, "append", &inputs, vec![f32("bool[]")], Attributes::default())
            .unwrap();
        let graph = b.finish(&[y[0], z[0]]).unwrap();
        let text = "graph g(%x: f32[n, 2], %cache: mut f32[n], %table: mut i64[4]) {
  %0 = custom(%x) {op = plain, results = [f16[2*n, 2]], slope = 0.5, mode = \"a b\", axes = [0, -1], to = f16, exact = true, times = -3} : f16[2*n, 2]
  inplace_custom(%cache, %table) {op = append, reads = [1], writes = [0]}
  %1 = inplace_custom(%cache, %table, %x, %x) {op = append, results = [bool[]], reads = [1], writes = [0]} : bool[]
  return %0, %1
}
";
        assert_eq!(graph.to_string(), text);
        assert_eq!(Graph::parse(text).unwrap().to_string(), text);
        let f32 = |shape: &[usize]| Tensor::zeros(tensor::DType::F32, shape);
        let inputs = [f32(&[3, 2]), f32(&[3]), Tensor::zeros(tensor::DType::I64, [4])];
        let error = graph.evaluate(&inputs, &|_| None).unwrap_err().to_string();
        assert_eq!(error, "custom: what `plain` computes is known to its library alone");
    }

    #[test]
    fn numbers_keep_all_their_bits() {
        let numbers = [0.1, 1.0 / 3.0, f64::MAX, 5e-324, f64::from(0.1f32), 16777217.0, -0.0];
        let wholes = [i64::MIN, (1 << 53) + 1, i64::MAX];
        let mut b = Builder::new("g");
        let x = b.input("x", "f32[2]".parse().unwrap());
        let mut y = x;
        for (number, whole) in numbers.iter().zip(wholes.iter().cycle()) {
            let parameters = Attributes::default()
                .with("slope", Attribute::Float(*number))
                .with("times", Attribute::Int(*whole));
            let results = vec![b.ty(x).clone()];
            y = b.custom(&Library, "plain", &[y], results, parameters).unwrap()[0];
        }
        let graph = b.finish(&[y]).unwrap();
        let again = Graph::parse(&graph.to_string()).unwrap();
        let parameters = |graph: &Graph| -> Vec<Attributes> {
            let of = |op: &crate::Op| match op {
                crate::Op::Custom(custom) => custom.parameters.clone(),
                other => unreachable!("{} is not built here", other.name()),
            };
            graph.nodes().map(|(_, node)| of(&node.op)).collect()
        };
        assert_eq!(parameters(&again), parameters(&graph));
        for (parameters, number) in parameters(&again).iter().zip(numbers) {
            let (_, slope) = parameters.iter().next().unwrap();
            assert!(
                matches!(slope, Attribute::Float(value) if value.to_bits() == number.to_bits()),
                "{slope}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_at_construction() {
        let mut b = Builder::new("g");
        let f32: Type = "f32[2]".parse().unwrap();
        let x = b.input("x", f32.clone());
        let cache = b.input("cache", "mut f32[2]".parse().unwrap());
        let mut check =
            |op: &str, inputs: &[crate::Value], results: usize, parameters: Attributes, expected: &str| {
                let results = vec![f32.clone(); results];
                let call = if op == "append" { Builder::inplace_custom } else { Builder::custom };
                let error = call(&mut b, &Library, op, inputs, results, parameters).unwrap_err();
                let error = error.without_location().to_string();
                assert!(error.ends_with(expected), "{error}");
            };
        check("none", &[x], 1, slope(), "custom: unknown op `none` (searched: test 1)");
        check("plain", &[], 1, slope(), "custom: `plain` of test 1: takes 1 operands (x), got 0");
        check("plain", &[x, x], 1, slope(), "takes 1 operands (x), got 2");
        check(
            "append",
            &[cache],
            1,
            Attributes::default(),
            "takes at least 2 operands (cache, table, x), got 1",
        );
        check("plain", &[x], 2, slope(), "gives 1 results, the graph states 2");
        check(
            "append",
            &[cache, cache],
            2,
            Attributes::default(),
            "gives 0 to 1 results, the graph states 2",
        );
        check(
            "plain",
            &[cache],
            1,
            slope(),
            "custom: operand 0 is mut f32[2]; buffers are for `inplace_custom`",
        );
        check(
            "append",
            &[x, x],
            1,
            Attributes::default(),
            "inplace_custom: no operand is a buffer; use `custom`",
        );
        check(
            "append",
            &[x, cache],
            0,
            Attributes::default(),
            "operand 0 (cache) is f32[2], expected a buffer to write",
        );
        check("plain", &[x], 1, Attributes::default(), "the parameter `slope` is missing");
        check("plain", &[x], 1, slope().with("odd", Attribute::Int(1)), "there is no parameter `odd`");
        check(
            "plain",
            &[x],
            1,
            slope().with("slope", Attribute::Int(1)),
            "the parameter `slope` is given twice",
        );
        let cases = [
            ("times", Attribute::Float(1.5), "1.5, expected a whole number"),
            ("exact", Attribute::Int(1), "1, expected true or false"),
            ("mode", Attribute::Bool(true), "true, expected text"),
            ("to", Attribute::Text("f33".into()), "f33, expected a dtype"),
            ("axes", Attribute::Int(0), "0, expected a list of whole numbers"),
        ];
        for (name, value, expected) in cases {
            let expected = format!("the parameter `{name}` is {expected}");
            check("plain", &[x], 1, slope().with(name, value), &expected);
        }
        let no_floats =
            [(Attribute::Float(f64::INFINITY), "inf"), (Attribute::Int((1 << 53) + 1), "9007199254740993")];
        for (value, printed) in no_floats {
            let parameters = Attributes::default().with("slope", value);
            let expected = format!("the parameter `slope` is {printed}, expected a finite f64");
            check("plain", &[x], 1, parameters, &expected);
        }
    }

    #[test]
    fn types() {
        let custom = |reads: &[usize], writes: &[usize]| Custom {
            op: "any".into(),
            results: vec!["f32[n]".parse().unwrap()],
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            parameters: Attributes::default(),
        };
        check_types(custom(&[], &[]), &[(&["f16[2]"], "f32[n]"), (&[], "f32[n]")]);
        let fault = "inplace_custom: operand 1 of 1 cannot be a buffer, or is named twice";
        check_types(custom(&[], &[1]), &[(&["f16[2]", "mut f32[n]"], "f32[n]"), (&["f16[2]"], fault)]);
        let twice = "inplace_custom: operand 0 of 1 cannot be a buffer, or is named twice";
        check_types(custom(&[0], &[0]), &[(&["mut f32[n]"], twice)]);
    }
}
