//! Linear layers and products on an adapter: bits that do not depend on the number of rows, and weights that are computed.

use std::sync::Arc;

use engine::{CompileOptions, Device, InferenceSession, Placement, WeightsRegistry};
use graph::Graph;
use tensor::blocks::random_blocks;
use tensor::{AlignedBytes, Bytes, DType, Tensor, bf16, f16};

use crate::adapter::{adapter, cpu, is_there_alone, least_adapter, on_adapter, placed};

const COLUMNS: usize = 1536;
const ROWS: usize = 37;

/// Floats in -1..1 that follow from a seed.
fn floats(seed: usize, count: usize) -> Vec<f32> {
    let float = |i: usize| (((i + 97 * seed) * 7919 % 1009) as f32 - 504.0) / 504.0;
    (0..count).map(float).collect()
}

/// A weight [rows, columns] of any dtype that has panels.
fn weight(dtype: DType, seed: usize, rows: usize, columns: usize) -> Tensor {
    let numbers = floats(seed, rows * columns);
    match dtype {
        DType::F32 => return Tensor::from_slice([rows, columns], &numbers),
        DType::F16 => {
            return Tensor::from_slice(
                [rows, columns],
                &numbers.into_iter().map(f16::from_f32).collect::<Vec<_>>(),
            );
        }
        DType::BF16 => {
            return Tensor::from_slice(
                [rows, columns],
                &numbers.into_iter().map(bf16::from_f32).collect::<Vec<_>>(),
            );
        }
        _ => {}
    }
    let blocks = random_blocks(dtype, rows * columns / dtype.block().elements, seed as u64);
    let bytes = Bytes::new(AlignedBytes::try_copy_of(&blocks).unwrap());
    Tensor::from_bytes(dtype, [rows, columns], bytes).unwrap()
}

/// Runs a graph with each of these inputs, wherever it wants them, and gives the outputs of each call.
fn run(
    device: &Arc<dyn Device>,
    graph: &Graph,
    weights: &dyn WeightsRegistry,
    inputs: &[Vec<Tensor>],
) -> Vec<Vec<f32>> {
    let placement = Placement::On(device.spec());
    let session = match device.is_host() {
        true => InferenceSession::new([cpu()]).unwrap(),
        false => InferenceSession::new([Arc::clone(device), cpu()]).unwrap(),
    };
    let compiled =
        session.compile_with(graph, &CompileOptions { placement, ..CompileOptions::default() }).unwrap();
    assert!(is_there_alone(&compiled), "{compiled}");
    let model = session.init(&compiled, weights).unwrap();
    let outputs = |inputs: &Vec<Tensor>| {
        let outputs = model.execute(&placed(&model, inputs, &**device)).unwrap();
        outputs.iter().flat_map(|output| output.to_tensor().unwrap().to_vec::<f32>()).collect()
    };
    inputs.iter().map(outputs).collect()
}

#[test]
fn rows_have_the_same_bits_whatever_their_number() {
    let Some(device) = adapter() else { return };
    let host = cpu();
    let x = floats(1, 17 * COLUMNS);
    let first = |rows: usize| vec![Tensor::from_slice([rows, COLUMNS], &x[..rows * COLUMNS])];
    let inputs: Vec<Vec<Tensor>> = (1..=17).map(first).collect();
    for dtype in [
        DType::Q4_0,
        DType::Q8_0,
        DType::Q4K,
        DType::Q6K,
        DType::Q2K,
        DType::Iq4Nl,
        DType::Nf4,
        DType::F32,
        DType::F16,
        DType::BF16,
    ] {
        let text = format!(
            "graph g(%x: f32[n, {COLUMNS}]) {{
               %norm = weight \"norm\" : f32[{COLUMNS}]
               %gate = weight \"gate\" : {dtype}[{ROWS}, {COLUMNS}]
               %up = weight \"up\" : {dtype}[{ROWS}, {COLUMNS}]
               %y = linear(%x, %norm, %gate, %up) {{weights = 2, norm = 1e-5, gate = silu}}
               return %y
             }}"
        );
        let graph = Graph::parse(&text).unwrap();
        let weights = |name: &str| {
            Some(match name {
                "norm" => Tensor::from_slice([COLUMNS], &floats(2, COLUMNS)),
                "gate" => weight(dtype, 3, ROWS, COLUMNS),
                _ => weight(dtype, 4, ROWS, COLUMNS),
            })
        };
        let results = run(&device, &graph, &weights, &inputs);
        let all = &results[16];
        for (rows, result) in (1..=17).zip(&results) {
            let same = result.iter().zip(all).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{dtype}: {rows} rows differ from those of 17");
        }
        let expected = &run(&host, &graph, &weights, &inputs[16..])[0];
        testdata::check_gpu_results(&dtype.to_string(), all, expected, 1e-4);
    }
}

