//! Branches, loops and calls between plans, and sizes that data decides.

use graph::{Builder, Graph, Type};
use tensor::{Buffer, DType, Tensor};

use crate::testing::{build, f32, noise, session};
use crate::{CompileOptions, ExecuteOptions, Passes};

/// `y = |x| < 1 ? store and multiply by w until the first is at least 1 : the buffer`, between plans.
const GRAPH: &str = "graph g(%x: f32[n, 2], %b: mut f32[n, 2]) {
      %a = neg(%x)
      %two = constant [2.0] : f32[]
      %first = slice(%a) {axis = 0, start = 0, stop = 1}
      %corner = slice(%first) {axis = 1, start = 0, stop = 1}
      %one = constant [1.0] : f32[]
      %p = less(%corner, %one)
      %y, %steps = cond(%p, %a, %b, %one) {then = graph grow(%x: f32[m, 2], %b: mut f32[m, 2], %end: f32[]) {
        store(%b, %x)
        %zero = constant [0] : i64[]
        %y, %steps = while(%x, %zero, %end) {predicate = graph small(%x: f32[k, 2], %i: i64[], %end: f32[]) {
          %f = slice(%x) {axis = 0, start = 0, stop = 1}
          %c = slice(%f) {axis = 1, start = 0, stop = 1}
          %p = less(%c, %end)
          return %p
        }, body = graph next(%x: f32[k, 2], %i: i64[], %end: f32[]) {
          %w = weight \"w\" : f32[2, 2]
          %y = linear(%x, %w)
          %one = constant [1] : i64[]
          %next = add(%i, %one)
          return %y, %next
        }}
        return %y, %steps
      }, otherwise = graph same(%x: f32[m, 2], %b: mut f32[m, 2], %end: f32[]) {
        %y = load(%b)
        %w = weight \"w\" : f32[2, 2]
        %z = linear(%y, %w)
        %none = constant [-1] : i64[]
        return %z, %none
      }}
      %z = add(%y, %x)
      return %z, %y, %y, %steps, %two, %x
    }";

fn double(name: &str) -> Option<Tensor> {
    (name == "w").then(|| Tensor::from_slice([2, 2], &[2f32, 0.0, 0.0, 2.0]))
}

#[test]
fn branches_and_loops_run_between_plans() {
    let graph = Graph::parse(GRAPH).unwrap();
    for passes in [Passes::All, Passes::None] {
        let session = session();
        let options = CompileOptions { passes, ..CompileOptions::default() };
        let model = session.init(&session.compile_with(&graph, &options).unwrap(), &double).unwrap();
        for x in [[-0.25f32, -3.0], [-5.0, 1.0]] {
            let tensors = [Tensor::from_slice([1, 2], &x), Tensor::from_slice([1, 2], &[7f32, 8.0])];
            let expected = graph.evaluate(&tensors, &double).unwrap();
            let inputs = tensors.each_ref().map(Buffer::from_tensor);
            for _ in 0..2 {
                let outputs = model.execute(&inputs).unwrap();
                for (got, expected) in outputs.iter().zip(&expected.outputs) {
                    assert_eq!(got.to_tensor().unwrap().to_f64_vec(), expected.to_f64_vec());
                }
                let b = Buffer::from_tensor(&tensors[1]);
                assert_eq!(inputs[1].to_vec::<f32>(), expected.buffers[0].to_vec::<f32>());
                inputs[1].write().unwrap().copy_from_slice(&b.read().unwrap());
            }
        }
    }
}

#[test]
fn parts_print_and_share_weights() {
    let graph = Graph::parse(
        "graph g(%p: bool[], %x: f32[n, 2]) {
               %w = weight \"w\" : f32[2, 2]
               %a = linear(%x, %w)
               %y = cond(%p, %a) {then = graph again(%x: f32[m, 2]) {
                 %w = weight \"w\" : f32[2, 2]
                 %y = linear(%x, %w)
                 return %y
               }, otherwise = graph same(%x: f32[m, 2]) { return %x }}
               %z = neg(%y)
               return %z
             }",
    );
    let model = session().load(&graph.unwrap(), &double).unwrap();
    let expected = "program g on test
  input 0 'p' bool[]
  input 1 'x' f32[n, 2]
  w0 = weight \"w\" f32[2, 2] as columns
  plan of '1'
    0: output 0 = linear.test('x', w0): f32[n, 2]
    arena 64 bytes where n = 1, 64 bytes where n = 16, 64 bytes where n = 256
  1: '2' = cond('p', '1'): f32[n, 2]
    then
      plan of 'output0'
        2: output 0 = linear.test('x', w0): f32[m, 2]
        arena 64 bytes where m = 1, 64 bytes where m = 16, 64 bytes where m = 256
    otherwise
      plan of 'output0'
        3: output 0 = copy('x'): f32[m, 2]
        arena 0 bytes where m = 1, 0 bytes where m = 16, 0 bytes where m = 256
  plan of '3'
    4: output 0 = neg (reference)('2'): f32[n, 2]
    arena 0 bytes where n = 1, 0 bytes where n = 16, 0 bytes where n = 256
  return '3'
  output 0 f32[n, 2]
