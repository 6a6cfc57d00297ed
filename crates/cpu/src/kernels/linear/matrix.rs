//! A weight matrix, packed for the kernels.

use std::fmt;
use std::ops::Range;

use tensor::{AlignedBytes, Bytes, DType, HUGE_PAGE, Tensor};

use super::pack::Pack;
use super::panel::{ROWS, with_layout};
use super::prepare::Form;
use crate::Pool;

/// Why a tensor cannot be packed, or bytes are no packed matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// Weights have two axes, or those of experts three.
    #[error("a weight is [rows, columns] or [experts, rows, columns], got {0}")]
    Rank(String),
    /// No panels hold this dtype.
    #[error("no packed layout holds {0} weights")]
    DType(DType),
    /// The size overflows.
    #[error("a packed {dtype} matrix of [{rows}, {columns}] is too large")]
    Size {
        /// Of the weights.
        dtype: DType,
        /// Output features.
        rows: usize,
        /// Input features.
        columns: usize,
    },
    /// There is not that much memory.
    #[error("a packed matrix: {0}")]
    Memory(#[from] tensor::Error),
    /// Stored bytes are too few or too many.
    #[error("packed {dtype} matrix of [{rows}, {columns}] takes {needed} bytes, got {got}")]
    Length {
        /// Of the weights.
        dtype: DType,
        /// Output features.
        rows: usize,
        /// Input features.
        columns: usize,
        /// Bytes that dtype and sizes ask for.
        needed: usize,
        /// Bytes found.
        got: usize,
    },
}

impl From<PackError> for engine::PackError {
    fn from(error: PackError) -> engine::PackError {
        match error {
            PackError::Memory(error) => error.into(),
            other => engine::PackError::Unfit(other.to_string()),
        }
    }
}

/// Weights [rows, columns] in panels of 16 rows, bit for bit as their file has them; or such matrices of several
/// experts, one after another. Clones share the bytes.
#[derive(Clone)]
pub struct PackedMatrix {
    dtype: DType,
    experts: usize,
    rows: usize,
    columns: usize,
    panel_bytes: usize,
    bytes: Bytes,
}

impl PackedMatrix {
    /// Packs a tensor [rows, columns] or [experts, rows, columns] of any plain float or block dtype but the 8-bit floats.
    ///
    /// # Errors
    /// If the tensor has another rank or dtype, or there is not enough memory.
    pub fn pack(weight: &Tensor, pool: &Pool) -> Result<PackedMatrix, PackError> {
        let (experts, rows, columns) = match weight.shape()[..] {
            [rows, columns] => (1, rows, columns),
            [experts, rows, columns] => (experts, rows, columns),
            _ => return Err(PackError::Rank(format!("{}{}", weight.dtype(), weight.shape()))),
        };
        let dtype = weight.dtype();
        let (panel_bytes, total) = sizes(dtype, [experts, rows, columns])?;
        let weight = weight.try_contiguous()?;
        let mut packed = AlignedBytes::try_zeroed(total)?;
        if total > 0 {
            let row_bytes = dtype.bytes_for(columns).expect("a tensor's rows are whole blocks");
            let (source, panels) = (weight.bytes(), rows.div_ceil(ROWS));
            let pack = |index: usize, panel: &mut [u8]| {
                let (expert, first) = (index / panels, index % panels * ROWS);
                let present = ROWS.min(rows - first);
                let rows: [&[u8]; ROWS] = std::array::from_fn(|row| match row < present {
                    true => &source[(expert * rows + first + row) * row_bytes..][..row_bytes],
                    false => &[],
                });
                with_layout!(dtype, L => L::pack(dtype, &rows[..present], panel), else unreachable!());
            };
            let at_a_time = panels_at_a_time(panel_bytes, experts * panels, pool.threads());
            pool.run_on_pieces(&mut packed, at_a_time * panel_bytes, &|piece, part| {
                let parts = part.chunks_exact_mut(panel_bytes).enumerate();
                parts.for_each(|(index, panel)| pack(piece * at_a_time + index, panel));
            });
        }
        Ok(PackedMatrix { dtype, experts, rows, columns, panel_bytes, bytes: Bytes::new(packed) })
    }

