//! "Compile, init, load": what models are compiled from, where their weights come from, and what is kept.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;

use perihelion::driver::{Buffer, DType, Tensor};
use perihelion::engine::{CompileCache, CompileOptions, ExportOptions, InferenceSession, InitOptions, Model};
use perihelion::graph::{Graph, Module};

use crate::support::{
    FAULTY, LEAKY, extensions, folder, in_child, message, noise, parse, run, session, sum, weights,
};

fn two_models() -> Module {
    Module { graphs: vec![sum("one"), sum("two")] }
}

/// A linear layer, whose weight the CPU packs, and a bias, which it does not.
fn layer() -> Graph {
    parse(
        r#"graph layer(%x: f32[n, 3]) {
             %w = weight "w" : f32[2, 3]
             %bias = weight "bias" : f32[2]
             %h = linear(%x, %w)
             %y = add(%h, %bias)
             return %y
           }"#,
    )
}

/// Its weights: each number of `w` is `scale`.
fn layer_weights(scale: f32) -> HashMap<String, Tensor> {
    HashMap::from([
        ("w".to_string(), Tensor::from_slice([2, 3], &[scale; 6])),
        ("bias".to_string(), Tensor::from_slice([2], &[0.5f32, -0.5])),
    ])
}

fn run_layer(model: &Model) -> Vec<f32> {
    model.execute(&[Buffer::from_slice([1, 3], &[1f32, 2.0, 3.0])]).unwrap()[0].to_vec()
}

#[test]
fn graphs_modules_text_and_artifacts_compile_and_load() {
    let (session, folder) = (session(), folder("sources"));
    let (text, artifact) = (folder.join("sum.graph"), folder.join("sum.mef"));
    fs::write(&text, sum("sum").to_string()).unwrap();
    session.compile(&text).unwrap().export_mef(&artifact).unwrap();
    let check = |model: Model| assert_eq!(run(&model, &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
    check(session.load(&sum("sum"), &weights()).unwrap());
    check(session.load(&Module { graphs: vec![sum("sum")] }, &weights()).unwrap());
    for path in [&text, &artifact] {
        check(session.load(path, &weights()).unwrap());
        let compiled = session.compile(path).unwrap();
        check(session.init(&compiled, &weights()).unwrap());
        check(session.init_all(&compiled, &weights()).unwrap().remove("sum").unwrap());
    }
    // A file of text may hold several models, too.
    fs::write(&text, sum("one").to_string() + &sum("two").to_string()).unwrap();
    assert_eq!(session.compile(&text).unwrap().names().collect::<Vec<_>>(), ["one", "two"]);
    check(session.load_all(&text, &weights()).unwrap().remove("two").unwrap());
}

#[test]
fn one_compiled_model_initializes_with_different_weights() {
    let session = session();
    let compiled = session.compile(&layer()).unwrap();
    // The CPU packs `w` in a layout of its own when it initializes.
    let plan = compiled.to_string();
    assert!(plan.contains("weight \"w\" f32[2, 3] as panel"), "{plan}");
    assert!(plan.contains("weight \"bias\" f32[2]\n"), "{plan}");
    let models = [1f32, 10.0].map(|scale| session.init(&compiled, &layer_weights(scale)).unwrap());
    assert_eq!(run_layer(&models[0]), [6.5, 5.5]);
    assert_eq!(run_layer(&models[1]), [60.5, 59.5]);
    assert_eq!(run_layer(&models[0]), [6.5, 5.5]);
}

#[test]
fn compiled_models_are_kept_in_the_users_cache_or_another_or_none() {
    const TEST: &str = "compile::compiled_models_are_kept_in_the_users_cache_or_another_or_none";
    let (home, folder) = (std::env::temp_dir(), folder("cache"));
    let home = home.join(format!("perihelion-reference-cache-{}", std::process::id()));
    let path = home.to_str().unwrap();
    let named = [("PERIHELION_CACHE_DIR", path)];
    let entries = |folder: &std::path::Path| -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "mef")).collect()
    };
    let compile = |session: &InferenceSession| {
        let model = session.load(&sum("sum"), &weights()).unwrap();
        assert_eq!(run(&model, &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
    };
    let usual = || compile(&InferenceSession::new([]).unwrap());
    // Children come here too, on the way to their own calls; they have another `home`, so they damage nothing.
    let first = in_child(TEST, "first", &named, usual);
    let kept = entries(&home.join("compiled"));
    if let [entry] = &kept[..] {
        fs::write(entry, "damaged").unwrap();
    }
    let second = in_child(TEST, "second", &named, usual);
    let third = in_child(TEST, "third", &named, usual);
    let off = in_child(TEST, "off", &[("HOME", path), ("XDG_CACHE_HOME", path)], usual);
    let other = in_child(TEST, "other", &named, || {
        let builder = InferenceSession::builder();
        compile(&builder.compile_cache(CompileCache::at(folder.join("other"))).build().unwrap());
        compile(&InferenceSession::builder().compile_cache(None).build().unwrap());
    });
    for quiet in [&first, &third, &off, &other] {
        assert_eq!(quiet.errors, "");
    }
    // The cache is read: what was damaged is noticed, and made again.
    assert_eq!(kept.len(), 1);
    let warning = "a compiled model that was kept is made again";
    assert!(second.errors.contains(warning), "{}", second.errors);
    assert_eq!(entries(&home.join("compiled")), kept);
    assert_eq!(entries(&folder.join("other")).len(), 1);
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1, "`off` keeps nothing");
    fs::remove_dir_all(home).unwrap();
}

