//! Artifacts through the session: what is exported loads and computes the same, and what is wrong is named.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use graph::{Graph, Module, Type};
use tensor::{Buffer, DType, Tensor};

use super::container::{self, preamble};
use crate::testing::{TestDevice, TestFolder, build, f32, noise, reference_session, session};
use crate::{Artifact, CompiledModel, Error, ExportOptions, InferenceSession, Model, WeightsRegistry};

/// Weight `a` read raw and packed, `b` packed, and a packed constant that is kept apart from the text.
fn network(name: &str) -> Graph {
    build(name, |b| {
        let x = b.input("x", f32(&["n", "5"]));
        let a = b.weight("a", f32(&["5", "5"]))?;
        let packed = b.weight("b", f32(&["4", "5"]))?;
        let constant = b.constant(noise([6, 4], 9));
        let y = b.linear(x, a)?;
        let y = b.linear(y, packed)?;
        let y = b.linear(y, constant)?;
        let sum = b.mul(a, a)?;
        Ok(vec![y, sum])
    })
}

fn weights() -> HashMap<String, Tensor> {
    HashMap::from([("a".to_string(), noise([5, 5], 1)), ("b".to_string(), noise([4, 5], 2))])
}

fn run(model: &Model) -> Vec<Vec<f32>> {
    let outputs = model.execute(&[Buffer::from_tensor(&noise([3, 5], 7))]).unwrap();
    outputs.iter().map(Buffer::to_vec).collect()
}

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("an error").to_string()
}

/// An artifact of [`network`] with its weights.
fn packed(session: &InferenceSession, path: &Path) -> CompiledModel {
    let compiled = session.compile(&network("g")).unwrap();
    let weights = weights();
    compiled
        .export_mef_with(path, ExportOptions { weights: Some(&weights), ..ExportOptions::default() })
        .unwrap();
    compiled
}

/// An artifact with another header.
fn changed(good: &[u8], change: impl Fn(&mut container::Header)) -> Vec<u8> {
    let mut header = container::read(good).unwrap();
    let offset = good.len() - postcard::to_stdvec(&header).unwrap().len();
    change(&mut header);
    let bytes = postcard::to_stdvec(&header).unwrap();
    [&preamble(offset as u64, &bytes), &good[container::PREAMBLE..offset], &bytes].concat()
}

#[test]
fn modules_come_back_by_name_and_ask_for_their_weights() {
    let folder = TestFolder::new("artifact_module");
    let path = folder.path().join("module.mef");
    let session = session();
    let module = Module { graphs: vec![network("one"), network("two")] };
    let compiled = session.compile(&module).unwrap();
    compiled.export_mef(&path).unwrap();
    let read = session.compile(&path).unwrap();
    assert_eq!(read.to_string(), compiled.to_string());
    assert_eq!(read.names().collect::<Vec<_>>(), ["one", "two"]);
    let models = session.load_all(&path, &weights()).unwrap();
    let expected = session.init_all(&compiled, &weights()).unwrap();
    assert_eq!(run(&models["two"]), run(&expected["two"]));
    let several = "`load` makes one model, but 2 were compiled; use `load_all`";
    assert_eq!(message(session.load(&path, &weights())), several);
    let missing = "model `one`: no weight `a` in the registry, expected f32[5, 5]";
    assert_eq!(message(session.load_all(&path, &())), missing);
    let wrong = |name: &str| Some(noise(if name == "a" { [5, 5] } else { [4, 4] }, 1));
    assert_eq!(message(session.load_all(&path, &wrong)), "weight `b`: got f32[4, 4], expected f32[4, 5]");
    let artifact = Artifact::open(&path).unwrap();
    artifact.verify().unwrap();
    assert_eq!((artifact.device(), artifact.target()), ("test", "test"));
    // The constant that both share is there once, for two texts.
    assert_eq!((artifact.sections(), artifact.weights().count()), (3, 0));
    let models: Vec<_> = artifact.models().map(|model| (model.name, model.constant_bytes)).collect();
    assert_eq!(models, [("one", 96), ("two", 96)]);
}

