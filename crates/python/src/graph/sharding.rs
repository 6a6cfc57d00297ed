//! How weights are divided among devices, and the sizes of quantized blocks.

use perihelion::graph::sharding::{Shard, Sharding};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::builder::block_dtype;

/// An axis, and runs of it.
type Cut = (usize, Vec<(usize, usize)>);

/// The part of a weight that one of several devices holds; `None` if it holds all of it.
#[pyfunction]
pub(crate) fn shard(
    kind: &str,
    arguments: &Bound<'_, PyTuple>,
    shape: Vec<usize>,
    device: usize,
    devices: usize,
) -> PyResult<Option<Cut>> {
    let sharding = match kind {
        "replicate" => Sharding::Replicate,
        "rowwise" | "columnwise" | "axiswise" => Sharding::Axiswise(arguments.extract::<(usize,)>()?.0),
        "stacked_qkv" => {
            let (heads, kv_heads, head_dim) = arguments.extract()?;
            Sharding::StackedQkv { heads, kv_heads, head_dim }
        }
        "head_aware_columnwise" => {
            let (axis, heads, head_dim) = arguments.extract()?;
            Sharding::HeadAware { axis, heads, head_dim }
        }
        "gate_up" => Sharding::GateUp { axis: arguments.extract::<(usize,)>()?.0 },
        "segmented" => {
            let (axis, segments) = arguments.extract()?;
            Sharding::Segmented { axis, segments }
        }
        _ => {
            return Err(PyValueError::new_err(format!(
                "the strategy {kind} is for modules, not for a weight"
            )));
        }
    };
    let shards =
        sharding.shards(&shape, devices).map_err(|error| PyValueError::new_err(error.to_string()))?;
    match shards.into_iter().nth(device) {
        Some(Shard::Runs { axis, ranges }) => {
            Ok(Some((axis, ranges.into_iter().map(|range| (range.start, range.end)).collect())))
        }
        Some(Shard::Whole) => Ok(None),
        None => Err(PyValueError::new_err(format!("i: got {device}, expected one of {devices} devices"))),
    }
}

/// The weights and bytes of a quantized block.
#[pyfunction]
pub(crate) fn block_parameters(encoding: &str) -> PyResult<(usize, usize)> {
    let block = block_dtype(encoding)?.block();
    Ok((block.elements, block.bytes))
}
