//! DLPack: arrays shared with other libraries in the same process, without a copy.
//!
//! A [`DlpackTensor`] owns one structure of the protocol and calls its deleter exactly once. Making one from a pointer
//! is the unsafe edge; all else is checked: [`Buffer::from_dlpack`] refuses what it cannot hold.

mod abi;
mod export;
mod types;

use std::slice;
use std::sync::Arc;

pub use abi::*;

use crate::{Buffer, DType, Error, MAX_RANK, Shape, Tensor};

/// A pointer as the protocol passes it on, with the duty to call its deleter.
#[derive(Debug, Clone, Copy)]
pub enum RawDlpack {
    /// Since version 1 of the protocol.
    Versioned(*mut DLManagedTensorVersioned),
    /// Before.
    Legacy(*mut DLManagedTensor),
}

/// An array on its way from one library to another. Dropping it calls the producer's deleter.
#[derive(Debug)]
pub struct DlpackTensor {
    /// Not null.
    raw: RawDlpack,
    /// What we exported ourselves.
    source: Option<Source>,
}

/// The owner of exported memory; it lives until the consumer calls the deleter.
#[derive(Debug, Clone)]
enum Source {
    Buffer(Buffer),
    Tensor(Tensor),
}

// SAFETY: by the contract of `from_raw`, the deleter may be called on any thread; all else is plain data that nothing
// changes. Our own exports keep a buffer or a tensor, which are both.
unsafe impl Send for DlpackTensor {}
// SAFETY: as above.
unsafe impl Sync for DlpackTensor {}

impl DlpackTensor {
    /// Takes over a producer's structure.
    ///
    /// # Errors
    /// If the pointer is null, or the layout is of another major version; its deleter is called then.
    ///
    /// # Safety
    /// A pointer that is not null leads to a structure as the protocol demands it: its arrays hold `ndim` numbers, its
    /// memory the elements these describe, until the deleter is called. Nothing else calls the deleter, which may be
    /// called on any thread. While guards on a buffer made from it live, others neither write the memory nor, if the
    /// guard is one to write, read it.
    pub unsafe fn from_raw(raw: RawDlpack) -> Result<DlpackTensor, Error> {
        if raw.is_null() {
            return Err(Error::Dlpack("the pointer to the tensor is null".to_string()));
        }
        let tensor = DlpackTensor { raw, source: None };
        if let RawDlpack::Versioned(managed) = raw {
            // SAFETY: not null; the version lies at the same place in every version.
            let DLPackVersion { major, minor } = unsafe { (*managed).version };
            if major != DLPACK_MAJOR_VERSION {
                let message =
                    format!("version {major}.{minor} is not readable, expected {DLPACK_MAJOR_VERSION}");
                return Err(Error::Dlpack(message));
            }
        }
        Ok(tensor)
    }

    /// Gives the structure away, to a consumer that calls its deleter.
    pub fn into_raw(mut self) -> RawDlpack {
        self.source = None;
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }

    /// The array as the structure describes it.
    pub fn tensor(&self) -> &DLTensor {
        // SAFETY: not null, and valid until the deleter is called.
        unsafe {
            match self.raw {
                RawDlpack::Versioned(managed) => &(*managed).dl_tensor,
                RawDlpack::Legacy(managed) => &(*managed).dl_tensor,
            }
        }
    }

    /// The flags; a structure before version 1 has none.
    pub fn flags(&self) -> u64 {
        match self.raw {
            // SAFETY: not null, and valid until the deleter is called.
            RawDlpack::Versioned(managed) => unsafe { (*managed).flags },
            RawDlpack::Legacy(_) => 0,
        }
    }

    /// Whether the consumer must not write the elements.
    pub fn is_read_only(&self) -> bool {
        self.flags() & DLPACK_FLAG_BITMASK_READ_ONLY != 0
    }

    /// The type, shape and first element of a row-major array in host memory.
    fn check(&self) -> Result<(DType, Shape, *mut u8), Error> {
        let tensor = self.tensor();
        if ![DL_CPU, DL_CUDA_HOST, DL_ROCM_HOST].contains(&tensor.device.device_type) {
            let DLDevice { device_type, device_id } = tensor.device;
            return fail(format!(
                "the memory is on device {device_id} of type {device_type}, not on the host"
            ));
        }
        let dtype = types::from_dlpack(tensor.dtype, self.flags()).map_err(Error::Dlpack)?;
        let shape = self.shape()?;
        let impossible = || Error::Dlpack(format!("{dtype}{shape} is not a possible array"));
        let len = dtype.bytes_for_shape(&shape).filter(|&len| isize::try_from(len).is_ok());
        let len = len.ok_or_else(impossible)?;
        if len == 0 {
            return Ok((dtype, shape, std::ptr::null_mut()));
        }
        self.check_strides(&shape)?;
        let data = tensor.data.cast::<u8>();
        if data.is_null() {
            return fail(format!("the data of {dtype}{shape} is null"));
        }
        let offset = usize::try_from(tensor.byte_offset).ok();
        let start = offset.and_then(|offset| data.addr().checked_add(offset));
        let (Some(offset), Some(_)) = (offset, start.and_then(|start| start.checked_add(len))) else {
            return fail(format!("{len} bytes at byte offset {} overflow", tensor.byte_offset));
        };
        let first = data.wrapping_add(offset);
        if !first.addr().is_multiple_of(dtype.align()) {
            return fail(format!(
                "the data at {first:p} is not aligned to the {} bytes of {dtype}",
                dtype.align()
            ));
        }
        Ok((dtype, shape, first))
    }

