//! DLPack: shared memory, lifetimes, and structures that break the protocol.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{Index, bf16, f16};

/// A foreign library's array of four f32, and how often its deleter was called.
struct Producer {
    deleted: Arc<AtomicUsize>,
    tensor: DLTensor,
    flags: u64,
    version: u32,
}

/// What a deleter frees.
struct Context {
    deleted: Arc<AtomicUsize>,
    data: [f32; 5],
    shape: [i64; 2],
    strides: [i64; 2],
}

impl Producer {
    fn new() -> Producer {
        let tensor = DLTensor {
            data: null_mut(),
            device: DLDevice { device_type: DL_CPU, device_id: 0 },
            ndim: 2,
            dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        Producer { deleted: Arc::default(), tensor, flags: 0, version: 1 }
    }

    /// The structure, with its pointers set, as changed by a function.
    fn make(&self, change: impl FnOnce(&mut DLTensor, *mut i64, *mut i64)) -> RawDlpack {
        let context = Box::into_raw(Box::new(Context {
            deleted: Arc::clone(&self.deleted),
            data: [1.0, 2.0, 3.0, 4.0, 5.0],
            shape: [2, 2],
            strides: [2, 1],
        }));
        let mut tensor = self.tensor;
        // SAFETY: the context was just made.
        let (data, shape, strides) = unsafe {
            let context = &mut *context;
            (context.data.as_mut_ptr(), context.shape.as_mut_ptr(), context.strides.as_mut_ptr())
        };
        (tensor.data, tensor.shape) = (data.cast(), shape);
        change(&mut tensor, shape, strides);
        RawDlpack::Versioned(Box::into_raw(Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major: self.version, minor: 0 },
            manager_ctx: context.cast::<c_void>(),
            deleter: Some(delete),
            flags: self.flags,
            dl_tensor: tensor,
        })))
    }

    fn import(&self, change: impl FnOnce(&mut DLTensor, *mut i64, *mut i64)) -> Result<Buffer, Error> {
        // SAFETY: the structure is well formed but for what the checks must find before anything is read.
        unsafe { DlpackTensor::from_raw(self.make(change)) }.and_then(Buffer::from_dlpack)
    }

    fn deleted(&self) -> usize {
        self.deleted.load(Ordering::SeqCst)
    }
}

/// # Safety
/// As of any deleter.
unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: both were boxed by `Producer::make`.
    let context = unsafe { Box::from_raw(Box::from_raw(managed).manager_ctx.cast::<Context>()) };
    context.deleted.fetch_add(1, Ordering::SeqCst);
}

/// # Safety
/// `raw` is as [`DlpackTensor::from_raw`] demands.
unsafe fn reimport(raw: RawDlpack) -> Buffer {
    // SAFETY: the caller's.
    Buffer::from_dlpack(unsafe { DlpackTensor::from_raw(raw) }.unwrap()).unwrap()
}

#[test]
fn buffers_of_every_dtype_share_their_memory() {
    for dtype in DType::every().filter(|&dtype| types::to_dlpack(dtype).is_some()) {
        let buffer = Buffer::zeros(dtype, [2, 4]);
        // SAFETY: exported just now, and nothing else looks at the memory.
        let (new, old) = unsafe {
            (
                reimport(buffer.to_dlpack().unwrap().into_raw()),
                reimport(buffer.to_dlpack_legacy().unwrap().into_raw()),
            )
        };
        assert_eq!((new.dtype(), new.shape()), (dtype, buffer.shape()));
        assert_eq!(old.dtype(), if dtype == DType::Bool { DType::U8 } else { dtype });
        buffer.write().unwrap().fill(1);
        assert_eq!((new.read().unwrap()[0], old.read().unwrap()[0]), (1, 1));
        assert_eq!(new.data(), buffer.data());
    }
    let message = "DLPack: the protocol has no dtype q4_0";
    assert_eq!(Buffer::zeros(DType::Q4_0, [32]).to_dlpack().unwrap_err().to_string(), message);
}

#[test]
fn our_own_exports_keep_their_guards() {
    let buffer = Buffer::from_slice([2], &[1f32, 2.0]);
    let back = Buffer::from_dlpack(buffer.to_dlpack().unwrap()).unwrap();
    assert!(back.shares_memory_with(&buffer));
    let tensor = Tensor::from_dlpack(buffer.to_dlpack().unwrap()).unwrap();
    assert!(buffer.write().is_err());
    drop(tensor);
    assert!(buffer.write().is_ok());

    let tensor = Tensor::from_slice([2], &[f16::ONE, f16::ZERO]);
    let exported = tensor.to_dlpack().unwrap();
    assert!(exported.is_read_only());
    let back = Tensor::from_dlpack(exported).unwrap();
    assert_eq!(back.bytes().as_ptr(), tensor.bytes().as_ptr());
    let over = Buffer::from_dlpack(tensor.to_dlpack().unwrap()).unwrap();
    assert_eq!(over.write().err(), Some(Error::ReadOnly));
}

