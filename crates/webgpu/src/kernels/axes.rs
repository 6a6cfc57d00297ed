//! The axes of a result, joined where a walk over operands needs not tell them apart.

use graph::Dim;
use tensor::Shape;

/// Axes of a result that kernels walk, outermost first; at least one group of them. The groups follow from types, not from
/// sizes at run time, so there is one shader for all of those.
pub(super) struct Axes {
    groups: Vec<Vec<usize>>,
}

impl Axes {
    /// The axes of a shape without those of size 1; `joins` says whether an axis and the next one are walked as one.
    pub(super) fn new(shape: &[Dim], joins: impl Fn(usize, usize) -> bool) -> Axes {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for axis in (0..shape.len()).filter(|&axis| shape[axis].as_static() != Some(1)) {
            match groups.last_mut() {
                Some(group) if joins(group[group.len() - 1], axis) => group.push(axis),
                _ => groups.push(vec![axis]),
            }
        }
        if groups.is_empty() {
            groups.push(Vec::new());
        }
        Axes { groups }
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The groups, each as its axes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        self.groups.iter().map(Vec::as_slice)
    }

    /// The elements of each group.
    pub(super) fn sizes(&self, shape: &Shape) -> Vec<usize> {
        self.iter().map(|axes| axes.iter().map(|&axis| shape[axis]).product()).collect()
    }

    /// The names of the sizes of all groups but the first, which the text of [`Axes::indices`] reads.
    pub(super) fn params(&self) -> Vec<String> {
        (1..self.len()).map(|group| format!("n{group}")).collect()
    }

    /// WGSL that finds the index `a0`, `a1`, … along each group of element `i`.
    pub(super) fn indices(&self) -> String {
        let inner = (1..self.len()).rev();
        let mut text: String = inner
            .scan("i".to_string(), |rest, group| {
                let above = format!("r{group}");
                let line =
                    format!("let a{group} = {rest} % p.n{group}; let {above} = {rest} / p.n{group};\n");
                *rest = above;
                Some(line)
            })
            .collect();
        text += if self.len() == 1 { "let a0 = i;\n" } else { "let a0 = r1;\n" };
        text
    }
}
