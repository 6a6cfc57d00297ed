//! When two graphs compute the same in the same way.

use super::{Graph, Input, Node, Value};

/// Equal computations: the same names, types and ops in the same order, under the same policy. Where nodes were made does not matter.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        let (a, b) = (self.value_numbers(), other.value_numbers());
        let equal = |x: &[Value], y: &[Value]| {
            x.iter().map(|value| a[value.index()]).eq(y.iter().map(|value| b[value.index()]))
        };
        let alike = |(x, y): (&Node, &Node)| {
            equal(&x.inputs, &y.inputs) && x.outputs.len() == y.outputs.len() && x.op == y.op
        };
        let input = |graph: &Graph, input: &Input| (input.name.clone(), graph.ty(input.value).clone());
        self.name() == other.name()
            && self.device_placement == other.device_placement
            && self.inputs.iter().map(|i| input(self, i)).eq(other.inputs.iter().map(|i| input(other, i)))
            && self.len() == other.len()
            && self.nodes().map(|(_, node)| node).zip(other.nodes().map(|(_, node)| node)).all(alike)
            && equal(&self.outputs, &other.outputs)
    }
}

impl Graph {
    /// For each value its place in program order; for values that are no more, a number beyond all places.
    fn value_numbers(&self) -> Vec<usize> {
        let mut numbers = vec![usize::MAX; self.values.len()];
        let inputs = self.inputs.iter().map(|input| input.value);
        let results = self.nodes().flat_map(|(_, node)| node.outputs.iter().copied());
        inputs.chain(results).enumerate().for_each(|(number, value)| numbers[value.index()] = number);
        numbers
    }
}
