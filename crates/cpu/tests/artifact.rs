//! Artifacts made for the CPU: packed weights of every layout come back without packing, and run where their
//! instruction set is.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Artifact, CompileCache, CompileOptions, Device, ExportOptions, InferenceSession, Model, Target,
};
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
    let outputs = model.execute(&[Buffer::from_slice([3, COLUMNS], &numbers(3 * COLUMNS))]).unwrap();
    outputs.iter().map(Buffer::to_vec).collect()
}

/// The path of an artifact with weights for an instruction set, and what its model computes there.
fn export(set: InstructionSet, test: &str) -> (PathBuf, Vec<Vec<f32>>) {
    let path = temporary(&format!("{test}-{set:?}.mef"));
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

/// Weights that are no panels of one matrix alone: rounded to 8-bit floats with a scale, filters of either layout, as bytes
/// of blocks, and those of experts.
fn others() -> Graph {
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
                  %s = softmax(%y) {axis = 1}
                  return %y, %z, %q, %r, %e, %s
                }";
    Graph::parse(text).unwrap()
}

/// As many numbers as are asked for.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 23) as f32 / 11.0 - 1.0).collect()
}

fn registry_of_others(name: &str) -> Option<Tensor> {
    match name {
        "filter" => {
            Some(Tensor::from_slice([3, 2, 3, 17], &(0..306).map(|i| i as f32 / 300.0).collect::<Vec<_>>()))
        }
        "experts" => {
            let experts = weight(DType::Q8_0).bytes().repeat(4);
            let experts = Bytes::new(AlignedBytes::copy_of(&experts));
            Some(Tensor::from_bytes(DType::Q8_0, [4, 19, 512], experts).unwrap())
        }
        "bytes" => Some(Tensor::from_slice([19, 544], weight(DType::Q8_0).bytes())),
        // Scales of 1/16 after the codes.
        "codes" => {
            let codes = (0..256 * 19).map(|i| (i * 37 % 251) as u8);
            Some(Tensor::from_slice([264, 19], &codes.chain([0, 0x2c].repeat(4 * 19)).collect::<Vec<u8>>()))
        }
        _ => registry(name),
    }
}

fn run_others(model: &Model) -> Vec<Vec<f32>> {
    let x = Buffer::from_slice([3, COLUMNS], &numbers(3 * COLUMNS));
    let image = Buffer::from_slice([1, 5, 6, 3], &numbers(90));
    let chosen = Buffer::from_slice([3], &[2u32, 0, 3]);
    model.execute(&[x, image, chosen]).unwrap().iter().map(Buffer::to_vec).collect()
}

#[test]
fn other_packed_weights_come_back_to_the_bit() {
    let path = temporary("others.mef");
    let session = session(InstructionSet::LARGEST);
    let compiled = session.compile(&others()).unwrap();
    let options = ExportOptions { weights: Some(&registry_of_others), ..ExportOptions::default() };
    compiled.export_mef_with(&path, options).unwrap();
    let expected = run_others(&session.init(&compiled, &registry_of_others).unwrap());
    assert!(expected.iter().flatten().all(|value| value.is_finite() && *value != 0.0));
    assert_eq!(run_others(&session.load(&path, &()).unwrap()), expected);
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
    let path = temporary("tied.mef");
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

/// Filters of channels-first images are packed for the tiles of an instruction set. A file that was packed for a smaller
/// set than this machine's runs with that set's kernels.
#[test]
fn filters_packed_for_smaller_sets_run_on_larger_ones() {
    let graph = Graph::parse(FILTERS).unwrap();
    let largest = session(InstructionSet::LARGEST);
    let expected = run_filters(&largest.load(&graph, &registry_of_others).unwrap());
    for &set in InstructionSet::ALL {
        let path = temporary(&format!("filters-{set:?}.mef"));
        let small = session(set).compile(&graph).unwrap();
        let options = ExportOptions { weights: Some(&registry_of_others), ..ExportOptions::default() };
        small.export_mef_with(&path, options).unwrap();
        assert_eq!(run_filters(&largest.load(&path, &()).unwrap()), expected, "packed for {set:?}");
        fs::remove_file(path).unwrap();
    }
}

const FILTERS: &str = "graph filters(%image: f32[1, 3, 5, 6]) {
  %filter = weight \"filter\" : f32[3, 2, 3, 17]
  %z = conv2d(%image, %filter) {
    strides = [1, 1], dilations = [1, 1], padding = [0, 0, 0, 0], layout = nchw
  }
  return %z
}";

