//! Reductions along an axis, and other shapes for the same elements.

use tensor::Tensor;

use super::{Builder, resolve_axis, widened};
use crate::ops::{ArgReduceKind, Concat, LogSoftmax, Rebind, ReduceKind, ShapeToTensor, Split, Transfer};
use crate::{DeviceRef, Dim, Error, Value};

/// The most results of [`Builder::chunk`]: each is a value of the graph.
const MAX_CHUNKS: usize = 1 << 16;

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident = $method:ident $kind:expr;)*) => {
        /// Reductions along an axis, which stays with size 1.
        impl Builder {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
                self.$method($kind, x, axis)
            })*
        }
    };
}

reductions! {
    /// The sum.
    sum = reduce ReduceKind::Sum;
    /// The mean.
    mean = reduce ReduceKind::Mean;
    /// The smallest element; NaN if one is.
    reduce_min = reduce ReduceKind::Min;
    /// The largest element; NaN if one is.
    reduce_max = reduce ReduceKind::Max;
    /// The product.
    prod = reduce ReduceKind::Prod;
    /// The index (i64) of the smallest element, the first of equal ones; of the first NaN if there is one.
    argmin = arg_reduce ArgReduceKind::Min;
    /// The index (i64) of the largest element, the first of equal ones; of the first NaN if there is one.
    argmax = arg_reduce ArgReduceKind::Max;
}

impl Builder {
    /// `ln softmax(x)` along an axis: [..] → [..].
    #[track_caller]
    pub fn logsoftmax(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("logsoftmax", x, axis)?;
        let dtype = self.ty(x).dtype;
        let x = self.cast(x, widened(dtype))?;
        let y = self.op(LogSoftmax { axis }, &[x])?;
        self.cast(y, dtype)
    }

    /// `x` without an axis, of size 1.
    #[track_caller]
    pub fn squeeze(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("squeeze", x, axis)?;
        let mut shape = self.ty(x).shape.clone();
        if shape[axis] != Dim::from(1) {
            let message = format!("axis {axis} of {} has not size 1", self.ty(x));
            return Err(self.refuse("squeeze", message));
        }
        shape.remove(axis);
        self.reshape(x, shape)
    }

    /// `x` with an axis of size 1 more, which is then axis `axis`.
    #[track_caller]
    pub fn unsqueeze(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let mut shape = self.operand("unsqueeze", x)?.shape.clone();
        let rank = shape.len() as isize + 1;
        let position = if axis < 0 { axis + rank } else { axis };
        if !(0..rank).contains(&position) {
            let message = format!("the result has {rank} axes, and no axis {axis}");
            return Err(self.no_axis("unsqueeze", message));
        }
        shape.insert(position as usize, Dim::from(1));
        self.reshape(x, shape)
    }

    /// The axes `start..=end` as one.
    #[track_caller]
    pub fn flatten(&mut self, x: Value, start: isize, end: isize) -> Result<Value, Error> {
        if self.operand("flatten", x)?.rank() == 0 {
            return self.reshape(x, [Dim::from(1)]);
        }
        let (first, last) = (self.axis("flatten", x, start)?, self.axis("flatten", x, end)?);
        let shape = &self.ty(x).shape;
        if first > last {
            let message = format!("axis {start} is behind axis {end} of {}", self.ty(x));
            return Err(self.refuse("flatten", message));
        }
        let one = shape[first..=last].iter().fold(Dim::from(1), |product, dim| &product * dim);
        let shape = [&shape[..first], &[one], &shape[last + 1..]].concat();
        self.reshape(x, shape)
    }

    /// Axis `i` of the result is axis `order[i]` of `x`; negative ones count from the end.
    #[track_caller]
    pub fn permute(&mut self, x: Value, order: &[isize]) -> Result<Value, Error> {
        let order = self.axes("permute", x, order)?;
        self.transpose(x, &order)
    }

    /// Values of one type behind one another along a new axis.
    #[track_caller]
    pub fn stack(&mut self, values: &[Value], axis: isize) -> Result<Value, Error> {
        let mut parts = Vec::with_capacity(values.len());
        for &value in values {
            parts.push(self.unsqueeze(value, axis)?);
        }
        let Some(&first) = parts.first() else {
            return Err(self.refuse("stack", "takes at least 1 operand, got 0"));
        };
        if let Some(&other) = values.iter().find(|&&value| self.ty(value) != self.ty(values[0])) {
            let message = format!("types differ: {}, {}", self.ty(values[0]), self.ty(other));
            return Err(self.refuse("stack", message));
        }
        let axis = resolve_axis(self.ty(first).rank(), axis).expect("the axis that was added");
        self.op(Concat { axis }, &parts)
    }

