//! Weights in the panels that the host packed, cut into pieces that a binding can see.

use std::sync::Arc;

use graph::Type;
use tensor::{Bytes, Error, FarMemory};

use crate::memory::{WebGpuAllocator, WebGpuMemory};

/// Rows of a panel.
const ROWS: usize = 16;

/// A weight in panels.
pub(crate) struct Weight {
    /// Panels one after another.
    pub(crate) pieces: Vec<Piece>,
    /// Bytes of a panel.
    pub(crate) panel_bytes: usize,
}

/// Some panels of a weight.
pub(crate) struct Piece {
    pub(crate) memory: WebGpuMemory,
    /// The first of them, counted over all matrices of the weight.
    pub(crate) first: usize,
    pub(crate) panels: usize,
}

impl Weight {
    /// Brings the bytes of panels to the device.
    pub(crate) fn upload(
        allocator: &WebGpuAllocator,
        layout: &str,
        ty: &Type,
        bytes: &[u8],
    ) -> Result<Weight, Error> {
        let unfit = || Error::Device(format!("{} bytes are no {ty} as {layout}", bytes.len()));
        let panels = panels(layout, ty).filter(|&panels| panels > 0 || bytes.is_empty()).ok_or_else(unfit)?;
        let panel_bytes = bytes.len().checked_div(panels).unwrap_or(0);
        if panel_bytes * panels != bytes.len() {
            return Err(unfit());
        }
        let most = usize::try_from(allocator.0.max_binding()).unwrap_or(usize::MAX);
        if panel_bytes > most {
            return Err(Error::OutOfMemory { bytes: panel_bytes });
        }
        let at_a_time = most.checked_div(panel_bytes).unwrap_or(1);
        let mut pieces = Vec::new();
        for first in (0..panels).step_by(at_a_time) {
            let panels = at_a_time.min(panels - first);
            let part = &bytes[first * panel_bytes..][..panels * panel_bytes];
            let memory = allocator.memory(part.len())?;
            memory.write(&[(0, part)])?;
            pieces.push(Piece { memory, first, panels });
        }
        Ok(Weight { pieces, panel_bytes })
    }

    /// The bytes of the panels.
    pub(crate) fn download(&self) -> Result<Bytes, Error> {
        let mut bytes = vec![0; self.pieces.iter().map(|piece| piece.memory.len()).sum()];
        for piece in &self.pieces {
            piece.memory.read(0, &mut bytes[piece.first * self.panel_bytes..][..piece.memory.len()])?;
        }
        Ok(Bytes::new(bytes))
    }
}

/// How many panels a weight of a type has in a layout, if that is known.
fn panels(layout: &str, ty: &Type) -> Option<usize> {
    let shape = ty.static_shape()?;
    match (layout.split('.').next()?, shape.dims()) {
        ("panel16", &[rows, _]) => Some(rows.div_ceil(ROWS)),
        ("panel16", &[experts, rows, _]) => Some(experts * rows.div_ceil(ROWS)),
        ("columns16", &[_, columns]) => Some(columns.div_ceil(ROWS)),
        _ => None,
    }
}

/// A weight as the engine keeps it.
pub(crate) fn packed(layout: &str, weight: Weight) -> engine::PackedWeight {
    let bytes = weight.pieces.iter().map(|piece| piece.memory.len()).sum();
    engine::PackedWeight { layout: layout.to_string(), bytes, data: Arc::new(weight) }
}

/// The weight of this device.
pub(crate) fn weight(packed: &engine::PackedWeight) -> Result<&Weight, String> {
    packed
        .data
        .downcast_ref()
        .ok_or_else(|| format!("a weight of another device, in the layout {}", packed.layout))
}
