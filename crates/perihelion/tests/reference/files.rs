//! "Files and libraries": artifacts for the CPU, and libraries of ops that it runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use perihelion::driver::{Buffer, Bytes, Cpu, DType, Device, InstructionSet, Tensor};
use perihelion::engine::extension::{Compiler, MANIFEST, pack};
use perihelion::engine::{Artifact, Error, ExportOptions, Extensions, InferenceSession, Model};
use perihelion::graph::Graph;

use crate::support::{FAULTY, LEAKY, compiler, extensions, folder, message, noise, parse, run, session};

/// A packed weight, one that is read as it is, and a constant.
fn network() -> Graph {
    let values: Vec<String> = noise(20, 9).iter().map(|value| format!("{value:?}")).collect();
    parse(&format!(
        r#"graph g(%x: f32[n, 5]) {{
             %a = weight "a" : f32[5, 5]
             %b = weight "b" : f32[5]
             %c = constant [{}] : f32[4, 5]
             %h = linear(%x, %a)
             %s = mul(%h, %b)
             %y = linear(%s, %c)
             return %y
           }}"#,
        values.join(", ")
    ))
}

fn weight(name: &str) -> Option<Tensor> {
    match name {
        "a" => Some(Tensor::from_slice([5, 5], &noise(25, 1))),
        "b" => Some(Tensor::from_slice([5], &noise(5, 2))),
        _ => None,
    }
}

fn compute(model: &Model) -> Vec<f32> {
    model.execute(&[Buffer::from_slice([3, 5], &noise(15, 7))]).unwrap()[0].to_vec()
}

fn export(session: &InferenceSession, path: &Path) {
    let options = ExportOptions { weights: Some(&weight), ..ExportOptions::default() };
    session.compile(&network()).unwrap().export_mef_with(path, options).unwrap();
}

#[test]
fn artifacts_with_a_flipped_bit_or_cut_short_are_refused() {
    let (session, path) = (session(), folder("flipped").join("g.mef"));
    export(&session, &path);
    let expected = compute(&session.load(&network(), &weight).unwrap());
    assert_eq!(compute(&session.load(&path, &()).unwrap()), expected);
    Artifact::open(&path).unwrap().verify().unwrap();
    let good = fs::read(&path).unwrap();
    let load = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        session.load(&path, &())
    };
    for byte in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[byte] ^= 1 << (byte % 8);
        assert!(matches!(load(&bytes), Err(Error::Artifact { .. })), "byte {byte}");
    }
    for len in (0..good.len()).step_by(11) {
        let error = message(load(&good[..len]));
        assert!(error.contains(&format!(": truncated: it has {len} bytes, expected ")), "{error}");
    }
}

#[test]
fn artifacts_for_others_say_for_whom() {
    let path = folder("others").join("g.mef");
    let on = |set: InstructionSet| {
        let device: Arc<dyn Device> = Arc::new(Cpu::with_instruction_set(2, set));
        InferenceSession::builder().device(device).compile_cache(None).build().unwrap()
    };
    let (least, most) = (on(InstructionSet::Portable), on(InstructionSet::LARGEST));
    let targets = [&least, &most].map(|session| session.devices()[0].target());
    // An artifact for a smaller instruction set runs here; one for a larger set is refused there.
    export(&least, &path);
    assert_eq!(compute(&most.load(&path, &()).unwrap()), compute(&most.load(&network(), &weight).unwrap()));
    export(&most, &path);
    if targets[0] != targets[1] {
        let error = message(least.load(&path, &()));
        let [least, most] = &targets;
        let facts = format!("it was compiled for cpu ({most}), but this session has cpu ({least})");
        assert!(error.contains(&facts), "{error}");
    }
    for (bytes, what) in
        [(&b"PK\x03\x04"[..], "it is a zip archive"), (b"graph g() { return }", "it is text")]
    {
        fs::write(&path, bytes).unwrap();
        let expected = format!("artifact {}: not an artifact of Perihelion: {what}", path.display());
        assert_eq!(message(session().load(&path, &())), expected);
    }
}

