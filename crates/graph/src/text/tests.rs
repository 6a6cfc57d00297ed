//! What prints parses back, and what does not parse says where and why.

use proptest::prelude::*;
use tensor::{AlignedBytes, Bytes, DType, Tensor};

use crate::{Builder, Dim, Error, Graph, Module, Type, random};

const SAMPLE: &str = r#"graph decoder(%x: f32[tokens, 4], %"7 seas": mut f32[pages, 2*tokens + 1], %far: bf16[((n)//(2)), n] @gpu:1) {
  %0 = weight "blk.0.\"norm\".weight" : f32[4]
  %1 = rms_norm(%x, %0) {eps = 1e-5} : f32[tokens, 4]
  %2, %3 = top_k(%1) {k = 2, axis = 1} : f32[tokens, 2], i64[tokens, 2]
  %4 = constant [1.0, -inf, nan, nan(0x7fc00001), -0.0] : f32[5]
  %5 = constant [true] : bool[]
  %6 = weight "w" : q4_0[8, 32]
  %7 = constant [] : f16[0, 9]
  %8 = cast(%x) {to = f16} : f16[tokens, 4]
  %9 = reshape(%x) {shape = [4*tokens]} : f32[4*tokens]
  %10 = slice(%9) {axis = 0, start = -3, stop = -1} : f32[2]
  %11 = load(%"7 seas") : f32[pages, 2*tokens + 1]
  store(%"7 seas", %11)
  %12 = constant 0x000102030405060708090a0b0c0d0e0f1011 : u8[18]
  %13 = cond(%5, %x, %"7 seas") {then = graph "the one"(%y: f32[m, 4], %b: mut f32[k, 2*m + 1]) {
    %0 = call(%y) {graph = graph inner(%"0": f32[k, 4]) {
      return %"0"
    }, prefix = "layers.0."} : f32[m, 4]
    %1 = call(%0) {graph = @inner, prefix = a} : f32[m, 4]
    return %1
  }, otherwise = @"the one"} : f32[tokens, 4]
  return %2, %10, %2
}
"#;

#[test]
fn the_sample_prints_as_it_reads() {
    let graph = Graph::parse(SAMPLE).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.to_string(), SAMPLE);
    let module = Module::parse(&format!("{SAMPLE}# a comment\ngraph \"a b\"() {{ return }}")).unwrap();
    assert_eq!(module.graphs.len(), 2);
    assert_eq!(module.to_string(), format!("{SAMPLE}\ngraph \"a b\"() {{\n  return\n}}\n"));
}

#[test]
fn names_are_free_and_types_optional_in_what_is_read() {
    let graph = Graph::parse("graph g(%x: f32[n]) { %h = neg(%x) %5 = add(%h, %x) return %5 }").unwrap();
    let expected =
        "graph g(%x: f32[n]) {\n  %0 = neg(%x) : f32[n]\n  %1 = add(%0, %x) : f32[n]\n  return %1\n}\n";
    assert_eq!(graph.to_string(), expected);
}

