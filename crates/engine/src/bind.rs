//! Weights for a program: each found by name, checked, and packed where a kernel wants it so.

use std::collections::{BTreeMap, BTreeSet};

use graph::Type;
use tensor::{DType, Shape, Tensor};

use crate::artifact::{StoredWeight, StoredWeights};
use crate::plan::{WeightSlot, WeightSource};
use crate::registry::not_row_major;
use crate::{Error, PackedWeight, Program, WeightsRegistry};

/// A weight slot with its contents.
#[derive(Clone)]
pub(crate) enum BoundWeight {
    /// As stored; shared with the registry.
    Raw(Tensor),
    /// In the device's layout.
    Packed(PackedWeight),
}

/// How far one model's weights are bound. A weight that is read in two layouts counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights, as stored, that are bound.
    pub done: usize,
    /// Bytes of all its weights.
    pub total: usize,
}

impl BoundWeight {
    pub(crate) fn raw(&self) -> &[u8] {
        match self {
            BoundWeight::Raw(tensor) => tensor.bytes(),
            BoundWeight::Packed(_) => unreachable!("the program reads this slot as it is stored"),
        }
    }

    pub(crate) fn packed(&self) -> &PackedWeight {
        match self {
            BoundWeight::Packed(weight) => weight,
            BoundWeight::Raw(_) => unreachable!("the program reads this slot packed"),
        }
    }
}

/// Where weights come from: what the registry does not give is looked for in an artifact.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) registry: &'a dyn WeightsRegistry,
    pub(crate) stored: Option<&'a StoredWeights>,
}

/// The weights of a program in the order of its slots. Every weight is checked before the first is packed.
pub(crate) fn bind(
    program: &Program,
    sources: Sources<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<BoundWeight>, Error> {
    let slots: Vec<usize> = (0..program.weights.len()).collect();
    let mut bound: Vec<Option<BoundWeight>> = vec![None; slots.len()];
    bind_each(program, &slots, sources, progress, &mut |slot, weight| {
        bound[slot] = Some(weight);
        Ok(())
    })?;
    Ok(bound.into_iter().map(|weight| weight.expect("each slot is bound once")).collect())
}

/// Gives the weights of some slots of a program to `sink`, one by one. Every weight is checked before the first is packed.
///
/// The largest are packed first: both forms of a weight are in memory while it is packed, and least else then.
pub(crate) fn bind_each(
    program: &Program,
    slots: &[usize],
    sources: Sources<'_>,
    progress: &mut dyn FnMut(Progress),
    sink: &mut dyn FnMut(usize, BoundWeight) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut found = find(program, slots, sources)?;
    if let Some(stored) = sources.stored {
        let used: Vec<StoredWeight> = found.iter().filter_map(|(_, weight)| weight.stored()).collect();
        stored.verify(&used)?;
    }
    found.sort_by_key(|(slot, weight)| (std::cmp::Reverse(weight.bytes()), *slot));
    let total = found.iter().map(|(_, weight)| weight.bytes()).sum();
    let mut left = packings_left(program, &found);
    let mut done = 0;
    for (index, weight) in found {
        let slot = &program.weights[index];
        done += weight.bytes();
        let weight = match weight {
            Found::Promised(_) => Found::Given(redeem(slot, sources.registry)?),
            found => found,
        };
        let bound = match (weight, &slot.packing) {
            (Found::Promised(_), _) => unreachable!("redeemed above"),
            (Found::Stored(weight), _) => {
                let stored = sources.stored.expect("where it was found");
                stored.bind(slot, weight, &*program.device)?
            }
            (Found::Given(tensor), None) => BoundWeight::Raw(tensor),
            (Found::Given(tensor), Some(layout)) => {
                let packed = pack(program, &slot.source, layout, &tensor)?;
                drop(tensor);
                if let Some(name) = slot.source.name() {
                    let left = left.get_mut(name).expect("counted above");
                    *left -= 1;
                    if *left == 0 {
                        sources.registry.release(name);
                    }
                }
                BoundWeight::Packed(packed)
            }
        };
        sink(index, bound)?;
        progress(Progress { done, total });
    }
    Ok(())
}

/// The names that the registry offers and no program uses; none if the registry does not tell its names.
pub(crate) fn unused_names<'p>(
    programs: impl IntoIterator<Item = &'p Program>,
    registry: &dyn WeightsRegistry,
) -> Vec<String> {
    let mut used = BTreeSet::new();
    for program in programs {
        used.extend(program.weights.iter().filter_map(|slot| slot.source.name()));
    }
    let mut unused = registry.names().unwrap_or_default();
    unused.retain(|name| !used.contains(&name[..]));
    unused.sort();
    unused
}

