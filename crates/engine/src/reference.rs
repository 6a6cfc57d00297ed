//! A device without kernels: every step runs the op's own definition. Slow, and right by definition.

use std::sync::Arc;

use tensor::Tensor;

use crate::{Device, Kernel, NodeTypes, PackError, PackedWeight};

/// Runs every op by its reference, on the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceDevice;

impl Device for ReferenceDevice {
    fn name(&self) -> &str {
        "reference"
    }

    fn target(&self) -> String {
        "reference".to_string()
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        None
    }

    fn packing(&self, _node: &NodeTypes<'_>, _position: usize) -> Option<String> {
        None
    }

    fn pack(&self, layout: &str, _weight: &Tensor) -> Result<PackedWeight, PackError> {
        Err(PackError::Unfit(format!("the reference device has no layouts, got {layout}")))
    }
}
