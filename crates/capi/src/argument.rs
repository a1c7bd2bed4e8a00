// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pointers that C programs pass to the library: texts, bytes, and places for results.
//!
//! ```text
//!   const char *   Text      a C string in UTF-8
//!   const void *   Bytes     with a length; null is allowed for no bytes
//!   void *         Buffer    with a capacity
//!   T *            Out<T>    a place for one result; null is refused
//! ```
//!
//! Only C programs make values of these types. So each pointer that is not null is as the header
//! demands: valid for the call and for the length passed with it.

use crate::failure::{BUFFER_TOO_SHORT, Failure};
use partywall_layout::seeded_fault;
use std::ffi::{CStr, c_char, c_void};
use std::{ptr, slice};

/// A C string, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the text. `name` is the argument's name, for the text of an error.
    ///
    /// # Errors
    /// Fails if the pointer is null or the text is not UTF-8.
    pub(crate) fn get<'a>(self, name: &'static str) -> Result<&'a str, Failure> {
        if self.0.is_null() {
            return Err(Failure::null(name));
        }
        // SAFETY: the header demands a C string that stays valid for the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Failure::argument(&format!("{name} is not UTF-8")))
    }
}

/// The bytes of a message that is sent, whose length is another argument.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Bytes(*const c_void);

impl Bytes {
    /// Returns the `len` bytes. `name` is the argument's name, for the text of an error.
    ///
    /// # Errors
    /// Fails if the pointer is null although `len` is not 0, or if `len` exceeds `isize::MAX`.
    #[inline]
    pub(crate) fn get<'a>(self, len: usize, name: &'static str) -> Result<&'a [u8], Failure> {
        if len == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Failure::null(name));
        }
        check_len(len, name)?;
        // SAFETY: the header demands `len` readable bytes that nothing writes during the call.
        Ok(unsafe { slice::from_raw_parts(self.0.cast(), len) })
    }
}

/// Memory of a C program, into which a call copies bytes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Buffer(*mut c_void);

impl Buffer {
    /// Checks the buffer's pointer and capacity before a message is received into it. `name` is the
    /// argument's name, for the text of an error.
    ///
    /// # Errors
    /// Fails if the pointer is null although the capacity is not 0.
    #[inline]
    pub(crate) fn check(self, capacity: usize, name: &'static str) -> Result<(), Failure> {
        if capacity > 0 && self.0.is_null() {
            return Err(Failure::null(name));
        }
        check_len(capacity, name)
    }

    /// Copies `bytes` into the buffer. [`check`](Self::check) has accepted the buffer before, and
    /// its capacity is at least the number of the bytes.
    #[inline]
    pub(crate) fn write(self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // SAFETY: the header demands `capacity` writable bytes, which do not overlap memory of the
        // library.
        unsafe { self.0.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies a text into the buffer, without a zero byte at its end, and writes its length to
    /// `len`.
    ///
    /// # Errors
    /// Fails if a pointer is null or the capacity too small. The length is written also then,
    /// unless the pointer `len` is null.
    pub(crate) fn write_text(
        self,
        text: &str,
        capacity: usize,
        len: Out<usize>,
    ) -> Result<(), Failure> {
        let len = len.require("len")?;
        self.check(capacity, "buffer")?;
        len.write(text.len());
        if text.len() > capacity {
            return Err(Failure::state(BUFFER_TOO_SHORT));
        }
        self.write(text.as_bytes());
        Ok(())
    }
}

/// The address at which a C program wants one result of a call.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// The null pointer, which a C program passes if it does not want the result.
    pub(crate) const NULL: Self = Self(ptr::null_mut());

    /// The address of a Rust variable as the place for a result; for tests.
    #[cfg(test)]
    pub(crate) fn of(place: &mut T) -> Self {
        Self(place)
    }

    /// Returns this place for a result, or fails if its pointer is null. `name` is the argument's
    /// name, for the text of the error.
    #[inline]
    pub(crate) fn require(self, name: &'static str) -> Result<Self, Failure> {
        if self.0.is_null() && !seeded_fault("no_null_check") {
            return Err(Failure::null(name));
        }
        Ok(self)
    }

    /// Writes the result of a call to this place, unless its pointer is null.
    #[inline]
    pub(crate) fn write(self, value: T) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: the header demands a writable place, which may be uninitialised.
        unsafe { self.0.write(value) };
    }

