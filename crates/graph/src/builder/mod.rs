//! Building graphs by hand: one method for each op, with its shapes.

mod compose;
mod control;
mod custom;
mod devices;
mod elementwise;
mod images;
mod moves;
mod operand;
mod product;
mod shape;
mod slicing;

use std::collections::HashMap;
use std::panic::Location;

use tensor::{DType, Tensor};

pub use self::control::Region;
pub use self::elementwise::Approximation;
pub use self::images::Suppression;
pub use self::operand::Operand;
pub use self::slicing::Index;
use crate::ops::*;
use crate::{DevicePlacementPolicy, Dim, Error, Graph, Kind, SourceLocation, Type, Value};

/// A graph in the making. Axes may be negative, which counts from the end.
///
/// Values of different dtypes go together where one of the dtypes holds both: see [`Operand`]. Every method that adds
/// a node remembers its caller's place in the source, and fails if the operands do not fit the op, with the two facts
/// that disagree and that place.
///
/// The graphs that `cond` and `while` run are regions of the graph: between [`Builder::begin_region`] and
/// [`Builder::end_region`], methods add to the region. Values of the graphs around it can be used in it.
#[derive(Debug, Clone)]
pub struct Builder {
    /// The innermost region, or the graph itself.
    scope: Scope,
    /// The scopes around it, the outermost first.
    enclosing: Vec<Scope>,
    location: Option<SourceLocation>,
}

/// A graph to which nodes are added, and how it uses those around it.
#[derive(Debug, Clone)]
struct Scope {
    graph: Graph,
    weights: HashMap<String, Value>,
    /// The inputs that stand for values of graphs around this one: those values, and the inputs.
    captured: Vec<(Value, Value)>,
    /// The values that stand for values of graphs around this one.
    locals: HashMap<Value, Value>,
    /// Of the next random op.
    seed: Option<Seed>,
}

/// A seed: a value `i64[]`, if there is one, plus a number.
#[derive(Debug, Clone, Copy)]
struct Seed {
    base: Option<Value>,
    offset: u64,
}

/// The operands that say which tokens belong to which sequence, and where their keys and values are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaggedBatch {
    /// `u32[batch + 1]`: the tokens of sequence `b` are rows `row_offsets[b]..row_offsets[b + 1]`.
    pub row_offsets: Value,
    /// `u32[batch]`: the tokens of each sequence that were cached before this call.
    pub cache_lengths: Value,
    /// `u32[batch, max_pages]`: the page of the `p`-th `page_size` tokens of each sequence.
    pub page_table: Value,
}

impl Scope {
    fn new(name: impl Into<String>, seed: Option<Seed>) -> Scope {
        let graph = Graph::new(name);
        Scope { graph, weights: HashMap::new(), captured: Vec::new(), locals: HashMap::new(), seed }
    }
}