/// The network with the weight that is packed mapped from a file.
fn mapped(session: &InferenceSession, path: &Path) -> Model {
    let values: Vec<u8> = noise(25, 1).iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(path, values).unwrap();
    let bytes = Bytes::map(path).unwrap();
    let weight = |name: &str| match name {
        "a" => Some(Tensor::from_bytes(DType::F32, [5, 5], bytes.clone()).unwrap()),
        _ => weight(name),
    };
    session.load(&network(), &weight).unwrap()
}

#[test]
fn mapped_weights_are_packed_in_the_second_call() {
    let (session, path) = (session(), folder("late").join("a.f32"));
    let expected = compute(&session.load(&network(), &weight).unwrap());
    let model = mapped(&session, &path);
    assert_eq!((compute(&model), model.packing_time()), (expected.clone(), None));
    assert_eq!(compute(&model), expected);
    assert!(model.packing_time().is_some());
    // From now on, the file does not matter.
    fs::write(&path, [0]).unwrap();
    assert_eq!(compute(&model), expected);

    let model = mapped(&session, &path);
    model.pack_weights().unwrap();
    assert!(model.packing_time().is_some());
    let saved = path.with_extension("mef");
    mapped(&session, &path).export_mef(&saved).unwrap();
    fs::write(&path, [0]).unwrap();
    assert_eq!([compute(&model), compute(&session.load(&saved, &()).unwrap())], [expected.clone(), expected]);
}

#[test]
fn a_file_that_changes_before_its_weights_are_packed_fails_every_call() {
    let (session, path) = (session(), folder("changed").join("a.f32"));
    let input = || [Buffer::from_slice([3, 5], &noise(15, 7))];
    for calls in 0..2 {
        let model = mapped(&session, &path);
        (0..calls).for_each(|_| drop(compute(&model)));
        fs::write(&path, [0; 200]).unwrap();
        for _ in 0..3 {
            let error = model.execute(&input()).unwrap_err();
            assert!(error.is_file_changed(), "{error}");
        }
        let error = model.pack_weights().unwrap_err().to_string();
        assert!(error.contains("it had 100 bytes and has 200"), "{error}");
        assert_eq!(model.packing_time(), None);
        let error = message(model.export_mef(path.with_extension("mef")));
        assert!(error.contains("a.f32 changed while it was in use"), "{error}");
    }
}

/// `op` between two ops of the CPU, with a size that is known when it runs.
fn around(op: &str) -> Graph {
    let node = format!("custom(%a) {{op = {op}, results = [f32[n]]}}");
    parse(&format!("graph around(%x: f32[n]) {{ %a = neg(%x) %b = {node} %y = neg(%b) return %y }}"))
}

fn with(extensions: Extensions) -> InferenceSession {
    InferenceSession::builder().custom_extensions(extensions).compile_cache(None).build().unwrap()
}

#[test]
fn one_library_or_several_load_by_their_paths() {
    let Some(compiler) = compiler() else { return };
    let path = |source: &str| testdata::repository().join(source);
    let both = Extensions::load_all_with([path(LEAKY), path(FAULTY), path(LEAKY)], &compiler).unwrap();
    assert_eq!(both.libraries().len(), 2, "one that is given twice counts once");
    assert!(both.describe().starts_with("leaky_relu 1.0 ("), "{}", both.describe());
    let session = with(both.clone());
    assert_eq!(run(&session.load(&around("leaky_relu"), &()).unwrap(), &[2.0, -3.0]).unwrap(), [0.02, -3.0]);
    assert_eq!(run(&session.load(&around("panics"), &()).unwrap(), &[-1.0]).unwrap(), [-2.0]);
    let other = folder("ambiguous").join("other.rs");
    let text = fs::read_to_string(path(LEAKY)).unwrap();
    fs::write(&other, text.replace("name: \"leaky_relu\"", "name: \"other\"")).unwrap();
    let other = Extensions::load_all_with([other], &compiler).unwrap();
    let expected = "the op `leaky_relu` is in two extensions: leaky_relu 1.0, and other 1.0";
    assert_eq!(message(both.with(&other)), expected);
}

