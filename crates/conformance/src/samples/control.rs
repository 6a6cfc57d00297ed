//! Problems of ops that run graphs.

use std::sync::Arc;

use tensor::Tensor;

use super::List;
use crate::Tolerance;
use graph::Graph;
use graph::ops::*;

impl List {
    pub(super) fn control(&mut self) {
        let graph = |text: &str| Arc::new(Graph::parse(text).expect("a graph"));
        let negate = graph("graph negate(%x: f32[n, 2]) { %y = neg(%x) return %y, %x }");
        let same = graph("graph same(%x: f32[n, 2]) { return %x, %x }");
        for size in [0, 1, 17] {
            let x = self.random.floats([size, 2], 1.0);
            for condition in [true, false] {
                let op = Cond { then: Arc::clone(&negate), otherwise: Arc::clone(&same) };
                let inputs = vec![Tensor::from_bools([], &[condition]), x.clone()];
                self.add(&condition.to_string(), op, inputs, Tolerance::Exact);
            }
            let call = Call { graph: Arc::clone(&negate), prefix: String::new() };
            self.add("", call, vec![x], Tolerance::Exact);
        }
        let text = |body: &str| {
            graph(&format!("graph g(%i: i64[], %x: f32[n], %end: i64[], %b: mut f32[n]) {{ {body} }}"))
        };
        let op = While {
            predicate: text("%y = less(%i, %end) return %y"),
            body: text(
                "%one = constant [1] : i64[]
                 %next = add(%i, %one)
                 %old = load(%b)
                 %sum = add(%x, %old)
                 store(%b, %x)
                 return %next, %sum",
            ),
        };
        for (size, end) in [(1, 3), (17, 10), (5, 0), (0, 2)] {
            let [x, b] = [(); 2].map(|()| self.random.floats([size], 1.0));
            let inputs = vec![Tensor::scalar(0i64), x, Tensor::scalar(end as i64), b];
            self.add(&format!("to {end}"), op.clone(), inputs, Tolerance::Exact);
        }
    }
}
