//! Graphs with sizes of run time on an adapter: moves and functions of elements at any size are those of the references.

use engine::InferenceSession;
use graph::Graph;
use tensor::{AlignedBytes, Buffer, Bytes, DType, Shape, Tensor};

use crate::adapter::{adapter, compile_there, cpu, least_adapter};

/// Operations on `%x [n, 3, 5]` and `%y [n, 1, 5]`; those of the last line give the results.
const GRAPHS: &[&str] = &[
    "%0 = add(%x, %y)",
    "%0 = max(%y, %x)",
    "%0 = elementwise(%x, %y) {program = \"mul(x0, x1); relu(t0); sub(t1, x1)\"}",
    "%0 = transpose(%x) {order = [1, 0, 2]}",
    "%0 = transpose(%x) {order = [2, 1, 0]}",
    "%0 = transpose(%y) {order = [1, 2, 0]}",
    "%0 = broadcast(%y) {shape = [n, n, 3, 5]}",
    "%0 = broadcast(%y) {shape = [2, n, 4, 5]}",
    "%0 = reshape(%x) {shape = [5, 3*n]}",
    "%0 = concat(%x, %y, %x) {axis = 1}",
    "%0 = concat(%x, %x) {axis = 0}",
    "%0, %1 = split(%x) {axis = 1, sizes = [1, 2]}",
    "%0 = slice(%x) {axis = 2, start = 1, stop = -1, step = 2}",
    "%0 = flip(%x) {axes = [0, 1]}",
    "%0 = tile(%x) {repeats = [n, 2, 1]}",
    "%0 = pad(%x) {mode = edge, before = [0, 1, 0], after = [0, 4, 2]}",
    "%0 = pad(%x) {mode = reflect, before = [0, 7, 0], after = [0, 1, 3]}",
    "%0 = band_part(%x) {lower = 1, upper = 0}",
    // In place.
    "%0 = transpose(%x) {order = [2, 1, 0]}
     %1 = band_part(%0) {upper = 1, exclude = true}
     %2 = reshape(%1) {shape = [5*n, 3]}
     %3 = transpose(%2) {order = [1, 0]}",
    "%0 = transpose(%x) {order = [2, 1, 0]}
     %1 = neg(%0)
     %2 = transpose(%1) {order = [2, 1, 0]}
     %3 = sub(%2, %y)",
];

/// The device's results for a graph, and those of the references.
fn check(text: &str, dtype: DType, session: &InferenceSession, sizes: &[usize]) {
    let results = text.lines().last().and_then(|line| line.split(" = ").next()).expect("results");
    let text =
        format!("graph g(%x: {dtype}[n, 3, 5], %y: {dtype}[n, 1, 5]) {{\n{text}\nreturn {results}\n}}");
    let graph = Graph::parse(&text).unwrap();
    let model = session.init(&compile_there(session, &graph), &|_: &str| None).unwrap();
    for &n in sizes {
        let inputs = [numbers(dtype, [n, 3, 5], 1), numbers(dtype, [n, 1, 5], 7)];
        let expected = graph.evaluate(&inputs, &|_| None).unwrap().outputs;
        let outputs = model.execute(&inputs.each_ref().map(Buffer::from_tensor)).unwrap();
        for (output, expected) in outputs.iter().zip(&expected) {
            let got = output.to_tensor().unwrap();
            assert_eq!(got.shape(), expected.shape(), "{text}");
            assert_eq!(got.to_f64_vec(), expected.to_f64_vec(), "n = {n}\n{text}");
        }
    }
}

/// Gives small whole numbers, of which the operations above compute exact results.
fn numbers(dtype: DType, shape: [usize; 3], seed: usize) -> Tensor {
    let shape = Shape::new(&shape);
    let number = |i: usize| ((i * 29 + seed) % 31) as f32 - 15.0;
    match dtype {
        DType::F32 => Tensor::from_slice(shape, &(0..shape.elements()).map(number).collect::<Vec<_>>()),
        DType::BF16 => {
            let halves = (0..shape.elements()).map(|i| tensor::bf16::from_f32(number(i)));
            Tensor::from_slice(shape, &halves.collect::<Vec<_>>())
        }
        dtype => {
            let bytes: Vec<u8> =
                (0..dtype.bytes_for_shape(&shape).unwrap()).map(|i| (i * 29 + seed) as u8).collect();
            Tensor::from_bytes(dtype, shape, Bytes::new(AlignedBytes::copy_of(&bytes))).unwrap()
        }
    }
}

#[test]
fn sizes_of_run_time_change_no_result() {
    for device in [adapter(), least_adapter()].into_iter().flatten() {
        let session = InferenceSession::new([device, cpu()]).unwrap();
        for dtype in [DType::F32, DType::BF16, DType::U8, DType::I64] {
            let computes =
                |text: &str| ["add(", "max(", "neg(", "elementwise("].iter().any(|op| text.contains(op));
            for text in GRAPHS.iter().filter(|text| dtype.is_float() || !computes(text)) {
                check(text, dtype, &session, &[0, 1, 2, 3, 17, 1, 300]);
            }
        }
    }
}