impl Builder {
    /// A builder of a graph without inputs.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder { scope: Scope::new(name, None), enclosing: Vec::new(), location: None }
    }

    /// Sets the place in the source of the nodes and errors that follow, for programs in other languages. `None` is the
    /// place of each caller again.
    pub fn set_location(&mut self, location: Option<SourceLocation>) {
        self.location = location;
    }

    /// Sets what is done about ops on a device that only the host can compute; within a region, of the graph around all.
    pub fn set_device_placement(&mut self, policy: DevicePlacementPolicy) {
        self.enclosing.first_mut().unwrap_or(&mut self.scope).graph.set_device_placement(policy);
    }

    /// A builder that goes on from a graph.
    pub fn from_graph(graph: Graph) -> Builder {
        let weights = graph.nodes().filter_map(|(_, node)| match &node.op {
            Op::Weight(weight) => Some((weight.name.clone(), node.outputs[0])),
            _ => None,
        });
        let weights = weights.collect();
        let scope = Scope { graph, weights, captured: Vec::new(), locals: HashMap::new(), seed: None };
        Builder { scope, enclosing: Vec::new(), location: None }
    }

    /// The graph with these outputs, verified.
    ///
    /// # Errors
    /// If the graph breaks a rule of [`Graph::verify`], or a region is open.
    pub fn finish(self, outputs: &[Value]) -> Result<Graph, Error> {
        let graph = self.with_outputs(outputs)?;
        graph.verify()?;
        Ok(graph)
    }

    fn with_outputs(mut self, outputs: &[Value]) -> Result<Graph, Error> {
        if let Some(scope) = self.enclosing.first() {
            let message = format!("the region `{}` is not ended", self.graph().name());
            return Err(Error::Invalid { graph: scope.graph.name().to_string(), message });
        }
        self.set_outputs(outputs)?;
        Ok(self.scope.graph)
    }

    #[track_caller]
    fn set_outputs(&mut self, outputs: &[Value]) -> Result<(), Error> {
        let outputs = self.locals(outputs);
        let graph = &mut self.scope.graph;
        for (position, &value) in outputs.iter().enumerate() {
            if let Some(foreign) = graph.foreign(value) {
                let message = format!("output {position} is {foreign}");
                return Err(Error::Invalid { graph: graph.name().to_string(), message });
            }
        }
        graph.set_outputs(&outputs);
        Ok(())
    }

    /// The graph so far; within a region, the region's graph.
    pub fn graph(&self) -> &Graph {
        &self.scope.graph
    }

    /// The type of a value.
    ///
    /// # Panics
    /// If it is a value of another graph.
    #[track_caller]
    pub fn ty(&self, value: Value) -> &Type {
        self.owner(value).unwrap_or(self.graph()).ty(value)
    }

    /// The size of an axis of a value; a negative axis counts from the end.
    ///
    /// # Errors
    /// If there is no such axis.
    #[track_caller]
    pub fn dim(&self, value: Value, axis: isize) -> Result<Dim, Error> {
        let axis = self.axis("dim", value, axis)?;
        Ok(self.ty(value).shape[axis].clone())
    }

    /// A parameter: a tensor, or a buffer if the type says so.
    pub fn input(&mut self, name: impl Into<String>, ty: Type) -> Value {
        self.scope.graph.input(name, ty)
    }

    /// A value bound by name later. The same name with the same type gives the same value.
    #[track_caller]
    pub fn weight(&mut self, name: impl Into<String>, ty: Type) -> Result<Value, Error> {
        let name = name.into();
        match self.scope.weights.get(&name) {
            Some(&value) if *self.ty(value) == ty => Ok(value),
            _ => {
                let value = self.op(Weight { name: name.clone(), ty }, &[])?;
                self.scope.weights.insert(name, value);
                Ok(value)
            }
        }
    }

    /// [`Builder::weight`] under its other name.
    #[track_caller]
    pub fn constant_external(&mut self, name: impl Into<String>, ty: Type) -> Result<Value, Error> {
        self.weight(name, ty)
    }

    /// A value known now.
    #[track_caller]
    pub fn constant(&mut self, value: Tensor) -> Value {
        self.op(Constant::new(value), &[]).expect("a tensor has a type")
    }

    /// Any op that makes one value.
    ///
    /// # Errors
    /// If the operands do not fit the op, or it makes more or fewer values.
    #[track_caller]
    pub fn op(&mut self, op: impl Into<Op>, inputs: &[Value]) -> Result<Value, Error> {
        let op = op.into();
        if self.packed_dtype(&op, inputs).is_some() {
            return Ok(self.ops(op, inputs)?[0]);
        }
        let (inputs, location) = (self.locals(inputs), self.place());
        self.scope.graph.push_one_from(op, &inputs, Some(location))
    }

    /// Any op.
    #[track_caller]
    pub fn ops(&mut self, op: impl Into<Op>, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        let op = op.into();
        if let Some(dtype) = self.packed_dtype(&op, inputs) {
            return self.unpacked_op(op, inputs, dtype);
        }
        let (inputs, location) = (self.locals(inputs), self.place());
        self.scope.graph.push_from(op, &inputs, Some(location))
    }

    /// The dtype of operands of an op that moves elements, if they are smaller than a byte.
    fn packed_dtype(&self, op: &Op, inputs: &[Value]) -> Option<DType> {
        let dtype = |&value: &Value| self.operand(op.name(), value).ok().map(|ty| ty.dtype);
        inputs.iter().filter_map(dtype).find(|dtype| dtype.is_sub_byte()).filter(|_| moves_elements(op))
    }

    /// An op on elements that are smaller than a byte: they become f32 and back, which changes none.
    #[track_caller]
    fn unpacked_op(&mut self, op: Op, inputs: &[Value], dtype: DType) -> Result<Vec<Value>, Error> {
        let mut unpacked = Vec::with_capacity(inputs.len());
        for &input in inputs {
            let packed = self.ty(input).dtype == dtype;
            unpacked.push(if packed { self.cast(input, DType::F32)? } else { input });
        }
        let mut results = self.ops(op, &unpacked)?;
        for result in &mut results {
            if self.ty(*result).dtype == DType::F32 {
                *result = self.cast(*result, dtype)?;
            }
        }
        Ok(results)
    }

    /// Sum, mean, extreme or product along an axis, which stays with size 1, in the dtype of `x`: means of integers are
    /// rounded towards 0. Of truth values, the sum is how many are true (i64), the product and the smallest are whether
    /// all are, the others whether any is.
    #[track_caller]
    pub fn reduce(&mut self, kind: ReduceKind, x: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("reduce", x, axis)?;
        let x = if kind == ReduceKind::Sum { self.countable(x)? } else { x };
        let dtype = self.ty(x).dtype;
        let (kind, computed) = match (kind, dtype) {
            (ReduceKind::Prod | ReduceKind::Min, DType::Bool) => (ReduceKind::Min, DType::U8),
            (_, DType::Bool) => (ReduceKind::Max, DType::U8),
            (ReduceKind::Mean, dtype) if dtype.is_integer() => (kind, DType::F64),
            (kind, dtype) => (kind, widened(dtype)),
        };
        let x = self.cast(x, computed)?;
        let y = self.op(Reduce { kind, axis }, &[x])?;
        self.cast(y, dtype)
    }

    /// Truth values as 0 and 1 (i64), which sums count; others as they are.
    #[track_caller]
    fn countable(&mut self, x: Value) -> Result<Value, Error> {
        let dtype = self.ty(x).dtype;
        self.cast(x, if dtype == DType::Bool { DType::I64 } else { dtype })
    }

    /// Casts integers that are used as indices to a dtype that the ops take.
    #[track_caller]
    fn indices(&mut self, op: &'static str, indices: Value) -> Result<Value, Error> {
        let dtype = self.operand(op, indices)?.dtype;
        let taken = matches!(dtype, DType::U32 | DType::I32 | DType::I64) || !dtype.is_integer();
        self.cast(indices, if taken { dtype } else { DType::I64 })
    }

    /// The index (i64) of an extreme along an axis, which stays with size 1. NaN is the extreme, of both kinds.
    #[track_caller]
    pub fn arg_reduce(&mut self, kind: ArgReduceKind, x: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("arg_reduce", x, axis)?;
        let x = self.cast(x, ordered(self.ty(x).dtype))?;
        self.op(ArgReduce { kind, axis }, &[x])
    }

    /// `e^(x_i) / Σ_j e^(x_j)` along an axis: [..] → [..].
    #[track_caller]
    pub fn softmax(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("softmax", x, axis)?;
        let dtype = self.ty(x).dtype;
        let x = self.cast(x, widened(dtype))?;
        let y = self.op(Softmax { axis }, &[x])?;
        self.cast(y, dtype)
    }

    /// `x: f32[.., n]`, `weight: f32[n]`, `bias: f32[n]` → `f32[.., n]`. Operands of f16 and bf16 are cast to f32, and
    /// the result to the dtype of `x`, by this and the other norms.
    #[track_caller]
    pub fn layer_norm(&mut self, x: Value, weight: Value, bias: Value, eps: f32) -> Result<Value, Error> {
        self.norm(LayerNorm { eps }.into(), &[x, weight, bias])
    }

    /// `x: f32[.., n]`, `weight: f32[n]` → `f32[.., n]`.
    #[track_caller]
    pub fn rms_norm(&mut self, x: Value, weight: Value, eps: f32) -> Result<Value, Error> {
        self.norm(RmsNorm { eps }.into(), &[x, weight])
    }

    /// [`Builder::rms_norm`] whose weight is `weight + offset`, as some models store it.
    #[track_caller]
    pub fn rms_norm_with_offset(
        &mut self,
        x: Value,
        weight: Value,
        eps: f32,
        offset: f32,
    ) -> Result<Value, Error> {
        let weight = if offset == 0.0 { weight } else { self.add(weight, offset)? };
        self.rms_norm(x, weight, eps)
    }

    /// `x · weightᵀ`: `x: f32[.., columns]`, `weight` [rows, columns] of any float or block dtype →
    /// `f32[.., rows]`.
    #[track_caller]
    pub fn linear(&mut self, x: Value, weight: Value) -> Result<Value, Error> {
        self.op(Linear::default(), &[x, weight])
    }

    /// `x · weightᵀ + bias`: as [`Builder::linear`], with `bias: f32[rows]`.
    #[track_caller]
    pub fn linear_with_bias(&mut self, x: Value, weight: Value, bias: Value) -> Result<Value, Error> {
        self.op(Linear { bias: true, ..Linear::default() }, &[x, weight, bias])
    }

    /// As [`Builder::linear`], each row with the matrix of an expert: `x: f32[.., columns]`, `experts` [..] or [.., k],
    /// `weight` [experts, rows, columns] → `f32[.., rows]` with the axes of `experts`.
    #[track_caller]
    pub fn expert_linear(&mut self, x: Value, experts: Value, weight: Value) -> Result<Value, Error> {
        self.op(ExpertLinear::default(), &[x, experts, weight])
    }

    /// Slices of an axis by index: `table` [a.., n, b..], `indices` [i..] of any integer dtype → [a.., i.., b..].
    #[track_caller]
    pub fn gather(&mut self, table: Value, indices: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("gather", table, axis)?;
        let indices = self.indices("gather", indices)?;
        self.op(Gather { axis }, &[table, indices])
    }

    /// Rows of weights by id: `table` [rows, columns] of any float or block dtype, `ids` [..] →
    /// `f32[.., columns]`.
    #[track_caller]
    pub fn embedding(&mut self, table: Value, ids: Value) -> Result<Value, Error> {
        self.op(Embedding, &[table, ids])
    }

    /// Tensors one after another along an axis.
    #[track_caller]
    pub fn concat(&mut self, parts: &[Value], axis: isize) -> Result<Value, Error> {
        let axis = match parts.first() {
            Some(&first) => self.axis("concat", first, axis)?,
            None => 0,
        };
        self.op(Concat { axis }, parts)
    }

    /// A tensor taken apart along an axis; the sizes sum to the axis.
    #[track_caller]
    pub fn split(&mut self, x: Value, axis: isize, sizes: &[usize]) -> Result<Vec<Value>, Error> {
        let axis = self.axis("split", x, axis)?;
        self.ops(Split { axis, sizes: sizes.to_vec() }, &[x])
    }

    /// The elements `start..stop` of an axis; negative ends count from its end, no `stop` is its end.
    #[track_caller]
    pub fn slice(&mut self, x: Value, axis: isize, start: i64, stop: Option<i64>) -> Result<Value, Error> {
        let axis = self.axis("slice", x, axis)?;
        self.op(Slice { axis, start, stop, step: 1 }, &[x])
    }

    /// The same elements under another shape: `b.reshape(x, dims!["tokens", heads, head_dim])`.
    #[track_caller]
    pub fn reshape(&mut self, x: Value, shape: impl IntoIterator<Item = Dim>) -> Result<Value, Error> {
        self.op(Reshape { shape: shape.into_iter().collect() }, &[x])
    }

    /// Axis `i` of the result is axis `order[i]` of `x`.
    #[track_caller]
    pub fn transpose(&mut self, x: Value, order: &[usize]) -> Result<Value, Error> {
        self.op(Transpose { order: order.to_vec() }, &[x])
    }

    /// `x` repeated along axes where it has size 1 or none.
    #[track_caller]
    pub fn broadcast(&mut self, x: Value, shape: impl IntoIterator<Item = Dim>) -> Result<Value, Error> {
        self.op(Broadcast { shape: shape.into_iter().collect() }, &[x])
    }

    /// [`Builder::broadcast`] under its other name.
    #[track_caller]
    pub fn broadcast_to(&mut self, x: Value, shape: impl IntoIterator<Item = Dim>) -> Result<Value, Error> {
        self.broadcast(x, shape)
    }

    /// Makes a new buffer of zeros each time the graph runs; it lives until its last use. `ty` must be a buffer type.
    #[track_caller]
    pub fn create_buffer(&mut self, ty: Type) -> Result<Value, Error> {
        if ty.kind != Kind::Buffer {
            return Err(self.refuse("create_buffer", format!("type is {ty}, expected a buffer")));
        }
        let Type { dtype, shape, device, .. } = ty;
        self.op(CreateBuffer { dtype, shape, device }, &[])
    }

    /// The contents of a buffer at this point.
    #[track_caller]
    pub fn load(&mut self, buffer: Value) -> Result<Value, Error> {
        self.op(Load, &[buffer])
    }

    /// Overwrites a buffer with `x` of its type.
    #[track_caller]
    pub fn store(&mut self, buffer: Value, x: Value) -> Result<(), Error> {
        self.ops(Store, &[buffer, x]).map(|_| ())
    }

    /// Shows `x` when the program comes past, as the print options of the session say.
    #[track_caller]
    pub fn print(&mut self, x: Value, label: impl Into<String>) -> Result<(), Error> {
        self.ops(Print { label: label.into(), text: None }, &[x]).map(|_| ())
    }

    /// Shows a text when the program comes past.
    #[track_caller]
    pub fn print_text(&mut self, text: impl Into<String>, label: impl Into<String>) -> Result<(), Error> {
        self.ops(Print { label: label.into(), text: Some(text.into()) }, &[]).map(|_| ())
    }

    /// The position of each token in its sequence: `ids` → `u32[tokens]`.
    #[track_caller]
    pub fn ragged_positions(&mut self, ids: Value, batch: &RaggedBatch) -> Result<Value, Error> {
        self.op(RaggedPositions, &[ids, batch.row_offsets, batch.cache_lengths])
    }

    /// Cosines and sines, times `scale`: `positions: u32[tokens]`, `inverse_frequencies: f32[n]` →
    /// `f32[tokens, 2, n]`.
    #[track_caller]
    pub fn rope_table(
        &mut self,
        positions: Value,
        inverse_frequencies: Value,
        scale: f32,
    ) -> Result<Value, Error> {
        self.op(RopeTable { scale }, &[positions, inverse_frequencies])
    }

    /// Rotary position embedding: `x: f32[tokens, heads, head_dim]`, `table: f32[tokens, 2, n]` → the type of
    /// `x`.
    #[track_caller]
    pub fn rope(&mut self, style: RopeStyle, x: Value, table: Value) -> Result<Value, Error> {
        self.op(Rope { style }, &[x, table])
    }

    /// Writes `k` and `v`, `f32[tokens, kv_heads, head_dim]`, into a layer of the cache, a buffer
    /// `[pages, layers, 2, kv_heads, page_size · head_dim]` of f32, or of bf16 or f16, to which they are then rounded.
    #[track_caller]
    pub fn kv_store(
        &mut self,
        layer: usize,
        cache: Value,
        k: Value,
        v: Value,
        batch: &RaggedBatch,
    ) -> Result<(), Error> {
        let RaggedBatch { row_offsets, cache_lengths, page_table } = *batch;
        self.ops(KvStore { layer }, &[cache, k, v, row_offsets, cache_lengths, page_table]).map(|_| ())
    }

    /// Causal attention of `q: f32[tokens, heads, head_dim]` to the cache, where `kv_store` has put the
    /// batch's own keys and values → the type of `q`. `more` is `f32[heads]`, the sinks of heads, or
    /// `f32[heads, positions]`, the biases of keys.
    #[track_caller]
    pub fn paged_attention(
        &mut self,
        attention: PagedAttention,
        q: Value,
        cache: Value,
        batch: &RaggedBatch,
        more: Option<Value>,
    ) -> Result<Value, Error> {
        let RaggedBatch { row_offsets, cache_lengths, page_table } = *batch;
        let operands = [q, cache, row_offsets, cache_lengths, page_table].into_iter().chain(more);
        self.op(attention, &operands.collect::<Vec<_>>())
    }

    /// A norm in f32, of operands that are cast to it; or of `x` in f64.
    #[track_caller]
    fn norm(&mut self, norm: Op, operands: &[Value]) -> Result<Value, Error> {
        let name = norm.name();
        let dtype = self.operand(name, operands[0])?.dtype;
        if !dtype.is_float() {
            return Err(self.refuse(name, format!("x is {}, expected a float", self.ty(operands[0]))));
        }
        let mut wide = Vec::with_capacity(operands.len());
        for &operand in operands {
            self.operand(name, operand)?;
            wide.push(self.cast(operand, if dtype == DType::F64 { DType::F64 } else { DType::F32 })?);
        }
        let y = if dtype == DType::F64 { self.norm_of_f64(norm, &wide)? } else { self.op(norm, &wide)? };
        self.cast(y, dtype)
    }

    /// Builds a norm of f64 from elementwise ops. Operands are checked as those of a norm of f32.
    #[track_caller]
    fn norm_of_f64(&mut self, norm: Op, operands: &[Value]) -> Result<Value, Error> {
        let mut types: Vec<Type> =
            operands.iter().map(|&operand| self.ty(operand).with_dtype(DType::F32)).collect();
        if let Err(error) = crate::graph::infer(&norm, &types.iter().collect::<Vec<_>>()) {
            return Err(error.at(Some(self.place())));
        }
        let (mut x, shape) = (operands[0], types.swap_remove(0).shape);
        let (eps, weight_shape) = match norm {
            Op::GroupNorm(GroupNorm { groups, eps }) => {
                let outer = &shape[0] * &Dim::from(groups);
                let size = shape[1..].iter().fold(Dim::from(1), |product, dim| &product * dim);
                x = self.reshape(x, [outer, size.floor_div(&Dim::from(groups))])?;
                let ones = vec![Dim::from(1); shape.len() - 2];
                (eps, [vec![shape[1].clone()], ones].concat())
            }
            Op::LayerNorm(LayerNorm { eps }) | Op::RmsNorm(RmsNorm { eps }) => {
                (eps, vec![shape[shape.len() - 1].clone()])
            }
            other => unreachable!("{} is a norm", other.name()),
        };
        if !matches!(norm, Op::RmsNorm(_)) {
            let mean = self.mean(x, -1)?;
            x = self.sub(x, mean)?;
        }
        let square = self.mul(x, x)?;
        let variance = self.mean(square, -1)?;
        let variance = self.add(variance, f64::from(eps))?;
        let deviation = self.sqrt(variance)?;
        let y = self.div(x, deviation)?;
        let y = self.reshape(y, shape)?;
        let weight = self.reshape(operands[1], weight_shape.clone())?;
        let y = self.mul(y, weight)?;
        match operands.get(2) {
            Some(&bias) => {
                let bias = self.reshape(bias, weight_shape)?;
                self.add(y, bias)
            }
            None => Ok(y),
        }
    }

    /// The type of an operand, which must be a value of this graph or of one around it.
    #[track_caller]
    fn operand(&self, op: &'static str, value: Value) -> Result<&Type, Error> {
        match self.owner(value) {
            Some(graph) => Ok(graph.ty(value)),
            None => {
                let foreign = self.graph().foreign(value).unwrap_or_default();
                Err(self.refuse(op, format!("an operand is {foreign}")))
            }
        }
    }

    #[track_caller]
    fn axis(&self, op: &'static str, x: Value, axis: isize) -> Result<usize, Error> {
        let ty = self.operand(op, x)?;
        match resolve_axis(ty.rank(), axis) {
            Some(axis) => Ok(axis),
            None => Err(self.no_axis(op, format!("{ty} has no axis {axis}"))),
        }
    }

    /// An [`Error::Axis`] with the place in the source.
    #[track_caller]
    fn no_axis(&self, op: &'static str, message: String) -> Error {
        Error::Axis { op, message, location: Some(self.place()) }
    }

    #[track_caller]
    fn axes(&self, op: &'static str, x: Value, axes: &[isize]) -> Result<Vec<usize>, Error> {
        let mut resolved = Vec::with_capacity(axes.len());
        for &axis in axes {
            resolved.push(self.axis(op, x, axis)?);
        }
        Ok(resolved)
    }

    /// Values as this graph knows them.
    #[track_caller]
    fn locals(&mut self, values: &[Value]) -> Vec<Value> {
        let mut locals = Vec::with_capacity(values.len());
        for &value in values {
            locals.push(self.local(value));
        }
        locals
    }

    /// A value as this graph knows it: a value of a graph around this one becomes an input. A weight becomes the same weight
    /// here, so that devices pack it, and a constant the same constant.
    #[track_caller]
    fn local(&mut self, value: Value) -> Value {
        if let Some(&local) = self.scope.locals.get(&value) {
            return local;
        }
        let Some(Scope { graph, .. }) = self.enclosing.iter().rev().find(|scope| scope.graph.owns(value))
        else {
            return value;
        };
        let local = match graph.defined_by(value) {
            Some((Op::Weight(Weight { name, ty }), _)) => {
                let (name, ty) = (name.clone(), ty.clone());
                self.weight(name, ty).expect("as in the graph around")
            }
            Some((Op::Constant(constant), _)) => {
                let constant = constant.clone();
                self.op(constant, &[]).expect("as in the graph around")
            }
            _ => {
                let ty = graph.ty(value).clone();
                let local = self.input(format!("x{}", self.graph().inputs().len()), ty);
                self.scope.captured.push((value, local));
                local
            }
        };
        self.scope.locals.insert(value, local);
        local
    }

    /// This graph, and those around it, the innermost first.
    fn graphs(&self) -> impl Iterator<Item = &Graph> {
        std::iter::once(&self.scope).chain(self.enclosing.iter().rev()).map(|scope| &scope.graph)
    }

    /// The graph of a value, if it is this one or around it.
    fn owner(&self, value: Value) -> Option<&Graph> {
        self.graphs().find(|graph| graph.owns(value))
    }

    /// The inputs and results of this graph and of those around it.
    fn known_values(&self) -> impl Iterator<Item = (Value, &Type)> {
        self.graphs().flat_map(|graph| {
            let inputs = graph.inputs().iter().map(|input| input.value);
            let results = graph.nodes().flat_map(|(_, node)| node.outputs.iter().copied());
            inputs.chain(results).map(|value| (value, graph.ty(value)))
        })
    }

    /// An [`Error::Type`] with the place in the source. Not for closures, whose place is their own.
    #[track_caller]
    fn refuse(&self, op: &'static str, message: impl Into<String>) -> Error {
        Error::refuse(op, message).at(Some(self.place()))
    }

    /// The place that was set, or the caller's.
    #[track_caller]
    fn place(&self) -> SourceLocation {
        match &self.location {
            Some(location) => location.clone(),
            None => Location::caller().into(),
        }
    }
}

