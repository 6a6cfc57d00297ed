//! Weights are found, checked, packed in order and let go.

use std::cell::RefCell;
use std::collections::HashMap;

use graph::{Graph, Type};
use tensor::{DType, Shape, Tensor};

use super::*;
use crate::testing::{build, f32, noise, session};
use crate::{InitOptions, Model};

/// Weight `a` read raw and packed, `b` packed twice, `c` raw.
fn graph() -> Graph {
    build("g", |b| {
        let x = b.input("x", f32(&["n", "2"]));
        let a = b.weight("a", f32(&["2", "2"]))?;
        let packed = b.weight("b", f32(&["2", "2"]))?;
        let c = b.weight("c", f32(&["2"]))?;
        let y = b.linear(x, a)?;
        let y = b.linear(y, packed)?;
        let z = b.linear(y, packed)?;
        let z = b.mul(z, c)?;
        let sum = b.mul(a, a)?;
        Ok(vec![z, sum])
    })
}

struct Registry {
    tensors: HashMap<String, Tensor>,
    released: RefCell<Vec<String>>,
}

impl WeightsRegistry for Registry {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        Ok(self.tensors.get(name).cloned())
    }

    fn release(&self, name: &str) {
        self.released.borrow_mut().push(name.to_string());
    }
}

fn weights() -> HashMap<String, Tensor> {
    let tensor = |name: &str, shape: &[usize]| (name.to_string(), noise(shape, name.len()));
    HashMap::from([tensor("a", &[2, 2]), tensor("b", &[2, 2]), tensor("c", &[2])])
}

fn init(weights: &dyn WeightsRegistry, options: InitOptions<'_>) -> Result<Model, Error> {
    let session = session();
    session.init_with(&session.compile(&graph()).unwrap(), weights, options)
}

fn check(change: impl FnOnce(&mut HashMap<String, Tensor>), message: &str) {
    let mut weights = weights();
    change(&mut weights);
    let error = init(&weights, InitOptions { strict: true, progress: None }).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn wrong_weights_are_named() {
    let put = |name: &'static str, tensor: Tensor| {
        move |weights: &mut HashMap<String, Tensor>| drop(weights.insert(name.to_string(), tensor))
    };
    check(
        |weights| drop(weights.remove("b")),
        "model `g`: no weight `b` in the registry, expected f32[2, 2]",
    );
    check(put("b", noise([2, 3], 1)), "weight `b`: got f32[2, 3], expected f32[2, 2]");
    check(put("c", Tensor::zeros(DType::F16, [2])), "weight `c`: got f16[2], expected f32[2]");
    check(
        put("a", noise([2, 2], 1).permute(&[1, 0])),
        "weight `a`: got strides [1, 2] with shape [2, 2], expected a row-major tensor; .contiguous() makes one",
    );
    check(put("z", noise([1], 1)), "weights that no model uses: z");
}

#[test]
fn unknown_names_are_accepted_unless_strict() {
    let mut weights = weights();
    weights.insert("extra".to_string(), noise([1], 1));
    assert!(init(&weights, InitOptions::default()).is_ok());
}

#[test]
fn unused_weights_must_be_row_major_too() {
    let mut weights = weights();
    weights.insert("extra".to_string(), noise([2, 3], 1).permute(&[1, 0]));
    let error = init(&weights, InitOptions::default()).unwrap_err().to_string();
    let expected = "weight `extra`: got strides [1, 3] with shape [3, 2], expected a row-major tensor; .contiguous() makes one";
    assert_eq!(error, expected);
    // A registry that does not tell its names is asked for none.
    assert!(init(&|name: &str| weights.get(name).cloned(), InitOptions::default()).is_ok());
}

