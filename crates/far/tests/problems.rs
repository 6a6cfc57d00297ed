//! The problems of every op on the device, and graphs that are partly there: results are the CPU's to the bit.

use std::sync::Arc;

use cpu::Cpu;
use engine::{CompileOptions, Device, InferenceSession, Model, Placement};
use graph::{DevicePlacementPolicy, Graph, Kind};
use perihelion_far::FarDevice;
use tensor::{Allocator, Buffer, DeviceSpec, HostAllocator, Tensor};

fn gpu(id: i32) -> DeviceSpec {
    DeviceSpec::accelerator(id).unwrap()
}

fn cpu() -> Arc<dyn Device> {
    Arc::new(Cpu::new(1))
}

/// A session with the device, whose seed is given, and the CPU.
fn session(device: FarDevice) -> (InferenceSession, Arc<dyn Device>) {
    let device: Arc<dyn Device> = Arc::new(device);
    (InferenceSession::new([Arc::clone(&device), cpu()]).unwrap(), device)
}

/// The outputs of a model, then what its buffers hold.
fn run(model: &Model, graph: &Graph, inputs: &[Tensor], device: &dyn Device) -> Result<Vec<Tensor>, String> {
    let there = |(input, place): (&Tensor, graph::DeviceRef)| {
        let buffer = Buffer::from_tensor(input);
        let allocator: &dyn Allocator = match place {
            graph::DeviceRef::Cpu => &HostAllocator,
            graph::DeviceRef::Gpu(_) => device.far().unwrap().allocator(),
        };
        buffer.to(allocator).unwrap()
    };
    let buffers: Vec<Buffer> = inputs.iter().zip(model.input_devices()).map(there).collect();
    let outputs = model.execute(&buffers).map_err(|error| error.to_string())?;
    let kinds = graph.inputs().iter().map(|input| graph.ty(input.value).kind);
    let written = buffers.into_iter().zip(kinds).filter(|(_, kind)| *kind == Kind::Buffer);
    let all = outputs.into_iter().chain(written.map(|(buffer, _)| buffer));
    Ok(all.map(|buffer| buffer.to_tensor().unwrap()).collect())
}

#[test]
fn every_problem_has_the_bits_of_the_cpu() {
    let host = InferenceSession::new([cpu()]).unwrap();
    let (far, device) = session(FarDevice::new(0, cpu(), 1).unwrap());
    let options = CompileOptions { placement: Placement::On(gpu(0)), ..CompileOptions::default() };
    for problem in conformance::problems() {
        let (graph, inputs) = (problem.graph(), problem.arguments());
        let weights = |name: &str| problem.weight(name);
        let here = host.load(&graph, &weights).unwrap();
        let there =
            far.load_with(&graph, &weights, &options).unwrap_or_else(|e| panic!("{}: {e}", problem.name));
        let expected = run(&here, &graph, &inputs, &*device).unwrap();
        let got = run(&there, &graph, &inputs, &*device).unwrap_or_else(|e| panic!("{}: {e}", problem.name));
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!((got.shape(), got.bytes()), (expected.shape(), expected.bytes()), "{}", problem.name);
        }
    }
}

