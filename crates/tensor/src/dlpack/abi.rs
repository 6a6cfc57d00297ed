//! The structures of DLPack as C sees them, after its documentation (version 1.1).

use std::ffi::c_void;

/// The major version whose layout this is.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// The newest minor version known.
pub const DLPACK_MINOR_VERSION: u32 = 1;
/// Flag of a tensor that must not be written.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;
/// Flag of a tensor that was copied for its consumer.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 2;
/// Flag of a tensor whose floats of less than a byte take a byte each.
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 4;

/// The host's memory, as a device type.
pub const DL_CPU: i32 = 1;
/// Page-locked host memory that a CUDA device reads.
pub const DL_CUDA_HOST: i32 = 3;
/// Page-locked host memory that a ROCm device reads.
pub const DL_ROCM_HOST: i32 = 11;

/// Where a tensor lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// The kind of device, such as [`DL_CPU`].
    pub device_type: i32,
    /// The number of the device among its kind.
    pub device_id: i32,
}

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// The kind of number.
    pub code: u8,
    /// Bits of one number.
    pub bits: u8,
    /// Numbers in one element; 1 but for vector types.
    pub lanes: u16,
}

/// An array, without who owns it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DLTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// The number of axes.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The sizes of the axes.
    pub shape: *mut i64,
    /// The distance between neighbours along each axis, in elements; null for row-major.
    pub strides: *mut i64,
    /// Where in the memory the first element starts, in bytes.
    pub byte_offset: u64,
}

/// An array with its owner, as producers before version 1 give it.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The array.
    pub dl_tensor: DLTensor,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Frees the array and this structure; may be absent.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A version of DLPack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Layouts of different major versions differ.
    pub major: u32,
    /// Newer minor versions only add.
    pub minor: u32,
}

/// An array with its owner, as producers since version 1 give it.
///
/// Version, context and deleter lie at the same place in every version.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of this layout.
    pub version: DLPackVersion,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Frees the array and this structure; may be absent.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// See [`DLPACK_FLAG_BITMASK_READ_ONLY`].
    pub flags: u64,
    /// The array.
    pub dl_tensor: DLTensor,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn layouts_are_those_of_c() {
        assert_eq!((size_of::<DLDevice>(), size_of::<DLDataType>(), size_of::<DLTensor>()), (8, 4, 48));
        assert_eq!((offset_of!(DLTensor, ndim), offset_of!(DLTensor, dtype)), (16, 20));
        assert_eq!((offset_of!(DLTensor, shape), offset_of!(DLTensor, byte_offset)), (24, 40));
        assert_eq!((size_of::<DLManagedTensor>(), offset_of!(DLManagedTensor, deleter)), (64, 56));
        assert_eq!(size_of::<DLManagedTensorVersioned>(), 80);
        assert_eq!(offset_of!(DLManagedTensorVersioned, deleter), 16);
        assert_eq!(offset_of!(DLManagedTensorVersioned, dl_tensor), 32);
    }
}
