//! Routes of the Open Inference Protocol (KServe, version 2): texts as tensors of bytes in, and out.

pub(crate) mod health;
pub(crate) mod infer;
pub(crate) mod models;

use serde::Serialize;
use utoipa::ToSchema;

/// The name of the input and of the output.
const INPUT: &str = "text_input";
const OUTPUT: &str = "text_output";
/// The type of texts.
const BYTES: &str = "BYTES";

/// A tensor without its data.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TensorMetadata {
    name: &'static str,
    datatype: &'static str,
    /// -1 is any number of texts.
    shape: [i64; 1],
}