#[test]
fn what_must_not_be_written_says_so_or_is_copied() {
    let tensor = Tensor::from_slice([2], &[bf16::ONE, bf16::ZERO]);
    let read_only = Buffer::over_tensor(&tensor);
    for exported in [tensor.to_dlpack().unwrap(), read_only.to_dlpack().unwrap()] {
        // SAFETY: exported just now; a tensor is never written.
        let buffer = unsafe { reimport(exported.into_raw()) };
        assert_eq!(
            (buffer.is_read_only(), buffer.data().unwrap().as_ptr().cast_const()),
            (true, tensor.data())
        );
    }
    for exported in [tensor.to_dlpack_legacy().unwrap(), read_only.to_dlpack_legacy().unwrap()] {
        assert_ne!(exported.tensor().data.cast_const().cast(), tensor.data());
        let buffer = Buffer::from_dlpack(exported).unwrap();
        assert_eq!((buffer.is_read_only(), buffer.to_vec::<bf16>()), (false, tensor.to_vec()));
    }
}

#[test]
fn exports_keep_what_they_point_to() {
    let buffer = Buffer::from_slice([3, 2], &[1i32, 2, 3, 4, 5, 6]);
    let part = buffer.slice(&[(1..).into()]).unwrap();
    let raw = part.to_dlpack().unwrap().into_raw();
    drop((buffer, part));
    // SAFETY: exported above.
    let back = unsafe { reimport(raw) };
    assert_eq!(std::thread::spawn(move || back.to_vec::<i32>()).join().unwrap(), [3, 4, 5, 6]);
}

#[test]
fn views_with_gaps_are_exported_and_not_imported() {
    let buffer = Buffer::from_slice([2, 2], &[1u8, 2, 3, 4]);
    let backwards = buffer.slice(&[Index::ALL.step(-1)]).unwrap();
    let exported = backwards.to_dlpack().unwrap();
    let tensor = exported.tensor();
    // SAFETY: exported just now, with two axes.
    let strides = unsafe { slice::from_raw_parts(tensor.strides, 2) };
    // SAFETY: the first element, which nothing writes.
    assert_eq!((strides, unsafe { *tensor.data.cast::<u8>() }), (&[-2i64, 1][..], 3));
    let error = Buffer::from_dlpack(exported).unwrap_err().to_string();
    assert_eq!(
        error,
        "DLPack: strides [-2, 1] of shape [2, 2], expected a row-major array; .contiguous() makes one"
    );
}

