//! Axes as long as an attribute or a shape makes them, without the memory for one number an index: results without
//! elements are computed, and what would need more memory than there is fails the call.

use std::sync::Arc;

use engine::InferenceSession;
use graph::Graph;
use perihelion_cpu::Cpu;
use tensor::{Buffer, DType, Shape, Tensor};

fn execute(text: &str, inputs: &[Buffer]) -> Result<Shape, String> {
    let session = InferenceSession::new([Arc::new(Cpu::new(2)) as Arc<dyn engine::Device>]).unwrap();
    let model = session.load(&Graph::parse(text).unwrap(), &()).unwrap();
    model.execute(inputs).map(|outputs| *outputs[0].shape()).map_err(|error| error.to_string())
}

/// Checks the shape of the result of one node, on the CPU and by the references.
fn check(node: &str, inputs: &[(&str, &[usize])], expected: &[usize]) {
    let names = (0..inputs.len()).map(|i| format!("%x{i}"));
    let list: Vec<String> = names.zip(inputs).map(|(name, (ty, _))| format!("{name}: {ty}")).collect();
    let text = format!("graph g({}) {{ %y = {node} return %y }}", list.join(", "));
    let graph = Graph::parse(&text).unwrap();
    let dtype = |i: usize| graph.ty(graph.inputs()[i].value).dtype;
    let tensors: Vec<Tensor> =
        inputs.iter().enumerate().map(|(i, (_, shape))| Tensor::zeros(dtype(i), *shape)).collect();
    let reference = graph.evaluate(&tensors, &|_| None).unwrap();
    assert_eq!(reference.outputs[0].shape().dims(), expected, "the reference of {node}");
    let buffers: Vec<Buffer> = tensors.iter().map(Buffer::from_tensor).collect();
    assert_eq!(execute(&text, &buffers), Ok(Shape::new(expected)), "{node}");
}

const VAST: usize = 1_000_000_000_007;

#[test]
fn results_without_elements_cost_nothing() {
    check(&format!("tile(%x0) {{repeats = [0, {VAST}]}}"), &[("f32[4, 9]", &[4, 9])], &[0, 9 * VAST]);
    check(
        &format!("pad(%x0) {{mode = edge, before = [0, {VAST}], after = [0, 0]}}"),
        &[("f32[n, 3]", &[0, 3])],
        &[0, VAST + 3],
    );
    check(
        &format!("repeat_interleave(%x0) {{axis = 1, repeats = {VAST}}}"),
        &[("f32[n, 2]", &[0, 2])],
        &[0, 2 * VAST],
    );
    check(
        "repeat_interleave(%x0, %x1) {axis = 1, out_dim = m}",
        &[("f32[n, k]", &[0, 1]), ("i64[k]", &[1])],
        &[0, 0],
    );
    let far = |size: usize| format!("[n, {size}, 1]");
    check(
        &format!("resize_nearest(%x0) {{size = {}, coordinates = asymmetric, rounding = floor}}", far(VAST)),
        &[("f32[n, 2, 1]", &[0, 2, 1])],
        &[0, VAST, 1],
    );
    check("max_pool2d(%x0) {window = [1, 1]}", &[("f32[n, 1, w, 1]", &[0, 1, VAST, 1])], &[0, 1, VAST, 1]);
    check("softmax(%x0) {axis = 1}", &[("f32[n, k]", &[VAST, 0])], &[VAST, 0]);
    check("argsort(%x0) {axis = 1}", &[("f32[n, k]", &[VAST, 0])], &[VAST, 0]);
    check("gather_nd(%x0, %x1)", &[("f32[k]", &[0]), ("i64[n, 0]", &[VAST, 0])], &[VAST, 0]);
    check(
        "scatter_nd(%x0, %x1, %x2)",
        &[("f32[k]", &[0]), ("f32[n, k]", &[VAST, 0]), ("i64[n, 0]", &[VAST, 0])],
        &[0],
    );
}

#[test]
fn counts_are_checked_though_nothing_results() {
    let text = "graph g(%x: f32[n, k], %r: i64[k]) {
      %y = repeat_interleave(%x, %r) {axis = 1, out_dim = m}
      return %y
    }";
    let x = Buffer::zeros(DType::F32, [0, 2]);
    let error = execute(text, &[x.clone(), Buffer::from_slice([2], &[5i64, -1])]).unwrap_err();
    assert!(error.contains("repeats is -1 at position 1, expected at least 0"), "{error}");
    let shape = execute(text, &[x, Buffer::from_slice([2], &[VAST as i64, 0])]);
    assert_eq!(shape, Ok(Shape::new(&[0, VAST])));
}

/// The first axis grows before the third shrinks, and no memory holds what is between.
#[test]
fn resizing_through_more_memory_than_there_is_fails_the_call() {
    let text = "graph g(%x: f32[1, 1, n, 1]) {
      %y = resize_linear(%x) {size = [1000000, 1, 1, 1], coordinates = half_pixel}
      return %y
    }";
    let error = execute(text, &[Buffer::zeros(DType::F32, [1, 1, 40_000_000, 1])]).unwrap_err();
    assert!(error.contains("the system refused 160000000000000 bytes of memory"), "{error}");
}

/// The product of each element with the filter is far larger than the result.
#[test]
fn transposed_convolutions_through_more_memory_than_there_is_fail_the_call() {
    let text = "graph g(%x: f32[1, 1, n, 1], %filter: f32[1, 6000000, 1, 1]) {
      %y = conv2d_transpose(%x, %filter)
      return %y
    }";
    let [x, filter] =
        [[1, 1, 6_000_000, 1], [1, 6_000_000, 1, 1]].map(|shape| Buffer::zeros(DType::F32, shape));
    let error = execute(text, &[x, filter]).unwrap_err();
    assert!(error.contains("memory"), "{error}");
}