#[test]
fn errors_name_the_line_and_both_sides() {
    let in_graph = |line: &str| format!("graph g(%x: f32[n, 4]) {{\n{line}\n  return %x\n}}\n");
    let many_axes = format!("  %0 = weight \"w\" : f32[{}]", ["1"; Type::MAX_RANK + 1].join(", "));
    let cases = [
        ("  %0 = neg %x", "expected `(`, found `%`"),
        ("  %0 = neg(%y)", "%y is not defined"),
        ("  %x = neg(%x)", "%x is defined a second time"),
        ("  %0 = frobnicate(%x)", "frobnicate: there is no such op"),
        ("  %0 = neg(%x) {axis = 1}", "neg: unknown attribute `axis`"),
        ("  %0 = softmax(%x)", "softmax: attribute `axis` is missing"),
        ("  %0 = softmax(%x) {axis = maybe}", "softmax: attribute `axis` is maybe, expected a whole number"),
        ("  %0 = softmax(%x) {axis = -1}", "softmax: attribute `axis` = -1 is out of range"),
        ("  %0 = softmax(%x) {axis = 1, axis = 1}", "a second attribute is named `axis`"),
        ("  %0 = softmax(%x) {axis = 2}", "softmax: x f32[n, 4] has no axis 2"),
        ("  %0 = neg(%x) : f32[n, 5]", "expected the type f32[n, 4], found f32[n, 5]"),
        ("  neg(%x)", "expected 1 results, found 0 names"),
        ("  %0 = constant [1, 2] : f32[3]", "expected 3 numbers for f32[3], found 2"),
        ("  %0 = constant [1, 2] : f32[n]", "a constant has sizes in numbers, found f32[n]"),
        ("  %0 = constant [300] : u8[1]", "expected a number of type u8, found `300`"),
        ("  %0 = constant [1e99] : f32[1]", "expected a number of type f32, found `1e99`"),
        ("  %0 = constant [nan(0x1)] : f32[1]", "expected a number of type f32, found `nan`"),
        ("  %0 = constant 0x012 : u8[2]", "expected pairs of hexadecimal digits after 0x"),
        ("  %0 = constant 0x01 : u8[2]", "u8[2] needs 2 bytes, got 1"),
        ("  %0 = constant [1]", "expected the type of the value, found 0"),
        ("  %0 = weight w : f32[2]", "expected the weight's name in quotes, found `w`"),
        ("  %0 = weight \"w : f32[2]", "the text in quotes does not end on its line"),
        ("  %0 = weight \"w\" : f33[2]", "expected a dtype, found `f33`"),
        ("  %0 = weight \"w\" : f32[2 - 3]", "the size -1 is negative"),
        ("  %0 = weight \"w\" : f32[n // 0]", "the dim is divided by 0"),
        (
            "  %0 = weight \"w\" : f32[99999999999999999999]",
            "expected a size below 2^63, found `99999999999999999999`",
        ),
        (&many_axes[..], "the shape has too many axes or terms"),
        ("  %0 = weight \"w\" : f32[2] @tpu", "expected cpu or gpu, found `tpu`"),
        ("  %0 = call(%x) {graph = @inner}", "there is no graph `inner` before this"),
        ("  %0 = call(%x) {graph = inner}", "call: attribute `graph` is inner, expected a graph"),
        ("  %0 = neg(%x) {graph = graph g() { return }}", "neg: unknown attribute `graph`"),
        ("  $", "unexpected character '$'"),
    ];
    for (line, message) in cases {
        let error = Graph::parse(&in_graph(line)).unwrap_err();
        assert_eq!(error, Error::Parse { line: 2, message: message.to_string() }, "{line}");
    }
    assert_eq!(Graph::parse("graph g() {").unwrap_err().to_string(), "line 1: expected an op, found the end");
    assert_eq!(
        Graph::parse("graph g() device_placement = maybe { return }").unwrap_err().to_string(),
        "line 1: device_placement is maybe, expected ignore, warn or error"
    );
    assert!(Module::parse("graph g() { return } graph g() { return }").is_err());
}

#[test]
fn hostile_dims_end_early() {
    let deep = "(".repeat(100_000);
    let product = vec!["(a + b + c + d)"; 1000].join("*");
    let quotients = "n".to_string() + &"//2".repeat(10_000);
    for dim in [deep, product, quotients] {
        let error = Graph::parse(&format!("graph g(%x: f32[{dim}]) {{ return %x }}")).unwrap_err();
        assert!(matches!(error, Error::Parse { line: 1, .. }), "{error}");
    }
    // Each slice nests the size of the one before.
    let nested: String = (0..10_000)
        .map(|i| format!("%{} = slice(%{i}) {{axis = 0, start = 0, step = 2}}\n", i + 1))
        .collect();
    let text = format!("graph g(%x: f32[n]) {{ %0 = neg(%x) {nested} return %0 }}");
    assert!(Graph::parse(&text).unwrap_err().to_string().contains("too many axes or terms"));
}

#[test]
fn hostile_nesting_ends_early() {
    let deep = "graph g() { %0 = call() {graph = ".repeat(100_000);
    assert_eq!(Graph::parse(&deep).unwrap_err().to_string(), "line 1: graphs nest deeper than 32");
    // Each graph runs the one before twice.
    let first = "graph g0(%x: f32[1]) { return %x }".to_string();
    let nested = (1..30).fold(first, |inner, i| {
        format!("graph g{i}(%x: f32[1]) {{ %y = call(%x) {{graph = {inner}}} %z = call(%y) {{graph = @g{}}} return %z }}", i - 1)
    });
    let error = Graph::parse(&nested).unwrap_err().to_string();
    assert!(
        error.ends_with("call: the graph has more than 65536 nodes with those of the graphs in it"),
        "{error}"
    );
}