#[test]
fn foreign_memory_is_freed_once_with_the_last_view() {
    let producer = Producer::new();
    let buffer = producer.import(|_, _, _| ()).unwrap();
    assert_eq!(buffer.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
    let row = buffer.slice(&[Index::At(1)]).unwrap();
    let guard = row.read().unwrap();
    drop((buffer, row));
    assert_eq!((producer.deleted(), guard.as_slice::<f32>()), (0, &[3.0, 4.0][..]));
    std::thread::spawn(move || drop(guard)).join().unwrap();
    assert_eq!(producer.deleted(), 1);

    // SAFETY: well formed.
    let unused = unsafe { DlpackTensor::from_raw(producer.make(|_, _, _| ())) }.unwrap();
    drop(unused);
    assert_eq!(producer.deleted(), 2);
    // SAFETY: well formed.
    let tensor =
        unsafe { DlpackTensor::from_raw(producer.make(|_, _, _| ())) }.and_then(Tensor::from_dlpack).unwrap();
    let row = tensor.narrow(0, 0..1);
    drop(tensor);
    assert_eq!((producer.deleted(), row.to_vec::<f32>()), (2, vec![1.0, 2.0]));
    drop(row);
    assert_eq!(producer.deleted(), 3);
}

#[test]
fn producers_decide_who_may_write() {
    let writable = Producer::new().import(|_, _, _| ()).unwrap();
    writable.set(&[0, 0], 9).unwrap();
    assert_eq!(writable.to_vec::<f32>(), [9.0, 2.0, 3.0, 4.0]);
    let read_only = Producer { flags: DLPACK_FLAG_BITMASK_READ_ONLY, ..Producer::new() };
    assert_eq!(read_only.import(|_, _, _| ()).unwrap().write().err(), Some(Error::ReadOnly));
}

#[test]
fn strides_offsets_and_missing_deleters_are_understood() {
    let producer = Producer::new();
    let strided = producer.import(|tensor, _, strides| tensor.strides = strides).unwrap();
    let late = producer.import(|tensor, _, _| tensor.byte_offset = 4).unwrap();
    assert_eq!((strided.to_vec::<f32>()[3], late.to_vec::<f32>()), (4.0, vec![2.0, 3.0, 4.0, 5.0]));
    let scalar = producer.import(|tensor, _, _| (tensor.ndim, tensor.shape) = (0, null_mut())).unwrap();
    assert_eq!(scalar.item::<f32>(), Ok(1.0));
    // SAFETY: the shape is the producer's.
    let empty = |tensor: &mut DLTensor, shape: *mut i64, _: *mut i64| unsafe {
        (*shape, tensor.data) = (0, null_mut())
    };
    assert_eq!(producer.import(empty).unwrap().shape(), &Shape::new(&[0, 2]));

    static mut DATA: [u8; 2] = [1, 2];
    let mut shape = [2i64];
    let mut managed = DLManagedTensor {
        dl_tensor: DLTensor {
            data: &raw mut DATA as *mut c_void,
            shape: shape.as_mut_ptr(),
            ndim: 1,
            dtype: DLDataType { code: 6, bits: 8, lanes: 1 },
            ..producer.tensor
        },
        manager_ctx: null_mut(),
        deleter: None,
    };
    // SAFETY: structure, shape and data outlive the buffer.
    let bools = unsafe { reimport(RawDlpack::Legacy(&raw mut managed)) };
    assert_eq!((bools.dtype(), bools.to_vec::<u8>()), (DType::Bool, vec![1, 2]));
}

#[test]
fn structures_that_break_the_protocol_are_refused_and_freed() {
    type Change = fn(&mut DLTensor, *mut i64, *mut i64);
    // SAFETY, of the writes below: the arrays are the producer's.
    let changes: &[(Change, &str)] = &[
        (|tensor, _, _| tensor.ndim = -1, "-1 axes, expected 0 to 16"),
        (|tensor, _, _| tensor.ndim = 17, "17 axes, expected 0 to 16"),
        (|tensor, _, _| tensor.shape = null_mut(), "the shape of 2 axes is null"),
        // SAFETY: the producer's array.
        (|_, shape, _| unsafe { *shape = -2 }, "an axis of -2 elements in shape [-2, 2]"),
        // SAFETY: the producer's array.
        (|_, shape, _| unsafe { *shape = i64::MAX }, "f32[9223372036854775807, 2] is not a possible array"),
        // SAFETY: the producer's array.
        (|_, shape, _| unsafe { *shape = 1 << 60 }, "f32[1152921504606846976, 2] is not a possible array"),
        (
            // SAFETY: the producer's array.
            |tensor, _, strides| unsafe { (*strides, tensor.strides) = (i64::MIN, strides) },
            "strides [-9223372036854775808, 1] of shape [2, 2], expected a row-major array; .contiguous() makes one",
        ),
        (|tensor, _, _| tensor.data = null_mut(), "the data of f32[2, 2] is null"),
        (
            |tensor, _, _| tensor.byte_offset = u64::MAX,
            "16 bytes at byte offset 18446744073709551615 overflow",
        ),
        (|tensor, _, _| tensor.dtype.lanes = 4, "elements of 4 lanes, expected 1"),
        (|tensor, _, _| tensor.dtype.lanes = 0, "elements of 0 lanes, expected 1"),
        (|tensor, _, _| tensor.dtype.bits = 33, "no dtype has code 2 and 33 bits"),
        (|tensor, _, _| tensor.dtype.code = 5, "no dtype has code 5 and 32 bits"),
        (
            |tensor, _, _| tensor.device.device_type = 2,
            "the memory is on device 0 of type 2, not on the host",
        ),
    ];
    for (change, message) in changes {
        let producer = Producer::new();
        let error = producer.import(change).unwrap_err().to_string();
        assert_eq!((&error[..], producer.deleted()), (&format!("DLPack: {message}")[..], 1));
    }
    let producer = Producer::new();
    let error = producer.import(|tensor, _, _| tensor.byte_offset = 1).unwrap_err().to_string();
    assert!(error.ends_with("is not aligned to the 4 bytes of f32") && producer.deleted() == 1, "{error}");
    let producer = Producer { version: 2, ..Producer::new() };
    let error = producer.import(|_, _, _| ()).unwrap_err().to_string();
    assert_eq!((&error[..], producer.deleted()), ("DLPack: version 2.0 is not readable, expected 1", 1));
    for null in [RawDlpack::Versioned(null_mut()), RawDlpack::Legacy(null_mut())] {
        // SAFETY: null pointers are refused.
        let error = unsafe { DlpackTensor::from_raw(null) }.unwrap_err().to_string();
        assert_eq!(error, "DLPack: the pointer to the tensor is null");
    }
}