    /// Writes the first `size` bytes of a structure, where `size` is the structure's size in the
    /// version of the header that the caller was compiled with. Bytes of `size` beyond the end of
    /// `T` become 0. `T` has no padding.
    ///
    /// # Errors
    /// Fails if `size` exceeds `isize::MAX`, so that it cannot be the size of a structure.
    pub(crate) fn write_prefix(self, value: &T, size: usize) -> Result<(), Failure>
    where
        T: Copy,
    {
        check_len(size, "size")?;
        let (place, known) = (self.0.cast::<u8>(), size.min(size_of::<T>()));
        // SAFETY: the header demands `size` writable bytes, and the value has `known` bytes.
        unsafe { place.copy_from_nonoverlapping(ptr::from_ref(value).cast(), known) };
        // SAFETY: `known` is at most `size`, so the pointer stays within the caller's `size` bytes.
        let rest = unsafe { place.add(known) };
        // SAFETY: `size - known` of the caller's `size` bytes follow the copied ones.
        unsafe { rest.write_bytes(0, size - known) };
        Ok(())
    }

    /// Writes the result at `index` of an array. The caller has checked that the pointer to the
    /// array is not null.
    pub(crate) fn write_at(self, index: usize, value: T) {
        // SAFETY: the header demands an array with as many elements as the capacity, which limits
        // `index`.
        let place = unsafe { self.0.add(index) };
        // SAFETY: the place is an element of the caller's array.
        unsafe { place.write(value) };
    }
}

/// Fails if `len` exceeds `isize::MAX`, the most bytes that an object in memory can have.
#[inline]
pub(crate) fn check_len(len: usize, name: &'static str) -> Result<(), Failure> {
    if isize::try_from(len).is_err() {
        return Err(too_long(len, name));
    }
    Ok(())
}

#[cold]
fn too_long(len: usize, name: &'static str) -> Failure {
    Failure::argument(&format!("{name} is longer than memory can be: {len} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_pointers_are_refused() {
        assert_eq!(Out::<i32>::NULL.require("x").err().map(|it| it.code()), Some(901));
        assert_eq!(Text(ptr::null()).get("x").err().map(|it| it.code()), Some(901));
        assert_eq!(Bytes(ptr::null()).get(1, "x").err().map(|it| it.code()), Some(901));
        assert!(Bytes(ptr::null()).get(0, "x").is_ok());
        assert_eq!(Buffer(ptr::null_mut()).check(1, "x").err().map(|it| it.code()), Some(901));
        assert!(Buffer(ptr::null_mut()).check(0, "x").is_ok());
    }

    #[test]
    fn structure_of_another_size_is_filled_as_far_as_both_know_it() {
        let mut short = [1_u64; 2];
        assert!(Out::of(&mut short).write_prefix(&[7, 8], 8).is_ok());
        assert_eq!(short, [7, 1]);
        assert!(Out::of(&mut short).write_prefix(&[9, 9], 0).is_ok());
        assert_eq!(short, [7, 1]);
        for size in [usize::MAX, isize::MIN as usize] {
            let refused = Out::of(&mut short).write_prefix(&[9, 9], size);
            assert_eq!(refused.err().map(|it| it.code()), Some(901), "{size}");
            assert_eq!(short, [7, 1]);
        }
        let mut long = [[1_u64; 2]; 2];
        assert!(Out(long.as_mut_ptr()).write_prefix(&[7, 8], 24).is_ok());
        assert_eq!(long, [[7, 8], [0, 1]]);
    }
}