/// Whether an op moves single elements and computes nothing.
fn moves_elements(op: &Op) -> bool {
    matches!(
        op,
        Op::BandPart(_)
            | Op::Broadcast(_)
            | Op::Concat(_)
            | Op::DynamicSlice(_)
            | Op::Flip(_)
            | Op::Gather(_)
            | Op::GatherNd(_)
            | Op::MaskedScatter(_)
            | Op::NonZero(_)
            | Op::Pad(_)
            | Op::RepeatInterleave(_)
            | Op::Reshape(_)
            | Op::Scatter(_)
            | Op::ScatterNd(_)
            | Op::Select(_)
            | Op::Slice(_)
            | Op::Split(_)
            | Op::Tile(_)
            | Op::Transpose(_)
    )
}

/// The dtype that arithmetic on a dtype is computed in: f32 for floats of 8 bits and fewer.
fn widened(dtype: DType) -> DType {
    if dtype.is_float8() || dtype.is_sub_byte() { DType::F32 } else { dtype }
}

/// A dtype in which elements compare, and are counted, as in a dtype.
fn ordered(dtype: DType) -> DType {
    if dtype == DType::Bool { DType::U8 } else { widened(dtype) }
}

fn resolve_axis(rank: usize, axis: isize) -> Option<usize> {
    let rank = rank as isize;
    let axis = if axis < 0 { axis + rank } else { axis };
    (0..rank).contains(&axis).then_some(axis as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims;

    /// One layer of a decoder, without its feed-forward half.
    fn attention_layer() -> Result<Graph, Error> {
        let mut b = Builder::new("layer");
        let x = b.input("x", Type::new(DType::F32, dims!["tokens", 32]));
        let ids = b.input("ids", Type::new(DType::U32, dims!["tokens"]));
        let cache = b.input("cache", Type::buffer(DType::F32, dims!["pages", 1, 2, 2, 128]));
        let batch = RaggedBatch {
            row_offsets: b.input("row_offsets", Type::new(DType::U32, [&Dim::from("batch") + &Dim::from(1)])),
            cache_lengths: b.input("cache_lengths", Type::new(DType::U32, dims!["batch"])),
            page_table: b.input("page_table", Type::new(DType::U32, dims!["batch", "max_pages"])),
        };
        let norm = b.weight("norm", Type::new(DType::F32, [32]))?;
        let h = b.rms_norm(x, norm, 1e-5)?;
        let weight = b.weight("qkv", Type::new(DType::Q8_0, [64, 32]))?;
        let qkv = b.linear(h, weight)?;
        let qkv = b.reshape(qkv, dims!["tokens", 8, 8])?;
        let parts = b.split(qkv, -2, &[4, 2, 2])?;
        let positions = b.ragged_positions(ids, &batch)?;
        let frequencies = b.constant(Tensor::from_slice([4], &[1.0f32, 0.1, 0.01, 0.001]));
        let table = b.rope_table(positions, frequencies, 1.0)?;
        let q = b.rope(RopeStyle::HalfSplit, parts[0], table)?;
        let k = b.rope(RopeStyle::HalfSplit, parts[1], table)?;
        b.kv_store(0, cache, k, parts[2], &batch)?;
        let attention =
            PagedAttention { layer: 0, scale: 0.5, window: None, chunk: None, softcap: None, values: None };
        let y = b.paged_attention(attention, q, cache, &batch, None)?;
        let y = b.reshape(y, dims!["tokens", 32])?;
        let y = b.add(x, y)?;
        b.finish(&[y])
    }

    #[test]
    fn a_layer_prints() {
        let expected = r#"graph layer(%x: f32[tokens, 32], %ids: u32[tokens], %cache: mut f32[pages, 1, 2, 2, 128], %row_offsets: u32[batch + 1], %cache_lengths: u32[batch], %page_table: u32[batch, max_pages]) {
  %0 = weight "norm" : f32[32]
  %1 = rms_norm(%x, %0) {eps = 1e-5} : f32[tokens, 32]
  %2 = weight "qkv" : q8_0[64, 32]
  %3 = linear(%1, %2) : f32[tokens, 64]
  %4 = reshape(%3) {shape = [tokens, 8, 8]} : f32[tokens, 8, 8]
  %5, %6, %7 = split(%4) {axis = 1, sizes = [4, 2, 2]} : f32[tokens, 4, 8], f32[tokens, 2, 8], f32[tokens, 2, 8]
  %8 = ragged_positions(%ids, %row_offsets, %cache_lengths) : u32[tokens]
  %9 = constant [1.0, 0.1, 0.01, 0.001] : f32[4]
  %10 = rope_table(%8, %9) : f32[tokens, 2, 4]
  %11 = rope(%5, %10) {style = half_split} : f32[tokens, 4, 8]
  %12 = rope(%6, %10) {style = half_split} : f32[tokens, 2, 8]
  kv_store(%cache, %12, %7, %row_offsets, %cache_lengths, %page_table) {layer = 0}
  %13 = paged_attention(%11, %cache, %row_offsets, %cache_lengths, %page_table) {layer = 0, scale = 0.5} : f32[tokens, 4, 8]
  %14 = reshape(%13) {shape = [tokens, 32]} : f32[tokens, 32]
  %15 = add(%x, %14) : f32[tokens, 32]
  return %15
}
"#;
        let graph = attention_layer().unwrap();
        assert_eq!(graph.to_string(), expected);
        assert_eq!(Graph::parse(expected).unwrap().to_string(), expected);
    }

    #[test]
    fn norms_have_offsets_and_windows_have_means() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims![1, 2, 2, 1]));
        let w = b.constant_external("w", Type::new(DType::F32, [1])).unwrap();
        let norm = b.rms_norm_with_offset(x, w, 0.0, 1.0).unwrap();
        let padded = || Windows::new(2).with_padding(&[1, 0]);
        let mean = b.avg_pool2d(x, [2, 2], padded()).unwrap();
        let largest = b.max_pool2d(x, [2, 2], padded()).unwrap();
        let wide = b.broadcast_to(w, dims![2, 1]).unwrap();
        let x = Tensor::from_slice([1, 2, 2, 1], &[1f32, -2.0, 3.0, 4.0]);
        let weights = |_: &str| Some(Tensor::from_slice([1], &[0.5f32]));
        let graph = b.finish(&[norm, mean, largest, wide]).unwrap();
        let outputs = graph.evaluate(&[x], &weights).unwrap().outputs;
        assert_eq!(outputs[0].to_vec::<f32>(), [1.5, -1.5, 1.5, 1.5]);
        assert_eq!(outputs[1].to_vec::<f32>(), [-0.25, 1.5, 1.75]);
        assert_eq!(outputs[2].to_vec::<f32>(), [1.0, 4.0, 4.0]);
        assert_eq!(outputs[3].to_vec::<f32>(), [0.5, 0.5]);
    }

    #[test]
    fn weights_are_shared_and_axes_count_from_the_end() {
        let mut b = Builder::new("g");
        let ty = Type::new(DType::F32, [2, 3]);
        let w = b.weight("w", ty.clone()).unwrap();
        assert_eq!(b.weight("w", ty.clone()).unwrap(), w);
        assert_ne!(b.weight("w", ty.with_dtype(DType::F16)).unwrap(), w);
        assert_eq!(b.dim(w, -1).unwrap(), Dim::from(3));
        let error = b.softmax(w, -3).unwrap_err().without_location();
        assert_eq!(error.to_string(), "softmax: f32[2, 3] has no axis -3");
        let output = b.softmax(w, -2).unwrap();
        let error = b.finish(&[output]).unwrap_err();
        assert_eq!(error.to_string(), "graph `g`: weight `w` is both f32[2, 3] and f16[2, 3]");
    }
}
