//! Work that is shared among devices, or that goes on along with other work.

use tensor::DType;

use super::Builder;
use crate::{DeviceRef, Dim, Error, Kind, Value};

impl Builder {
    /// Each of `values`, of one type, in as many parts along an axis as there are devices; part `i` of all of them as the
    /// slices of one tensor [values, ..] on device `i`.
    ///
    /// # Errors
    /// If the axis is not known to divide, there are no values or no devices.
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
        if values.is_empty() {
            return Err(self.refuse("shard_and_stack", "takes at least 1 operand, got none"));
        }
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

    /// The parts of all devices one after another along an axis, on each device. They may differ in size along it.
    #[track_caller]
    pub fn allgather(
        &mut self,
        parts: &[Value],
        signals: &[Value],
        axis: isize,
    ) -> Result<Vec<Value>, Error> {
        let devices = self.participants("allgather", parts, signals)?;
        let mut wholes = Vec::with_capacity(devices.len());
        for device in devices {
            let parts = self.on_device(parts, device)?;
            self.axis("allgather", parts[0], axis)?;
            wholes.push(if let [part] = parts[..] { part } else { self.concat(&parts, axis)? });
        }
        Ok(wholes)
    }

    /// The sum of tensors of one dtype and shape, on each of their devices. Each device sums them in the same order.
    #[track_caller]
    pub fn allreduce_sum(&mut self, parts: &[Value], signals: &[Value]) -> Result<Vec<Value>, Error> {
        let devices = self.participants("allreduce_sum", parts, signals)?;
        self.expect_one_shape("allreduce_sum", parts)?;
        let mut sums = Vec::with_capacity(devices.len());
        for device in devices {
            sums.push(self.sum_on(parts, device)?);
        }
        Ok(sums)
    }

    /// The sum of tensors of one dtype and shape, a share of it along an axis on each of their devices. If the axis does
    /// not divide evenly, the first devices get one more.
    ///
    /// # Errors
    /// Also fails if the axis has a symbolic size that is not known to divide evenly among the devices.
    #[track_caller]
    pub fn reducescatter_sum(
        &mut self,
        parts: &[Value],
        signals: &[Value],
        axis: isize,
    ) -> Result<Vec<Value>, Error> {
        let devices = self.participants("reducescatter_sum", parts, signals)?;
        self.expect_one_shape("reducescatter_sum", parts)?;
        let (axis, count) = (self.axis("reducescatter_sum", parts[0], axis)?, devices.len());
        let size = self.ty(parts[0]).shape[axis].clone();
        let sizes: Vec<Dim> = match size.as_static() {
            Some(size) => {
                (0..count).map(|i| Dim::from(size / count + usize::from(i < size % count))).collect()
            }
            None => vec![size.floor_div(&Dim::from(count)); count],
        };
        let mut shares = Vec::with_capacity(count);
        for &part in parts {
            shares.push(self.split_dims(part, axis as isize, &sizes)?);
        }
        let mut sums = Vec::with_capacity(count);
        for (i, device) in devices.into_iter().enumerate() {
            let shares: Vec<Value> = shares.iter().map(|shares| shares[i]).collect();
            sums.push(self.sum_on(&shares, device)?);
        }
        Ok(sums)
    }

    /// `x` on the device of each signal buffer, one of which is that of `x`.
    #[track_caller]
    pub fn distributed_broadcast(&mut self, x: Value, signals: &[Value]) -> Result<Vec<Value>, Error> {
        let op = "distributed_broadcast";
        let (device, devices) = (self.operand(op, x)?.device, self.signal_devices(op, signals)?);
        self.expect(op, devices.contains(&device), || format!("x is on {device}, but no signal buffer is"))?;
        let mut copies = Vec::with_capacity(devices.len());
        for device in devices {
            copies.push(self.transfer_to(x, device)?);
        }
        Ok(copies)
    }