#[test]
fn a_compile_may_bring_its_own_extensions() {
    let Some(custom_extensions) = extensions(&[LEAKY, LEAKY]) else { return };
    let graph = |name: &str| {
        let op = "custom(%x) {op = leaky_relu, results = [f32[2]], slope = 0.5}";
        parse(&format!("graph {name}(%x: f32[2]) {{ %y = {op} return %y }}"))
    };
    let (session, module) = (session(), Module { graphs: vec![graph("a"), graph("b")] });
    let none = "compiling `a`: unknown op `leaky_relu` (no extensions are loaded)";
    assert_eq!(message(session.load(&graph("a"), &())), none);
    assert_eq!(message(session.load_all(&module, &())), none);
    let options = CompileOptions { custom_extensions, ..CompileOptions::default() };
    let check = |model: &Model| assert_eq!(run(model, &[-1.0, 2.0]).unwrap(), [-0.5, 2.0]);
    check(&session.init(&session.compile_with(&graph("a"), &options).unwrap(), &()).unwrap());
    check(&session.load_with(&graph("a"), &(), &options).unwrap());
    let models = session.load_all_with(&module, &(), &options).unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["a", "b"]);
    models.values().for_each(check);
    // They are used besides those of the session.
    let builder = InferenceSession::builder().custom_extensions(extensions(&[FAULTY]).unwrap());
    let both = builder.compile_cache(None).build().unwrap();
    let op = "custom(%x) {op = panics, results = [f32[2]]}";
    let text = format!(
        "graph both(%x: f32[2]) {{ %a = {op} %y = custom(%a) {{op = leaky_relu, results = [f32[2]]}} return %y }}"
    );
    let model = both.load_with(&parse(&text), &(), &options).unwrap();
    assert_eq!(run(&model, &[1.0, 2.0]).unwrap(), [2.0, 4.0]);
}

#[test]
fn wrong_weights_are_named_with_both_facts() {
    let session = session();
    let compiled = session.compile(&layer()).unwrap();
    let check = |name: &str, tensor: Option<Tensor>, expected: &str| {
        let mut weights = layer_weights(1.0);
        match tensor {
            Some(tensor) => weights.insert(name.to_string(), tensor),
            None => weights.remove(name),
        };
        let strict = InitOptions { strict: true, progress: None };
        assert_eq!(message(session.init_with(&compiled, &weights, strict)), expected);
    };
    check("w", None, "model `layer`: no weight `w` in the registry, expected f32[2, 3]");
    let wide = Tensor::zeros(DType::F32, [2, 4]);
    check("w", Some(wide), "weight `w`: got f32[2, 4], expected f32[2, 3]");
    let half = Tensor::zeros(DType::F16, [2]);
    check("bias", Some(half), "weight `bias`: got f16[2], expected f32[2]");
    let transposed = Tensor::zeros(DType::F32, [3, 2]).permute(&[1, 0]);
    let strided = "weight `w`: got strides [1, 2] with shape [2, 3], expected a row-major tensor; .contiguous() makes one";
    check("w", Some(transposed), strided);
    check("extra", Some(Tensor::zeros(DType::F32, [1])), "weights that no model uses: extra");
    let mut more = layer_weights(1.0);
    more.insert("extra".to_string(), Tensor::zeros(DType::F32, [1]));
    assert_eq!(run_layer(&session.init(&compiled, &more).unwrap()), [6.5, 5.5], "unless it is strict");
}

