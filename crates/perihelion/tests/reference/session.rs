//! "The session": devices, threads, and use from many threads at once.

use std::sync::{Arc, Barrier};
use std::thread;

use perihelion::driver::{self, Buffer, Cpu, Device, DeviceSpec, Tensor};
use perihelion::engine::{InferenceSession, Kernel, NodeTypes};
use perihelion::graph::Graph;

use crate::support::{bits, message, noise, parse, run, session};

const THREADS: usize = 8;

/// A packed linear layer, a normalization and a softmax: work that the CPU splits among its threads.
fn network() -> Graph {
    parse(
        r#"graph network(%x: f32[n, 192]) {
             %w = weight "w" : f32[160, 192]
             %scale = weight "scale" : f32[160]
             %h = linear(%x, %w)
             %r = rms_norm(%h, %scale) {eps = 0.00001}
             %y = softmax(%r) {axis = 1}
             return %y
           }"#,
    )
}

fn weight(name: &str) -> Option<Tensor> {
    match name {
        "w" => Some(Tensor::from_slice([160, 192], &noise(160 * 192, 1))),
        "scale" => Some(Tensor::from_slice([160], &noise(160, 2))),
        _ => None,
    }
}

fn input(rows: usize) -> Buffer {
    Buffer::from_slice([rows, 192], &noise(rows * 192, rows))
}

#[test]
fn eight_threads_compile_init_and_execute_at_once_with_the_same_bits() {
    let alone = session();
    let expected: Vec<Vec<u32>> = (1..=THREADS)
        .map(|rows| {
            let model = alone.load(&network(), &weight).unwrap();
            bits(&model.execute(&[input(rows)]).unwrap()[0].to_vec::<f32>())
        })
        .collect();
    assert!(expected[0] != expected[1][..160], "the inputs differ");
    let shared = session();
    let compiled = shared.compile(&network()).unwrap();
    let model = shared.init(&compiled, &weight).unwrap();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for rows in 1..=THREADS {
            let (shared, compiled, model, start, expected) = (&shared, &compiled, &model, &start, &expected);
            scope.spawn(move || {
                start.wait();
                let compiled_here = shared.compile(&network()).unwrap();
                let models = [
                    model.clone(),
                    shared.init(compiled, &weight).unwrap(),
                    shared.init(&compiled_here, &weight).unwrap(),
                    shared.load(&network(), &weight).unwrap(),
                ];
                for _ in 0..10 {
                    for model in &models {
                        let y = model.execute(&[input(rows)]).unwrap()[0].to_vec::<f32>();
                        assert_eq!(bits(&y), expected[rows - 1], "{rows} rows");
                    }
                }
            });
        }
    });
}

#[test]
fn thread_counts_apply_to_given_cpus_and_change_no_bit() {
    let given = || Arc::new(Cpu::new(1)) as Arc<dyn Device>;
    let builders = [
        InferenceSession::builder().num_threads(1),
        InferenceSession::builder().num_threads(3),
        InferenceSession::builder().device(given()).num_threads(4),
    ];
    let results = builders.map(|builder| {
        let session = builder.compile_cache(None).build().unwrap();
        let model = session.load(&network(), &weight).unwrap();
        let y = model.execute(&[input(37)]).unwrap()[0].to_vec::<f32>();
        assert_eq!(session.num_threads(), session.devices()[0].threads());
        (session.num_threads(), bits(&y))
    });
    assert_eq!(results.each_ref().map(|(threads, _)| *threads), [1, 3, 4]);
    assert!(results.iter().all(|(_, bits)| *bits == results[0].1));
    let cores = thread::available_parallelism().unwrap().get();
    for chosen in [None, Some(0)] {
        let session = InferenceSession::builder().num_threads(chosen).build().unwrap();
        assert_eq!(session.num_threads(), 0, "the CPU's choice");
        let threads = session.devices()[0].threads();
        assert!((1..=cores).contains(&threads), "{threads} threads for {cores} cores");
        assert_eq!(threads, driver::cpu().threads());
    }
}

/// An accelerator that has no kernels.
struct Accelerator;

impl Device for Accelerator {
    fn name(&self) -> &str {
        "accelerator"
    }

    fn spec(&self) -> DeviceSpec {
        DeviceSpec::accelerator(0).unwrap()
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        None
    }
}

#[test]
fn the_cpu_is_added_last_and_counts_once() {
    let names = |devices: &[Arc<dyn Device>]| -> Vec<String> {
        let session = InferenceSession::new(devices.iter().cloned()).unwrap();
        session.devices().iter().map(|device| device.name().to_string()).collect()
    };
    let accelerator: Arc<dyn Device> = Arc::new(Accelerator);
    assert_eq!(names(&[]), ["cpu"]);
    assert_eq!(names(&[driver::cpu(), driver::cpu(), Arc::new(Cpu::new(2))]), ["cpu"]);
    assert_eq!(names(&[accelerator.clone(), accelerator.clone()]), ["accelerator", "cpu"]);
    assert_eq!(names(&[driver::cpu(), accelerator]), ["cpu", "accelerator"]);
    let session = InferenceSession::new([]).unwrap();
    assert!(session.devices()[0].is_host());
    assert_eq!(format!("{session:?}"), "InferenceSession(cpu)");
    let double = session.load(&parse("graph g(%x: f32[n]) { %y = add(%x, %x) return %y }"), &()).unwrap();
    assert_eq!(run(&double, &[1.0, 2.0]).unwrap(), [2.0, 4.0]);
}

#[test]
fn values_on_a_missing_device_are_refused() {
    let graph = parse("graph g(%x: f32[2] @gpu:0) { %y = add(%x, %x) return %y }");
    let expected = "compiling `g`: a value is f32[2] @gpu:0, but the session's devices are: cpu";
    assert_eq!(message(session().compile(&graph)), expected);
}