    /// `x` in `chunks` parts of one size along an axis.
    ///
    /// # Errors
    /// If the axis has a symbolic size or does not divide evenly, or there are more than 65,536 chunks.
    #[track_caller]
    pub fn chunk(&mut self, x: Value, chunks: usize, axis: isize) -> Result<Vec<Value>, Error> {
        let axis = self.axis("chunk", x, axis)?;
        match self.ty(x).shape[axis].as_static() {
            _ if chunks > MAX_CHUNKS => {
                let message = format!("{chunks} chunks of {}, expected at most {MAX_CHUNKS}", self.ty(x));
                Err(self.refuse("chunk", message))
            }
            Some(size) if chunks > 0 && size % chunks == 0 => {
                self.ops(Split { axis, sizes: vec![size / chunks; chunks] }, &[x])
            }
            _ => {
                let message = format!("axis {axis} of {} is not known to divide into {chunks}", self.ty(x));
                Err(self.refuse("chunk", message))
            }
        }
    }

    /// The sizes of the axes as data: `i64[rank]` on the host.
    #[track_caller]
    pub fn shape_to_tensor(&mut self, x: Value) -> Result<Value, Error> {
        match self.operand("shape_to_tensor", x)?.static_shape() {
            Some(shape) => {
                let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
                Ok(self.constant(Tensor::from_slice([sizes.len()], &sizes)))
            }
            None => self.op(ShapeToTensor, &[x]),
        }
    }

    /// `x` of another shape, which is checked once the sizes are known. Symbols that are new get their sizes so.
    ///
    /// # Errors
    /// If the shape can never be. Calls fail where it is not, with `message`.
    #[track_caller]
    pub fn rebind(
        &mut self,
        x: Value,
        shape: impl IntoIterator<Item = Dim>,
        message: Option<&str>,
    ) -> Result<Value, Error> {
        let shape: Vec<Dim> = shape.into_iter().collect();
        if self.operand("rebind", x)?.shape == shape {
            return Ok(x);
        }
        let mut symbols: Vec<String> = shape.iter().flat_map(Dim::symbols).map(str::to_string).collect();
        symbols.sort_unstable();
        symbols.dedup();
        symbols.retain(|symbol| !self.knows(symbol));
        self.op(Rebind { shape, symbols, message: message.map(str::to_string) }, &[x])
    }

    /// `x` on a device; `x` itself if it lives there. Graphs may name any device; a session compiles those whose devices
    /// it has.
    #[track_caller]
    pub fn transfer_to(&mut self, x: Value, device: DeviceRef) -> Result<Value, Error> {
        if self.operand("transfer_to", x)?.device == device {
            Ok(x)
        } else {
            self.op(Transfer { device }, &[x])
        }
    }

    /// Whether the type of an input or of a node's result names a symbol, here or in a graph around this one.
    pub(super) fn knows(&self, symbol: &str) -> bool {
        let mut dims = self.known_values().flat_map(|(_, ty)| &ty.shape);
        dims.any(|dim| dim.symbols().contains(&symbol))
    }
}

#[cfg(test)]
mod tests {
    use tensor::DType;

    use super::*;
    use crate::{Type, dims};

    #[test]
    fn shapes() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n", 1, 6]));
        let mut check = |build: &dyn Fn(&mut Builder) -> Result<Value, Error>, expected: &str| {
            let got = build(&mut b)
                .map(|y| b.ty(y).to_string())
                .unwrap_or_else(|error| error.without_location().to_string());
            assert_eq!(got, expected);
        };
        check(&|b| b.squeeze(x, -2), "f32[n, 6]");
        check(&|b| b.squeeze(x, 0), "squeeze: axis 0 of f32[n, 1, 6] has not size 1");
        check(&|b| b.unsqueeze(x, -1), "f32[n, 1, 6, 1]");
        check(&|b| b.unsqueeze(x, 5), "unsqueeze: the result has 4 axes, and no axis 5");
        check(&|b| b.flatten(x, 0, -1), "f32[6*n]");
        check(&|b| b.flatten(x, 2, 0), "flatten: axis 2 is behind axis 0 of f32[n, 1, 6]");
        check(&|b| b.permute(x, &[-1, 0, 1]), "f32[6, n, 1]");
        check(&|b| b.stack(&[x, x], -1), "f32[n, 1, 6, 2]");
        check(&|b| b.stack(&[], 0), "stack: takes at least 1 operand, got 0");
        check(&|b| b.chunk(x, 3, -1).map(|parts| parts[2]), "f32[n, 1, 2]");
        check(
            &|b| b.chunk(x, 4, -1).map(|parts| parts[0]),
            "chunk: axis 2 of f32[n, 1, 6] is not known to divide into 4",
        );
        let message = "chunk: 1099511627776 chunks of f32[n, 1, 6], expected at most 65536";
        check(&|b| b.chunk(x, 1 << 40, -1).map(|parts| parts[0]), message);
        check(&|b| b.mean(x, 0), "f32[1, 1, 6]");
        check(&|b| b.argmax(x, 2), "i64[n, 1, 1]");
        check(&|b| b.logsoftmax(x, -1), "f32[n, 1, 6]");
        check(&|b| b.shape_to_tensor(x), "i64[3]");
        check(&|b| b.rebind(x, dims!["k", 1, "k"], None), "f32[k, 1, k]");
        check(&|b| b.transfer_to(x, DeviceRef::Cpu), "f32[n, 1, 6]");
        check(&|b| b.transfer_to(x, DeviceRef::Gpu(1)), "f32[n, 1, 6] @gpu:1");
    }
}