";
    assert_eq!(model.program().to_string(), expected);
    let inputs = [Buffer::from_slice::<u8>([], &[1]), Buffer::from_slice([1, 2], &[1f32, 2.0])];
    assert!(
        model.execute(&inputs).unwrap_err().to_string().starts_with("input 0 'p': got u8[], expected bool[]")
    );
    let p = Buffer::from_tensor(&Tensor::from_bools([], &[true]));
    let inputs = [p, inputs[1].clone()];
    let (outputs, profile) = model.profile(&inputs).unwrap();
    assert_eq!(outputs[0].to_vec::<f32>(), [-4.0, -8.0]);
    let ops: Vec<&str> = profile.steps.iter().map(|step| step.op).collect();
    assert_eq!(ops, ["linear", "linear", "neg"]);
    let y = Buffer::zeros(DType::F32, [1, 2]);
    model.execute_into(&inputs, std::slice::from_ref(&y), &ExecuteOptions::default()).unwrap();
    assert_eq!(y.to_vec::<f32>(), [-4.0, -8.0]);
    let wrong = [Buffer::zeros(DType::F32, [2, 2])];
    let error = model.execute_into(&inputs, &wrong, &ExecuteOptions::default()).unwrap_err().to_string();
    assert_eq!(error, "output 0: got f32[2, 2], expected f32[1, 2]");
    let error = model.execute_into(&inputs, &[], &ExecuteOptions::default()).unwrap_err().to_string();
    assert_eq!(error, "model `g`: got 0 buffers for outputs, expected 1");
}

#[test]
fn asserted_shapes_are_checked_before_anything_runs() {
    let graph = Graph::parse(
        "graph g(%x: f32[n], %y: f32[m]) {
               %a = rebind(%x) {shape = [k], symbols = [k]}
               %b = rebind(%y) {shape = [k], message = \"x and y go together\"}
               %c = add(%a, %b)
               %p = constant [true] : bool[]
               %d = cond(%p, %c) {then = graph same(%x: f32[l]) { return %x }, otherwise = @same}
               %e = add(%d, %b)
               return %e
             }",
    );
    let model = session().load(&graph.unwrap(), &()).unwrap();
    let of = |size: usize| Buffer::from_slice([size], &vec![1f32; size]);
    assert_eq!(model.execute(&[of(2), of(2)]).unwrap()[0].to_vec::<f32>(), [3.0; 2]);
    let error = model.execute(&[of(2), of(3)]).unwrap_err().to_string();
    assert_eq!(error, "rebind of %y: axis 0 is 3, expected k = 2: x and y go together");
}

#[test]
fn sizes_found_in_data_are_known_from_then_on() {
    let graph = build("found", |b: &mut Builder| {
        let x = b.input("x", f32(&["n"]));
        let doubled = b.add(x, x)?;
        let places = b.nonzero(doubled, "k")?;
        let count = b.shape_to_tensor(places)?;
        let again = b.add(places, 1)?;
        Ok(vec![again, count, doubled])
    });
    let model = session().load(&graph, &()).unwrap();
    for values in [&[0f32, 3.0, 0.0, 4.0][..], &[0.0], &[], &[1.0, 1.0]] {
        let x = Tensor::from_slice([values.len()], values);
        let expected = graph.evaluate(std::slice::from_ref(&x), &|_| None).unwrap();
        let outputs = model.execute(&[Buffer::from_tensor(&x)]).unwrap();
        for (got, expected) in outputs.iter().zip(&expected.outputs) {
            assert_eq!(got.shape(), expected.shape());
            assert_eq!(got.to_tensor().unwrap().to_f64_vec(), expected.to_f64_vec());
        }
    }
}

#[test]
fn what_is_called_may_bring_sizes() {
    let graph = Graph::parse(
        "graph g(%x: f32[n]) {
               %y = call(%x) {graph = graph named(%x: f32[n]) {
                 %y = rebind(%x) {shape = [k], symbols = [k]}
                 return %y
               }}
               %z = reshape(%y) {shape = [k, 1]}
               return %z
             }",
    );
    let model = session().load(&graph.unwrap(), &()).unwrap();
    let z = model.execute(&[Buffer::from_slice([2], &[1f32, 2.0])]).unwrap();
    assert_eq!(z[0].shape(), &tensor::Shape::new(&[2, 1]));
}

#[test]
fn steps_of_all_parts_are_numbered() {
    let graph = Graph::parse(
        "graph g(%p: bool[], %x: f32[n]) {
               %a = neg(%x)
               %y = cond(%p, %a) {then = graph cut(%x: f32[m]) {
                 %t = exp(%x)
                 %y = slice(%t) {axis = 0, start = -3}
                 return %y
               }, otherwise = @cut}
               return %y
             }",
    );
    let model = session().load(&graph.unwrap(), &()).unwrap();
    let p = Buffer::from_tensor(&Tensor::from_bools([], &[true]));
    let error = model.execute(&[p, Buffer::from_slice([1], &[1f32])]).unwrap_err().to_string();
    assert_eq!(error, "step 3, slice: the range -3.. does not fit the 1 elements of axis 0");
}