    /// Each of `parts`, which are on one device, on the devices of as many signal buffers in a row: `parts[0]` on the
    /// first of them, and so on.
    #[track_caller]
    pub fn distributed_scatter(&mut self, parts: &[Value], signals: &[Value]) -> Result<Vec<Value>, Error> {
        let op = "distributed_scatter";
        let devices = self.signal_devices(op, signals)?;
        self.expect(op, !parts.is_empty(), || "takes at least 1 operand, got none".to_string())?;
        self.expect(op, devices.len().is_multiple_of(parts.len()), || {
            format!("{} devices cannot be divided among {} parts", devices.len(), parts.len())
        })?;
        let first = self.operand(op, parts[0])?.device;
        for (i, &part) in parts.iter().enumerate() {
            let ty = self.operand(op, part)?;
            self.expect(op, ty.device == first, || {
                format!(
                    "operands are not on the same device: operand 0 is on {first}, operand {i} on {}",
                    ty.device
                )
            })?;
        }
        let each = devices.len() / parts.len();
        let mut copies = Vec::with_capacity(devices.len());
        for (i, device) in devices.into_iter().enumerate() {
            copies.push(self.transfer_to(parts[i / each], device)?);
        }
        Ok(copies)
    }

    /// The sum of values on a device.
    #[track_caller]
    fn sum_on(&mut self, values: &[Value], device: DeviceRef) -> Result<Value, Error> {
        let values = self.on_device(values, device)?;
        let mut sum = values[0];
        for &value in &values[1..] {
            sum = self.add(sum, value)?;
        }
        Ok(sum)
    }

    #[track_caller]
    fn on_device(&mut self, values: &[Value], device: DeviceRef) -> Result<Vec<Value>, Error> {
        let mut moved = Vec::with_capacity(values.len());
        for &value in values {
            moved.push(self.transfer_to(value, device)?);
        }
        Ok(moved)
    }

    /// The devices of a collective's operands: each on one of its own, with a signal buffer.
    #[track_caller]
    fn participants(
        &self,
        op: &'static str,
        parts: &[Value],
        signals: &[Value],
    ) -> Result<Vec<DeviceRef>, Error> {
        self.expect(op, !parts.is_empty(), || "takes at least 1 operand, got none".to_string())?;
        let mut devices = Vec::with_capacity(parts.len());
        for (i, &part) in parts.iter().enumerate() {
            let ty = self.operand(op, part)?;
            self.expect(op, ty.kind == Kind::Tensor, || format!("operand {i} is {ty}, expected a tensor"))?;
            let earlier = devices.iter().position(|device| *device == ty.device);
            self.expect(op, earlier.is_none(), || {
                format!("operands {} and {i} are both on {}", earlier.unwrap_or(0), ty.device)
            })?;
            devices.push(ty.device);
        }
        self.expect(op, signals.len() == devices.len(), || {
            format!("takes a signal buffer for each of {} devices, got {}", devices.len(), signals.len())
        })?;
        for (i, (signal, device)) in self.signal_devices(op, signals)?.into_iter().zip(&devices).enumerate() {
            self.expect(op, signal == *device, || {
                format!("signal buffer {i} is on {signal}, operand {i} on {device}")
            })?;
        }
        Ok(devices)
    }

    /// The devices of signal buffers, each of which is on one of its own.
    #[track_caller]
    fn signal_devices(&self, op: &'static str, signals: &[Value]) -> Result<Vec<DeviceRef>, Error> {
        self.expect(op, !signals.is_empty(), || "takes at least 1 signal buffer, got none".to_string())?;
        let mut devices = Vec::with_capacity(signals.len());
        for (i, &signal) in signals.iter().enumerate() {
            let ty = self.operand(op, signal)?;
            self.expect(op, ty.kind == Kind::Buffer && ty.dtype == DType::U8, || {
                format!("signal buffer {i} is {ty}, expected a buffer of u8")
            })?;
            let earlier = devices.iter().position(|device| *device == ty.device);
            self.expect(op, earlier.is_none(), || {
                format!("signal buffers {} and {i} are both on {}", earlier.unwrap_or(0), ty.device)
            })?;
            devices.push(ty.device);
        }
        Ok(devices)
    }

