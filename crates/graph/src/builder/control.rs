//! Conditions, loops and calls: graphs within the graph.

use std::sync::Arc;

use super::{Builder, refuse};
use crate::ops::{Call, Cond, While};
use crate::{Error, Graph, Type, Value};

impl Builder {
    /// What `then` makes of the captured values if `predicate`, one bool on the host, is true; else what `otherwise`
    /// makes of them. Both get the captured values, and give results of the same types; buffers may be captured.
    ///
    /// Weights are better asked for within a branch, by [`Builder::weight`]: a device packs them as any others, and the
    /// same name gives the same weight in all graphs. A captured weight is a value like those computed, and is used as
    /// it is stored.
    ///
    /// ```
    /// # use perihelion_graph as graph;
    /// # use graph::{Builder, Error, Type, dims};
    /// # use tensor::DType;
    /// let mut b = Builder::new("clip");
    /// let train = b.input("train", Type::new(DType::Bool, dims![]));
    /// let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    /// let y = b.cond(train, &[x], |b, x| Ok(vec![b.silu(x[0])?]), |_, x| Ok(x.to_vec()))?;
    /// b.finish(&y)?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn cond(
        &mut self,
        predicate: Value,
        captured: &[Value],
        then: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
        otherwise: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
    ) -> Result<Vec<Value>, Error> {
        let then = self.within("cond", "then", captured, then)?;
        let otherwise = self.within("cond", "otherwise", captured, otherwise)?;
        self.ops(Cond { then, otherwise }, &[&[predicate], captured].concat())
    }

    /// [`Builder::cond`], whose results have these types.
    ///
    /// # Errors
    /// As [`Builder::cond`], and if a branch gives other types.
    #[track_caller]
    pub fn cond_with_types(
        &mut self,
        predicate: Value,
        captured: &[Value],
        types: &[Type],
        then: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
        otherwise: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
    ) -> Result<Vec<Value>, Error> {
        let then = self.within("cond", "then", captured, then)?;
        let otherwise = self.within("cond", "otherwise", captured, otherwise)?;
        for branch in [&then, &otherwise] {
            let given: Vec<&Type> = branch.outputs().iter().map(|&output| branch.ty(output)).collect();
            if !given.iter().copied().eq(types) {
                let (name, given, expected) = (branch.name(), list(given), list(types.iter().collect()));
                return Err(refuse("cond", format!("`{name}` gives {given}, expected {expected}")));
            }
        }
        self.ops(Cond { then, otherwise }, &[&[predicate], captured].concat())
    }

    /// Runs `body` as long as `predicate` gives true: both get the values carried so far, then the captured values;
    /// `predicate` gives one bool on the host, `body` the next carried values, of the same types. Gives the last.
    ///
    /// ```
    /// # use perihelion_graph as graph;
    /// # use graph::{Builder, Error, Type, dims, ops::Binary};
    /// # use tensor::{DType, Tensor};
    /// let mut b = Builder::new("count");
    /// let end = b.input("end", Type::new(DType::I64, dims![]));
    /// let zero = b.constant(Tensor::scalar(0i64));
    /// let last = b.while_loop(
    ///     &[zero],
    ///     &[end],
    ///     |b, carried, captured| b.binary(Binary::Less, carried[0], captured[0]),
    ///     |b, carried, _| {
    ///         let one = b.constant(Tensor::scalar(1i64));
    ///         Ok(vec![b.add(carried[0], one)?])
    ///     },
    /// )?;
    /// let evaluation = b.finish(&last)?.evaluate(&[Tensor::scalar(5i64)], &|_| None)?;
    /// assert_eq!(evaluation.outputs[0].to_vec::<i64>(), [5]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn while_loop(
        &mut self,
        initial: &[Value],
        captured: &[Value],
        predicate: impl FnOnce(&mut Builder, &[Value], &[Value]) -> Result<Value, Error>,
        body: impl FnOnce(&mut Builder, &[Value], &[Value]) -> Result<Vec<Value>, Error>,
    ) -> Result<Vec<Value>, Error> {
        let operands = [initial, captured].concat();
        let predicate = self.within("while", "predicate", &operands, |b, values| {
            let (carried, captured) = values.split_at(initial.len());
            Ok(vec![predicate(b, carried, captured)?])
        })?;
        let body = self.within("while", "body", &operands, |b, values| {
            let (carried, captured) = values.split_at(initial.len());
            body(b, carried, captured)
        })?;
        if body.outputs().len() != initial.len() {
            let (carried, next) = (initial.len(), body.outputs().len());
            let message = format!("{carried} values are carried, but `body` gives {next}");
            return Err(refuse("while", message));
        }
        self.ops(While { predicate, body }, &operands)
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
        b.finish_part(&results)
    }

    /// A graph within this one, whose inputs have the types of values here.
    #[track_caller]
    fn within(
        &self,
        op: &'static str,
        name: &str,
        captured: &[Value],
        body: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>, Error>,
    ) -> Result<Arc<Graph>, Error> {
        let names: Vec<String> = (0..captured.len()).map(|i| format!("x{i}")).collect();
        let mut inputs: Vec<(&str, Type)> = Vec::with_capacity(captured.len());
        for (name, &value) in names.iter().zip(captured) {
            inputs.push((name, self.operand(op, value)?.clone()));
        }
        Builder::subgraph(name, &inputs, body)
    }

    fn finish_part(mut self, outputs: &[Value]) -> Result<Arc<Graph>, Error> {
        self.set_outputs(outputs)?;
        self.graph.verify_part()?;
        Ok(Arc::new(self.graph))
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
        let y = b.cond(
            p,
            &[x, cache],
            |b, v| {
                b.store(v[1], v[0])?;
                Ok(vec![b.unary(Unary::Neg, v[0])?])
            },
            |b, v| Ok(vec![b.load(v[1])?]),
        );
        let y = y.unwrap()[0];
        let error =
            b.cond(p, &[x], |b, v| Ok(vec![b.reduce(ReduceKind::Sum, v[0], 0)?]), |_, v| Ok(v.to_vec()));
        let message = "cond: results differ: `then` gives f32[1], `otherwise` gives f32[n]";
        assert_eq!(error.unwrap_err().without_location().to_string(), message);
        let same = |_: &mut Builder, v: &[Value]| Ok(v.to_vec());
        let types = [Type::new(DType::F16, dims!["n"])];
        let message = "cond: `then` gives f32[n], expected f16[n]";
        assert_eq!(
            b.cond_with_types(p, &[x], &types, same, same).unwrap_err().without_location().to_string(),
            message
        );
        let error = b.while_loop(&[x], &[], |_, v, _| Ok(v[0]), |_, _, _| Ok(vec![]));
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
