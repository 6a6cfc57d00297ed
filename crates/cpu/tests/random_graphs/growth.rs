//! Graphs that grow node by node, as picks say. What does not fit is left out.

use graph::ops::Constant;
use graph::{Bindings, Builder, Dim, Error, Graph, Kind, Op, Type, TypeError, Value, dims};
use tensor::{DType, Shape, Tensor};

use crate::data::Noise;
use crate::{controls, elements, images, moves, places, products};

/// What one node, or a few that belong together, are made of.
#[derive(Debug, Clone)]
pub(crate) struct Pick {
    /// Which of the kinds of nodes, modulo their number.
    pub(crate) kind: usize,
    /// By which others find its results.
    pub(crate) tag: u32,
    /// The tags near which its operands are looked for. As nodes have tags, an operand stays when others go.
    pub(crate) operands: [u32; 4],
    /// Attributes, modulo what they may be.
    pub(crate) numbers: [usize; 7],
}

/// A graph with arguments.
pub(crate) struct Sample {
    pub(crate) graph: Graph,
    pub(crate) inputs: Vec<Tensor>,
}

/// A kind of node: its results, or why it does not fit.
pub(crate) type Kindred = fn(&mut Growth) -> Result<Vec<Value>, Error>;

/// The kinds of nodes, by family.
const FAMILIES: &[&[Kindred]] = &[
    elements::KINDS,
    elements::KINDS,
    products::KINDS,
    moves::KINDS,
    places::KINDS,
    images::KINDS,
    controls::KINDS,
];

/// Sizes of symbols: none, those around lanes of vectors, and a prime.
const SIZES: [usize; 8] = [3, 1, 2, 5, 16, 17, 7, 0];

/// Values of more elements are not used again.
const MAX_ELEMENTS: usize = 4000;

/// A graph in the making.
pub(crate) struct Growth {
    pub(crate) b: Builder,
    /// Tensors with their tags.
    pool: Vec<(u32, Value)>,
    /// Sizes of the symbols that inputs have.
    bindings: Bindings,
    pick: Pick,
    names: usize,
    pub(crate) buffer: Value,
    pub(crate) cache: Value,
    /// Of rows that are keys and values at once.
    pub(crate) latents: Value,
    /// Of sequences: what convolutions and state spaces keep.
    pub(crate) states: [Value; 2],
}

/// The graph that picks say; `n` and `m` are the sizes of its symbols.
pub(crate) fn grow(picks: &[Pick], [n, m]: [usize; 2]) -> Sample {
    let mut g = Growth::new([("n", SIZES[n]), ("m", SIZES[m])].into_iter().collect());
    let kinds: Vec<Kindred> = FAMILIES.iter().copied().flatten().copied().collect();
    for pick in picks {
        g.pick = pick.clone();
        for (i, value) in kinds[pick.kind % kinds.len()](&mut g).unwrap_or_default().into_iter().enumerate() {
            g.remember(pick.tag ^ i as u32, value);
        }
    }
    let unused =
        |&(_, value): &(u32, Value)| g.b.graph().users(value) == 0 && g.b.graph().node_of(value).is_some();
    let outputs: Vec<Value> = g.pool.iter().filter(|entry| unused(entry)).map(|&(_, value)| value).collect();
    let outputs = if outputs.is_empty() { vec![g.pool[0].1] } else { outputs };
    let graph = g.b.finish(&outputs).unwrap_or_else(|error| panic!("{error}"));
    let inputs = graph.inputs().iter().map(|input| {
        let ty = graph.ty(input.value);
        let shape = ty.resolve(&g.bindings).expect("inputs have sizes");
        match &input.name[..] {
            "awkward" => Tensor::from_slice(shape, &AWKWARD),
            name => Noise::named(name).tensor(ty.dtype, shape),
        }
    });
    Sample { inputs: inputs.collect(), graph }
}

const AWKWARD: [f32; 9] =
    [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -3e38, 0.5, 16_777_217.0];

impl Growth {
    fn new(bindings: Bindings) -> Growth {
        let mut b = Builder::new("random");
        let mut pool = Vec::new();
        for (i, (name, dtype, shape)) in inputs().into_iter().enumerate() {
            // Far from each other, so that all are found about as often.
            let tag = (i as u32).wrapping_mul(0x9e37_79b9);
            pool.push((tag, b.input(name, Type::new(dtype, shape))));
        }
        let buffer = b.input("buffer", Type::buffer(DType::F32, dims!["n", 6]));
        let kept = [DType::F32, DType::BF16, DType::F16][bindings.get("n").unwrap_or(0) % 3];
        let cache = b.input("cache", Type::buffer(kept, dims![6, 2, 2, 1, 16 * 8]));
        let latents = b.input("latents", Type::buffer(kept, dims![6, 2, 1, 1, 16 * 8]));
        let inputs = b.input("inputs", Type::buffer(DType::F32, dims![4, 2, 8, 2]));
        let states = b.input("states", Type::buffer(DType::F32, dims![4, 2, 2, 3, 4]));
        let pick = Pick { kind: 0, tag: 0, operands: [0; 4], numbers: [0; 7] };
        Growth { b, pool, bindings, pick, names: 0, buffer, cache, latents, states: [inputs, states] }
    }

    fn remember(&mut self, tag: u32, value: Value) {
        let ty = self.b.ty(value);
        let is_large = self.shape(value).is_some_and(|shape| shape.elements() > MAX_ELEMENTS);
        if ty.kind == Kind::Tensor && !is_large && !self.pool.iter().any(|&(_, other)| other == value) {
            self.pool.push((tag, value));
        }
    }