/// Refuses what is not row-major among the weights that no program uses, so that all of a registry is treated alike.
pub(crate) fn check_unused<'p>(
    programs: impl IntoIterator<Item = &'p Program>,
    registry: &dyn WeightsRegistry,
) -> Result<(), Error> {
    unused_names(programs, registry).iter().try_for_each(|name| match given(registry, name)? {
        Some(tensor) => check_contiguous(name, &tensor),
        None => Ok(()),
    })
}

/// A weight before it is bound.
enum Found {
    /// As the registry or the graph has it.
    Given(Tensor),
    /// In the registry, which has said its type; so many bytes.
    Promised(usize),
    /// In the artifact, in the layout of its slot.
    Stored(StoredWeight),
}

impl Found {
    fn bytes(&self) -> usize {
        match self {
            Found::Given(tensor) => tensor.bytes().len(),
            Found::Promised(bytes) => *bytes,
            Found::Stored(weight) => weight.bytes,
        }
    }

    fn stored(&self) -> Option<StoredWeight> {
        match self {
            Found::Given(_) | Found::Promised(_) => None,
            Found::Stored(weight) => Some(*weight),
        }
    }
}

/// What the registry has under a name.
fn given(registry: &dyn WeightsRegistry, name: &str) -> Result<Option<Tensor>, Error> {
    registry.get(name).map_err(|message| Error::Weight { name: name.to_string(), message })
}

/// How many weights of each name are to be packed.
fn packings_left<'p>(program: &'p Program, found: &[(usize, Found)]) -> BTreeMap<&'p str, usize> {
    let mut left = BTreeMap::new();
    for (slot, weight) in found {
        let slot = &program.weights[*slot];
        let is_here = !matches!(weight, Found::Stored(_));
        if let (true, Some(_), Some(name)) = (is_here, &slot.packing, slot.source.name()) {
            *left.entry(name).or_default() += 1;
        }
    }
    left
}

/// What the registry says of a weight that it has, if it says it beforehand, checked; so many bytes.
fn promised(slot: &WeightSlot, registry: &dyn WeightsRegistry) -> Result<Option<usize>, Error> {
    let Some(name) = slot.source.name() else { return Ok(None) };
    let failed = |message| Error::Weight { name: name.to_string(), message };
    let Some((dtype, shape)) = registry.describe(name).map_err(failed)? else { return Ok(None) };
    check_type(name, dtype, shape, &slot.ty)?;
    let bytes = dtype.bytes_for(shape.elements());
    bytes.map(Some).ok_or_else(|| failed(format!("{dtype}{shape} is no whole number of blocks")))
}

/// The tensor of a weight that the registry has described.
fn redeem(slot: &WeightSlot, registry: &dyn WeightsRegistry) -> Result<Tensor, Error> {
    let name = slot.source.name().expect("constants are not described");
    let missing = || Error::Weight {
        name: name.to_string(),
        message: format!("the registry described {}, but has none", slot.ty),
    };
    let tensor = given(registry, name)?.ok_or_else(missing)?;
    check(name, &tensor, &slot.ty)?;
    Ok(tensor)
}