const LAYER: &str = "graph layer(%x: f32[n, 32], %there: f32[n, 32] @gpu:0) {
    %w = weight \"w\" : q8_0[32, 32]
    %wt = transfer_to(%w) {device = \"gpu:0\"}
    %xt = transfer_to(%x) {device = \"gpu:0\"}
    %y = linear(%xt, %wt)
    %z = softmax(%y) {axis = 1}
    %s = add(%z, %there)
    %h = transfer_to(%s) {device = cpu}
    %n = neg(%h)
    return %n, %s
  }";

fn weights(name: &str) -> Option<Tensor> {
    (name == "w").then(|| Tensor::zeros(tensor::DType::Q8_0, [32, 32]))
}

const PLAN: &str = r#"program layer on cpu and gpu:0
  input 0 'x' f32[n, 32]
  input 1 'there' f32[n, 32] @gpu:0
  w0 = weight "w" q8_0[32, 32] @gpu:0 as panel16.q8_0
  '1' = 'x' to gpu:0, 128*n bytes
  plan of '3' on gpu:0
    0: output 0 = linear[q8_0].avx2('1', w0): f32[n, 32] @gpu:0
    arena 256 bytes where n = 1, 768 bytes where n = 16, 10496 bytes where n = 256
  '4' = '3' to cpu, 128*n bytes
  plan of '5'
    1: output 0 = softmax[f32].avx2('4'): f32[n, 32] (host: gpu:0 has no kernel for it)
    arena 0 bytes where n = 1, 0 bytes where n = 16, 0 bytes where n = 256
  '6' = '5' to gpu:0, 128*n bytes
  plan of '7' on gpu:0
    2: output 0 = add[f32].avx2('6', 'there'): f32[n, 32] @gpu:0
    arena 0 bytes where n = 1, 0 bytes where n = 16, 0 bytes where n = 256
  '8' = '7' to cpu, 128*n bytes
  plan of '9'
    3: output 0 = neg[f32].avx2('8'): f32[n, 32] (host: gpu:0 has no kernel for it)
    arena 0 bytes where n = 1, 0 bytes where n = 16, 0 bytes where n = 256
  return '9', '7'
  output 0 f32[n, 32]
  output 1 f32[n, 32] @gpu:0
"#;

#[test]
fn plans_show_devices_transfers_and_what_the_host_does() {
    let (session, _) = session(FarDevice::new(0, cpu(), 1).unwrap().only(["linear", "add"]));
    let compiled = session.compile(&Graph::parse(LAYER).unwrap()).unwrap();
    assert_eq!(compiled.to_string(), PLAN);
}

#[test]
fn what_a_graph_puts_on_a_device_is_an_order_if_its_policy_says_so() {
    let (session, _) = session(FarDevice::new(0, cpu(), 1).unwrap().only(["linear", "add"]));
    let mut graph = Graph::parse(LAYER).unwrap();
    graph.set_device_placement(DevicePlacementPolicy::Error);
    let text = graph.to_string();
    assert!(text.contains("@gpu:0) device_placement = error {"), "{text}");
    for graph in [&graph, &Graph::parse(&text).unwrap()] {
        assert_eq!(
            session.compile(graph).unwrap_err().to_string(),
            "compiling `layer`: softmax is on gpu:0, but gpu:0 has no kernel for it; the graph's device_placement is \
             error: put the op on cpu, or choose warn or ignore"
        );
    }
    // The graph itself puts `neg` on the host, so that is no error.
    let (session, _) = self::session(FarDevice::new(0, cpu(), 1).unwrap().only(["linear", "softmax", "add"]));
    session.compile(&graph).unwrap();
}

#[test]
fn outputs_and_inputs_are_where_their_types_say() {
    let (session, device) = session(FarDevice::new(0, cpu(), 1).unwrap());
    let model = session.load(&Graph::parse(LAYER).unwrap(), &weights).unwrap();
    let x = Buffer::from_tensor(&Tensor::from_slice([2, 32], &[1.0f32; 64]));
    let there = x.to(device.far().unwrap().allocator()).unwrap();
    let outputs = model.execute(&[x.clone(), there.clone()]).unwrap();
    assert_eq!([outputs[0].device(), outputs[1].device()], [DeviceSpec::cpu(), gpu(0)]);
    let sums: Vec<f32> = outputs[1].to_vec();
    assert_eq!(sums, [1.0 + 1.0 / 32.0; 64]);
    assert_eq!(outputs[0].to_vec::<f32>(), sums.iter().map(|sum| -sum).collect::<Vec<_>>());
    let refused = |inputs: &[Buffer]| model.execute(inputs).unwrap_err().to_string();
    let there_is_here = "model `layer`: input 1 'there' is on cpu, expected gpu:0: copy it with `to`";
    assert_eq!(refused(&[x.clone(), x.clone()]), there_is_here);
    let here_is_there = "model `layer`: input 0 'x' is on gpu:0, expected cpu: copy it with `to`";
    assert_eq!(refused(&[there.clone(), there]), here_is_there);
}

#[test]
fn indices_are_refused_in_the_words_of_the_cpu() {
    let text = "graph g(%x: f32[4, 2], %i: i64[n]) {
        %y = gather(%x, %i) {axis = 0}
        %z = neg(%y)
        return %z
      }";
    let graph = Graph::parse(text).unwrap();
    let inputs = [Tensor::from_slice([4, 2], &[1.0f32; 8]), Tensor::from_slice([3], &[0i64, -5, 1])];
    let (far, device) = session(FarDevice::new(0, cpu(), 1).unwrap());
    let options = CompileOptions { placement: Placement::On(gpu(0)), ..CompileOptions::default() };
    let plan = far.compile_with(&graph, &options).unwrap().to_string();
    assert!(plan.contains("gather(") && !plan.contains("host:"), "{plan}");
    let there = far.load_with(&graph, &(), &options).unwrap();
    let here = InferenceSession::new([cpu()]).unwrap().load(&graph, &()).unwrap();
    let refused = run(&here, &graph, &inputs, &*device).unwrap_err();
    assert!(refused.contains("operand 1 at [1] is -5"), "{refused}");
    assert_eq!(run(&there, &graph, &inputs, &*device).unwrap_err(), refused);
}