#[test]
fn maps_functions_and_arrays_of_other_libraries_are_registries() {
    let session = session();
    let expected = |model: Model| assert_eq!(run(&model, &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
    let tensor = weights().remove("w").unwrap();
    expected(session.load(&sum("s"), &weights()).unwrap());
    expected(session.load(&sum("s"), &|name: &str| (name == "w").then(|| tensor.clone())).unwrap());
    let buffer = Buffer::from_slice([2], &[10f32, 20.0]);
    let buffers = BTreeMap::from([("w".to_string(), buffer.clone())]);
    let model = session.load(&sum("s"), &buffers).unwrap();
    assert!(buffer.write().is_err(), "the model reads it in place");
    drop(buffers);
    expected(model);
    assert!(buffer.write().is_ok(), "the model is gone");
    let exported = Arc::new(buffer.to_dlpack().unwrap());
    let model = session.load(&sum("s"), &HashMap::from([("w".to_string(), exported)])).unwrap();
    drop(buffer);
    expected(model);
}

#[test]
fn init_all_binds_one_registry_to_every_model() {
    let session = session();
    let compiled = session.compile(&two_models()).unwrap();
    assert_eq!(compiled.names().collect::<Vec<_>>(), ["one", "two"]);
    let buffer = Buffer::from_slice([2], &[10f32, 20.0]);
    let registry = BTreeMap::from([("w".to_string(), buffer.clone())]);
    let mut models = session.init_all(&compiled, &registry).unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["one", "two"]);
    for model in models.values() {
        assert_eq!(run(model, &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
    }
    // Both read the same buffer in place.
    models.remove("one");
    assert!(buffer.write().is_err());
    models.remove("two");
    assert!(buffer.write().is_ok());
    let missing = "model `one`: no weight `w` in the registry, expected f32[2]";
    assert_eq!(message(session.init_all(&compiled, &())), missing);
}

#[test]
fn load_takes_one_model_and_load_all_several() {
    let (session, folder) = (session(), folder("several"));
    let path = folder.join("two.mef");
    session.compile(&two_models()).unwrap().export_mef(&path).unwrap();
    let several = |call: &str| format!("`{call}` makes one model, but 2 were compiled; use `{call}_all`");
    assert_eq!(message(session.load(&two_models(), &weights())), several("load"));
    assert_eq!(message(session.load(&path, &weights())), several("load"));
    let compiled = session.compile(&path).unwrap();
    assert_eq!(message(session.init(&compiled, &weights())), several("init"));
    for models in [session.load_all(&path, &weights()), session.load_all(&two_models(), &weights())] {
        let models = models.unwrap();
        assert_eq!(
            models.iter().map(|(name, model)| (&name[..], model.name())).collect::<Vec<_>>(),
            [("one", "one"), ("two", "two")]
        );
        assert_eq!(run(&models["two"], &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
    }
    let doubled = Module { graphs: vec![sum("one"), sum("one")] };
    let expected = "two models have the name `one`; each needs its own";
    assert_eq!(message(session.compile(&doubled)), expected);
    assert!(session.load_all(&Module::default(), &()).unwrap().is_empty());
}

#[test]
fn packed_artifacts_need_no_registry_and_a_registry_comes_first() {
    let (session, path) = (session(), folder("packed").join("layer.mef"));
    let weights = layer_weights(1.0);
    let options = ExportOptions { weights: Some(&weights), ..ExportOptions::default() };
    session.compile(&layer()).unwrap().export_mef_with(&path, options).unwrap();
    assert_eq!(run_layer(&session.load(&path, &()).unwrap()), [6.5, 5.5]);
    let other = layer_weights(10.0).remove("w").unwrap();
    let one = |name: &str| (name == "w").then(|| other.clone());
    assert_eq!(run_layer(&session.load(&path, &one).unwrap()), [60.5, 59.5]);
    let wrong = |name: &str| (name == "w").then(|| Tensor::from_slice([3], &noise(3, 1)));
    assert_eq!(message(session.load(&path, &wrong)), "weight `w`: got f32[3], expected f32[2, 3]");
    let bare = folder("bare").join("layer.mef");
    session.compile(&layer()).unwrap().export_mef(&bare).unwrap();
    let missing = message(session.load(&bare, &()));
    assert!(missing.starts_with("model `layer`: no weight `"), "{missing}");
}
