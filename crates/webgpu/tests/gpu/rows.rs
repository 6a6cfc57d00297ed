//! Ops of rows on an adapter: they are those of the references at any width, on a software adapter also the CPU's to
//! the bit, and a row has the same bits in every batch.

use engine::{InferenceSession, Model};
use graph::Graph;
use tensor::{Buffer, DType, Tensor, bf16, f16};

use crate::adapter::{adapter, compile_there, cpu, difference};

/// Operations on `%x [n, columns]`, `%w [columns]` and `%b [columns]`, and the dtypes that they are tried with.
const OPERATIONS: &[(&str, &[DType])] = &[
    ("rms_norm(%x, %w) {eps = 0.00001}", &[DType::F32]),
    ("layer_norm(%x, %w, %b) {eps = 0.00001}", &[DType::F32]),
    ("softmax(%x) {axis = 1}", FLOATS),
    ("log_softmax(%x) {axis = 1}", FLOATS),
    ("reduce_sum(%x) {axis = 1}", ALL),
    ("reduce_mean(%x) {axis = 1}", FLOATS),
    ("reduce_max(%x) {axis = 1}", ALL),
    ("reduce_min(%x) {axis = 1}", ALL),
    ("reduce_prod(%x) {axis = 1}", INTEGERS),
    ("arg_max(%x) {axis = 1}", ALL),
    ("arg_min(%x) {axis = 1}", ALL),
    ("top_k(%x) {axis = 1, k = 1}", ALL),
    ("bottom_k(%x) {axis = 1, k = 1}", ALL),
    ("cumsum(%x) {axis = 1, exclusive = false, reverse = false}", &[DType::F32, DType::I32, DType::U32]),
    ("cumsum(%x) {axis = 1, exclusive = true, reverse = true}", &[DType::F32, DType::I32, DType::U32]),
];

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
const INTEGERS: &[DType] = &[DType::I32, DType::U32, DType::I8, DType::U8];
const ALL: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::U32,
    DType::I16,
    DType::U16,
    DType::I8,
    DType::U8,
];

/// Widths around those of workgroups and segments.
const COLUMNS: &[usize] = &[1, 33, 63, 64, 65, 1025, 9001];
const ROWS: &[usize] = &[16, 0, 1, 2, 3, 5, 8, 13];

/// Numbers without order, the same in row `i` whatever the number of rows.
fn numbers(dtype: DType, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let whole = |i: usize| (i * 7919 + i / 7 * 31 + 13) % 1009;
    let float = |i: usize| whole(i) as f32 / 101.0 - 5.0;
    match dtype {
        DType::F32 => Tensor::from_slice(shape, &(0..count).map(float).collect::<Vec<_>>()),
        DType::F16 => {
            Tensor::from_slice(shape, &(0..count).map(|i| f16::from_f32(float(i))).collect::<Vec<_>>())
        }
        DType::BF16 => {
            Tensor::from_slice(shape, &(0..count).map(|i| bf16::from_f32(float(i))).collect::<Vec<_>>())
        }
        DType::I32 => {
            Tensor::from_slice(shape, &(0..count).map(|i| whole(i) as i32 - 500).collect::<Vec<_>>())
        }
        DType::U32 => Tensor::from_slice(shape, &(0..count).map(|i| whole(i) as u32).collect::<Vec<_>>()),
        DType::I16 => {
            Tensor::from_slice(shape, &(0..count).map(|i| whole(i) as i16 - 500).collect::<Vec<_>>())
        }
        DType::U16 => Tensor::from_slice(shape, &(0..count).map(|i| whole(i) as u16).collect::<Vec<_>>()),
        DType::I8 => Tensor::from_slice(shape, &(0..count).map(|i| whole(i) as i8).collect::<Vec<_>>()),
        DType::U8 => Tensor::from_slice(shape, &(0..count).map(|i| whole(i) as u8).collect::<Vec<_>>()),
        other => panic!("no numbers of {other}"),
    }
}