#[test]
fn weights_of_graphs_within_are_packed() {
    let graph = build("g", |b| {
        let (p, x) = (b.input("p", Type::new(DType::Bool, graph::dims![])), b.input("x", f32(&["n", "2"])));
        let w = b.weight("w", f32(&["2", "2"]))?;
        b.cond(p, None, |b| Ok(vec![b.linear(x, w)?]), |_| Ok(vec![x]))
    });
    let plan = session().compile(&graph).unwrap().to_string();
    assert!(plan.contains("weight \"w\" f32[2, 2] as columns"), "{plan}");
}

#[test]
fn weights_are_packed_once_the_largest_first_and_then_released() {
    let registry = Registry { tensors: weights(), released: RefCell::default() };
    let mut seen = Vec::new();
    let mut progress = |progress: Progress| seen.push(progress);
    let model = init(&registry, InitOptions { strict: false, progress: Some(&mut progress) }).unwrap();
    assert_eq!(registry.released.take(), ["a", "b"]);
    let done: Vec<usize> = seen.iter().map(|progress| progress.done).collect();
    assert_eq!(done, [16, 32, 48, 56]);
    assert!(seen.iter().all(|progress| progress.total == 56));
    let plan = model.program().to_string();
    let slots: Vec<&str> = plan.lines().filter(|line| line.contains("weight")).map(str::trim).collect();
    assert_eq!(
        slots,
        [
            "w0 = weight \"a\" f32[2, 2] as columns",
            "w1 = weight \"b\" f32[2, 2] as columns",
            "w2 = weight \"c\" f32[2]",
            "w3 = weight \"a\" f32[2, 2]",
        ]
    );
}

/// Says what each weight is, and makes it when it is asked for.
struct Maker {
    types: HashMap<String, (DType, Shape)>,
    log: RefCell<Vec<String>>,
}

impl WeightsRegistry for Maker {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        self.log.borrow_mut().push(format!("get {name}"));
        Ok(weights().remove(name))
    }

    fn describe(&self, name: &str) -> Result<Option<(DType, Shape)>, String> {
        Ok(self.types.get(name).copied())
    }

    fn release(&self, name: &str) {
        self.log.borrow_mut().push(format!("release {name}"));
    }
}

#[test]
fn described_weights_are_made_one_by_one() {
    let types: HashMap<String, (DType, Shape)> =
        weights().into_iter().map(|(name, tensor)| (name, (tensor.dtype(), *tensor.shape()))).collect();
    let maker = |types| Maker { types, log: RefCell::default() };
    let all = maker(types.clone());
    init(&all, InitOptions::default()).unwrap();
    let log = all.log.take();
    assert_eq!(log, ["get a", "release a", "get b", "release b", "get a", "get c"]);

    let mut wrong = types.clone();
    wrong.insert("c".to_string(), (DType::F32, Shape::new(&[3])));
    let error = init(&maker(wrong), InitOptions::default()).unwrap_err().to_string();
    assert_eq!(error, "weight `c`: got f32[3], expected f32[2]");
    let mut more = types;
    more.insert("d".to_string(), (DType::F32, Shape::new(&[2])));
    let graph = build("g", |b| Ok(vec![b.weight("d", f32(&["2"]))?]));
    let session = session();
    let error = session.init(&session.compile(&graph).unwrap(), &maker(more)).unwrap_err().to_string();
    assert_eq!(error, "weight `d`: the registry described f32[2], but has none");
}

#[test]
fn raw_weights_are_shared() {
    let graph = build("g", |b| {
        let w = b.weight("w", f32(&["2"]))?;
        Ok(vec![b.mul(w, w)?])
    });
    let tensor = noise([2], 1);
    let address = tensor.bytes().as_ptr();
    let session = session();
    let compiled = session.compile(&graph).unwrap();
    let sources = Sources { registry: &|_: &str| Some(tensor.clone()), stored: None };
    let bound = bind(compiled.programs().next().unwrap(), sources, &mut |_| ()).unwrap();
    assert_eq!(bound[0].raw().as_ptr(), address);
}
