//! DLPack capsules: buffers of ours for other libraries, and theirs for us, without a copy.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use perihelion::driver::{self, DlpackTensor, RawDlpack};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyTuple};
use pyo3::{ffi, intern};

use crate::error::driver_error;

const LEGACY: &CStr = c"dltensor";
const USED_LEGACY: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// A capsule that shares the buffer's memory, for a consumer that knows version 1 of the protocol, or for an older one.
pub(crate) fn export<'py>(
    py: Python<'py>,
    buffer: &driver::Buffer,
    versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let tensor = if versioned { buffer.to_dlpack() } else { buffer.to_dlpack_legacy() };
    let (pointer, name, destructor): (_, _, ffi::PyCapsule_Destructor) =
        match tensor.map_err(driver_error)?.into_raw() {
            RawDlpack::Versioned(pointer) => (pointer.cast::<c_void>(), VERSIONED, free_versioned),
            RawDlpack::Legacy(pointer) => (pointer.cast::<c_void>(), LEGACY, free_legacy),
        };
    let pointer = NonNull::new(pointer).expect("an export is an allocation");
    // SAFETY: the structure lives until its deleter is called: by the consumer, who renames the capsule, or else by the
    // destructor, which may run on any thread.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
}

/// Another library's array in memory shared with it. A read-only array of a NumPy that does not export these is copied,
/// unless `share` is set.
pub(crate) fn import(array: &Bound<'_, PyAny>, share: bool) -> PyResult<DlpackTensor> {
    let py = array.py();
    let capsule = match request(array) {
        // A tensor that takes part in a gradient lends its memory once it is detached.
        Err(_) if requires_grad(array)? => request(&array.call_method0(intern!(py, "detach"))?)?,
        Err(error) if !share && error.is_instance_of::<PyBufferError>(py) => {
            request(&array.call_method0(intern!(py, "copy"))?)?
        }
        other => other?,
    };
    let capsule = capsule.cast::<PyCapsule>()?;
    // Without the GIL, two threads may want one capsule.
    let raw = with_critical_section(capsule, || take(capsule))?;
    // SAFETY: a capsule of this name holds a pointer to a structure as the protocol demands it, whose deleter may be
    // called on any thread and is left to us. That other code of the process leaves the memory alone while a model reads
    // it is the caller's part, as with every array library.
    unsafe { DlpackTensor::from_raw(raw) }.map_err(driver_error)
}

fn requires_grad(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let flag = array.getattr_opt(intern!(array.py(), "requires_grad"))?;
    flag.map_or(Ok(false), |flag| flag.is_truthy())
}

/// Takes the contents of a capsule, and the duty to free them.
fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<RawDlpack> {
    let is_versioned = capsule.is_valid_checked(Some(VERSIONED));
    let (name, used) = if is_versioned { (VERSIONED, USED_VERSIONED) } else { (LEGACY, USED_LEGACY) };
    let pointer = capsule.pointer_checked(Some(name))?;
    // SAFETY: the capsule is valid. Renaming it passes on the duty to call the deleter, and the new name is static.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    Ok(match is_versioned {
        true => RawDlpack::Versioned(pointer.as_ptr().cast()),
        false => RawDlpack::Legacy(pointer.as_ptr().cast()),
    })
}

/// The capsule of an array: of version 1 if its library knows that.
fn request<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let export = array.getattr(intern!(py, "__dlpack__"))?;
    static VERSION: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let version = VERSION.get_or_try_init(py, || (1, 0).into_pyobject(py).map(Bound::unbind))?;
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "max_version"), version)?;
    match export.call((), Some(&keywords)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => export.call0(),
        other => other,
    }
}

/// # Safety
/// `capsule` is one that [`export`] made.
unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: by the contract; the name shows that no consumer took the structure.
    unsafe { free(capsule, VERSIONED, |pointer| RawDlpack::Versioned(pointer.cast())) }
}

/// # Safety
/// `capsule` is one that [`export`] made.
unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe { free(capsule, LEGACY, |pointer| RawDlpack::Legacy(pointer.cast())) }
}

/// Frees what a capsule holds, if it has this name.
///
/// # Safety
/// A capsule of the name holds a structure of the kind that `raw` makes of it, and no other code frees it.
unsafe fn free(capsule: *mut ffi::PyObject, name: &CStr, raw: fn(*mut c_void) -> RawDlpack) {
    // SAFETY: the interpreter calls destructors with a capsule, attached to this thread.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 1 {
            drop(DlpackTensor::from_raw(raw(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()))));
        }
    }
}
