//! The buffer protocol for classes written in Python, as interpreters from 3.12 on have it (PEP 688).

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

/// Of the C interface since 3.9, and of its stable part since 3.11, where pyo3 has it.
const GET_BUFFER_SLOT: c_int = 1;

unsafe extern "C" {
    /// `view` is a `Py_buffer`, which is only passed on here.
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut c_void, flags: c_int) -> c_int;
}

/// A base class that exports the buffer its method `__buffer__` returns; `object` if the interpreter does that itself.
pub(crate) fn make(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    if py.version_info() >= (3, 12) {
        return py.import("builtins")?.getattr("object");
    }
    let mut slots = [
        ffi::PyType_Slot { slot: GET_BUFFER_SLOT, pfunc: get_buffer as *mut c_void },
        ffi::PyType_Slot::default(),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"perihelion._perihelion.BufferProtocol".as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is whole, and the interpreter copies it but for the name, which is static.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec)) }
}

/// # Safety
/// The interpreter calls it, as `bf_getbuffer` of `object`.
unsafe extern "C" fn get_buffer(object: *mut ffi::PyObject, view: *mut c_void, flags: c_int) -> c_int {
    Python::attach(|py| {
        // SAFETY: the interpreter lends the object for the call.
        let object = unsafe { Bound::from_borrowed_ptr(py, object) };
        match object.call_method1("__buffer__", (flags,)) {
            // SAFETY: both are valid; the view then keeps what it shows, and is released by that.
            Ok(shown) => unsafe { PyObject_GetBuffer(shown.as_ptr(), view, flags) },
            Err(error) => {
                // SAFETY: the second field of a `Py_buffer` is its owner; null says that there is none.
                unsafe { view.cast::<*mut c_void>().add(1).write(std::ptr::null_mut()) };
                error.restore(py);
                -1
            }
        }
    })
}