    #[track_caller]
    fn expect_one_shape(&self, op: &'static str, parts: &[Value]) -> Result<(), Error> {
        let first = self.ty(parts[0]);
        for (i, &part) in parts.iter().enumerate() {
            let ty = self.ty(part);
            self.expect(op, (ty.dtype, &ty.shape) == (first.dtype, &first.shape), || {
                format!("types differ: operand 0 is {first}, operand {i} is {ty}")
            })?;
        }
        Ok(())
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
    use tensor::Tensor;

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

    #[test]
    fn collectives_of_one_device_are_the_identity() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n", 4]));
        let s = b.input("s", Type::buffer(DType::U8, [64]));
        assert_eq!(b.allreduce_sum(&[x], &[s]).unwrap(), [x]);
        assert_eq!(b.allgather(&[x], &[s], -1).unwrap(), [x]);
        let scattered = b.reducescatter_sum(&[x], &[s], 1).unwrap();
        assert_eq!(b.ty(scattered[0]), b.ty(x));
        assert_eq!(b.distributed_broadcast(x, &[s]).unwrap(), [x]);
        assert_eq!(b.distributed_scatter(&[x], &[s]).unwrap(), [x]);
        let error = b.allgather(&[x], &[s], 2).unwrap_err();
        assert_eq!(error.without_location().to_string(), "allgather: f32[n, 4] has no axis 2");
    }

    #[test]
    fn collectives_name_every_device() {
        let mut b = Builder::new("g");
        let on = |device: u32, ty: Type| Type { device: DeviceRef::Gpu(device), ..ty };
        let parts = [0, 1].map(|i| b.input(format!("x{i}"), on(i, Type::new(DType::F32, dims!["n", 5]))));
        let signals = [0, 1].map(|i| b.input(format!("s{i}"), on(i, Type::buffer(DType::U8, [64]))));
        let types = |b: &Builder, values: Result<Vec<Value>, Error>| match values {
            Ok(values) => values.iter().map(|&value| b.ty(value).to_string()).collect::<Vec<_>>().join(", "),
            Err(error) => error.without_location().to_string(),
        };
        let gathered = b.allgather(&parts, &signals, 0);
        assert_eq!(types(&b, gathered), "f32[2*n, 5] @gpu:0, f32[2*n, 5] @gpu:1");
        let sums = b.allreduce_sum(&parts, &signals);
        assert_eq!(types(&b, sums), "f32[n, 5] @gpu:0, f32[n, 5] @gpu:1");
        let shares = b.reducescatter_sum(&parts, &signals, 1);
        assert_eq!(types(&b, shares), "f32[n, 3] @gpu:0, f32[n, 2] @gpu:1");
        let copies = b.distributed_broadcast(parts[1], &signals);
        assert_eq!(types(&b, copies), "f32[n, 5] @gpu:0, f32[n, 5] @gpu:1");
        let halves = b.distributed_scatter(&[parts[0], parts[0]], &signals);
        assert_eq!(types(&b, halves), "f32[n, 5] @gpu:0, f32[n, 5] @gpu:1");

        let x = b.input("x", Type::new(DType::F32, dims!["n", 4]));
        let mut reduce = |parts: &[Value], signals: &[Value]| {
            b.allreduce_sum(parts, signals).unwrap_err().without_location().to_string()
        };
        let table: [(String, &str); 6] = [
            (reduce(&[], &[]), "takes at least 1 operand, got none"),
            (reduce(&[parts[0]; 2], &signals), "operands 0 and 1 are both on gpu:0"),
            (reduce(&parts[..1], &[]), "takes a signal buffer for each of 1 devices, got 0"),
            (reduce(&parts[..1], &signals[1..]), "signal buffer 0 is on gpu:1, operand 0 on gpu:0"),
            (reduce(&signals[..1], &signals[..1]), "operand 0 is mut u8[64] @gpu:0, expected a tensor"),
            (
                reduce(&[parts[0], x], &[signals[0], x]),
                "signal buffer 1 is f32[n, 4], expected a buffer of u8",
            ),
        ];
        for (message, expected) in table {
            assert_eq!(message, format!("allreduce_sum: {expected}"));
        }
        let error = b.reducescatter_sum(&parts, &signals, 0);
        assert_eq!(
            types(&b, error),
            "split: the sizes sum to `2*((n)//(2))`, expected `n`, the size of axis 0"
        );
        let error = b.distributed_broadcast(x, &signals);
        assert_eq!(types(&b, error), "distributed_broadcast: x is on cpu, but no signal buffer is");
    }
}
