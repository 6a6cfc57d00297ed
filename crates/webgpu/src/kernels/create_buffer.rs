//! Fills a new buffer with zeros, word by word.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use tensor::DType;

use super::elements::ElementShader;
use crate::recorder::{Place, Recorder};

/// The kernel of a new buffer of any dtype.
pub(super) fn kernel() -> Option<Arc<dyn FarKernel>> {
    Some(Arc::new(ZerosKernel))
}

struct ZerosKernel;

impl FarKernel for ZerosKernel {
    fn name(&self) -> String {
        "create_buffer[zeros].webgpu".to_string()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let bytes = &call.outputs[0].bytes;
        let text = "fn value(i: u32) -> u32 { return 0u; }\n";
        let shader = ElementShader { name: "zeros", operands: &[], result: DType::U32, params: &[], text };
        shader.dispatch(Recorder::of(recorder)?, &[Place::Memory(bytes)], &[], (bytes.len.div_ceil(4), 1))
    }
}