    /// The operand of a number whose type will do.
    pub(crate) fn find(&self, operand: usize, fits: impl Fn(&Type) -> bool) -> Result<Value, Error> {
        let near = self.pick.operands[operand];
        let fitting = self.pool.iter().filter(|&&(_, value)| fits(self.b.ty(value)));
        let nearest = fitting.min_by_key(|&&(tag, _)| tag ^ near);
        nearest.map(|&(_, value)| value).ok_or_else(|| misfit("no operand fits"))
    }

    /// An operand of any type.
    pub(crate) fn any(&self, operand: usize) -> Result<Value, Error> {
        self.find(operand, |_| true)
    }

    /// An operand with axes.
    pub(crate) fn with_axes(&self, operand: usize) -> Result<Value, Error> {
        self.find(operand, |ty| ty.rank() > 0)
    }

    /// f32 of at least this rank, whose last axis has a known size.
    pub(crate) fn rows(&self, operand: usize, rank: usize) -> Result<Value, Error> {
        self.find(operand, |ty| {
            let known = ty.shape.last().is_some_and(|dim| dim.as_static().is_some_and(|size| size > 0));
            ty.dtype == DType::F32 && ty.rank() >= rank && known
        })
    }

    /// An op whose operands are looked for one after another, so that all together fit.
    pub(crate) fn apply(
        &mut self,
        op: impl Into<Op>,
        first: Value,
        more: usize,
    ) -> Result<Vec<Value>, Error> {
        let op = op.into();
        let mut operands = vec![first];
        for operand in 1..=more {
            let types: Vec<Type> = operands.iter().map(|&value| self.b.ty(value).clone()).collect();
            let fits = |ty: &Type| {
                // The operands still to come are like this one.
                let rest = std::iter::repeat_n(ty, more + 1 - types.len());
                op.infer(&types.iter().chain(rest).collect::<Vec<_>>()).is_ok()
            };
            operands.push(self.find(operand, fits)?);
        }
        self.b.ops(op, &operands)
    }

    /// A number below a limit.
    pub(crate) fn number(&self, which: usize, limit: usize) -> usize {
        self.pick.numbers[which] % limit.max(1)
    }

    /// One of a list.
    pub(crate) fn choose<T: Clone>(&self, which: usize, list: &[T]) -> T {
        list[self.number(which, list.len())].clone()
    }

    /// An axis of a value that has some.
    pub(crate) fn axis(&self, which: usize, value: Value) -> usize {
        self.number(which, self.b.ty(value).rank())
    }

    /// The shape that a value will have, unless data determines it.
    pub(crate) fn shape(&self, value: Value) -> Option<Shape> {
        self.b.ty(value).resolve(&self.bindings).ok()
    }

    /// The size that an axis will have; 1 if data determines it.
    pub(crate) fn size(&self, value: Value, axis: usize) -> usize {
        self.shape(value).map_or(1, |shape| shape[axis])
    }

    /// Noise that is this node's own.
    pub(crate) fn noise(&self) -> Noise {
        Noise(u64::from(self.pick.tag))
    }

    /// A new name.
    pub(crate) fn name(&mut self, stem: &str) -> String {
        self.names += 1;
        format!("{stem}{}", self.names)
    }

    /// A new weight.
    pub(crate) fn weight<D: Into<Dim>>(
        &mut self,
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
    ) -> Result<Value, Error> {
        let name = self.name("w");
        self.b.weight(name, Type::new(dtype, shape))
    }

    /// A new constant.
    pub(crate) fn constant(&mut self, value: Tensor) -> Result<Value, Error> {
        self.b.op(Constant::new(value), &[])
    }

    /// Constant indices that an axis of a size has.
    pub(crate) fn indices(&mut self, shape: impl Into<Shape>, limit: usize) -> Result<Value, Error> {
        let dtype = self.choose(4, &[DType::I64, DType::I32]);
        let indices = self.noise().indices(dtype, shape, limit);
        self.constant(indices)
    }
}

/// Why nothing grew.
pub(crate) fn misfit(message: &str) -> Error {
    Error::Type { op: "growth", error: TypeError::new(message), location: None }
}

fn inputs() -> Vec<(&'static str, DType, Vec<Dim>)> {
    let n = Dim::symbol("n");
    vec![
        ("x", DType::F32, dims!["n", 6].to_vec()),
        ("y", DType::F32, dims!["m", "n"].to_vec()),
        ("z", DType::F32, dims!["n", 6].to_vec()),
        ("vector", DType::F32, vec![&n + &Dim::from(1)]),
        ("wide", DType::F32, dims!["m", 64].to_vec()),
        ("heads", DType::F32, dims![2, "n", 2, 8].to_vec()),
        ("image", DType::F32, dims![1, 7, 6, 4].to_vec()),
        ("awkward", DType::F32, dims![9].to_vec()),
        ("empty", DType::F32, dims![0, 4].to_vec()),
        ("scalar", DType::F32, dims![].to_vec()),
        ("half", DType::F16, dims![4, 17].to_vec()),
        ("brain", DType::BF16, dims!["n", 3].to_vec()),
        ("double", DType::F64, dims![2, 3].to_vec()),
        ("counts", DType::I64, dims!["n"].to_vec()),
        ("table", DType::I32, dims![3, 5].to_vec()),
        ("bytes", DType::U8, dims![5, "m"].to_vec()),
        ("small", DType::I8, dims!["m"].to_vec()),
        ("short", DType::U16, dims![17].to_vec()),
        ("signed", DType::I16, dims![2, 2].to_vec()),
        ("ids", DType::U32, dims!["n", 2].to_vec()),
        ("long", DType::U64, dims![3, 1].to_vec()),
        ("mask", DType::Bool, dims!["n", 6].to_vec()),
        ("flags", DType::Bool, dims![3, 1].to_vec()),
        ("flag", DType::Bool, dims![].to_vec()),
    ]
}
