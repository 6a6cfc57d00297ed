//! Graphs in the making, as Python's class `Graph` holds them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perihelion::driver::DType;
use perihelion::engine::Extensions;
use perihelion::graph::ops::{Attributes, GptqMatMul, ScatterKind};
use perihelion::graph::{
    self, Approximation, Builder, DevicePlacementPolicy, Error, Graph, Module, SourceLocation, Suppression,
};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::dim::{Dim, dims};
use super::images::{self, WindowsArgument};
use super::value::{
    Axis, Count, IndexArgument, OperandArgument, Parameter, TypeArgument, Value, to_device, values,
};
use crate::dtype;
use crate::error::{graph_error, load_error};
use crate::running::{detached, guarded};

/// Libraries of custom ops.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct KernelLibrary(Extensions);

#[pymethods]
impl KernelLibrary {
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<KernelLibrary> {
        detached(py, || Extensions::load_all(paths))?.map(KernelLibrary).map_err(load_error)
    }

    /// The names of all ops.
    fn names(&self) -> Vec<&str> {
        let ops = self.0.libraries().iter().flat_map(|library| library.ops());
        ops.map(|op| &op.signature().name[..]).collect()
    }
}

/// A graph being built. Ops of one kind share a method that takes their name: elementwise, binary, along an axis.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct GraphBuilder(Mutex<State>);

struct State {
    builder: Builder,
    has_seed: bool,
    /// The graph with its outputs, once they are set.
    finished: Option<Arc<Graph>>,
}

/// A graph within a graph, until an op takes it.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Region(Mutex<Option<graph::Region>>);

impl Region {
    fn take(&self) -> graph::Region {
        let mut region = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        region.take().expect("a region that no op has taken")
    }
}

/// Calls the method of a name.
macro_rules! call_by_name {
    ($builder:ident, $function:ident $arguments:tt: $($name:ident)*) => {
        match $function {
            $(stringify!($name) => $builder.$name $arguments,)*
            _ => unreachable!("no function is called `{}`", $function),
        }
    };
}

#[pymethods]
impl GraphBuilder {
    #[new]
    fn new(name: &str) -> GraphBuilder {
        GraphBuilder::from(Builder::new(name), None)
    }