    fn shape(&self) -> Result<Shape, Error> {
        let tensor = self.tensor();
        let rank = usize::try_from(tensor.ndim).ok().filter(|&rank| rank <= MAX_RANK);
        let Some(rank) = rank else {
            return fail(format!("{} axes, expected 0 to {MAX_RANK}", tensor.ndim));
        };
        if rank > 0 && tensor.shape.is_null() {
            return fail(format!("the shape of {rank} axes is null"));
        }
        // SAFETY: by the contract of `from_raw`, there are `ndim` numbers, and the pointer was checked.
        let sizes = if rank == 0 { &[][..] } else { unsafe { slice::from_raw_parts(tensor.shape, rank) } };
        let mut dims = [0; MAX_RANK];
        for (dim, &size) in dims.iter_mut().zip(sizes) {
            *dim = usize::try_from(size)
                .map_err(|_| Error::Dlpack(format!("an axis of {size} elements in shape {sizes:?}")))?;
        }
        Ok(Shape::new(&dims[..rank]))
    }

    /// Whether the strides, if there are any, are those of a row-major array that holds elements.
    fn check_strides(&self, shape: &Shape) -> Result<(), Error> {
        let tensor = self.tensor();
        if tensor.strides.is_null() || shape.rank() == 0 {
            return Ok(());
        }
        // SAFETY: by the contract of `from_raw`, there are `ndim` numbers, which `shape` counted.
        let strides = unsafe { slice::from_raw_parts(tensor.strides, shape.rank()) };
        let expected = shape.row_major_strides();
        let fits = (0..shape.rank()).all(|axis| shape[axis] == 1 || strides[axis] == expected[axis] as i64);
        if fits {
            Ok(())
        } else {
            fail(format!(
                "strides {strides:?} of shape {shape}, expected a row-major array; .contiguous() makes one"
            ))
        }
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        self.source = None;
        // SAFETY: not null, and ours; by the contract of `from_raw` nothing else calls the deleter.
        unsafe {
            match self.raw {
                RawDlpack::Versioned(managed) => {
                    if let Some(deleter) = (*managed).deleter {
                        deleter(managed);
                    }
                }
                RawDlpack::Legacy(managed) => {
                    if let Some(deleter) = (*managed).deleter {
                        deleter(managed);
                    }
                }
            }
        }
    }
}

impl Buffer {
    /// A buffer over another library's memory, which is freed with the last view of it. Read-only if its producer says
    /// so. What was exported from a buffer becomes a view of that buffer.
    ///
    /// # Errors
    /// If the structure breaks the protocol, or holds no row-major array of a dtype known here in host memory. Its
    /// deleter is called then.
    pub fn from_dlpack(tensor: DlpackTensor) -> Result<Buffer, Error> {
        Buffer::from_shared_dlpack(Arc::new(tensor))
    }

    fn from_shared_dlpack(tensor: Arc<DlpackTensor>) -> Result<Buffer, Error> {
        match &tensor.source {
            Some(Source::Buffer(buffer)) if buffer.is_contiguous() => return Ok(buffer.clone()),
            Some(Source::Tensor(source)) if source.is_contiguous() => return Ok(Buffer::over_tensor(source)),
            _ => {}
        }
        let (dtype, shape, data) = tensor.check()?;
        let read_only = tensor.is_read_only();
        // SAFETY: `check` found the memory to be as large as dtype and shape need; the contract of `from_raw` says the
        // rest, and `tensor` keeps the memory. Nothing writes it where the structure is shared: of that only
        // `Tensor::from_shared_dlpack` makes buffers, to read them.
        let buffer = unsafe { Buffer::from_foreign(dtype, shape, data, tensor) }?;
        Ok(if read_only { buffer.read_only() } else { buffer })
    }
}

impl Tensor {
    /// A tensor over another library's memory, which is freed with the last view of it. What was exported from a buffer
    /// cannot be written while the tensor lives.
    ///
    /// # Errors
    /// As [`Buffer::from_dlpack`], and while someone writes the buffer it was exported from.
    pub fn from_dlpack(tensor: DlpackTensor) -> Result<Tensor, Error> {
        Tensor::from_shared_dlpack(&Arc::new(tensor))
    }

    /// As [`Tensor::from_dlpack`], of a structure that others keep too; the last one frees it.
    pub fn from_shared_dlpack(tensor: &Arc<DlpackTensor>) -> Result<Tensor, Error> {
        match &tensor.source {
            Some(Source::Tensor(source)) if source.is_contiguous() => Ok(source.clone()),
            _ => Buffer::from_shared_dlpack(Arc::clone(tensor))?.as_tensor(),
        }
    }
}

impl RawDlpack {
    fn is_null(self) -> bool {
        match self {
            RawDlpack::Versioned(managed) => managed.is_null(),
            RawDlpack::Legacy(managed) => managed.is_null(),
        }
    }
}

fn fail<T>(message: String) -> Result<T, Error> {
    Err(Error::Dlpack(message))
}

#[cfg(test)]
mod tests;
