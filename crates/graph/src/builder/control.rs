//! Conditions, loops and calls: graphs within the graph.

use std::mem;
use std::sync::Arc;

use super::{Builder, Scope};
use crate::dim::Unknown;
use crate::ops::{Call, Cond, While};
use crate::{Dim, Error, Graph, Input, Type, Value};

/// A graph that was built within another, for [`Builder::cond_of`] or [`Builder::while_of`].
#[derive(Debug)]
pub struct Region {
    graph: Graph,
    /// The values of graphs around it that it uses, and the inputs that stand for them.
    captured: Vec<(Value, Value)>,
}

impl Region {
    /// Appends the input that stands for a captured value.
    fn capture(&mut self, value: Value, ty: &Type) {
        let name = format!("x{}", self.graph.inputs.len());
        match self.captured.iter().find(|(captured, _)| *captured == value) {
            Some(&(_, value)) => self.graph.inputs.push(Input { name, value }),
            None => drop(self.graph.input(name, ty.clone())),
        }
    }
}

impl Builder {
    /// The results of `then` if `predicate`, one bool on the host, is true, else those of `otherwise`. Both must have the
    /// same types: `types`, if it is given.
    ///
    /// Both may use the values of this graph and write its buffers.
    ///
    /// ```
    /// # use perihelion_graph as graph;
    /// # use graph::{Builder, Error, Type, dims};
    /// # use tensor::DType;
    /// let mut b = Builder::new("clip");
    /// let train = b.input("train", Type::new(DType::Bool, dims![]));
    /// let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    /// let y = b.cond(train, None, |b| Ok(vec![b.silu(x)?]), |_| Ok(vec![x]))?;
    /// b.finish(&y)?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn cond(
        &mut self,
        predicate: Value,
        types: Option<&[Type]>,
        then: impl FnOnce(&mut Builder) -> Result<Vec<Value>, Error>,
        otherwise: impl FnOnce(&mut Builder) -> Result<Vec<Value>, Error>,
    ) -> Result<Vec<Value>, Error> {
        let then = self.region("then", &[], |b, _| then(b))?;
        let otherwise = self.region("otherwise", &[], |b, _| otherwise(b))?;
        self.cond_of(predicate, types, then, otherwise)
    }

    /// [`Builder::cond`] of regions without inputs.
    #[track_caller]
    pub fn cond_of(
        &mut self,
        predicate: Value,
        types: Option<&[Type]>,
        then: Region,
        otherwise: Region,
    ) -> Result<Vec<Value>, Error> {
        for Region { graph, .. } in [&then, &otherwise] {
            let given: Vec<&Type> = graph.outputs().iter().map(|&output| graph.ty(output)).collect();
            if let Some(types) = types.filter(|&types| !given.iter().copied().eq(types)) {
                let (name, given, expected) = (graph.name(), list(given), list(types.iter().collect()));
                return Err(self.refuse("cond", format!("`{name}` gives {given}, expected {expected}")));
            }
        }
        let ([then, otherwise], captured) = self.join("cond", [then, otherwise])?;
        self.ops(Cond { then, otherwise }, &[&[predicate], &captured[..]].concat())
    }

    /// Runs `body` as long as `predicate` gives true, and gives the values that are carried last. Both get the values
    /// carried so far; `predicate` gives one bool on the host, `body` the next carried values, of the same types.
    ///
    /// Both may use the values of this graph and write its buffers.
    ///
    /// ```
    /// # use perihelion_graph as graph;
    /// # use graph::{Builder, Error, Type, dims};
    /// # use tensor::{DType, Tensor};
    /// let mut b = Builder::new("count");
    /// let end = b.input("end", Type::new(DType::I64, dims![]));
    /// let zero = b.constant(Tensor::scalar(0i64));
    /// let last =
    ///     b.while_loop(&[zero], |b, carried| b.less(carried[0], end), |b, carried| Ok(vec![b.add(carried[0], 1)?]))?;
    /// let evaluation = b.finish(&last)?.evaluate(&[Tensor::scalar(5i64)], &|_| None)?;
    /// assert_eq!(evaluation.outputs[0].to_vec::<i64>(), [5]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn while_loop(
        &mut self,
        initial: &[Value],
        predicate: impl FnOnce(&mut Builder, &[Value]) -> Result<Value, Error>,
        body: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
    ) -> Result<Vec<Value>, Error> {
        let mut types = Vec::with_capacity(initial.len());
        for &value in initial {
            types.push(self.operand("while", value)?.clone());
        }
        let predicate = self.region("predicate", &types, |b, carried| Ok(vec![predicate(b, carried)?]))?;
        let body = self.region("body", &types, body)?;
        self.while_of(initial, predicate, body)
    }

    /// [`Builder::while_loop`] of regions whose inputs are the carried values.
    #[track_caller]
    pub fn while_of(
        &mut self,
        initial: &[Value],
        predicate: Region,
        body: Region,
    ) -> Result<Vec<Value>, Error> {
        if body.graph.outputs().len() != initial.len() {
            let (carried, next) = (initial.len(), body.graph.outputs().len());
            let message = format!("{carried} values are carried, but `body` gives {next}");
            return Err(self.refuse("while", message));
        }
        let ([predicate, body], captured) = self.join("while", [predicate, body])?;
        self.ops(While { predicate, body }, &[initial, &captured[..]].concat())
    }

    /// Begins a region with inputs of these types, and gives the inputs. From here on methods add to it, until
    /// [`Builder::end_region`].
    pub fn begin_region(&mut self, name: &str, types: &[Type]) -> Vec<Value> {
        let region = Scope::new(name, self.scope.seed);
        self.enclosing.push(mem::replace(&mut self.scope, region));
        types.iter().enumerate().map(|(i, ty)| self.input(format!("x{i}"), ty.clone())).collect()
    }

    /// Ends the innermost region, also if this fails. From here on methods add to the graph around it.
    ///
    /// # Errors
    /// If an output is a value of another graph.
    ///
    /// # Panics
    /// If no region was begun.
    #[track_caller]
    pub fn end_region(&mut self, outputs: &[Value]) -> Result<Region, Error> {
        let known = self.set_outputs(outputs);
        let Scope { graph, captured, seed, .. } = self.leave_region();
        known?;
        self.scope.seed = seed;
        Ok(Region { graph, captured })
    }

    /// Ends the innermost region, and forgets it.
    ///
    /// # Panics
    /// If no region was begun.
    pub fn discard_region(&mut self) {
        self.leave_region();
    }

    fn leave_region(&mut self) -> Scope {
        let scope = self.enclosing.pop().expect("a region that was begun");
        mem::replace(&mut self.scope, scope)
    }

    /// A region that a function builds of its inputs.
    #[track_caller]
    fn region(
        &mut self,
        name: &str,
        types: &[Type],
        body: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
    ) -> Result<Region, Error> {
        let depth = self.enclosing.len();
        let inputs = self.begin_region(name, types);
        match body(self, &inputs) {
            Ok(outputs) => self.end_region(&outputs),
            Err(error) => {
                while self.enclosing.len() > depth {
                    self.discard_region();
                }
                Err(error)
            }
        }
    }

    /// The graphs of the two regions of an op, and the captured values, for which both have inputs behind their own: all
    /// that either region captured, and values that give symbols their sizes.
    #[track_caller]
    fn join(
        &self,
        op: &'static str,
        mut regions: [Region; 2],
    ) -> Result<([Arc<Graph>; 2], Vec<Value>), Error> {
        let mut captured: Vec<Value> = Vec::new();
        for region in &mut regions {
            let Region { graph, captured: own } = region;
            graph.inputs.retain(|input| !own.iter().any(|(_, local)| *local == input.value));
            let values = own.iter().map(|(value, _)| *value);
            captured.extend(values.filter(|value| !captured.contains(value)).collect::<Vec<_>>());
        }
        let mut given = 0;
        loop {
            for &value in &captured[given..] {
                let ty = self.operand(op, value)?;
                regions.iter_mut().for_each(|region| region.capture(value, ty));
            }
            given = captured.len();
            let undetermined = regions.iter().find_map(|region| region.graph.undetermined_symbol());
            match undetermined.and_then(|(symbol, _)| self.value_with(symbol)) {
                Some(value) if !captured.contains(&value) => captured.push(value),
                _ => break,
            }
        }
        for region in &regions {
            region.graph.verify_part()?;
        }
        Ok((regions.map(|region| Arc::new(region.graph)), captured))
    }

    /// A value from whose shape the size of a symbol follows.
    fn value_with(&self, symbol: &str) -> Option<Value> {
        let gives = |dim: &Dim| matches!(dim.unknown(&|_| false), Unknown::Linear(name) if name == symbol);
        self.known_values().find(|(_, ty)| ty.shape.iter().any(gives)).map(|(value, _)| value)
    }

    /// The results of a graph of its own. `prefix` stands before the names of its weights, so that one graph serves
    /// many layers: `layers.3.`.
    #[track_caller]
    pub fn call(
        &mut self,
        graph: &Arc<Graph>,
        operands: &[Value],
        prefix: &str,
    ) -> Result<Vec<Value>, Error> {
        self.ops(Call { graph: Arc::clone(graph), prefix: prefix.to_string() }, operands)
    }

    /// A graph of its own, for [`Builder::call`], built by a function of its inputs.
    ///
    /// # Errors
    /// If the function fails, or the graph breaks a rule of [`Graph::verify`].
    pub fn subgraph(
        name: &str,
        inputs: &[(&str, Type)],
        body: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
    ) -> Result<Arc<Graph>, Error> {
        let mut b = Builder::new(name);
        let values: Vec<Value> = inputs.iter().map(|(name, ty)| b.input(*name, ty.clone())).collect();
        let results = body(&mut b, &values)?;
        let graph = b.with_outputs(&results)?;
        graph.verify_part()?;
        Ok(Arc::new(graph))
    }
}