#[test]
fn weights_may_be_computed() {
    let Some(device) = least_adapter() else { return };
    for (dtype, tokens, rows, columns, function) in [
        (DType::F32, 1, 1, 1, "relu"),
        (DType::F32, 9, 33, 131, "tanh"),
        (DType::F16, 3, 16, 64, "sigmoid"),
        (DType::F16, 9, 33, 131, "gelu_quick"),
        (DType::BF16, 3, 16, 65, "silu"),
        (DType::BF16, 0, 16, 65, "relu"),
        (DType::BF16, 1, 7, 0, "relu"),
    ] {
        let text = format!(
            "graph g(%x: f32[n, {columns}], %w: {dtype}[rows, {columns}], %b: f32[rows]) {{
               %y = linear(%x, %w, %b) {{bias = true, activation = {function}}}
               return %y
             }}"
        );
        let graph = Graph::parse(&text).unwrap();
        let inputs = vec![
            Tensor::from_slice([tokens, columns], &floats(1, tokens * columns)),
            weight(dtype, 2, rows, columns),
            Tensor::from_slice([rows], &floats(3, rows)),
        ];
        let [there, here] =
            [&device, &cpu()].map(|device| run(device, &graph, &(), std::slice::from_ref(&inputs)));
        let what = format!("{dtype} {tokens} {rows} {columns} {function}");
        testdata::check_gpu_results(&what, &there[0], &here[0], 1e-5);
    }
}

#[test]
fn blocks_that_are_no_weights_are_multiplied_on_the_host() {
    let Some(device) = adapter() else { return };
    let graph = Graph::parse("graph g(%x: f32[n, 64], %w: q8_0[33, 64]) { %y = linear(%x, %w) return %y }");
    let (graph, session) = (graph.unwrap(), InferenceSession::new([Arc::clone(&device), cpu()]).unwrap());
    let compiled = session.compile_with(&graph, &on_adapter()).unwrap();
    let reason = "(host: gpu:0 reads no computed weight of q8_0)";
    assert!(compiled.to_string().contains(reason), "{compiled}");
    let inputs = [Tensor::from_slice([3, 64], &floats(1, 3 * 64)), weight(DType::Q8_0, 2, 33, 64)];
    let results = |session: &InferenceSession| {
        let model = session.init(&session.compile_with(&graph, &on_adapter()).unwrap(), &()).unwrap();
        let outputs = model.execute(&placed(&model, &inputs, &*device)).unwrap();
        outputs[0].to_tensor().unwrap().to_vec::<f32>()
    };
    let here = InferenceSession::new([cpu()]).unwrap();
    let model = here.load(&graph, &()).unwrap();
    let expected = model.execute(&placed(&model, &inputs, &*cpu())).unwrap();
    assert_eq!(results(&session), expected[0].to_tensor().unwrap().to_vec::<f32>());
}

#[test]
fn right_sides_of_products_may_be_packed() {
    let Some(device) = least_adapter() else { return };
    for (batch, m, k, n) in [(1, 1, 1, 1), (2, 3, 100, 33), (3, 8, 65, 16)] {
        let text = format!(
            "graph g(%x: f32[{batch}, m, {k}]) {{
               %w = weight \"w\" : f32[{k}, {n}]
               %y = matmul(%x, %w)
               return %y
             }}"
        );
        let graph = Graph::parse(&text).unwrap();
        let weights = |_: &str| Some(weight(DType::F32, 2, k, n));
        let inputs = vec![Tensor::from_slice([batch, m, k], &floats(1, batch * m * k))];
        let [there, here] =
            [&device, &cpu()].map(|device| run(device, &graph, &weights, std::slice::from_ref(&inputs)));
        testdata::check_gpu_results(&format!("{batch} {m} {k} {n}"), &there[0], &here[0], 1e-5);
    }
}