fn find(program: &Program, slots: &[usize], sources: Sources<'_>) -> Result<Vec<(usize, Found)>, Error> {
    let mut known: BTreeMap<&str, Option<Tensor>> = BTreeMap::new();
    let found = slots.iter().map(|&index| {
        let slot = &program.weights[index];
        let stored = || sources.stored.and_then(|stored| stored.find(slot)).map(Found::Stored);
        let found = match &slot.source {
            WeightSource::Constant(tensor) => match slot.packing.as_ref().and_then(|_| stored()) {
                Some(stored) => stored,
                None => Found::Given(tensor.contiguous()),
            },
            WeightSource::Named(name) => {
                if let Some(bytes) = promised(slot, sources.registry)? {
                    return Ok((index, Found::Promised(bytes)));
                }
                if !known.contains_key(&name[..]) {
                    known.insert(name, given(sources.registry, name)?);
                }
                match &known[&name[..]] {
                    Some(tensor) => {
                        check(name, tensor, &slot.ty)?;
                        Found::Given(tensor.clone())
                    }
                    None => stored().ok_or_else(|| missing(program, slot, sources))?,
                }
            }
        };
        Ok((index, found))
    });
    found.collect()
}

fn missing(program: &Program, slot: &WeightSlot, sources: Sources<'_>) -> Error {
    let name = slot.source.name().expect("constants are never missing").to_string();
    let model = program.name.clone();
    match sources.stored.and_then(|stored| stored.describe(slot)) {
        None => Error::MissingWeight { model, name, expected: slot.ty.to_string() },
        Some(found) => {
            let wanted = slot.packing.as_ref().map_or(String::new(), |layout| format!(" as {layout}"));
            let message = format!(
                "the artifact has {found}, but `{model}` needs {}{wanted}, and the registry has none",
                slot.ty
            );
            Error::Weight { name, message }
        }
    }
}

fn check(name: &str, tensor: &Tensor, expected: &Type) -> Result<(), Error> {
    check_type(name, tensor.dtype(), *tensor.shape(), expected)?;
    check_contiguous(name, tensor)
}

fn check_type(name: &str, dtype: DType, shape: Shape, expected: &Type) -> Result<(), Error> {
    match dtype == expected.dtype && Some(shape) == expected.static_shape() {
        true => Ok(()),
        false => {
            let message = format!("got {dtype}{shape}, expected {expected}");
            Err(Error::Weight { name: name.to_string(), message })
        }
    }
}

fn check_contiguous(name: &str, tensor: &Tensor) -> Result<(), Error> {
    match tensor.is_contiguous() {
        true => Ok(()),
        false => {
            let message = not_row_major(tensor.strides(), tensor.shape());
            Err(Error::Weight { name: name.to_string(), message })
        }
    }
}

fn pack(
    program: &Program,
    source: &WeightSource,
    layout: &str,
    tensor: &Tensor,
) -> Result<PackedWeight, Error> {
    program.device.pack(layout, tensor).map_err(|message| {
        let name = match source {
            WeightSource::Named(name) => name.clone(),
            WeightSource::Constant(_) => "a constant".to_string(),
        };
        Error::Weight { name, message: format!("packing as {layout}: {message}") }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use graph::Graph;
    use tensor::{DType, Tensor};

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
        fn get(&self, name: &str) -> Result<Option<Tensor>, String> {
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
            "weight `a`: got strides [1, 2] with shape [2, 2], expected a row-major tensor",
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
    fn weights_that_nobody_uses_are_row_major_too() {
        let mut weights = weights();
        weights.insert("extra".to_string(), noise([2, 3], 1).permute(&[1, 0]));
        let error = init(&weights, InitOptions::default()).unwrap_err().to_string();
        let expected = "weight `extra`: got strides [1, 3] with shape [3, 2], expected a row-major tensor";
        assert_eq!(error, expected);
        // A registry that does not tell its names is asked for none.
        assert!(init(&|name: &str| weights.get(name).cloned(), InitOptions::default()).is_ok());
    }

    #[test]
    fn weights_of_graphs_within_are_packed() {
        let graph = build("g", |b| {
            let (p, x) =
                (b.input("p", Type::new(DType::Bool, graph::dims![])), b.input("x", f32(&["n", "2"])));
            let with = |b: &mut graph::Builder, x: &[graph::Value]| {
                let w = b.weight("w", f32(&["2", "2"]))?;
                Ok(vec![b.linear(x[0], w)?])
            };
            b.cond(p, &[x], with, |_, x| Ok(x.to_vec()))
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
        fn get(&self, name: &str) -> Result<Option<Tensor>, String> {
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
}
