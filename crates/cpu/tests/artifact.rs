//! Artifacts made for the CPU: packed weights of every layout come back without packing, and run where their
//! instruction set is.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{Artifact, Device, ExportOptions, InferenceSession, Model};
use graph::{Builder, Graph, Type};
use perihelion_cpu::{Cpu, InstructionSet};
use tensor::{AlignedBytes, Buffer, Bytes, DType, Tensor, bf16, f16};

const COLUMNS: usize = 512;
const ROWS: usize = 19;

/// Every dtype that a linear layer takes.
fn dtypes() -> impl Iterator<Item = DType> {
    let blocks = DType::ALL.iter().copied().filter(|dtype| dtype.is_block());
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3].into_iter().chain(blocks)
}

fn session(set: InstructionSet) -> InferenceSession {
    let device: Arc<dyn Device> = Arc::new(Cpu::with_instruction_set(2, set));
    InferenceSession::new([device]).unwrap()
}

/// A linear layer for each dtype, and one whose weight is a constant.
fn graph() -> Graph {
    let mut b = Builder::new("layers");
    let x = b.input("x", Type::new(DType::F32, ["n".into(), graph::Dim::from(COLUMNS)]));
    let mut outputs = Vec::new();
    for dtype in dtypes() {
        let weight = b.weight(dtype.name(), Type::new(dtype, [ROWS, COLUMNS])).unwrap();
        outputs.push(b.linear(x, weight).unwrap());
    }
    let constant = b.constant(weight(DType::F32));
    outputs.push(b.linear(x, constant).unwrap());
    b.finish(&outputs).unwrap()
}

/// Numbers of a dtype. Any bytes are a block, but scales from random bytes would be huge or NaN.
fn weight(dtype: DType) -> Tensor {
    let values: Vec<f32> =
        (0..ROWS * COLUMNS).map(|i| ((i * 7919 + 13) % 1009) as f32 / 504.5 - 1.0).collect();
    let shape = [ROWS, COLUMNS];
    match dtype {
        DType::F64 => Tensor::from_slice(shape, &values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>()),
        DType::F32 => Tensor::from_slice(shape, &values),
        DType::F16 => Tensor::from_slice(shape, &values.into_iter().map(f16::from_f32).collect::<Vec<_>>()),
        DType::BF16 => Tensor::from_slice(shape, &values.into_iter().map(bf16::from_f32).collect::<Vec<_>>()),
        _ => {
            let len = dtype.bytes_for(ROWS * COLUMNS).unwrap();
            // 0x2f and less: no exponent of an f16 or an 8-bit float is large.
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 0x30) as u8).collect();
            let bytes = Bytes::new(AlignedBytes::copy_of(&bytes));
            Tensor::from_bytes(dtype, shape, bytes).unwrap()
        }
    }
}

fn registry(name: &str) -> Option<Tensor> {
    dtypes().find(|dtype| dtype.name() == name).map(weight)
}

fn run(model: &Model) -> Vec<Vec<f32>> {
    let x: Vec<f32> = (0..3 * COLUMNS).map(|i| (i % 23) as f32 / 11.0 - 1.0).collect();
    let outputs = model.execute(&[Buffer::from_slice([3, COLUMNS], &x)]).unwrap();
    outputs.iter().map(Buffer::to_vec).collect()
}

/// The path of an artifact with weights for an instruction set, and what its model computes there.
fn export(set: InstructionSet, test: &str) -> (PathBuf, Vec<Vec<f32>>) {
    let path = std::env::temp_dir().join(format!("perihelion-{}-{test}-{set:?}.mef", std::process::id()));
    let session = session(set);
    let compiled = session.compile(&graph()).unwrap();
    let options = ExportOptions { weights: Some(&registry), ..ExportOptions::default() };
    compiled.export_mef_with(&path, options).unwrap();
    (path, run(&session.init(&compiled, &registry).unwrap()))
}

#[test]
fn every_layout_comes_back_to_the_bit() {
    let (path, expected) = export(InstructionSet::LARGEST, "layouts");
    let model = session(InstructionSet::LARGEST).load(&path, &()).unwrap();
    let computed = run(&model);
    assert!(computed.iter().flatten().all(|value| value.is_finite() && *value != 0.0));
    assert_eq!(computed, expected);
    let artifact = Artifact::open(&path).unwrap();
    assert!(
        artifact.weights().all(|weight| weight.layout.is_some_and(|layout| layout.starts_with("panel16.")))
    );
    assert_eq!(artifact.weights().count(), dtypes().count() + 1);
    fs::remove_file(path).unwrap();
}