    /// The bytes that a weight of this dtype and shape takes in panels, without packing it; `None` for what cannot be
    /// packed.
    pub fn bytes_of(dtype: DType, shape: &[usize]) -> Option<usize> {
        let sizes_of = match *shape {
            [rows, columns] => [1, rows, columns],
            [experts, rows, columns] => [experts, rows, columns],
            _ => return None,
        };
        sizes(dtype, sizes_of).ok().map(|(_, total)| total)
    }

    /// The number of matrices.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// The number of output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of input features.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The dtype of the weights.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes that the panels take.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A matrix of panels that were stored, used where they lie. They read fastest from huge pages and cache-line
    /// aligned.
    ///
    /// # Errors
    /// If these are not exactly the bytes that dtype and sizes ask for. What they hold changes results, never what is
    /// read.
    pub fn from_panels(
        dtype: DType,
        rows: usize,
        columns: usize,
        panels: Bytes,
    ) -> Result<PackedMatrix, PackError> {
        PackedMatrix::experts_from_panels(dtype, [1, rows, columns], panels)
    }

    /// As [`PackedMatrix::from_panels`], for matrices [experts, rows, columns].
    ///
    /// # Errors
    /// As [`PackedMatrix::from_panels`].
    pub fn experts_from_panels(
        dtype: DType,
        [experts, rows, columns]: [usize; 3],
        panels: Bytes,
    ) -> Result<PackedMatrix, PackError> {
        let (panel_bytes, needed) = sizes(dtype, [experts, rows, columns])?;
        let got = panels.len();
        if got != needed {
            return Err(PackError::Length { dtype, rows, columns, needed, got });
        }
        Ok(PackedMatrix { dtype, experts, rows, columns, panel_bytes, bytes: panels })
    }

    /// The panels one after another, which [`PackedMatrix::from_panels`] reads on any machine.
    pub fn packed_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The number of panels of one matrix; the last may be padded with rows of zeros.
    pub(super) fn panels(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// The bytes of one panel.
    pub(super) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// Neighbouring panels of the matrix of an expert.
    pub(super) fn panels_of(&self, expert: usize, panels: Range<usize>) -> &[u8] {
        let first = expert * self.panels() + panels.start;
        &self.bytes[first * self.panel_bytes..][..panels.len() * self.panel_bytes]
    }

    /// Whether codes are widened to f32 before they are multiplied, because inputs have to stay exact.
    pub(super) fn is_widened(&self, exact: bool) -> bool {
        exact && form(self.dtype, false) != Form::F32
    }
}

impl fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let experts = if self.experts == 1 { String::new() } else { format!("{}, ", self.experts) };
        write!(f, "PackedMatrix(panel16.{} [{experts}{}, {}])", self.dtype, self.rows, self.columns)
    }
}

/// The form of inputs that meet packed weights of a dtype. Only variants that round to bf16 use another for bf16.
pub(super) fn form(dtype: DType, exact: bool) -> Form {
    match exact {
        true => Form::F32,
        false => with_layout!(dtype, L => L::FORM, else unreachable!("only dtypes with a layout")),
    }
}

/// How many panels a thread packs at a time: those of a huge page, which the kernel zeroes when it is first written, or fewer,
/// so that all threads have some. Two threads that first write to one page at the same time both zero a page, and one of the
/// two is thrown away.
fn panels_at_a_time(panel_bytes: usize, panels: usize, threads: usize) -> usize {
    HUGE_PAGE.div_ceil(panel_bytes).min(panels.div_ceil(threads))
}

/// The bytes of a panel, and of all.
fn sizes(dtype: DType, [experts, rows, columns]: [usize; 3]) -> Result<(usize, usize), PackError> {
    let too_large = PackError::Size { dtype, rows, columns };
    // No layout takes more than 64 bytes per column and panel, and rows must be whole blocks.
    if columns > isize::MAX as usize / 128 || dtype.bytes_for(columns).is_none() {
        return Err(too_large);
    }
    let panel = with_layout!(dtype, L => L::panel_bytes(columns), else return Err(PackError::DType(dtype)));
    let panels = rows.div_ceil(ROWS).checked_mul(experts);
    let total = panels.and_then(|panels| panels.checked_mul(panel));
    let total = total.filter(|&total| total <= isize::MAX as usize);
    total.map(|total| (panel, total)).ok_or(too_large)
}
