// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and Python's buffer protocol, in both directions.
//!
//! ```text
//!   Payload   the bytes of an object that Python passes to a call
//!   export    memory of a Rust value, exported as a view of a Python object
//! ```
//!
//! A view holds a reference to its object, so the object outlives the view. The object counts its
//! views, and keeps its memory as long as one exists.
#![allow(unsafe_code, reason = "the buffer protocol is an interface of C")]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_int;

/// The bytes of a Python object that supports the buffer protocol.
pub enum Payload<'py> {
    /// An object of the type `bytes`, whose bytes never change.
    Bytes(Bound<'py, PyBytes>),
    /// A contiguous buffer of an object of any other type.
    Buffer(Box<ffi::Py_buffer>),
}

// SAFETY: the view owns a reference to its exporter, and CPython releases a view in any attached
// thread. Only the thread that made the payload drops it, after it has attached again.
unsafe impl Send for Payload<'_> {}

impl<'py> Payload<'py> {
    /// Takes a view of the bytes of `object`.
    ///
    /// # Errors
    /// Fails if the object has no contiguous buffer.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone()));
        }
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive, and `view` is memory for one view that no other code uses.
        let status =
            unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_SIMPLE) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self::Buffer(view))
    }

    /// Returns the bytes. If another thread changes them during the call, it changes the message
    /// that is sent, as with `socket.send`.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(view) if view.len <= 0 || view.buf.is_null() => &[],
            Self::Buffer(view) => {
                let len = view.len.unsigned_abs();
                // SAFETY: the exporter keeps `len` bytes at `buf` until `drop` releases this view;
                // PyBUF_SIMPLE promises that they are contiguous.
                unsafe { std::slice::from_raw_parts(view.buf.cast::<u8>(), len) }
            }
        }
    }
}

impl Drop for Payload<'_> {
    fn drop(&mut self) {
        if let Self::Buffer(view) = self {
            // SAFETY: `Payload::of` filled the view, and no other code releases it. The calling
            // thread is attached to the interpreter.
            unsafe { ffi::PyBuffer_Release(&raw mut **view) };
        }
    }
}

/// Exports `len` bytes at `start` as a view of `object`, and returns whether that succeeded.
///
/// # Errors
/// Fails if the caller asks for a writable view of bytes that it may only read.
///
/// # Safety
/// `view` is a place for a view, as `__getbuffer__` receives it. The bytes stay valid until
/// `__releasebuffer__` of the object; if `is_writable`, nothing else accesses them meanwhile.
pub unsafe fn export(
    object: &Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    (start, len): (*mut u8, usize),
    is_writable: bool,
    flags: c_int,
) -> PyResult<()> {
    // This function refuses a writable view itself. CPython would make an exception, which may
    // collect garbage and so run code that uses the object, whose lock the caller holds.
    if !is_writable && flags & ffi::PyBUF_WRITABLE != 0 {
        return Err(PyBufferError::new_err("the memory is read-only"));
    }
    let Ok(len) = isize::try_from(len) else {
        return Err(PyBufferError::new_err("the memory is longer than a view may be"));
    };
    // SAFETY: the caller promises that `view` and the bytes are valid; CPython takes a reference to
    // the object.
    let status = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            object.as_ptr(),
            start.cast(),
            len,
            c_int::from(!is_writable),
            flags,
        )
    };
    if status == 0 { Ok(()) } else { Err(PyErr::fetch(object.py())) }
}