/// What is computed was settled by the compile; what is watched is for the session that runs it to say.
#[test]
fn artifacts_compute_as_compiled_and_are_watched_as_loaded() {
    let folder = TestFolder::new("artifact_settings");
    let path = folder.path().join("roots.mef");
    let graph = build("roots", |b| {
        let x = b.input("x", f32(&["n"]));
        Ok(vec![b.sqrt(x)?])
    });
    let session = reference_session();
    session.use_fi_topk_kernel("on");
    session.gpu_profiling("on").unwrap();
    session.compile(&graph).unwrap().export_mef(&path).unwrap();
    assert_eq!(Artifact::open(&path).unwrap().settings(), &session.kernel_settings());
    let other = reference_session();
    let plan = other.compile(&path).unwrap().to_string();
    assert!(plan.contains("\n  with fi_top_k = true\n"), "{plan}");
    other.debug().set_nan_check(true);
    let plan = other.compile(&path).unwrap().to_string();
    assert!(plan.contains("\n  with fi_top_k = true, nan_check = true\n"), "{plan}");
    let model = other.load(&path, &()).unwrap();
    let root = model.execute(&[Buffer::from_slice([1], &[-1f32])]);
    assert_eq!(message(root), "step 0, sqrt: result 0, f32[1], is NaN at [0] (1 NaN, 0 Inf)");
}

#[test]
fn packed_artifacts_need_no_registry_and_may_have_one() {
    let folder = TestFolder::new("artifact_packed");
    let path = folder.path().join("packed.mef");
    let session = session();
    let compiled = packed(&session, &path);
    let expected = run(&session.init(&compiled, &weights()).unwrap());
    let model = session.load(&path, &()).unwrap();
    assert_eq!(run(&model), expected);
    let artifact = Artifact::open(&path).unwrap();
    let stored: Vec<String> = artifact
        .weights()
        .map(|weight| format!("{:?} {} as {:?}: {}", weight.name, weight.ty, weight.layout, weight.bytes))
        .collect();
    let expected_weights = [
        "None f32[6, 4] as Some(\"columns\"): 96",
        "Some(\"a\") f32[5, 5] as None: 100",
        "Some(\"b\") f32[4, 5] as Some(\"columns\"): 80",
    ];
    assert_eq!(sorted(stored), expected_weights);

    // A registry comes first, and what it has must fit.
    let doubled: Vec<f32> = noise([4, 5], 2).to_vec::<f32>().iter().map(|value| value * 2.0).collect();
    let other = Tensor::from_slice([4, 5], &doubled);
    let overridden = session.load(&path, &|name: &str| (name == "b").then(|| other.clone())).unwrap();
    let doubled: Vec<f32> = expected[0].iter().map(|value| value * 2.0).collect();
    assert_eq!(run(&overridden)[0], doubled);
    let wrong = |name: &str| (name == "b").then(|| noise([5, 5], 2));
    assert_eq!(message(session.load(&path, &wrong)), "weight `b`: got f32[5, 5], expected f32[4, 5]");

    // A model tells its own weights, and a compiled model those of its artifact.
    let again = folder.path().join("again.mef");
    let check_again = || {
        assert_eq!(run(&session.load(&again, &()).unwrap()), expected);
        assert_eq!(fs::read(&again).unwrap().len(), fs::read(&path).unwrap().len());
        fs::remove_file(&again).unwrap();
    };
    model.export_mef(&again).unwrap();
    check_again();
    let read = session.compile(&path).unwrap();
    read.export_mef_with(&again, ExportOptions { weights: Some(&()), ..ExportOptions::default() }).unwrap();
    check_again();
    let without = folder.path().join("without.mef");
    session.compile(&path).unwrap().export_mef(&without).unwrap();
    assert!(message(session.load(&without, &())).starts_with("model `g`: no weight `a`"));
}