fn run_filters(model: &Model) -> Vec<f32> {
    model.execute(&[Buffer::from_slice([1, 3, 5, 6], &numbers(90))]).unwrap()[0].to_vec()
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("perihelion-{}-{name}", std::process::id()))
}

fn for_target(target: &Target) -> CompileOptions {
    CompileOptions { target: Some(target.clone()), ..CompileOptions::default() }
}

/// The targets of this machine's architecture, or of others.
fn targets(here: bool) -> Vec<Target> {
    let all = session(InstructionSet::LARGEST).devices()[0].targets();
    all.into_iter().filter(|target| (target.architecture() == std::env::consts::ARCH) == here).collect()
}

#[test]
fn any_target_is_compiled_for_and_stated() {
    let session = session(InstructionSet::LARGEST);
    let here = session.devices()[0].target();
    for target in targets(true).into_iter().chain(targets(false)) {
        let compiled = session.compile_with(&others(), &for_target(&target)).unwrap();
        assert_eq!(compiled.target(), target.to_string());
        assert!(compiled.to_string().starts_with(&format!("plan g on cpu for {target}\n")), "{compiled}");
        let path = temporary("any.mef");
        let options = ExportOptions { weights: Some(&registry_of_others), ..ExportOptions::default() };
        compiled.export_mef_with(&path, options).unwrap();
        assert_eq!(Artifact::open(&path).unwrap().target(), target.to_string());
        let as_there = session.compile_with(&path, &for_target(&target)).unwrap();
        assert_eq!(as_there.to_string(), compiled.to_string(), "read as for another machine");
        let loaded = session.load(&path, &());
        match session.init(&compiled, &registry_of_others) {
            Ok(model) => assert_eq!(run_others(&loaded.unwrap()), run_others(&model), "{target} on {here}"),
            Err(error) => {
                let facts = format!("compiled for cpu ({target}), but this session has cpu ({here})");
                assert!(error.to_string().contains(&facts), "{error}");
                let error = loaded.unwrap_err().to_string();
                assert!(error.contains(&facts) && error.contains("any.mef: it was "), "{error}");
                assert!(
                    !compiled.to_string().contains(".portable"),
                    "there the fastest is chosen: {compiled}"
                );
            }
        }
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn plans_of_this_machine_do_not_state_it() {
    let compiled = session(InstructionSet::LARGEST).compile(&others()).unwrap();
    assert!(compiled.to_string().starts_with("plan g on cpu\n"), "{compiled}");
}

#[test]
fn unknown_targets_are_refused_with_those_that_are_known() {
    let session = session(InstructionSet::LARGEST);
    for unknown in ["aarch64 avx2", "gpu sm_90", "mips portable"] {
        let target = unknown.parse().unwrap();
        let error = session.compile_with(&others(), &for_target(&target)).unwrap_err().to_string();
        let start = format!("the target is `{unknown}`, expected one of x86_64 portable, x86_64 avx2, ");
        assert!(error.starts_with(&start) && error.contains(", aarch64 neon, "), "{error}");
        assert!(error.ends_with("; accelerators are compiled for where they are"), "{error}");
    }
}

#[test]
fn each_target_has_an_entry_of_its_own_in_the_compile_cache() {
    let folder = temporary("target-cache");
    let device: Arc<dyn Device> = Arc::new(Cpu::new(1));
    let session = InferenceSession::builder().device(device).compile_cache(CompileCache::at(&folder));
    let session = session.build().unwrap();
    let all = session.devices()[0].targets();
    for round in 0..2 {
        for (i, target) in all.iter().enumerate() {
            let compiled = session.compile_with(&others(), &for_target(target)).unwrap();
            assert_eq!(compiled.target(), target.to_string());
            let entries = fs::read_dir(&folder).unwrap().count();
            assert_eq!(entries, if round == 0 { i + 1 } else { all.len() }, "{target}");
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The folders that `tools/test_arm` has the builds for two architectures exchange artifacts through.
const TO_OTHERS: &str = "PERIHELION_ARTIFACTS_TO_OTHERS";
const FROM_OTHERS: &str = "PERIHELION_ARTIFACTS_FROM_OTHERS";

/// The graphs that are exchanged, by name, with their weights and what runs them.
type Exchanged = (&'static str, Graph, fn(&str) -> Option<Tensor>, fn(&Model) -> Vec<Vec<f32>>);

fn exchanged() -> [Exchanged; 3] {
    [
        ("layers", graph(), registry, run),
        ("others", others(), registry_of_others, run_others),
        ("filters", Graph::parse(FILTERS).unwrap(), registry_of_others, |model| vec![run_filters(model)]),
    ]
}

/// Compiles for all targets of other architectures, and puts what this machine computes beside the artifacts.
#[test]
fn artifacts_are_made_for_other_architectures() {
    let folder = std::env::var_os(TO_OTHERS).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| temporary("to-others"));
    fs::create_dir_all(&folder).unwrap();
    let session = session(InstructionSet::LARGEST);
    for (name, graph, registry, run) in exchanged() {
        let bits = bytes(&run(&session.load(&graph, &registry).unwrap()));
        fs::write(folder.join(name).with_extension("bits"), bits).unwrap();
        for target in targets(false) {
            let compiled = session.compile_with(&graph, &for_target(&target)).unwrap();
            let options = ExportOptions { weights: Some(&registry), ..ExportOptions::default() };
            compiled.export_mef_with(folder.join(format!("{name} {target}.mef")), options).unwrap();
        }
    }
    let artifacts = fs::read_dir(&folder).unwrap().count() - exchanged().len();
    assert_eq!(artifacts, exchanged().len() * targets(false).len());
    if std::env::var_os(TO_OTHERS).is_none() {
        fs::remove_dir_all(folder).unwrap();
    }
}

/// Runs what a machine of another architecture compiled for this one. The bits are those of what is compiled here, and
/// those that the other machine computed.
#[test]
#[ignore = "needs artifacts that another architecture compiled: tools/test_arm runs it"]
fn artifacts_of_other_architectures_compute_the_same_bits() {
    let folder = PathBuf::from(std::env::var_os(FROM_OTHERS).expect("the folder of artifacts"));
    let session = session(InstructionSet::LARGEST);
    let (here, mut ran) = (session.devices()[0].target(), 0);
    for (name, graph, registry, run) in exchanged() {
        let expected = run(&session.load(&graph, &registry).unwrap());
        let theirs = fs::read(folder.join(name).with_extension("bits")).unwrap();
        assert!(bytes(&expected) == theirs, "{name}: other bits than on the machine that compiled");
        for target in targets(true) {
            let path = folder.join(format!("{name} {target}.mef"));
            assert_eq!(Artifact::open(&path).unwrap().target(), target.to_string());
            match session.load(&path, &()) {
                Ok(model) => {
                    assert!(run(&model) == expected, "{name}, made for {target}, on {here}");
                    ran += 1;
                }
                Err(error) => {
                    let facts = format!("compiled for cpu ({target}), but this session has cpu ({here})");
                    assert!(error.to_string().contains(&facts), "{error}");
                }
            }
        }
    }
    assert!(
        ran >= 2 * exchanged().len(),
        "{ran} artifacts ran: those for portable kernels and for vectors at least"
    );
    println!("{ran} artifacts that another architecture compiled ran on {here} with the same bits");
}

fn bytes(outputs: &[Vec<f32>]) -> Vec<u8> {
    outputs.iter().flatten().flat_map(|value| value.to_le_bytes()).collect()
}
