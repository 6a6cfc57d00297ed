//! Work that is shared among devices, or that goes on along with other work.

use super::Builder;
use crate::{DeviceRef, Error, Value};

impl Builder {
    /// Each of `values`, of one type, in as many parts along an axis as there are devices; part `i` of all of them as the
    /// slices of one tensor [values, ..] on device `i`.
    ///
    /// # Errors
    /// If the axis is not known to divide, or a device cannot be reached.
    #[track_caller]
    pub fn shard_and_stack(
        &mut self,
        values: &[Value],
        devices: &[DeviceRef],
        axis: isize,
    ) -> Result<Vec<Value>, Error> {
        if devices.is_empty() {
            return Err(self.refuse("shard_and_stack", "takes at least 1 device, got none"));
        }
        let mut shards = Vec::new();
        for &value in values {
            shards.push(self.chunk(value, devices.len(), axis)?);
        }
        let mut stacks = Vec::new();
        for (i, &device) in devices.iter().enumerate() {
            let parts: Vec<Value> = shards.iter().map(|shards| shards[i]).collect();
            let stack = self.stack(&parts, 0)?;
            stacks.push(self.transfer_to(stack, device)?);
        }
        Ok(stacks)
    }

    /// What `body` makes of each value: work that none of the others waits for. The results alone say what waits for what,
    /// so that devices take part in it at once.
    pub fn parallel(
        &mut self,
        values: &[Value],
        mut body: impl FnMut(&mut Builder, Value) -> Result<Value, Error>,
    ) -> Result<Vec<Value>, Error> {
        values.iter().map(|&value| body(self, value)).collect()
    }

    /// Work that may go on during what follows, up to where its results are read. On one host all its threads share each
    /// step, so that steps come one after another.
    pub fn side_stream<T>(
        &mut self,
        body: impl FnOnce(&mut Builder) -> Result<T, Error>,
    ) -> Result<T, Error> {
        body(self)
    }
}

#[cfg(test)]
mod tests {
    use tensor::{DType, Tensor};

    use super::*;
    use crate::{Type, dims};

    #[test]
    fn shards_are_stacked() {
        let mut b = Builder::new("g");
        let ty = Type::new(DType::F32, dims![2, 4]);
        let (x, y) = (b.input("x", ty.clone()), b.input("y", ty));
        let halves = b.shard_and_stack(&[x, y], &[DeviceRef::Cpu; 2], 1).unwrap();
        let negative = b.parallel(&halves, |b, half| b.negate(half)).unwrap();
        let sum = b.side_stream(|b| b.add(negative[0], negative[1])).unwrap();
        let error = b.shard_and_stack(&[x], &[DeviceRef::Cpu; 3], 1).unwrap_err();
        assert_eq!(
            error.without_location().to_string(),
            "chunk: axis 1 of f32[2, 4] is not known to divide into 3"
        );
        let error = b.shard_and_stack(&[x], &[], 1).unwrap_err();
        assert_eq!(
            error.without_location().to_string(),
            "shard_and_stack: takes at least 1 device, got none"
        );
        let graph = b.finish(&[halves[1], sum]).unwrap();
        let [x, y] = [0, 8]
            .map(|first| Tensor::from_slice([2, 4], &[0, 1, 2, 3, 4, 5, 6, 7].map(|i| (first + i) as f32)));
        let outputs = graph.evaluate(&[x, y], &|_| None).unwrap().outputs;
        assert_eq!(outputs[0].shape().dims(), [2, 2, 2]);
        assert_eq!(outputs[0].to_vec::<f32>(), [2.0, 3.0, 6.0, 7.0, 10.0, 11.0, 14.0, 15.0]);
        assert_eq!(outputs[1].to_vec::<f32>()[..2], [-2.0, -4.0]);
    }
}
