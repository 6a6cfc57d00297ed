//! A weight matrix, packed for the kernels.
//!
//! A matrix whose rows are mapped from a file can be packed late. Until then, each product packs the panels that it reads into
//! the nearer caches, and forgets them. That takes less time than to pack them for good, most of which goes into fresh memory.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tensor::{AlignedBytes, Bytes, DType, HUGE_PAGE, MappedFile, Tensor};

use super::pack::Pack;
use super::panel::with_layout;
use super::prepare::InputFormat;
use super::simd::ROWS;
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
    /// There is not that much memory, or the file of the weights changed.
    #[error("a packed matrix: {0}")]
    Tensor(#[from] tensor::Error),
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
            PackError::Tensor(error) => error.into(),
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
    panels: Panels,
}

#[derive(Clone)]
enum Panels {
    Packed(Bytes),
    Late(Arc<LatePanels>),
}

/// Panels that are packed when the engine asks for it, or a product has many tokens.
struct LatePanels {
    packed: OnceLock<Bytes>,
    /// `None` once they are packed.
    unpacked: RwLock<Option<Unpacked>>,
}

struct Unpacked {
    rows: Tensor,
    /// Zeros, in memory that the system gives when it is written.
    room: AlignedBytes,
}

/// The most tokens of a product that packs panels for itself. With more, it would pack them several times.
pub(super) const TOKENS_ONCE: usize = 128;

impl PackedMatrix {
    /// Packs a tensor [rows, columns] or [experts, rows, columns] of any plain float or block dtype but the 8-bit floats.
    ///
    /// # Errors
    /// If the tensor has another rank or dtype, or there is not enough memory.
    pub fn pack(weight: &Tensor, pool: &Pool) -> Result<PackedMatrix, PackError> {
        let matrix = PackedMatrix::pack_late(weight)?;
        Ok(PackedMatrix { panels: Panels::Packed(matrix.packed_bytes(pool)?.clone()), ..matrix })
    }

    /// As [`PackedMatrix::pack`], but packs in [`PackedMatrix::packed_bytes`], or before a product with many tokens. Until
    /// then, it holds the tensor.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack`].
    pub fn pack_late(weight: &Tensor) -> Result<PackedMatrix, PackError> {
        let (experts, rows, columns) = match weight.shape()[..] {
            [rows, columns] => (1, rows, columns),
            [experts, rows, columns] => (experts, rows, columns),
            _ => return Err(PackError::Rank(format!("{}{}", weight.dtype(), weight.shape()))),
        };
        let dtype = weight.dtype();
        let (panel_bytes, total) = sizes(dtype, [experts, rows, columns])?;
        let unpacked = Unpacked { rows: weight.try_contiguous()?, room: AlignedBytes::try_zeroed(total)? };
        let panels = Panels::Late(Arc::new(LatePanels {
            packed: OnceLock::new(),
            unpacked: RwLock::new(Some(unpacked)),
        }));
        Ok(PackedMatrix { dtype, experts, rows, columns, panel_bytes, panels })
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
        self.experts * self.panels() * self.panel_bytes
    }

    /// The file that the matrix is packed from, until it is.
    pub fn file(&self) -> Option<Arc<MappedFile>> {
        match &self.panels {
            Panels::Packed(_) => None,
            Panels::Late(late) => late.file(),
        }
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
        let panels = Panels::Packed(panels);
        Ok(PackedMatrix { dtype, experts, rows, columns, panel_bytes, panels })
    }

    /// The panels one after another, which [`PackedMatrix::from_panels`] reads on any machine. Packs them if they are not.
    ///
    /// # Errors
    /// If they are not, and the file of the weights changed. They stay unpacked.
    pub fn packed_bytes(&self, pool: &Pool) -> Result<&Bytes, PackError> {
        match &self.panels {
            Panels::Packed(bytes) => Ok(bytes),
            Panels::Late(late) => match late.packed.get() {
                Some(bytes) => Ok(bytes),
                None => self.keep(late, pool),
            },
        }
    }

    /// Packs the panels before a product with so many tokens, unless the product packs them for itself.
    pub(super) fn prepare(&self, tokens: usize, pool: &Pool) {
        if tokens > TOKENS_ONCE {
            // If the file changed, the engine finds that out after the call.
            let _ = self.packed_bytes(pool);
        }
    }

