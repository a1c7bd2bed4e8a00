// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callables of Python that the Rust crates call, such as rules of admission.
//!
//! ```text
//!   Config ── owns ─▶ Callback ─▶ callable        the garbage collector follows these
//!      ▲                 ▲
//!   Listener          WeakCallback ◀── closure within the Rust crate, which owns nothing of Python
//! ```
//!
//! A callable often refers to the object that holds the listener, which is a cycle. The collector
//! finds the cycle only if each reference to the callable belongs to an object of Python. So an
//! object that uses a config holds the config, and a closure of Rust holds only a weak reference,
//! the `WeakCallback`.

use crate::wait::report_raised;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A Python callable that is the value of a setting.
pub struct Callback {
    /// The callable; `None` once the garbage collector has cleared it.
    callable: Mutex<Option<Py<PyAny>>>,
}

impl Callback {
    /// Takes the value of the setting `key`.
    ///
    /// # Errors
    /// Fails if the value is not callable.
    pub fn new(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        if !value.is_callable() {
            return Err(PyTypeError::new_err(format!("{key} must be callable")));
        }
        Ok(Arc::new(Self { callable: Mutex::new(Some(value.clone().unbind())) }))
    }

    /// Returns the weak reference that a closure of the Rust crate keeps.
    pub fn downgrade(self: &Arc<Self>) -> WeakCallback {
        WeakCallback(Arc::downgrade(self))
    }

    /// Shows the callable to the garbage collector. Does nothing if the lock of the callable is
    /// held, because the collector must not wait.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.callable.try_lock().map_or(Ok(()), |callable| visit.call(&*callable))
    }

    /// Drops the callable, because the collector has found it in a cycle of garbage.
    pub fn clear(&self) {
        let callable = self.callable.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(callable);
    }
}

/// Calls a callback while the config that owns the callback lives.
pub struct WeakCallback(Weak<Callback>);

impl WeakCallback {
    /// Calls the callable with one argument in this thread, and converts what it returns. If the
    /// callable raises, its exception is reported and the result is `None`. The result is also
    /// `None` once the config is gone or the interpreter exits.
    pub fn call<A, T>(
        &self,
        argument: impl FnOnce(Python<'_>) -> PyResult<A>,
        interpret: impl FnOnce(Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T>
    where
        A: for<'py> IntoPyObject<'py>,
    {
        Python::try_attach(|py| {
            let callback = self.0.upgrade()?;
            let callable = {
                let place = callback.callable.lock().unwrap_or_else(PoisonError::into_inner);
                place.as_ref()?.clone_ref(py).into_bound(py)
            };
            let called = argument(py).and_then(|argument| callable.call1((argument,)));
            match called.and_then(interpret) {
                Ok(value) => Some(value),
                Err(raised) => {
                    report_raised(py, raised, &callable);
                    None
                }
            }
        })
        .flatten()
    }
}