fn list(types: Vec<&Type>) -> String {
    types.into_iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use tensor::{DType, Tensor};

    use super::*;
    use crate::dims;
    use crate::ops::{ReduceKind, Unary};

    fn layers() -> Graph {
        let ty = || Type::new(DType::F32, dims!["rows", 2]);
        let layer = Builder::subgraph("layer", &[("x", ty())], |b, x| {
            let w = b.weight("w", Type::new(DType::F32, [2, 2]))?;
            Ok(vec![b.linear(x[0], w)?])
        });
        let layer = layer.unwrap();
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n", 2]));
        let y = b.call(&layer, &[x], "layers.0.").unwrap();
        let y = b.call(&layer, &y, "layers.1.").unwrap();
        b.finish(&y).unwrap()
    }

    #[test]
    fn one_graph_serves_many_layers() {
        let text = "graph g(%x: f32[n, 2]) {
  %0 = call(%x) {graph = graph layer(%x: f32[rows, 2]) {
    %0 = weight \"w\" : f32[2, 2]
    %1 = linear(%x, %0) : f32[rows, 2]
    return %1
  }, prefix = \"layers.0.\"} : f32[n, 2]
  %1 = call(%0) {graph = @layer, prefix = \"layers.1.\"} : f32[n, 2]
  return %1
}
";
        let graph = layers();
        assert_eq!(graph.to_string(), text);
        let again = Graph::parse(text).unwrap();
        assert_eq!(again, graph);
        assert_eq!(graph.weights().into_keys().collect::<Vec<_>>(), ["layers.0.w", "layers.1.w"]);
        let weights = |name: &str| {
            let scale = if name == "layers.0.w" { 2f32 } else { 10.0 };
            Some(Tensor::from_slice([2, 2], &[scale, 0.0, 0.0, scale]))
        };
        let x = Tensor::from_slice([1, 2], &[1f32, 2.0]);
        assert_eq!(graph.evaluate(&[x], &weights).unwrap().outputs[0].to_vec::<f32>(), [20.0, 40.0]);
    }

    #[test]
    fn branches_and_loops_give_what_was_carried() {
        let mut b = Builder::new("g");
        let p = b.input("p", Type::new(DType::Bool, dims![]));
        let x = b.input("x", Type::new(DType::F32, dims!["n"]));
        let cache = b.input("cache", Type::buffer(DType::F32, dims!["n"]));
        let then = |b: &mut Builder| {
            b.store(cache, x)?;
            Ok(vec![b.unary(Unary::Neg, x)?])
        };
        let y = b.cond(p, None, then, |b| Ok(vec![b.load(cache)?])).unwrap()[0];
        let error = b.cond(p, None, |b| Ok(vec![b.reduce(ReduceKind::Sum, x, 0)?]), |_| Ok(vec![x]));
        let message = "cond: results differ: `then` gives f32[1], `otherwise` gives f32[n]";
        assert_eq!(error.unwrap_err().without_location().to_string(), message);
        let same = |_: &mut Builder| Ok(vec![x]);
        let types = [Type::new(DType::F16, dims!["n"])];
        let message = "cond: `then` gives f32[n], expected f16[n]";
        assert_eq!(b.cond(p, Some(&types), same, same).unwrap_err().without_location().to_string(), message);
        let error = b.while_loop(&[x], |_, v| Ok(v[0]), |_, _| Ok(vec![]));
        assert_eq!(
            error.unwrap_err().without_location().to_string(),
            "while: 1 values are carried, but `body` gives 0"
        );
        let graph = b.finish(&[y]).unwrap();
        assert_eq!(Graph::parse(&graph.to_string()).unwrap(), graph);
        for (condition, output, left) in [(true, -1f32, 1f32), (false, 5.0, 5.0)] {
            let inputs = [
                Tensor::from_bools([], &[condition]),
                Tensor::from_slice([1], &[1f32]),
                Tensor::from_slice([1], &[5f32]),
            ];
            let evaluation = graph.evaluate(&inputs, &|_| None).unwrap();
            assert_eq!(evaluation.outputs[0].to_vec::<f32>(), [output]);
            assert_eq!(evaluation.buffers[0].to_vec::<f32>(), [left]);
        }
    }
}