#[test]
fn watched_steps_have_the_bits_of_the_cpu_and_fail_where_its_do() {
    let host = InferenceSession::new([cpu()]).unwrap();
    let (far, device) = session(FarDevice::new(0, cpu(), 1).unwrap());
    for session in [&host, &far] {
        session.debug().set_nan_check(true);
        session.debug().set_uninitialized_read_check(true);
    }
    let options = CompileOptions { placement: Placement::On(gpu(0)), ..CompileOptions::default() };
    let mut counts = [0, 0];
    for problem in conformance::problems() {
        let (graph, inputs) = (problem.graph(), problem.arguments());
        let weights = |name: &str| problem.weight(name);
        let models = [host.load(&graph, &weights), far.load_with(&graph, &weights, &options)];
        let [here, there] = models.map(|model| run(&model.unwrap(), &graph, &inputs, &*device));
        match (here, there) {
            (Ok(expected), Ok(got)) => {
                let same = got.iter().zip(&expected).all(|(got, expected)| got.bytes() == expected.bytes());
                assert!(same, "{}", problem.name);
                counts[0] += 1;
            }
            (Err(expected), Err(got)) => {
                let reason = |error: &str| error.rsplit_once(": ").unwrap().1.to_string();
                assert_eq!(reason(&got), reason(&expected), "{}", problem.name);
                counts[1] += 1;
            }
            (here, there) => panic!("{}: {:?} here, {:?} there", problem.name, here.err(), there.err()),
        }
    }
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

#[test]
fn what_was_recorded_is_not_run_with_other_weights() {
    let text = "graph g(%x: f32[n]) { %w = weight \"w\" : f32[1] %y = mul(%x, %w) return %y }";
    let graph = Graph::parse(text).unwrap();
    let (far, device) = session(FarDevice::new(0, cpu(), 1).unwrap());
    let options = CompileOptions { placement: Placement::On(gpu(0)), ..CompileOptions::default() };
    let weight = |factor: f32| move |name: &str| (name == "w").then(|| Tensor::from_slice([1], &[factor]));
    let model = far.load_with(&graph, &weight(2.0), &options).unwrap();
    let products = |x: &[f32]| {
        let inputs = [Tensor::from_slice([x.len()], x)];
        run(&model, &graph, &inputs, &*device).unwrap()[0].to_vec::<f32>()
    };
    for _ in 0..3 {
        assert_eq!(products(&[1.0, 3.0]), [2.0, 6.0]);
        assert_eq!(products(&[5.0]), [10.0]);
    }
    model.reload(&weight(3.0)).unwrap();
    assert_eq!(products(&[1.0, 3.0]), [3.0, 9.0]);
}