/// A tied embedding: one weight, looked up as it is and multiplied in the device's layout.
#[test]
fn tied_weights_are_stored_once() {
    let folder = TestFolder::new("artifact_tied");
    let session = session();
    let size = |tied: bool| {
        let graph = build("tied", |b| {
            let x = b.input("x", f32(&["n", "64"]));
            let table = b.weight("table", f32(&["64", "64"]))?;
            let y = b.linear(x, table)?;
            Ok(if tied { vec![y, b.mul(table, table)?] } else { vec![y] })
        });
        let path = folder.path().join(format!("{tied}.mef"));
        let registry = |_: &str| Some(noise([64, 64], 1));
        let options = ExportOptions { weights: Some(&registry), ..ExportOptions::default() };
        let compiled = session.compile(&graph).unwrap();
        compiled.export_mef_with(&path, options).unwrap();
        let x = [Buffer::from_tensor(&noise([3, 64], 7))];
        let outputs = |model: Model| -> Vec<Vec<f32>> {
            model.execute(&x).unwrap().iter().map(Buffer::to_vec).collect()
        };
        let loaded = outputs(session.load(&path, &()).unwrap());
        assert_eq!(loaded, outputs(session.init(&compiled, &registry).unwrap()));
        fs::read(&path).unwrap().len()
    };
    let (tied, plain) = (size(true), size(false));
    assert!(
        tied < plain + 1000,
        "64 × 64 numbers are 16384 bytes: {tied} bytes, {plain} without the second use"
    );
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// Weights and constants of graphs that nodes run are stored with those of the graph around them.
#[test]
fn graphs_within_graphs_come_back() {
    let folder = TestFolder::new("artifact_within");
    let path = folder.path().join("within.mef");
    let graph = build("choice", |b| {
        let pick = b.input("pick", Type::new(DType::Bool, [0usize; 0]));
        let x = b.input("x", f32(&["n", "5"]));
        b.cond(
            pick,
            None,
            |b| {
                let weight = b.weight("b", f32(&["4", "5"]))?;
                Ok(vec![b.linear(x, weight)?])
            },
            |b| {
                let constant = b.constant(noise([4, 5], 9));
                Ok(vec![b.linear(x, constant)?])
            },
        )
    });
    let session = session();
    let compiled = session.compile(&graph).unwrap();
    compiled
        .export_mef_with(&path, ExportOptions { weights: Some(&weights()), ..ExportOptions::default() })
        .unwrap();
    let (made, read) = (session.init(&compiled, &weights()).unwrap(), session.load(&path, &()).unwrap());
    assert_eq!(Artifact::open(&path).unwrap().weights().count(), 2);
    let run = |model: &Model, pick| {
        let pick = Buffer::from_tensor(&Tensor::from_bools([0usize; 0], &[pick]));
        model.execute(&[pick, Buffer::from_tensor(&noise([3, 5], 7))]).unwrap()[0].to_vec::<f32>()
    };
    for pick in [true, false] {
        assert_eq!(run(&read, pick), run(&made, pick));
    }
    assert_ne!(run(&read, true), run(&read, false));
}

#[test]
fn artifacts_may_move_and_be_replaced_while_in_use() {
    let folder = TestFolder::new("artifact_moved");
    let (path, moved) = (folder.path().join("here.mef"), folder.path().join("there"));
    let session = session();
    packed(&session, &path);
    let compiled = session.compile(&path).unwrap();
    fs::rename(&path, &moved).unwrap();
    let expected = run(&session.init(&compiled, &()).unwrap());
    // A file is known by its first bytes, whatever it is called.
    let model = session.load(&moved, &()).unwrap();
    session.compile(&network("other")).unwrap().export_mef(&moved).unwrap();
    assert_eq!(run(&model), expected);
    fs::remove_file(&moved).unwrap();
    assert_eq!(run(&session.init(&compiled, &()).unwrap()), expected);
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let folder = TestFolder::new("artifact_flipped");
    let path = folder.path().join("flipped.mef");
    let session = session();
    packed(&session, &path);
    let good = fs::read(&path).unwrap();
    for byte in (0..good.len()).step_by(5) {
        let mut bytes = good.clone();
        bytes[byte] ^= 1 << (byte % 8);
        fs::write(&path, &bytes).unwrap();
        match session.load(&path, &()) {
            Err(Error::Artifact { .. }) => {}
            other => panic!("byte {byte}: {other:?}"),
        }
    }
    let altered = |needle: &[u8]| {
        let mut bytes = good.clone();
        let place = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
        bytes[place] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let message = message(session.load(&path, &()));
        message.strip_prefix(&format!("artifact {}: altered: ", path.display())).unwrap().to_string()
    };
    assert_eq!(altered(b"graph g"), "the text of graph `g` is not what was written");
    assert_eq!(altered(noise([5, 5], 1).bytes()), "weight `a` (f32[5, 5]) is not what was written");
    assert_eq!(altered(noise([6, 4], 9).bytes()), "constant @0 of graph `g` is not what was written");
}

#[test]
fn no_cut_goes_unnoticed() {
    let folder = TestFolder::new("artifact_cut");
    let path = folder.path().join("cut.mef");
    let session = session();
    packed(&session, &path);
    let good = fs::read(&path).unwrap();
    for len in (0..good.len()).step_by(3) {
        fs::write(&path, &good[..len]).unwrap();
        let message = message(session.load(&path, &()));
        assert!(message.contains(&format!(": truncated: it has {len} bytes, expected ")), "{message}");
    }
}

#[test]
fn files_for_others_are_named() {
    let folder = TestFolder::new("artifact_others");
    let path = folder.path().join("other.mef");
    packed(&session(), &path);
    let check = |result: Result<Model, Error>, fault: &str| {
        assert_eq!(message(result), format!("artifact {}: {fault}", path.display()));
    };
    let elsewhere = "it was compiled for test (test), but this session has reference (reference); compile the model again";
    check(reference_session().load(&path, &()), elsewhere);
    // Either device will do.
    let devices: [Arc<dyn crate::Device>; 2] = [Arc::new(crate::ReferenceDevice), Arc::new(TestDevice)];
    let model = InferenceSession::new(devices).unwrap().load(&path, &()).unwrap();
    assert!(model.program().to_string().starts_with("plan g on test"));
    let maker = container::maker();
    let newer = changed(&fs::read(&path).unwrap(), |header| {
        assert_eq!(header.maker, maker);
        header.maker = "perihelion 99.0.0".to_string();
    });
    fs::write(&path, newer).unwrap();
    let newer = format!("it was made by perihelion 99.0.0, but this is {maker}; compile the model again");
    check(session().load(&path, &()), &newer);
    fs::write(&path, b"PK\x03\x04").unwrap();
    check(session().load(&path, &()), "not an artifact of Perihelion: it is a zip archive");
    fs::write(&path, "graph g() { return }").unwrap();
    check(session().load(&path, &()), "not an artifact of Perihelion: it is text");
}

/// Well-formed files whose parts do not fit each other.
#[test]
fn contents_that_contradict_each_other_are_refused() {
    let folder = TestFolder::new("artifact_hostile");
    let path = folder.path().join("hostile.mef");
    let session = session();
    packed(&session, &path);
    let good = fs::read(&path).unwrap();
    let header = container::read(&good).unwrap();
    let check = |change: &dyn Fn(&mut container::Header), expected: &str| {
        fs::write(&path, changed(&good, change)).unwrap();
        let message = message(session.load(&path, &()));
        assert!(message.contains(expected), "{message}");
    };
    let weight = |header: &container::Header, name: &str| {
        let source = container::SourceRecord::Named(name.to_string());
        header.weights.iter().position(|weight| weight.source == source).unwrap()
    };
    let b = weight(&header, "b");
    let a_section = header.weights[weight(&header, "a")].section;
    check(&|header| header.weights[b].section = a_section, "malformed: weight `b`: f32[4, 5] needs 80 bytes");
    check(&|header| header.weights[b].ty = "f32[".to_string(), "malformed: the type of a weight: ");
    let other = "weight `b`: the artifact has f32[9, 9] as columns, but `g` needs f32[4, 5] as columns";
    check(&|header| header.weights[b].ty = "f32[9, 9]".to_string(), other);
    check(&|header| drop(header.weights.remove(b)), "model `g`: no weight `b` in the registry");
    check(&|header| header.models[0].graph = header.models[0].constants[0], "malformed: graph `g`: ");
    check(&|header| header.models[0].constants.clear(), "there is no constant @0 with the text");
    check(&|header| header.models[0].name = "h".to_string(), "malformed: graph `h`: its text is of `g`");
    let twice = |header: &mut container::Header| header.models.push(header.models[0].clone());
    check(&twice, "two models have the name `g`");
}

#[test]
fn failed_exports_leave_nothing_behind() {
    let folder = TestFolder::new("artifact_failed");
    let path = folder.path().join("failed.mef");
    let compiled = session().compile(&network("g")).unwrap();
    let export = |weights: &dyn WeightsRegistry, path: &Path| {
        compiled.export_mef_with(path, ExportOptions { weights: Some(weights), ..ExportOptions::default() })
    };
    let missing = "model `g`: no weight `b` in the registry, expected f32[4, 5]";
    assert_eq!(message(export(&(), &path)), missing);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let nowhere = folder.path().join("no/where.mef");
    // Windows has a number of its own for a missing folder.
    let missing = std::io::Error::from_raw_os_error(if cfg!(windows) { 3 } else { 2 });
    let expected = format!("writing {}: {missing}", nowhere.display());
    assert_eq!(message(export(&weights(), &nowhere)), expected);
}