/// Weights that are no panels of one matrix alone: rounded to 8-bit floats with a scale, as bytes of blocks, filters, and
/// those of experts.
#[test]
fn other_packed_weights_come_back_to_the_bit() {
    let text = "graph g(%x: f32[n, 512], %image: f32[1, 5, 6, 3], %chosen: u32[n]) {
                  %w = weight \"f32\" : f32[19, 512]
                  %y = fp8_linear(%x, %w)
                  %filter = weight \"filter\" : f32[3, 2, 3, 17]
                  %z = conv2d(%image, %filter) {strides = [1, 1], dilations = [1, 1], padding = [0, 0, 0, 0]}
                  %bytes = weight \"bytes\" : u8[19, 544]
                  %q = qmatmul(%x, %bytes) {encoding = q8_0}
                  %codes = weight \"codes\" : u8[264, 19]
                  %r = gptq_matmul(%x, %codes) {bits = 4, group_size = 128, sym = true}
                  %experts = weight \"experts\" : q8_0[4, 19, 512]
                  %e = expert_linear(%x, %chosen, %experts)
                  return %y, %z, %q, %r, %e
                }";
    let graph = Graph::parse(text).unwrap();
    let experts = weight(DType::Q8_0).bytes().repeat(4);
    let experts = Bytes::new(AlignedBytes::copy_of(&experts));
    let experts = Tensor::from_bytes(DType::Q8_0, [4, 19, 512], experts).unwrap();
    let registry = |name: &str| match name {
        "filter" => {
            Some(Tensor::from_slice([3, 2, 3, 17], &(0..306).map(|i| i as f32 / 300.0).collect::<Vec<_>>()))
        }
        "experts" => Some(experts.clone()),
        "bytes" => Some(Tensor::from_slice([19, 544], weight(DType::Q8_0).bytes())),
        // Scales of 1/16 after the codes.
        "codes" => {
            let codes = (0..256 * 19).map(|i| (i * 37 % 251) as u8);
            Some(Tensor::from_slice([264, 19], &codes.chain([0, 0x2c].repeat(4 * 19)).collect::<Vec<u8>>()))
        }
        _ => registry(name),
    };
    let path = std::env::temp_dir().join(format!("perihelion-{}-others.mef", std::process::id()));
    let session = session(InstructionSet::LARGEST);
    let compiled = session.compile(&graph).unwrap();
    compiled
        .export_mef_with(&path, ExportOptions { weights: Some(&registry), ..ExportOptions::default() })
        .unwrap();
    let run = |model: &Model| -> Vec<Vec<f32>> {
        let numbers = |count: usize| (0..count).map(|i| (i % 23) as f32 / 11.0 - 1.0).collect::<Vec<_>>();
        let x = Buffer::from_slice([3, COLUMNS], &numbers(3 * COLUMNS));
        let image = Buffer::from_slice([1, 5, 6, 3], &numbers(90));
        let chosen = Buffer::from_slice([3], &[2u32, 0, 3]);
        model.execute(&[x, image, chosen]).unwrap().iter().map(Buffer::to_vec).collect()
    };
    let expected = run(&session.init(&compiled, &registry).unwrap());
    assert!(expected.iter().flatten().all(|value| value.is_finite() && *value != 0.0));
    assert_eq!(run(&session.load(&path, &()).unwrap()), expected);
    let layouts: Vec<bool> =
        Artifact::open(&path).unwrap().weights().map(|weight| weight.layout.is_some()).collect();
    assert_eq!(layouts, [true; 5]);
    fs::remove_file(path).unwrap();
}

#[test]
fn tied_embeddings_are_stored_once() {
    let text = "graph g(%ids: u32[n]) {
                  %table = weight \"q8_0\" : q8_0[19, 512]
                  %x = embedding(%table, %ids)
                  %y = linear(%x, %table)
                  return %y
                }";
    let path = std::env::temp_dir().join(format!("perihelion-{}-tied.mef", std::process::id()));
    let session = session(InstructionSet::LARGEST);
    let compiled = session.compile(&Graph::parse(text).unwrap()).unwrap();
    let options = ExportOptions { weights: Some(&registry), ..ExportOptions::default() };
    compiled.export_mef_with(&path, options).unwrap();
    let run =
        |model: Model| model.execute(&[Buffer::from_slice([2], &[7u32, 18])]).unwrap()[0].to_vec::<f32>();
    let expected = run(session.init(&compiled, &registry).unwrap());
    assert_eq!(run(session.load(&path, &()).unwrap()), expected);
    let (size, table) = (fs::metadata(&path).unwrap().len(), 19 * 544);
    assert!((table..table + table / 2).contains(&size), "{size} bytes for a table of {table}");
    fs::remove_file(path).unwrap();
}

#[test]
fn artifacts_run_where_their_instruction_set_is() {
    for (i, &made_for) in InstructionSet::ALL.iter().enumerate() {
        let (path, _) = export(made_for, "targets");
        let made_for = session(made_for).devices()[0].target();
        for (j, &set) in InstructionSet::ALL.iter().enumerate() {
            let session = session(set);
            let here = session.devices()[0].target();
            match session.load(&path, &()) {
                Ok(model) => {
                    assert!(j >= i || here == made_for, "{made_for} does not run on {here}");
                    let expected = session.load(&graph(), &registry).unwrap();
                    assert_eq!(run(&model), run(&expected), "made for {made_for}, run on {here}");
                }
                Err(error) => {
                    assert!(j < i, "{error}");
                    let words =
                        format!("it was compiled for cpu ({made_for}), but this session has cpu ({here})");
                    assert!(error.to_string().contains(&words), "{error}");
                }
            }
        }
        fs::remove_file(path).unwrap();
    }
}