#[test]
fn sources_are_compiled_once_and_again_after_a_change() {
    let Some(compiler) = compiler() else { return };
    let home = folder("sources_of_ops");
    let compiler = Compiler { cache: Some(home.join("cache")), ..compiler };
    let source = home.join("op.rs");
    let text = fs::read_to_string(testdata::repository().join(LEAKY)).unwrap();
    fs::write(&source, &text).unwrap();
    let load = || Extensions::load_all_with([&source], &compiler).unwrap();
    let result = |extensions: Extensions| {
        run(&with(extensions).load(&around("leaky_relu"), &()).unwrap(), &[2.0, -3.0]).unwrap()
    };
    let built =
        |extensions: &Extensions| extensions.libraries()[0].path().metadata().unwrap().modified().unwrap();
    let (first, again) = (load(), load());
    assert_eq!(built(&first), built(&again));
    assert_eq!(result(first), [0.02, -3.0]);
    fs::write(&source, text.replace("slope * x", "slope * x - 1.0")).unwrap();
    assert_eq!(result(load()), [1.02, -3.0]);
    let absent = Compiler { rustc: "no-such-rustc".into(), cache: Some(home.join("empty")) };
    let error = message(Extensions::load_all_with([&source], &absent));
    assert!(
        error.contains("install Rust, name a compiler in PERIHELION_RUSTC, or give a compiled"),
        "{error}"
    );
}

#[test]
fn packages_run_and_are_refused_for_another_machine() {
    let Some(leaky) = extensions(&[LEAKY]) else { return };
    let package = folder("package").join("leaky");
    pack(leaky.libraries()[0].path(), &package).unwrap();
    let packed = Extensions::load(&package).unwrap();
    let model = with(packed).load(&around("leaky_relu"), &()).unwrap();
    assert_eq!(run(&model, &[2.0, -3.0]).unwrap(), [0.02, -3.0]);
    let manifest = package.join(MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    let here = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    fs::write(&manifest, text.replacen(&format!("\"{here}\""), "\"z80-cpm\"", 1)).unwrap();
    let error = message(Extensions::load(&package));
    assert!(error.contains(&format!("it holds no library for {here}, only for: z80-cpm")), "{error}");
}

#[test]
fn libraries_of_mojo_are_refused() {
    let folder = folder("mojo");
    for name in ["ops.mojopkg", "ops.mojoc", "ops.mojo"] {
        let path = folder.join(name);
        fs::write(&path, "fn main(): pass").unwrap();
        let error = message(Extensions::load(&path));
        let path = path.canonicalize().unwrap();
        assert!(error.starts_with(&format!("extension {}: Mojo is not read: ", path.display())), "{error}");
    }
}

#[test]
fn paths_without_a_model_say_what_is_wrong() {
    let (session, folder) = (session(), folder("wrong_paths"));
    let check = |path: &str, expected: &str| assert_eq!(message(session.load(path, &())), expected);
    check("none.mef", &format!("reading none.mef: {}", std::io::Error::from_raw_os_error(2)));
    check("a.txt", "reading a.txt: expected a file of graph text (.graph) or of compiled models (.mef)");
    let text = folder.join("cut.graph");
    fs::write(&text, "graph g(").unwrap();
    let error = message(session.load(&text, &()));
    assert!(error.starts_with(&format!("reading {}: line 1: ", text.display())), "{error}");
    assert!(matches!(session.load(&text, &()), Err(Error::File { .. })));
    fs::write(folder.join("cut.mef"), "").unwrap();
    assert!(matches!(session.load(&folder.join("cut.mef"), &()), Err(Error::Artifact { .. })));
    assert!(matches!(Extensions::load(folder.join("none.so")), Err(Error::Extension(_))));
    let far = parse("graph g(%x: f32[2] @gpu:0) { return %x }");
    assert!(matches!(session.compile(&far), Err(Error::Compile { .. })));
    let untyped = Graph::parse("graph g(%x: f32[2], %y: f32[3]) { %z = add(%x, %y) return %z }");
    assert!(untyped.is_err_and(|error| error.to_string().contains("f32[3]")));
}
