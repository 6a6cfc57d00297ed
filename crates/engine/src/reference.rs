//! A device without kernels: every step runs the op's own definition. Slow, and right by definition.

use std::sync::Arc;

use crate::{Device, Kernel, NodeTypes};

/// Runs every op by its reference, on the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceDevice;

impl Device for ReferenceDevice {
    fn name(&self) -> &str {
        "reference"
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        None
    }
}