    /// Packs the panels, and lets the tensor go.
    fn keep<'a>(&self, late: &'a LatePanels, pool: &Pool) -> Result<&'a Bytes, PackError> {
        let mut unpacked = late.unpacked.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Unpacked { rows, room }) = &mut *unpacked {
            if !room.is_empty() {
                let panels = room.len() / self.panel_bytes;
                let at_a_time = panels_at_a_time(self.panel_bytes, panels, pool.threads());
                pool.run_on_pieces(room, at_a_time * self.panel_bytes, &|piece, part| {
                    let first = piece * at_a_time;
                    let end = first + part.len() / self.panel_bytes;
                    let parts = part.chunks_exact_mut(self.panel_bytes);
                    (first..end).zip(parts).for_each(|(index, panel)| self.pack_panel(rows, index, panel));
                    // So that both forms of a few rows are in memory, and not of the matrix.
                    rows.release_pages(self.start_of(first)..self.start_of(end));
                });
            }
            rows.file().map_or(Ok(()), |file| file.check())?;
            rows.release_pages(0..rows.bytes().len());
        }
        let packed = unpacked.take().map(|unpacked| Bytes::new(unpacked.room));
        Ok(late.packed.get_or_init(|| packed.expect("rows are unpacked until panels are packed")))
    }

    /// Packs the panel of an index into zeros.
    fn pack_panel(&self, weight: &Tensor, index: usize, panel: &mut [u8]) {
        let source = &weight.bytes()[self.start_of(index)..self.start_of(index + 1)];
        let (dtype, row_bytes) = (self.dtype, self.row_bytes());
        let present = ROWS.min(self.rows - index % self.panels() * ROWS);
        let rows: [&[u8]; ROWS] = std::array::from_fn(|row| match row < present {
            true => &source[row * row_bytes..][..row_bytes],
            false => &[],
        });
        with_layout!(dtype, L => L::pack(dtype, &rows[..present], panel), else unreachable!());
    }

    /// Where in the bytes of the tensor the rows of a panel start.
    fn start_of(&self, index: usize) -> usize {
        let (expert, panel) = (index / self.panels(), index % self.panels());
        (expert * self.rows + panel * ROWS) * self.row_bytes()
    }

    /// The bytes of a row of the tensor.
    fn row_bytes(&self) -> usize {
        self.dtype.bytes_for(self.columns).expect("a tensor's rows are whole blocks")
    }

    /// The number of panels of one matrix; the last may be padded with rows of zeros.
    pub(super) fn panels(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// The bytes of one panel.
    pub(super) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// Whether the panels are packed, and not for each product.
    pub(super) fn is_packed(&self) -> bool {
        match &self.panels {
            Panels::Packed(_) => true,
            Panels::Late(late) => late.packed.get().is_some(),
        }
    }

    /// Neighbouring panels of the matrix of an expert, packed into `room` if they are not yet.
    pub(super) fn panels_of<'a>(
        &'a self,
        expert: usize,
        panels: Range<usize>,
        room: &'a mut [u8],
    ) -> &'a [u8] {
        let first = expert * self.panels() + panels.start;
        let range = first * self.panel_bytes..(first + panels.len()) * self.panel_bytes;
        let late = match &self.panels {
            Panels::Packed(bytes) => return &bytes[range],
            Panels::Late(late) => late,
        };
        if late.packed.get().is_none()
            && let Some(unpacked) = &*late.unpacked.read().unwrap_or_else(PoisonError::into_inner)
        {
            let room = &mut room[..range.len()];
            room.fill(0);
            for (index, panel) in room.chunks_exact_mut(self.panel_bytes).enumerate() {
                self.pack_panel(&unpacked.rows, first + index, panel);
            }
            return room;
        }
        &late.packed.get().expect("only panels that are packed leave nothing unpacked")[range]
    }

    /// Whether codes are widened to f32 before they are multiplied, because inputs have to stay exact.
    pub(super) fn is_widened(&self, exact: bool) -> bool {
        exact && form(self.dtype, false) != InputFormat::F32
    }
}

impl LatePanels {
    fn file(&self) -> Option<Arc<MappedFile>> {
        if self.packed.get().is_some() {
            return None;
        }
        let unpacked = self.unpacked.read().unwrap_or_else(PoisonError::into_inner);
        unpacked.as_ref().and_then(|unpacked| unpacked.rows.file().cloned())
    }
}

impl fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let experts = if self.experts == 1 { String::new() } else { format!("{}, ", self.experts) };
        write!(f, "PackedMatrix(panel16.{} [{experts}{}, {}])", self.dtype, self.rows, self.columns)
    }
}

/// The form of inputs that meet packed weights of a dtype. Only variants that round to bf16 use another for bf16.
pub(super) fn form(dtype: DType, exact: bool) -> InputFormat {
    match exact {
        true => InputFormat::F32,
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