    /// A graph from its text.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<GraphBuilder> {
        let graph = guarded(|| Graph::parse(text))?.map_err(graph_error)?;
        Ok(GraphBuilder::from(Builder::from_graph(graph.clone()), Some(Arc::new(graph))))
    }

    /// What is done about ops on a device that only the host can compute: `ignore`, `warn` or `error`.
    #[getter]
    fn device_placement(&self) -> &'static str {
        self.state().builder.graph().device_placement().name()
    }

    #[setter]
    fn set_device_placement(&self, name: &str) -> PyResult<()> {
        let policy = DevicePlacementPolicy::from_name(name);
        let policy =
            policy.ok_or_else(|| PyValueError::new_err(format!("device placement: got {name:?}")))?;
        let mut state = self.state();
        state.builder.set_device_placement(policy);
        if let Some(graph) = &mut state.finished {
            Arc::make_mut(graph).set_device_placement(policy);
        }
        Ok(())
    }

    fn copy(&self) -> GraphBuilder {
        let state = self.state();
        GraphBuilder::from(state.builder.clone(), state.finished.clone())
    }

    /// The text of the graph so far.
    fn text(&self) -> String {
        let state = self.state();
        let graph = state.finished.as_deref().unwrap_or(state.builder.graph());
        graph.to_string()
    }

    #[getter]
    fn inputs(&self) -> Vec<Value> {
        let state = self.state();
        let inputs = state.builder.graph().inputs();
        inputs.iter().map(|input| typed(&state.builder, input.value)).collect()
    }

    /// The types of the outputs, once they are set.
    #[getter]
    fn output_types(&self) -> Option<Vec<TypeArgument>> {
        let state = self.state();
        let graph = state.finished.as_deref()?;
        Some(graph.outputs().iter().map(|&output| TypeArgument(graph.ty(output).clone())).collect())
    }

    /// The place in Python's source of the ops that follow.
    fn set_location(&self, file: &str, line: u32) {
        let location = SourceLocation::Other { file: file.into(), line, column: None };
        self.state().builder.set_location(Some(location));
    }

    fn input(&self, name: &str, ty: TypeArgument) -> PyResult<Value> {
        self.value(|b| Ok(b.input(name, ty.0)))
    }

    fn weight(&self, name: &str, ty: TypeArgument) -> PyResult<Value> {
        self.value(|b| b.weight(name, ty.0))
    }

    fn output(&self, outputs: Vec<PyRef<'_, Value>>) -> PyResult<()> {
        let outputs = values(&outputs);
        let mut state = self.state();
        let graph = guarded(|| state.builder.clone().finish(&outputs))?.map_err(graph_error)?;
        state.finished = Some(Arc::new(graph));
        Ok(())
    }

    /// A number or an array in a dtype, or in the array's own.
    fn constant(&self, value: OperandArgument, code: Option<u8>) -> PyResult<Value> {
        let dtype = code.map(dtype::from_code).transpose()?;
        match (value.0, dtype) {
            (graph::Operand::Tensor(tensor), None) => self.value(|b| Ok(b.constant(tensor))),
            (_, None) => Err(PyValueError::new_err("constant: a number takes a dtype")),
            (value, Some(dtype)) => self.value(|b| b.constant_of(value, dtype)),
        }
    }

    /// Two operands as values of the dtype that they have in common.
    fn promote(&self, x: OperandArgument, y: OperandArgument) -> PyResult<Vec<Value>> {
        self.values(|b| b.promote("promote", &[x.0, y.0]))
    }

    fn unary(&self, function: &str, x: &Value) -> PyResult<Value> {
        let x = x.value;
        self.value(|b| {
            call_by_name!(b, function(x):
                abs acos atanh ceil cos erf exp floor is_inf is_nan log log1p logical_not negate relu round rsqrt sigmoid
                silu sin sqrt tanh trunc as_interleaved_complex real_as_complex load)
        })
    }

    fn binary(&self, function: &str, x: OperandArgument, y: OperandArgument) -> PyResult<Value> {
        let (x, y) = (x.0, y.0);
        self.value(|b| {
            call_by_name!(b, function(x, y):
                add sub mul div floor_div rem pow min max equal not_equal less less_equal greater greater_equal
                logical_and logical_or logical_xor matmul outer)
        })
    }

    fn along(&self, function: &str, x: &Value, axis: Axis) -> PyResult<Value> {
        let (x, axis) = (x.value, axis.0);
        self.value(|b| {
            call_by_name!(b, function(x, axis):
                sum mean prod reduce_min reduce_max argmin argmax variance standard_deviation softmax logsoftmax argsort
                argsort_descending squeeze unsqueeze)
        })
    }

    fn gelu(&self, x: &Value, approximate: &str) -> PyResult<Value> {
        let approximation = match approximate {
            "none" => Approximation::None,
            "tanh" => Approximation::Tanh,
            "quick" => Approximation::Quick,
            _ => {
                let message = format!("approximate: got {approximate:?}, expected one of none, tanh, quick");
                return Err(PyValueError::new_err(message));
            }
        };
        self.value(|b| b.gelu(x.value, approximation))
    }

    fn cast(&self, x: &Value, code: u8) -> PyResult<Value> {
        let dtype = dtype::from_code(code)?;
        self.value(|b| b.cast(x.value, dtype))
    }

    fn select(&self, condition: &Value, x: OperandArgument, y: OperandArgument) -> PyResult<Value> {
        self.value(|b| b.select(condition.value, x.0, y.0))
    }

    fn complex_mul(&self, x: &Value, y: &Value) -> PyResult<Value> {
        self.value(|b| b.complex_mul(x.value, y.value))
    }

    /// A number or an array in the dtype of a value.
    fn like(&self, x: &Value, value: OperandArgument) -> PyResult<Value> {
        self.value(|b| b.scalar_like(x.value, value.0))
    }

    fn layer_norm(&self, x: &Value, weight: &Value, bias: &Value, eps: f32) -> PyResult<Value> {
        self.value(|b| b.layer_norm(x.value, weight.value, bias.value, eps))
    }

    fn rms_norm(
        &self,
        x: &Value,
        weight: &Value,
        eps: f32,
        offset: f32,
        cast_first: bool,
    ) -> PyResult<Value> {
        self.value(|b| match cast_first {
            true => b.rms_norm_cast_first(x.value, weight.value, eps, offset),
            false => b.rms_norm_with_offset(x.value, weight.value, eps, offset),
        })
    }

    fn group_norm(
        &self,
        x: &Value,
        weight: &Value,
        bias: &Value,
        groups: Count,
        eps: f32,
    ) -> PyResult<Value> {
        self.value(|b| b.group_norm(x.value, weight.value, bias.value, groups.0, eps))
    }

    fn cumsum(&self, x: &Value, axis: Axis, exclusive: bool, reverse: bool) -> PyResult<Value> {
        self.value(|b| b.cumsum(x.value, axis.0, exclusive, reverse))
    }

    fn top_k(&self, x: &Value, k: Count, axis: Axis, smallest: bool) -> PyResult<(Value, Value)> {
        self.build(|b| {
            let (values, indices) = match smallest {
                true => b.bottom_k(x.value, k.0, axis.0),
                false => b.top_k(x.value, k.0, axis.0),
            }?;
            Ok((typed(b, values), typed(b, indices)))
        })
    }

    #[pyo3(signature = (axes, x, filter, bias, settings))]
    fn conv(
        &self,
        axes: usize,
        x: &Value,
        filter: OperandArgument,
        bias: Option<OperandArgument>,
        settings: (WindowsArgument, Count, String, String),
    ) -> PyResult<Value> {
        let conv = images::conv(settings)?;
        let (x, filter, bias) = (x.value, filter.0, bias.map(|bias| bias.0));
        self.value(
            |b| if axes == 3 { b.conv3d(conv, x, filter, bias) } else { b.conv2d(conv, x, filter, bias) },
        )
    }

    #[pyo3(signature = (x, filter, bias, settings))]
    fn conv2d_transpose(
        &self,
        x: &Value,
        filter: OperandArgument,
        bias: Option<OperandArgument>,
        settings: (WindowsArgument, Vec<Count>, String, String),
    ) -> PyResult<Value> {
        let conv = images::conv_transpose(settings)?;
        self.value(|b| b.conv2d_transpose(conv, x.value, filter.0, bias.map(|bias| bias.0)))
    }

    /// The mean of each window if `count_padding` says whether padding counts, else the largest element.
    #[pyo3(signature = (x, size, windows, round_up, count_padding))]
    fn pool2d(
        &self,
        x: &Value,
        size: [Count; 2],
        windows: WindowsArgument,
        round_up: bool,
        count_padding: Option<bool>,
    ) -> PyResult<Value> {
        self.value(|b| b.pool2d(images::pool(size, windows, round_up, count_padding), x.value))
    }

    fn fold(
        &self,
        x: &Value,
        size: Vec<PyRef<'_, Dim>>,
        window: [Count; 2],
        windows: WindowsArgument,
    ) -> PyResult<Value> {
        let size = <[graph::Dim; 2]>::try_from(dims(&size)).map_err(|size| {
            PyValueError::new_err(format!("output_size: got {} sizes, expected height and width", size.len()))
        })?;
        self.value(|b| b.fold(x.value, size, window.map(|count| count.0), images::windows(windows)))
    }

    /// The settings are the size, scale, samples along a side of a bin, whether coordinates are aligned, and the mode.
    fn roi_align(
        &self,
        x: &Value,
        regions: &Value,
        settings: ([Count; 2], f32, Count, bool, String),
    ) -> PyResult<Value> {
        let align = images::roi_align(settings)?;
        self.value(|b| b.roi_align(align, x.value, regions.value))
    }

    fn resize(
        &self,
        x: &Value,
        size: Vec<PyRef<'_, Dim>>,
        interpolation: &str,
        coordinates: &str,
        rounding: &str,
        antialias: bool,
    ) -> PyResult<Value> {
        let resize = images::resize(dims(&size), interpolation, coordinates, rounding, antialias)?;
        self.value(|b| b.resize(resize, x.value))
    }

    fn non_maximum_suppression(
        &self,
        boxes: &Value,
        scores: &Value,
        most: &Value,
        overlap: &Value,
        least: &Value,
        count: &str,
    ) -> PyResult<Value> {
        let limits = Suppression { most: most.value, overlap: overlap.value, least: least.value };
        self.value(|b| b.non_maximum_suppression(boxes.value, scores.value, limits, count))
    }

    #[pyo3(signature = (x, length, axis, norm))]
    fn irfft(&self, x: &Value, length: Option<&Dim>, axis: Axis, norm: &str) -> PyResult<Value> {
        let norm = images::fft_norm(norm)?;
        self.value(|b| b.irfft(x.value, length.map(|length| length.0.clone()), axis.0, norm))
    }

    /// A size of -1 is the one that is left.
    fn reshape(&self, x: &Value, shape: Vec<PyRef<'_, Dim>>) -> PyResult<Value> {
        let shape = dims(&shape).into_iter().map(|dim| (dim != graph::Dim::integer(-1)).then_some(dim));
        let shape: Vec<Option<graph::Dim>> = shape.collect();
        self.value(|b| b.reshape_rest(x.value, &shape))
    }

    fn shape_to_tensor(&self, shape: Vec<PyRef<'_, Dim>>) -> PyResult<Value> {
        self.value(|b| b.sizes_to_tensor(&dims(&shape)))
    }

    fn flatten(&self, x: &Value, start: Axis, end: Axis) -> PyResult<Value> {
        self.value(|b| b.flatten(x.value, start.0, end.0))
    }

    fn permute(&self, x: &Value, axes: Vec<Axis>) -> PyResult<Value> {
        let axes: Vec<isize> = axes.into_iter().map(|axis| axis.0).collect();
        self.value(|b| b.permute(x.value, &axes))
    }

    fn swap_axes(&self, x: &Value, first: Axis, second: Axis) -> PyResult<Value> {
        self.value(|b| b.swap_axes(x.value, first.0, second.0))
    }

    fn broadcast_to(&self, x: &Value, shape: Vec<PyRef<'_, Dim>>) -> PyResult<Value> {
        self.value(|b| b.broadcast_to(x.value, dims(&shape)))
    }

    #[pyo3(signature = (x, shape, message))]
    fn rebind(&self, x: &Value, shape: Vec<PyRef<'_, Dim>>, message: Option<&str>) -> PyResult<Value> {
        self.value(|b| b.rebind(x.value, dims(&shape), message))
    }

    fn concat(&self, parts: Vec<PyRef<'_, Value>>, axis: Axis) -> PyResult<Value> {
        self.value(|b| b.concat(&values(&parts), axis.0))
    }

    fn stack(&self, parts: Vec<PyRef<'_, Value>>, axis: Axis) -> PyResult<Value> {
        self.value(|b| b.stack(&values(&parts), axis.0))
    }

    fn split(&self, x: &Value, sizes: Vec<PyRef<'_, Dim>>, axis: Axis) -> PyResult<Vec<Value>> {
        self.values(|b| b.split_dims(x.value, axis.0, &dims(&sizes)))
    }

    fn chunk(&self, x: &Value, chunks: Count, axis: Axis) -> PyResult<Vec<Value>> {
        self.values(|b| b.chunk(x.value, chunks.0, axis.0))
    }

    fn tile(&self, x: &Value, repeats: Vec<PyRef<'_, Dim>>) -> PyResult<Value> {
        self.value(|b| b.tile(x.value, dims(&repeats)))
    }

    fn repeat_interleave(&self, x: &Value, repeats: Count, axis: Axis) -> PyResult<Value> {
        self.value(|b| b.repeat_interleave(x.value, repeats.0, axis.0))
    }

    fn repeat_interleave_by(&self, x: &Value, repeats: &Value, axis: Axis, out_dim: &Dim) -> PyResult<Value> {
        self.value(|b| b.repeat_interleave_by(x.value, repeats.value, axis.0, &out_dim.0))
    }

    /// The mode `constant` takes a value of the graph.
    #[pyo3(signature = (x, paddings, mode, value))]
    fn pad(
        &self,
        x: &Value,
        paddings: Vec<(Count, Count)>,
        mode: &str,
        value: Option<&Value>,
    ) -> PyResult<Value> {
        let paddings: Vec<(usize, usize)> =
            paddings.into_iter().map(|(before, after)| (before.0, after.0)).collect();
        self.value(|b| match (mode, value) {
            ("reflect", _) => b.pad_reflect(x.value, &paddings),
            ("edge", _) => b.pad_edge(x.value, &paddings),
            (_, value) => b.pad(x.value, &paddings, value.expect("a constant").value),
        })
    }

    #[pyo3(signature = (x, lower, upper, exclude))]
    fn band_part(
        &self,
        x: &Value,
        lower: Option<Count>,
        upper: Option<Count>,
        exclude: bool,
    ) -> PyResult<Value> {
        let (lower, upper) = (lower.map(|count| count.0), upper.map(|count| count.0));
        self.value(|b| match exclude {
            true => b.op(graph::ops::BandPart { lower, upper, exclude }, &[x.value]),
            false => b.band_part(x.value, lower, upper),
        })
    }

    fn slice_tensor(&self, x: &Value, indices: Vec<IndexArgument>) -> PyResult<Value> {
        let indices: Vec<graph::Index> = indices.into_iter().map(|index| index.0).collect();
        self.value(|b| b.slice_tensor(x.value, &indices))
    }

    fn load_slice(&self, buffer: &Value, indices: Vec<IndexArgument>) -> PyResult<Value> {
        let indices: Vec<graph::Index> = indices.into_iter().map(|index| index.0).collect();
        self.value(|b| b.load_slice(buffer.value, &indices))
    }

    fn create_buffer(&self, ty: TypeArgument) -> PyResult<Value> {
        self.value(|b| b.create_buffer(ty.0))
    }

    fn store(&self, buffer: &Value, x: &Value) -> PyResult<()> {
        self.build(|b| b.store(buffer.value, x.value))
    }

    fn store_slice(&self, buffer: &Value, indices: Vec<IndexArgument>, x: &Value) -> PyResult<()> {
        let indices: Vec<graph::Index> = indices.into_iter().map(|index| index.0).collect();
        self.build(|b| b.store_slice(buffer.value, &indices, x.value))
    }

    fn gather(&self, x: &Value, indices: &Value, axis: Axis) -> PyResult<Value> {
        self.value(|b| b.gather(x.value, indices.value, axis.0))
    }

    fn gather_nd(&self, x: &Value, indices: &Value, batch_dims: Count) -> PyResult<Value> {
        self.value(|b| b.gather_nd(x.value, indices.value, batch_dims.0))
    }

    /// Without an axis, indices are tuples.
    #[pyo3(signature = (kind, x, updates, indices, axis))]
    fn scatter(
        &self,
        kind: &str,
        x: &Value,
        updates: &Value,
        indices: &Value,
        axis: Option<Axis>,
    ) -> PyResult<Value> {
        let (kind, x, updates, indices) = (scatter_kind(kind), x.value, updates.value, indices.value);
        self.value(|b| match axis {
            Some(axis) => b.scatter(kind, x, updates, indices, axis.0),
            None => b.scatter_nd(kind, x, updates, indices),
        })
    }

    fn masked_scatter(&self, x: &Value, mask: &Value, updates: &Value, out_dim: &str) -> PyResult<Value> {
        self.value(|b| b.masked_scatter(x.value, mask.value, updates.value, Some(out_dim)))
    }

    fn nonzero(&self, x: &Value, out_dim: &Dim) -> PyResult<Value> {
        self.value(|b| b.nonzero(x.value, &out_dim.0))
    }

    fn range(&self, start: f64, stop: f64, step: f64, code: u8) -> PyResult<Value> {
        let dtype = dtype::from_code(code)?;
        self.value(|b| b.range(start, stop, step, dtype))
    }

    /// As `range`, of whole numbers, exactly.
    fn range_of_integers(&self, start: i128, stop: i128, step: i128, code: u8) -> PyResult<Value> {
        let dtype = dtype::from_code(code)?;
        self.value(|b| b.range_of_integers(start, stop, step, dtype))
    }

    fn range_to(&self, size: &Dim, code: u8) -> PyResult<Value> {
        let dtype = dtype::from_code(code)?;
        self.value(|b| b.range_to(&size.0, dtype))
    }

    fn range_of(&self, start: &Value, stop: &Value, step: &Value, out_dim: &Dim) -> PyResult<Value> {
        self.value(|b| b.range_of(start.value, stop.value, step.value, &out_dim.0))
    }

    fn hann_window(&self, length: Count, periodic: bool, code: u8) -> PyResult<Value> {
        let dtype = dtype::from_code(code)?;
        self.value(|b| b.hann_window(length.0, periodic, dtype))
    }

    /// The seed of the next random op: a number, or a value.
    fn set_seed(&self, seed: i64) {
        let mut state = self.state();
        state.builder.set_seed(seed as u64);
        state.has_seed = true;
    }

    fn set_seed_of(&self, seed: &Value) -> PyResult<()> {
        self.build(|b| b.set_seed_of(seed.value))?;
        self.state().has_seed = true;
        Ok(())
    }

    /// Random numbers of a type: `normal` with mean and deviation, or `uniform` between two numbers.
    fn random(
        &self,
        distribution: &str,
        like: TypeArgument,
        first: OperandArgument,
        second: OperandArgument,
    ) -> PyResult<Value> {
        let graph::Type { dtype, shape, .. } = like.0;
        let random = self.value(|b| match distribution {
            "normal" => b.random_normal_around(dtype, shape, first.0, second.0),
            _ => b.random_uniform_between(dtype, shape, first.0, second.0),
        });
        random.map_err(|error| match self.state().has_seed {
            true => error,
            false => PyRuntimeError::new_err(message(&error)),
        })
    }

    fn transfer_to(&self, x: &Value, device: i64) -> PyResult<Value> {
        let device = to_device(device)?;
        self.value(|b| b.transfer_to(x.value, device))
    }

    fn print(&self, x: &Value, label: &str) -> PyResult<()> {
        self.build(|b| b.print(x.value, label))
    }

    fn print_text(&self, text: &str, label: &str) -> PyResult<()> {
        self.build(|b| b.print_text(text, label))
    }

    /// The results of another graph that is finished.
    fn call(
        &self,
        graph: &GraphBuilder,
        operands: Vec<PyRef<'_, Value>>,
        prefix: &str,
    ) -> PyResult<Vec<Value>> {
        let graph = graph.finished()?;
        self.values(|b| b.call(&graph, &values(&operands), prefix))
    }

    fn custom(
        &self,
        library: &KernelLibrary,
        op: &str,
        operands: Vec<PyRef<'_, Value>>,
        results: Vec<TypeArgument>,
        parameters: Vec<(String, Parameter)>,
        inplace: bool,
    ) -> PyResult<Vec<Value>> {
        let results = results.into_iter().map(|ty| ty.0).collect();
        let empty = Attributes::default();
        let parameters = parameters.into_iter().fold(empty, |all, (name, value)| all.with(&name, value.0));
        let operands = values(&operands);
        self.values(|b| match inplace {
            true => b.inplace_custom(&library.0, op, &operands, results, parameters),
            false => b.custom(&library.0, op, &operands, results, parameters),
        })
    }

    /// Begins a graph within this one; ops go to it until it ends. Gives its inputs.
    fn begin_region(&self, name: &str, types: Vec<TypeArgument>) -> PyResult<Vec<Value>> {
        let types: Vec<graph::Type> = types.into_iter().map(|ty| ty.0).collect();
        self.values(|b| Ok(b.begin_region(name, &types)))
    }

    fn end_region(&self, outputs: Vec<PyRef<'_, Value>>) -> PyResult<Region> {
        let outputs = values(&outputs);
        self.build(|b| b.end_region(&outputs)).map(|region| Region(Mutex::new(Some(region))))
    }

    fn discard_region(&self) -> PyResult<()> {
        self.build(|b| {
            b.discard_region();
            Ok(())
        })
    }

    fn cond(&self, predicate: &Value, then: &Region, otherwise: &Region) -> PyResult<Vec<Value>> {
        self.values(|b| b.cond_of(predicate.value, None, then.take(), otherwise.take()))
    }

    fn while_loop(
        &self,
        initial: Vec<PyRef<'_, Value>>,
        predicate: &Region,
        body: &Region,
    ) -> PyResult<Vec<Value>> {
        self.values(|b| b.while_of(&values(&initial), predicate.take(), body.take()))
    }

    fn dequantize(&self, encoding: &str, x: &Value) -> PyResult<Value> {
        let encoding = block_dtype(encoding)?;
        self.value(|b| b.dequantize(encoding, x.value))
    }

    fn qmatmul(&self, encoding: &str, x: &Value, weight: &Value) -> PyResult<Value> {
        let encoding = block_dtype(encoding)?;
        self.value(|b| b.qmatmul(encoding, x.value, weight.value))
    }

    #[pyo3(signature = (x, weights, bits, group_size, desc_act, sym))]
    fn gptq_matmul(
        &self,
        x: &Value,
        weights: Vec<PyRef<'_, Value>>,
        bits: Count,
        group_size: Option<Count>,
        desc_act: bool,
        sym: bool,
    ) -> PyResult<Value> {
        let group_size = group_size.map(|count| count.0);
        let op = GptqMatMul { bits: bits.0, group_size, desc_act, sym };
        self.value(|b| b.gptq_matmul(op, x.value, &values(&weights)))
    }

    /// A function of values on several devices.
    fn collective(
        &self,
        function: &str,
        parts: Vec<PyRef<'_, Value>>,
        signals: Vec<PyRef<'_, Value>>,
        axis: Axis,
    ) -> PyResult<Vec<Value>> {
        let (parts, signals) = (values(&parts), values(&signals));
        self.values(|b| match function {
            "allgather" => b.allgather(&parts, &signals, axis.0),
            "reducescatter_sum" => b.reducescatter_sum(&parts, &signals, axis.0),
            "distributed_broadcast" => b.distributed_broadcast(parts[0], &signals),
            "distributed_scatter" => b.distributed_scatter(&parts, &signals),
            _ => b.allreduce_sum(&parts, &signals),
        })
    }

    fn shard_and_stack(
        &self,
        inputs: Vec<PyRef<'_, Value>>,
        devices: Vec<i64>,
        axis: Axis,
    ) -> PyResult<Vec<Value>> {
        let devices = devices.into_iter().map(to_device).collect::<PyResult<Vec<_>>>()?;
        self.values(|b| b.shard_and_stack(&values(&inputs), &devices, axis.0))
    }
}