/// How far a result may be from the reference: absolutely, and as a part of it.
fn bounds(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F32 => (1e-5, 1e-5),
        DType::F16 => (1e-3, 1e-3),
        DType::BF16 => (1e-3, 1e-2),
        _ => (0.0, 0.0),
    }
}

/// The results of `n` rows, which are those of the reference.
fn results(graph: &Graph, model: &Model, dtype: DType, columns: usize, n: usize) -> Vec<Tensor> {
    let inputs =
        [numbers(dtype, &[n, columns]), numbers(DType::F32, &[columns]), numbers(DType::F32, &[columns])];
    let outputs = model.execute(&inputs.each_ref().map(Buffer::from_tensor)).unwrap();
    let outputs: Vec<Tensor> = outputs.iter().map(|output| output.to_tensor().unwrap()).collect();
    let expected = graph.evaluate(&inputs, &|_| None).unwrap().outputs;
    for (output, expected) in outputs.iter().zip(&expected) {
        assert_eq!(output.shape(), expected.shape());
        let (absolute, relative) = bounds(output.dtype());
        let pairs = output.to_f64_vec().into_iter().zip(expected.to_f64_vec());
        for (got, expected) in pairs {
            let is_same = got == expected || got.is_nan() && expected.is_nan();
            let is_near = (got - expected).abs() <= absolute + relative * expected.abs();
            assert!(
                is_same || is_near && expected.is_finite(),
                "{got} for {expected}, {n} rows of {columns}\n{graph}"
            );
        }
    }
    outputs
}

/// Compares the results of `ROWS[0]` rows with the CPU's to the bit.
fn check_bits(graph: &Graph, results: &[Tensor], dtype: DType, columns: usize) {
    let here = InferenceSession::new([cpu()]).unwrap();
    let model = here.load(graph, &|_: &str| None).unwrap();
    let n = ROWS[0];
    let inputs =
        [numbers(dtype, &[n, columns]), numbers(DType::F32, &[columns]), numbers(DType::F32, &[columns])];
    let outputs = model.execute(&inputs.each_ref().map(Buffer::from_tensor)).unwrap();
    for (got, expected) in results.iter().zip(outputs) {
        let difference = difference(got, &expected.to_tensor().unwrap());
        assert_eq!(difference, None, "{n} rows of {columns}\n{graph}");
    }
}

fn check(operation: &str, dtype: DType, columns: usize, session: &InferenceSession) {
    let results_of = if operation.contains("_k(") { "%0, %1" } else { "%0" };
    let text = format!(
        "graph g(%x: {dtype}[n, {columns}], %w: f32[{columns}], %b: f32[{columns}]) {{\n\
         {results_of} = {operation}\nreturn {results_of}\n}}"
    );
    let graph = Graph::parse(&text).unwrap();
    let model = session.init(&compile_there(session, &graph), &|_: &str| None).unwrap();
    let all = results(&graph, &model, dtype, columns, ROWS[0]);
    // The CPU takes the logarithm in f64.
    if testdata::is_gpu_software() && !operation.starts_with("log_softmax") {
        check_bits(&graph, &all, dtype, columns);
    }
    for &n in &ROWS[1..] {
        for (all, some) in all.iter().zip(results(&graph, &model, dtype, columns, n)) {
            assert!(all.bytes()[..some.bytes().len()] == *some.bytes(), "{n} rows have other bits\n{text}");
        }
    }
}

#[test]
fn rows_are_those_of_the_references_in_every_batch() {
    let Some(device) = adapter() else { return };
    let session = InferenceSession::new([device, cpu()]).unwrap();
    for (operation, dtypes) in OPERATIONS {
        for &dtype in *dtypes {
            COLUMNS.iter().for_each(|&columns| check(operation, dtype, columns, &session));
        }
    }
}

#[test]
fn rows_of_nothing_are_reduced_to_what_the_references_say() {
    let Some(device) = adapter() else { return };
    let session = InferenceSession::new([device, cpu()]).unwrap();
    for (operation, dtypes) in OPERATIONS.iter().filter(|(operation, _)| operation.starts_with("reduce_")) {
        dtypes.iter().for_each(|&dtype| check(operation, dtype, 0, &session));
    }
}
