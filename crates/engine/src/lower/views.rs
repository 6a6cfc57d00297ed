//! Nodes that only see memory under another shape.

use graph::{Dim, Graph, Node, Op, Type};

/// For a node whose results are its operand's memory under other shapes: where each starts, in elements.
pub(super) fn views(graph: &Graph, node: &Node) -> Option<Vec<Dim>> {
    let source = graph.ty(*node.inputs.first()?);
    let start = || Some(vec![Dim::from(0)]);
    match &node.op {
        Op::Reshape(_) | Op::Rebind(_) | Op::Transfer(_) => start(),
        // Nothing is repeated, so only axes of size 1 were added.
        Op::Broadcast(_) if graph.ty(node.outputs[0]).elements() == source.elements() => start(),
        // Axes of size 1 move; the others keep their order.
        Op::Transpose(transpose) => {
            let moved: Vec<usize> =
                transpose.order.iter().copied().filter(|&axis| source.shape[axis] != Dim::from(1)).collect();
            if moved.is_sorted() { start() } else { None }
        }
        // A range that a size at run time may not hold is for a kernel to check.
        Op::Slice(slice) if slice.step == 1 && leads(source, slice.axis) => {
            let start = match source.shape[slice.axis].as_static() {
                Some(size) => slice.range(size).ok()?.0,
                None if slice.stop.is_none() => usize::try_from(slice.start).ok()?,
                None => return None,
            };
            Some(vec![&Dim::from(start) * &inner(source, slice.axis)])
        }
        Op::Split(split) if leads(source, split.axis) => {
            let inner = inner(source, split.axis);
            let starts =
                split.sizes.iter().scan(0, |start, size| Some(std::mem::replace(start, *start + size)));
            Some(starts.map(|start| &Dim::from(start) * &inner).collect())
        }
        _ => None,
    }
}

/// Whether parts along an axis are contiguous: no axis before it has more than one element.
fn leads(ty: &Type, axis: usize) -> bool {
    !ty.dtype.is_block() && ty.shape[..axis].iter().all(|dim| *dim == Dim::from(1))
}

/// The number of elements behind an axis.
fn inner(ty: &Type, axis: usize) -> Dim {
    ty.shape[axis + 1..].iter().fold(Dim::from(1), |product, dim| &product * dim)
}
