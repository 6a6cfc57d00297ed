//! Our arrays as structures of the protocol, which keep what they point into until their deleter is called.

use std::ptr::{addr_of_mut, null_mut};

use super::{
    DL_CPU, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor, DlpackTensor, RawDlpack, Source,
    types,
};
use crate::{Buffer, DType, Error, MAX_RANK, Shape, Tensor};

/// A structure and what its pointers lead to. The structure is first, so that its address is that of the whole.
#[repr(C)]
struct Export<M> {
    managed: M,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    source: Source,
}

impl Buffer {
    /// The buffer for another library, which shares its memory. The guards of the buffer do not bind that library: who
    /// reads and writes through its pointer must know that nothing else does.
    ///
    /// # Errors
    /// If the protocol has no such dtype: it knows no quantized blocks. If the buffer is in the memory of a device.
    pub fn to_dlpack(&self) -> Result<DlpackTensor, Error> {
        versioned(Source::Buffer(self.clone()))
    }

    /// As [`Buffer::to_dlpack`], for libraries that know no version 1 of the protocol: `bool` goes as `u8`, and a
    /// read-only buffer as a copy, since neither can be said there.
    ///
    /// # Errors
    /// As [`Buffer::to_dlpack`], and if a buffer that has to be copied is being written.
    pub fn to_dlpack_legacy(&self) -> Result<DlpackTensor, Error> {
        legacy(Source::Buffer(self.clone()))
    }
}

impl Tensor {
    /// The tensor for another library, which shares its memory and must not write it.
    ///
    /// # Errors
    /// If the protocol has no such dtype: it knows no quantized blocks.
    pub fn to_dlpack(&self) -> Result<DlpackTensor, Error> {
        versioned(Source::Tensor(self.clone()))
    }

    /// As [`Tensor::to_dlpack`], for libraries that know no version 1 of the protocol: a copy, since these may write it,
    /// and `bool` as `u8`.
    pub fn to_dlpack_legacy(&self) -> Result<DlpackTensor, Error> {
        legacy(Source::Tensor(self.clone()))
    }
}

fn versioned(source: Source) -> Result<DlpackTensor, Error> {
    let dtype = source.element_type()?;
    let flags = if source.is_read_only() { DLPACK_FLAG_BITMASK_READ_ONLY } else { 0 };
    let export = Box::into_raw(Box::new(Export {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: null_mut(),
            deleter: Some(delete_versioned),
            flags,
            dl_tensor: source.tensor(dtype)?,
        },
        shape: source.sizes(),
        strides: source.strides(),
        source: source.clone(),
    }));
    // SAFETY: the allocation is ours, and its arrays stay where they are until the deleter frees it.
    unsafe {
        (*export).managed.manager_ctx = export.cast();
        (*export).managed.dl_tensor.shape = addr_of_mut!((*export).shape).cast();
        (*export).managed.dl_tensor.strides = addr_of_mut!((*export).strides).cast();
    }
    Ok(DlpackTensor { raw: RawDlpack::Versioned(export.cast()), source: Some(source) })
}

fn legacy(source: Source) -> Result<DlpackTensor, Error> {
    let mut dtype = source.element_type()?;
    if source.dtype() == DType::Bool {
        dtype = types::to_dlpack(DType::U8).expect("bytes are known to the protocol");
    }
    // What must not be written is copied, as the structure cannot say so; the copy is not the source any more.
    let (kept, source) = match &source {
        Source::Buffer(buffer) if buffer.is_read_only() => (Source::Buffer(buffer.copy()?), None),
        Source::Tensor(tensor) => (Source::Buffer(Buffer::from_tensor(tensor)), None),
        Source::Buffer(_) => (source.clone(), Some(source)),
    };
    let export = Box::into_raw(Box::new(Export {
        managed: DLManagedTensor {
            dl_tensor: kept.tensor(dtype)?,
            manager_ctx: null_mut(),
            deleter: Some(delete_legacy),
        },
        shape: kept.sizes(),
        strides: kept.strides(),
        source: kept,
    }));
    // SAFETY: the allocation is ours, and its arrays stay where they are until the deleter frees it.
    unsafe {
        (*export).managed.manager_ctx = export.cast();
        (*export).managed.dl_tensor.shape = addr_of_mut!((*export).shape).cast();
        (*export).managed.dl_tensor.strides = addr_of_mut!((*export).strides).cast();
    }
    Ok(DlpackTensor { raw: RawDlpack::Legacy(export.cast()), source })
}

/// # Safety
/// `managed` is from [`versioned`], and this is called once.
unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the structure is the first field of an `Export` that was boxed.
    drop(unsafe { Box::from_raw(managed.cast::<Export<DLManagedTensorVersioned>>()) });
}

/// # Safety
/// `managed` is from [`legacy`], and this is called once.
unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: the structure is the first field of an `Export` that was boxed.
    drop(unsafe { Box::from_raw(managed.cast::<Export<DLManagedTensor>>()) });
}

impl Source {
    fn dtype(&self) -> DType {
        match self {
            Source::Buffer(buffer) => buffer.dtype(),
            Source::Tensor(tensor) => tensor.dtype(),
        }
    }

    fn element_type(&self) -> Result<DLDataType, Error> {
        let dtype = self.dtype();
        types::to_dlpack(dtype).ok_or_else(|| Error::Dlpack(format!("the protocol has no dtype {dtype}")))
    }

    fn is_read_only(&self) -> bool {
        match self {
            Source::Buffer(buffer) => buffer.is_read_only(),
            Source::Tensor(_) => true,
        }
    }

    fn shape(&self) -> &Shape {
        match self {
            Source::Buffer(buffer) => buffer.shape(),
            Source::Tensor(tensor) => tensor.shape(),
        }
    }

    fn sizes(&self) -> [i64; MAX_RANK] {
        let mut sizes = [0; MAX_RANK];
        sizes.iter_mut().zip(self.shape().iter()).for_each(|(size, &dim)| *size = dim as i64);
        sizes
    }

    fn strides(&self) -> [i64; MAX_RANK] {
        let own = match self {
            Source::Buffer(buffer) => buffer.strides(),
            Source::Tensor(tensor) => tensor.strides(),
        };
        let mut strides = [0; MAX_RANK];
        strides.iter_mut().zip(own).for_each(|(stride, &own)| *stride = own as i64);
        strides
    }

    /// The array, as yet without shape and strides.
    fn tensor(&self, dtype: DLDataType) -> Result<DLTensor, Error> {
        let data = match self {
            Source::Buffer(buffer) => buffer.data()?.as_ptr(),
            Source::Tensor(tensor) => tensor.data().cast_mut(),
        };
        Ok(DLTensor {
            data: data.cast(),
            device: DLDevice { device_type: DL_CPU, device_id: 0 },
            ndim: self.shape().rank() as i32,
            dtype,
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        })
    }
}
