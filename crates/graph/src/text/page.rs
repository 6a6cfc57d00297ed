//! `docs/reference/graph-text.md` tells the truth: its examples print as they read, and its table has every op with the
//! attributes that it asks for and the dtypes that its type rule accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};

use tensor::{DType, Tensor};

use crate::conformance::{Problem, kind, problems};
use crate::graph::infer;
use crate::ops::{Attribute, Attributes, Print, asked};
use crate::{Error, Module, Op, Type};

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/graph-text.md"));

/// Ops that the page describes in words: values, and what libraries compute.
const IN_WORDS: [&str; 4] = ["constant", "weight", "custom", "inplace_custom"];

/// A name on the page for a set of dtypes.
type Class = (&'static str, fn(DType) -> bool);

/// Sets of dtypes that have a name on the page.
const CLASSES: [Class; 10] = [
    ("plain", |dtype| !dtype.is_block()),
    ("number", is_number),
    ("number or bool", |dtype| is_number(dtype) || dtype == DType::Bool),
    ("signed number", |dtype| is_float(dtype) || dtype.is_signed_integer()),
    ("float", is_float),
    ("small float", |dtype| is_float(dtype) && dtype != DType::F64),
    ("half", |dtype| [DType::F16, DType::BF16].contains(&dtype)),
    ("index", |dtype| [DType::U32, DType::I32, DType::I64].contains(&dtype)),
    ("weight", |dtype| dtype.is_float() || dtype.is_block()),
    ("any", |_| true),
];

fn is_float(dtype: DType) -> bool {
    [DType::F16, DType::BF16, DType::F32, DType::F64].contains(&dtype)
}

fn is_number(dtype: DType) -> bool {
    is_float(dtype) || dtype.is_integer()
}

#[test]
fn examples_print_as_they_read() {
    let examples: Vec<&str> =
        PAGE.split("```graph\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 3, "{} examples", examples.len());
    for example in examples {
        let module = Module::parse(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        module.verify().unwrap();
        assert_eq!(module.to_string(), example);
    }
}

#[test]
fn the_table_has_every_op() {
    let mut table = String::from("| op | operands | attributes |\n|---|---|---|\n");
    for (names, operands, attributes) in rows() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        table += &format!("| {} | {operands} | {attributes} |\n", names.join(", "));
    }
    assert!(PAGE.contains(&table), "the table of graph-text.md should be:\n{table}");
    for name in IN_WORDS {
        assert!(PAGE.contains(&format!("`{name}`")), "{name} is not on the page");
    }
}

type Sample = (Op, Vec<Type>);

/// The names of an op that have operands and attributes in common, and what these are, in the order of [`Op::names`].
fn rows() -> Vec<(Vec<&'static str>, String, String)> {
    let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for Problem { op, inputs, .. } in problems() {
        let ty = |(i, x): (usize, &Tensor)| Type {
            kind: kind(&op, i),
            ..Type::new(x.dtype(), x.shape().iter().copied())
        };
        let types = inputs.iter().enumerate().map(ty).collect();
        samples.entry(op.name()).or_default().push((op, types));
    }
    let print = Print { label: "label".to_string(), text: None };
    samples.insert("print", vec![(print.into(), vec!["f32[2]".parse().unwrap()])]);
    let mut rows: Vec<(Discriminant<Op>, Vec<&'static str>, String, String)> = Vec::new();
    for name in Op::names().filter(|name| !IN_WORDS.contains(name)) {
        let samples = &samples[name];
        let (op, operands, attributes) =
            (discriminant(&samples[0].0), operands(samples), attributes(name, samples));
        let alike =
            |row: &&mut (_, Vec<_>, String, String)| (row.0, &row.2, &row.3) == (op, &operands, &attributes);
        match rows.iter_mut().find(alike) {
            Some((_, names, ..)) => names.push(name),
            None => rows.push((op, vec![name], operands, attributes)),
        }
    }
    rows.into_iter().map(|(_, names, operands, attributes)| (names, operands, attributes)).collect()
}

/// The attributes that an op asks for, in that order: `axis`: a whole number. Those in brackets may be left out.
fn attributes(name: &str, samples: &[Sample]) -> String {
    asked::take();
    samples.iter().for_each(|(op, _)| drop(Op::parse(name, op.attributes()).unwrap()));
    let cell = |(attribute, kind): (String, &str)| {
        let text = format!("`{attribute}`: {kind}");
        let must = samples.iter().all(|(op, _)| is_required(op, &attribute));
        if must { text } else { format!("[{text}]") }
    };
    asked::take().into_iter().map(cell).collect::<Vec<_>>().join(", ")
}

/// Whether an op has an attribute and does not parse without it.
fn is_required(op: &Op, name: &str) -> bool {
    let others = op.attributes();
    let others = others.iter().filter(|&(other, _)| other != name);
    let others: Attributes = others
        .fold(Attributes::default(), |all, (name, value): (&str, &Attribute)| all.with(name, value.clone()));
    Op::parse(op.name(), others).is_err()
}

/// The dtypes of the operands: those that are T are the same.
fn operands(samples: &[Sample]) -> String {
    match &samples[0].0 {
        Op::Elementwise(_) => return "as its program reads them".to_string(),
        op if !op.regions().is_empty() => return "as its graphs take them".to_string(),
        _ => {}
    }
    let least = samples.iter().map(least_operands).min().expect("a sample");
    let most = samples.iter().map(|(_, types)| types.len()).max().expect("a sample");
    let mut cells: Vec<String> = Vec::new();
    let mut shared: BTreeSet<DType> = BTreeSet::new();
    for position in 0..most {
        let having: Vec<&Sample> = samples.iter().filter(|(_, types)| types.len() > position).collect();
        let all = |together| -> BTreeSet<DType> {
            having.iter().flat_map(|sample| accepted(sample, position, together)).collect()
        };
        let (alone, together) = (all(false), all(true));
        let is_free = having.iter().any(|sample| accepted(sample, position, false).len() > 1);
        let cell = if is_free || together.len() <= 1 { class(&alone) } else { "T".to_string() };
        if cell == "T" {
            shared.extend(&together);
        }
        cells.push(if position < least { cell } else { format!("[{cell}]") });
    }
    match shared.is_empty() {
        true => cells.join(", "),
        false => format!("{}; T: {}", cells.join(", "), class(&shared)),
    }
}

/// With how few of a sample's operands its op is content.
fn least_operands((op, types): &Sample) -> usize {
    let fits = |count: &usize| infer(op, &types[..*count].iter().collect::<Vec<_>>()).is_ok();
    (0..=types.len()).find(fits).expect("a sample fits its op")
}

/// The dtypes that an op accepts of an operand, or of all that have its dtype.
fn accepted((op, types): &Sample, position: usize, together: bool) -> Vec<DType> {
    let given = types[position].dtype;
    let accepts = |dtype: DType| {
        let with = |(i, ty): (usize, &Type)| match i == position || (together && ty.dtype == given) {
            true => Type { dtype, ..ty.clone() },
            false => ty.clone(),
        };
        let types: Vec<Type> = types.iter().enumerate().map(with).collect();
        let results: Result<Vec<Type>, Error> = infer(op, &types.iter().collect::<Vec<_>>());
        results.is_ok()
    };
    DType::ALL.iter().copied().filter(|&dtype| accepts(dtype)).collect()
}

/// A class of dtypes, or their names.
fn class(dtypes: &BTreeSet<DType>) -> String {
    let is = |belongs: fn(DType) -> bool| {
        DType::ALL.iter().all(|&dtype| belongs(dtype) == dtypes.contains(&dtype))
    };
    match CLASSES.iter().find(|(_, belongs)| is(*belongs)) {
        Some((name, _)) => name.to_string(),
        None => dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join("/"),
    }
}