/// Checks that a graph survives text: same text again, and the same ops and types.
fn check_round_trip(graph: &Graph) {
    let text = graph.to_string();
    let again = Graph::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(again.to_string(), text);
    assert!(graph.nodes().map(|(_, node)| &node.op).eq(again.nodes().map(|(_, node)| &node.op)), "{text}");
    let types = |graph: &Graph| {
        let inputs = graph.inputs().iter().map(|input| (input.name.clone(), graph.ty(input.value).clone()));
        inputs.collect::<Vec<_>>()
    };
    assert_eq!(types(graph), types(&again));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_graphs_round_trip(picks in random::picks()) {
        check_round_trip(&random::graph(&picks));
    }

    #[test]
    fn random_dims_round_trip(steps in proptest::collection::vec((0usize..4, 0usize..4, -9i64..9), 0..12)) {
        let dim = steps.into_iter().fold(Dim::symbol("n"), |dim, (operation, other, number)| {
            let other = [dim.clone(), Dim::symbol("n"), Dim::symbol("m"), Dim::integer(number)][other].clone();
            let next = match operation {
                0 => &dim + &other,
                1 => &dim - &other,
                2 => &dim * &other,
                _ if other.as_integer() == Some(0) => return dim,
                _ => dim.floor_div(&other),
            };
            if next.complexity() <= Dim::MAX_COMPLEXITY { next } else { dim }
        });
        if dim.as_integer().is_none_or(|size| size >= 0) {
            let ty = Type::new(DType::F32, [dim]);
            prop_assert_eq!(ty.to_string().parse::<Type>(), Ok(ty));
        }
    }

    #[test]
    fn few_elements_round_trip_by_bits(dtype in 0usize..64, bytes in proptest::collection::vec(any::<u8>(), 16)) {
        let dtype = DType::ALL[dtype % 18];
        let count = 16 / dtype.block().bytes;
        let value = Tensor::from_bytes(dtype, [count], Bytes::new(AlignedBytes::copy_of(&bytes))).unwrap();
        let mut b = Builder::new("g");
        let constant = b.constant(value);
        check_round_trip(&b.finish(&[constant]).unwrap());
    }

    #[test]
    fn damaged_text_never_panics(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, any::<prop::sample::Index>()), 1..6),
    ) {
        let mut text: Vec<char> = SAMPLE.chars().collect();
        for (place, edit, other) in edits {
            let (i, j) = (place.index(text.len()), other.index(text.len()));
            match edit {
                0 => drop(text.remove(i)),
                1 => text.swap(i, j),
                2 => drop(text.drain(i.min(j)..i.max(j))),
                3 => {
                    let copy: Vec<char> = text[i.min(j)..i.max(j)].to_vec();
                    text.splice(i..i, copy);
                }
                edit => text.insert(i, ['9', '-', '"', '%', '(', '[', '}', '\\'][edit - 4]),
            }
            if text.is_empty() {
                break;
            }
        }
        let text: String = text.into_iter().collect();
        if let Ok(graph) = Graph::parse(&text) {
            let _ = graph.verify();
            prop_assert_eq!(Graph::parse(&graph.to_string()).unwrap().to_string(), graph.to_string());
        }
    }

    #[test]
    fn token_soup_never_panics(tokens in proptest::collection::vec(0usize..30, 0..60)) {
        const SOUP: [&str; 30] = [
            "graph", "g", "(", ")", "{", "}", "[", "]", ",", ":", "=", "@", "%", "x", "0", "18446744073709551615",
            "1e-5", "0x", "mut", "f32", "q4_k", "return", "weight", "constant", "linear", "\"w\"", "//", "-", "*", "gpu",
        ];
        let body: Vec<&str> = tokens.into_iter().map(|token| SOUP[token]).collect();
        let _ = Module::parse(&body.join(" "));
        let _ = Module::parse(&format!("graph g(%x: f32[n]) {{ {} return }}", body.join(" ")));
    }
}