impl GraphBuilder {
    fn from(builder: Builder, finished: Option<Arc<Graph>>) -> GraphBuilder {
        GraphBuilder(Mutex::new(State { builder, has_seed: false, finished }))
    }

    /// The graph, whose outputs must be set.
    fn finished(&self) -> PyResult<Arc<Graph>> {
        let state = self.state();
        let name = state.builder.graph().name();
        let unfinished = || PyValueError::new_err(format!("graph `{name}`: its output is not set"));
        state.finished.clone().ok_or_else(unfinished)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build<T>(&self, build: impl FnOnce(&mut Builder) -> Result<T, Error>) -> PyResult<T> {
        let mut state = self.state();
        guarded(|| build(&mut state.builder))?.map_err(graph_error)
    }

    fn value(&self, build: impl FnOnce(&mut Builder) -> Result<graph::Value, Error>) -> PyResult<Value> {
        self.build(|b| build(b).map(|value| typed(b, value)))
    }

    fn values(
        &self,
        build: impl FnOnce(&mut Builder) -> Result<Vec<graph::Value>, Error>,
    ) -> PyResult<Vec<Value>> {
        self.build(|b| Ok(build(b)?.into_iter().map(|value| typed(b, value)).collect()))
    }
}

/// The graphs that are compiled together.
pub(crate) fn module(graphs: &[PyRef<'_, GraphBuilder>]) -> PyResult<Module> {
    let graphs = graphs.iter().map(|graph| Ok(Graph::clone(&*graph.finished()?)));
    Ok(Module { graphs: graphs.collect::<PyResult<_>>()? })
}

fn typed(builder: &Builder, value: graph::Value) -> Value {
    Value { value, ty: builder.ty(value).clone() }
}

fn scatter_kind(name: &str) -> ScatterKind {
    match name {
        "add" => ScatterKind::Add,
        "max" => ScatterKind::Max,
        "min" => ScatterKind::Min,
        "mul" => ScatterKind::Mul,
        _ => ScatterKind::Set,
    }
}

pub(super) fn block_dtype(name: &str) -> PyResult<DType> {
    let dtype = name.parse::<DType>().ok().filter(|dtype| dtype.is_block());
    dtype.ok_or_else(|| PyTypeError::new_err(format!("encoding: {name} is not a format of blocks")))
}

/// The message of an exception.
fn message(error: &PyErr) -> String {
    Python::attach(|py| error.value(py).to_string())
}
