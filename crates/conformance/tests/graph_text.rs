//! Checks `docs/reference/graph-text.md`: its examples print as they read, and its table has every op with its attributes
//! and the dtypes that its type rule accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use graph::ops::{
    Attribute, Attributes, Call, Conv, CreateBuffer, FilterLayout, Fold, ImageLayout, Print, Rebind, Unary,
    Windows,
};
use graph::{DeviceRef, Graph, Module, Op, Type, dims};
use perihelion_conformance::problems;
use tensor::DType;

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
    for problem in problems() {
        let types = problem.types();
        samples.entry(problem.op.name()).or_default().push((problem.op, types));
    }
    // Ops and attributes that no problem has.
    let mut add = |op: Op, types: &[&str]| {
        let types = types.iter().map(|ty| ty.parse().unwrap()).collect();
        samples.entry(op.name()).or_default().push((op, types));
    };
    let label = "label".to_string();
    add(Print { label: label.clone(), text: None }.into(), &["f32[2]"]);
    add(Print { label, text: Some("text".to_string()) }.into(), &[]);
    add(Call { graph: Arc::new(Graph::new("g")), prefix: "block.".to_string() }.into(), &[]);
    let create = CreateBuffer { dtype: DType::F32, shape: dims![2].to_vec(), device: DeviceRef::Gpu(0) };
    add(create.into(), &[]);
    let (shape, symbols) = (dims!["k", 2].to_vec(), vec!["k".to_string()]);
    add(Rebind { shape, symbols, message: Some("message".to_string()) }.into(), &["f32[3, 2]"]);
    let windows = Windows::new(2).with_strides([2, 1]).with_dilations([1, 2]).with_padding(&[1, 0]);
    add(Fold { size: dims![5, 5].to_vec(), window: vec![2, 2], windows }.into(), &["f32[1, 4, 9]"]);
    let windows = Windows::new(3).with_strides([2, 1, 1]).with_dilations([1, 2, 1]).with_padding(&[1, 0, 0]);
    let (layout, filter_layout) = (ImageLayout::ChannelsFirst, FilterLayout::Fcrs);
    let conv = Conv { windows, groups: 2, layout, filter_layout, activation: Some(Unary::Relu) };
    add(conv.into(), &["f32[1, 4, 4, 4, 4]", "f32[2, 2, 2, 2, 2]"]);
    let mut rows: Vec<(Discriminant<Op>, Vec<&'static str>, String, String)> = Vec::new();
    for name in Op::names().filter(|name| !IN_WORDS.contains(name)) {
        let samples = &samples[name];
        let (op, operands, attributes) =
            (discriminant(&samples[0].0), operands(samples), attributes(samples));
        let alike =
            |row: &&mut (_, Vec<_>, String, String)| (row.0, &row.2, &row.3) == (op, &operands, &attributes);
        match rows.iter_mut().find(alike) {
            Some((_, names, ..)) => names.push(name),
            None => rows.push((op, vec![name], operands, attributes)),
        }
    }
    rows.into_iter().map(|(_, names, operands, attributes)| (names, operands, attributes)).collect()
}

/// The attributes of an op in the order they print: `axis`: a whole number. Those in brackets may be left out.
fn attributes(samples: &[Sample]) -> String {
    let mut lists: Vec<Attributes> = samples.iter().map(|(op, _)| op.attributes()).collect();
    lists.sort_by_key(|list| std::cmp::Reverse(list.iter().count()));
    let mut names: Vec<String> = Vec::new();
    for list in &lists {
        let mut next = 0;
        for (name, _) in list.iter() {
            let known = names.iter().position(|other| other == name);
            next = known.unwrap_or_else(|| {
                names.insert(next, name.to_string());
                next
            }) + 1;
        }
    }
    let cell = |name: &String| {
        let has = |(op, _): &&Sample| op.attributes().iter().any(|(other, _)| other == name);
        let text = format!("`{name}`: {}", kind(&samples.iter().find(has).unwrap().0, name));
        let must = samples.iter().all(|(op, _)| is_required(op, name));
        if must { text } else { format!("[{text}]") }
    };
    names.iter().map(cell).collect::<Vec<_>>().join(", ")
}

/// The values that an attribute of an op can have, as errors state them: `a whole number`.
fn kind(op: &Op, name: &str) -> String {
    let error = |value: Attribute| {
        let replaced = op.attributes().iter().fold(Attributes::default(), |all, (other, old)| {
            all.with(other, if other == name { value.clone() } else { old.clone() })
        });
        Op::parse(op.name(), replaced).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let expected = |error: &str, start: &str| error.strip_prefix(start).map(str::to_string);
    let of = |value: Attribute| {
        expected(&error(value.clone()), &format!("attribute `{name}` is {value}, expected "))
    };
    let graph = Attribute::Graph(Arc::new(Graph::new("g")));
    let kind = of(graph).or_else(|| of(Attribute::Bool(true))).expect("an error that states the kind");
    match expected(&error(Attribute::Text("w".to_string())), &format!("{name} is w, expected ")) {
        Some(words) if kind == "a word" => {
            format!("one of `{}`", words.replace(" or ", ", ").replace(", ", "` `"))
        }
        _ => kind,
    }
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
    if shared.is_empty() { cells.join(", ") } else { format!("{}; T: {}", cells.join(", "), class(&shared)) }
}

/// With how few of a sample's operands its op is content.
fn least_operands((op, types): &Sample) -> usize {
    let fits = |count: &usize| accepts(op, types[..*count].to_vec());
    (0..=types.len()).find(fits).expect("a sample fits its op")
}

/// The dtypes that an op accepts of an operand, or of all that have its dtype.
fn accepted((op, types): &Sample, position: usize, together: bool) -> Vec<DType> {
    let given = types[position].dtype;
    let with = |dtype: DType| {
        let replaced = |(i, ty): (usize, &Type)| {
            let replace = i == position || (together && ty.dtype == given);
            Type { dtype: if replace { dtype } else { ty.dtype }, ..ty.clone() }
        };
        types.iter().enumerate().map(replaced).collect()
    };
    DType::ALL.iter().copied().filter(|&dtype| accepts(op, with(dtype))).collect()
}

/// Whether an op takes operands of these types.
fn accepts(op: &Op, types: Vec<Type>) -> bool {
    let mut graph = Graph::new("op");
    let operands: Vec<_> = types.into_iter().map(|ty| graph.input("x", ty)).collect();
    graph.push(op.clone(), &operands).is_ok()
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