#[test]
fn weights_of_several_dtypes_share_an_input() {
    let Some(device) = least_adapter() else { return };
    let types = ["q4_k", "f16", "q4_k", "q6_k", "f16", "f32"];
    let weights: String = types
        .iter()
        .enumerate()
        .map(|(i, ty)| format!("%w{i} = weight \"{i}\" : {ty}[{}, 512]\n", 20 + i))
        .collect();
    let three = format!(
        "graph g(%x: f32[n, 512]) {{
           {weights}
           %y0, %y1, %y2, %y3, %y4, %y5 = linear(%x, %w0, %w1, %w2, %w3, %w4, %w5) {{weights = 6}}
           return %y0, %y1, %y2, %y3, %y4, %y5
         }}"
    );
    let gated = "graph g(%x: f32[n, 512], %r: f32[n, 33]) {
           %norm = weight \"norm\" : f32[512]
           %gate = weight \"gate\" : q8_0[33, 512]
           %up = weight \"up\" : bf16[33, 512]
           %b0 = weight \"b0\" : f32[33]
           %b1 = weight \"b1\" : f32[33]
           %y = linear(%x, %norm, %gate, %up, %b0, %b1, %r) {weights = 2, norm = 1e-6, bias = true, gate = silu, residual = true}
           return %y
         }";
    let sized = |name: &str| {
        Some(match name {
            "norm" => Tensor::from_slice([512], &floats(2, 512)),
            "gate" => weight(DType::Q8_0, 3, 33, 512),
            "up" => weight(DType::BF16, 4, 33, 512),
            "b0" | "b1" => Tensor::from_slice([33], &floats(5, 33)),
            index => {
                let index: usize = index.parse().unwrap();
                weight(types[index].parse().unwrap(), index, 20 + index, 512)
            }
        })
    };
    let x = Tensor::from_slice([11, 512], &floats(1, 11 * 512));
    let residual = Tensor::from_slice([11, 33], &floats(6, 11 * 33));
    for (text, inputs) in [(&three[..], vec![x.clone()]), (gated, vec![x, residual])] {
        let graph = Graph::parse(text).unwrap();
        let [there, here] =
            [&device, &cpu()].map(|device| run(device, &graph, &sized, std::slice::from_ref(&inputs)));
        testdata::check_gpu_results("several weights", &there[0], &here[0], 1e-4);
    }
}

#[test]
fn rows_that_are_not_finite_keep_to_themselves() {
    let Some(device) = adapter() else { return };
    for dtype in [DType::Q4_0, DType::Q4K, DType::BF16] {
        let text = format!(
            "graph g(%x: f32[n, 512]) {{
               %w = weight \"w\" : {dtype}[19, 512]
               %y = linear(%x, %w)
               return %y
             }}"
        );
        let graph = Graph::parse(&text).unwrap();
        let weights = |_: &str| Some(weight(dtype, 2, 19, 512));
        let mut x = floats(1, 4 * 512);
        let finite = vec![Tensor::from_slice([4, 512], &x)];
        (x[77], x[2 * 512 + 300]) = (f32::NAN, f32::INFINITY);
        let results = run(&device, &graph, &weights, &[finite, vec![Tensor::from_slice([4, 512], &x)]]);
        let row = |result: usize, row: usize| &results[result][19 * row..][..19];
        assert!(row(1, 0).iter().all(|value| value.is_nan()), "{dtype}");
        assert!(row(1, 2).iter().any(|value| !value.is_finite()), "{dtype}");
        assert_eq!((row(1, 1), row(1, 3)), (row(0, 1), row(0, 3)), "{dtype}");
    }
}