#[test]
fn threads_run_loops_beside_each_other() {
    let graph = build("sum", |b: &mut Builder| {
        let x = b.input("x", f32(&["n", "2"]));
        let end = b.input("end", Type::new(DType::I64, graph::dims![]));
        let zero = b.constant(Tensor::scalar(0i64));
        let last = b.while_loop(
            &[zero, x],
            |b, carried| b.binary(graph::ops::Binary::Less, carried[0], end),
            |b, carried| {
                let one = b.constant(Tensor::scalar(1i64));
                Ok(vec![b.add(carried[0], one)?, b.add(carried[1], x)?])
            },
        )?;
        Ok(vec![last[1]])
    });
    let model = session().load(&graph, &()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let model = model.clone();
            scope.spawn(move || {
                for n in 1..20 {
                    let x = noise([n, 2], n + thread);
                    let end = Buffer::from_slice([], &[n as i64]);
                    let y = model.execute(&[Buffer::from_tensor(&x), end]).unwrap();
                    let mut expected = x.to_vec::<f32>();
                    for _ in 0..n {
                        expected.iter_mut().zip(x.to_vec::<f32>()).for_each(|(sum, x)| *sum += x);
                    }
                    assert_eq!(y[0].to_vec::<f32>(), expected);
                }
            });
        }
    });
}

/// A buffer of the graph, written before, in and after a branch and a loop: `sum` of the positions where x is not 0, as
/// often as `end` says.
const CREATED: &str = "graph g(%x: f32[n], %end: i64[], %p: bool[]) {
      %sum = create_buffer() {dtype = f32, shape = [n]}
      %same = create_buffer() {dtype = f32, shape = [n]}
      %two = add(%x, %x)
      store(%sum, %two)
      %i = constant [0] : i64[]
      %last, %kept = while(%i, %x, %sum, %end) {
        predicate = graph more(%i: i64[], %x: f32[n], %s: mut f32[n], %end: i64[]) {
          %y = less(%i, %end)
          return %y
        },
        body = graph next(%i: i64[], %x: f32[n], %s: mut f32[n], %end: i64[]) {
          %fresh = create_buffer() {dtype = f32, shape = [n]}
          %zeros = load(%fresh)
          %old = load(%s)
          %more = add(%old, %x)
          %new = add(%more, %zeros)
          store(%s, %new)
          store(%fresh, %new)
          %one = constant [1] : i64[]
          %after = add(%i, %one)
          return %after, %x
        }
      }
      %between = load(%sum)
      %chosen = cond(%p, %sum, %same) {
        then = graph put(%s: mut f32[n], %t: mut f32[n]) {
          %y = load(%s)
          %z = neg(%y)
          store(%s, %z)
          store(%t, %y)
          return %z
        },
        otherwise = graph zeros(%s: mut f32[n], %t: mut f32[n]) { %y = load(%t) return %y }
      }
      %y = load(%sum)
      %z = load(%same)
      return %between, %chosen, %y, %z
    }";

#[test]
fn buffers_of_a_graph_are_written_from_part_to_part() {
    let graph = Graph::parse(CREATED).unwrap();
    graph.verify().unwrap();
    let text = Graph::parse(&graph.to_string()).unwrap().to_string();
    assert_eq!(text, graph.to_string());
    for passes in [Passes::All, Passes::None] {
        let session = session();
        let options = CompileOptions { passes, ..CompileOptions::default() };
        let model = session.init(&session.compile_with(&graph, &options).unwrap(), &()).unwrap();
        for (n, end, condition) in [(2usize, 3i64, true), (2, 0, false), (0, 1, true), (100, 2, false)] {
            let x = noise([n], n);
            let tensors = [x, Tensor::scalar(end), Tensor::from_bools([], &[condition])];
            let expected = graph.evaluate(&tensors, &|_| None).unwrap();
            // The second call finds the memory of the first, but not its contents.
            for _ in 0..2 {
                let outputs = model.execute(&tensors.each_ref().map(Buffer::from_tensor)).unwrap();
                for (got, expected) in outputs.iter().zip(&expected.outputs) {
                    assert_eq!(got.to_tensor().unwrap().to_f64_vec(), expected.to_f64_vec());
                }
            }
        }
    }
}

#[test]
fn calls_at_once_have_buffers_of_their_own() {
    let model = session().load(&Graph::parse(CREATED).unwrap(), &()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let model = model.clone();
            scope.spawn(move || {
                for end in 1..20i64 {
                    let x = thread as f32 + 1.0;
                    let inputs = [
                        Buffer::from_slice([3], &[x; 3]),
                        Buffer::from_slice([], &[end]),
                        Buffer::from_tensor(&Tensor::from_bools([], &[true])),
                    ];
                    let sum = x * (2 + end) as f32;
                    let outputs = model.execute(&inputs).unwrap();
                    let values: Vec<f32> = outputs.iter().map(|output| output.to_vec::<f32>()[2]).collect();
                    assert_eq!(values, [sum, -sum, -sum, sum]);
                }
            });
        }
    });
}
