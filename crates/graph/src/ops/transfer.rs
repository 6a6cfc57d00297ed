//! `y = x` on another device.

use super::Attribute;
use super::field::AttributeType;
use super::prelude::*;
use crate::DeviceRef;

/// `x` of any type → the same on `device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Where the result is.
    pub device: DeviceRef,
}

/// Its name, as types print it.
impl AttributeType for DeviceRef {
    fn to_attribute(&self) -> Attribute {
        Attribute::Text(self.to_string())
    }

    fn take(name: &str, attributes: &mut Attributes) -> Result<Option<DeviceRef>, TypeError> {
        let Some(text) = String::take(name, attributes)? else { return Ok(None) };
        let index = || text.strip_prefix("gpu:")?.parse().ok().map(DeviceRef::Gpu);
        let device = if text == "cpu" { Some(DeviceRef::Cpu) } else { index() };
        let wrong = || type_error!("{name} is {text}; devices are cpu, gpu:0, gpu:1 and so on");
        device.map(Some).ok_or_else(wrong)
    }
}

impl Define for Transfer {
    declare!("transfer_to" { device });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        Ok(vec![Type { device: self.device, ..x.clone() }])
    }

    fn places_results(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![inputs[0].contiguous()])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;
    use crate::Graph;

    #[test]
    fn types_and_text() {
        let there = Transfer { device: DeviceRef::Gpu(1) };
        check_types(
            there,
            &[
                (&["f32[n]"], "f32[n] @gpu:1"),
                (
                    &["mut f32[n]"],
                    "transfer_to: operand 0 is mut f32[n], expected a tensor (load the buffer first)",
                ),
            ],
        );
        assert_eq!(numbers(there, &[&Tensor::scalar(3i8)]), [3.0]);
        let text = "graph g(%x: f32[n] @gpu:0) {\n  %0 = transfer_to(%x) {device = cpu} : f32[n]\n  \
                    %1 = transfer_to(%0) {device = \"gpu:2\"} : f32[n] @gpu:2\n  return %1\n}\n";
        assert_eq!(Graph::parse(text).unwrap().to_string(), text);
        let error = Graph::parse(&text.replace("gpu:2\"", "tpu:2\"")).unwrap_err().to_string();
        assert!(error.contains("device is tpu:2; devices are cpu, gpu:0, gpu:1 and so on"), "{error}");
    }
}
