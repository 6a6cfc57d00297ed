//! Calls that are captured once and replayed on the same buffers.
//!
//! On an accelerator that saves launching each kernel. The host has nothing to launch: here a replay saves finding the
//! buffers of the outputs, and programs written for accelerators run as they are.

use tensor::Buffer;

use super::{Captured, Model};
use crate::{Error, ExecuteOptions};

impl Model {
    /// Executes, and keeps the buffers of inputs and outputs under `keys`, in place of those kept before. Gives the
    /// outputs, which each [`Model::replay`] fills anew.
    ///
    /// # Errors
    /// If there are no keys or no inputs, and as [`Model::execute`].
    pub fn capture(&self, keys: &[u64], inputs: &[Buffer]) -> Result<Vec<Buffer>, Error> {
        if keys.is_empty() {
            return Err(self.capture_error(keys, "expected at least one key, got none"));
        }
        if inputs.is_empty() {
            return Err(self.capture_error(keys, "expected at least one input, got none"));
        }
        let outputs = self.execute(inputs)?;
        let captured = Captured { inputs: inputs.to_vec(), outputs: outputs.clone() };
        self.captures().insert(keys.to_vec(), captured);
        Ok(outputs)
    }

    /// Executes on the captured buffers, whose contents may have changed, and fills the outputs of the capture.
    ///
    /// # Errors
    /// If nothing was captured under `keys`, or with other buffers, and as [`Model::execute_into`].
    pub fn replay(&self, keys: &[u64], inputs: &[Buffer]) -> Result<Vec<Buffer>, Error> {
        let captured = self.captures().get(keys).cloned();
        let Captured { inputs: expected, outputs } =
            captured.ok_or_else(|| self.capture_error(keys, "nothing was captured under these keys"))?;
        if inputs.len() != expected.len() {
            let (got, expected) = (inputs.len(), expected.len());
            return Err(self.capture_error(keys, &format!("got {got} inputs, captured were {expected}")));
        }
        for (i, (given, expected)) in inputs.iter().zip(&expected).enumerate() {
            let same = (given.dtype(), given.shape()) == (expected.dtype(), expected.shape());
            if !same || !given.shares_memory_with(expected) {
                return Err(
                    self.capture_error(keys, &format!("input {i} is another buffer than the captured"))
                );
            }
        }
        self.execute_into(inputs, &outputs, &ExecuteOptions::default())?;
        Ok(outputs)
    }

    /// Replays, and executes on fresh buffers with the same contents, and compares the bits of all outputs and of all
    /// buffers that are written.
    ///
    /// # Errors
    /// If they differ, and as [`Model::replay`].
    pub fn debug_verify_replay(&self, keys: &[u64], inputs: &[Buffer]) -> Result<(), Error> {
        let copies =
            inputs.iter().zip(&self.program().root.inputs).enumerate().map(|(position, (buffer, input))| {
                let fail = |message| Error::Input { position, name: input.name.clone(), message };
                if input.written {
                    buffer.to_tensor().map(|copy| Buffer::from_tensor(&copy))
                } else {
                    Ok(buffer.clone())
                }
                .map_err(|busy| fail(busy.to_string()))
            });
        let copies = copies.collect::<Result<Vec<Buffer>, Error>>()?;
        let replayed = self.replay(keys, inputs)?;
        let executed = self.execute(&copies)?;
        let outputs =
            replayed.iter().zip(&executed).enumerate().map(|(i, pair)| (format!("output {i}"), pair));
        let written = inputs.iter().zip(&copies).enumerate().map(|(i, pair)| (format!("input {i}"), pair));
        for (what, (a, b)) in outputs.chain(written) {
            let same = match (a.read(), b.read()) {
                (Ok(a), Ok(b)) => a[..] == b[..],
                _ => return Err(self.capture_error(keys, &format!("{what} is in use by another call"))),
            };
            if !same {
                return Err(self.capture_error(keys, &format!("{what} differs from that of a plain call")));
            }
        }
        Ok(())
    }

    /// Forgets what was captured under `keys`, and its buffers.
    ///
    /// # Errors
    /// If nothing was.
    pub fn release_captured_graph(&self, keys: &[u64]) -> Result<(), Error> {
        match self.captures().remove(keys) {
            Some(_) => Ok(()),
            None => Err(self.capture_error(keys, "nothing was captured under these keys")),
        }
    }

    fn capture_error(&self, keys: &[u64], message: &str) -> Error {
        Error::Capture { model: self.name().to_string(), keys: keys.to_vec(), message: message.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use graph::Type;
    use tensor::DType;

    use super::*;
    use crate::testing::{build, f32, reference_session};

    /// `x + count`, where count grows by one with each call.
    fn counting() -> Model {
        let graph = build("counting", |b| {
            let (x, count) = (b.input("x", f32(&["n"])), b.input("count", Type::buffer(DType::F32, [1])));
            let one = b.constant(tensor::Tensor::from_slice([1], &[1f32]));
            let old = b.load(count)?;
            let new = b.add(old, one)?;
            b.store(count, new)?;
            Ok(vec![b.add(x, new)?])
        });
        reference_session().load(&graph, &()).unwrap()
    }

    #[test]
    fn replays_fill_the_captured_outputs() {
        let model = counting();
        let inputs = [Buffer::from_slice([2], &[10f32, 20.0]), Buffer::from_slice([1], &[0f32])];
        let captured = model.capture(&[7, 1], &inputs).unwrap();
        assert_eq!(captured[0].to_vec::<f32>(), [11.0, 21.0]);
        inputs[0].write().unwrap().copy_from_slice(&[0; 8]);
        let replayed = model.replay(&[7, 1], &inputs).unwrap();
        assert!(replayed[0].shares_memory_with(&captured[0]));
        assert_eq!(captured[0].to_vec::<f32>(), [2.0, 2.0]);
        model.debug_verify_replay(&[7, 1], &inputs).unwrap();
        assert_eq!(inputs[1].to_vec::<f32>(), [3.0]);
        model.release_captured_graph(&[7, 1]).unwrap();
        let gone = model.replay(&[7, 1], &inputs).unwrap_err().to_string();
        assert_eq!(gone, "model `counting`, capture [7, 1]: nothing was captured under these keys");
    }

    #[test]
    fn keys_and_buffers_must_be_those_captured() {
        let model = counting();
        let inputs = [Buffer::from_slice([1], &[1f32]), Buffer::from_slice([1], &[0f32])];
        let none = model.capture(&[], &inputs).unwrap_err().to_string();
        assert_eq!(none, "model `counting`, capture []: expected at least one key, got none");
        assert!(model.capture(&[1], &[]).is_err());
        model.capture(&[1], &inputs).unwrap();
        let others = [Buffer::from_slice([1], &[1f32]), inputs[1].clone()];
        let error = model.replay(&[1], &others).unwrap_err().to_string();
        assert_eq!(error, "model `counting`, capture [1]: input 0 is another buffer than the captured");
        assert!(model.release_captured_graph(&[2]).is_err());
    }
}
