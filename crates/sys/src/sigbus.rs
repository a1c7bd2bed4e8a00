// SPDX-License-Identifier: MIT OR Apache-2.0
//! Surviving the truncation of a mapped file: a SIGBUS handler, installed at the first request.
//!
//! ```text
//!   fault ──▶ is the address in a registered range?
//!               yes ─▶ map zeros over the whole range, mark it damaged, resume at the fault
//!               no  ─▶ the previous SIGBUS handler; without one the process dies as before
//! ```
//!
//! Partywall's own memory is sealed, so it needs no such handler. Peers of other protocols create
//! memory that cannot be sealed, and may shrink it at any time. The handler is not installed unless
//! a mapping is guarded ([`SharedMap::guard`](crate::SharedMap::guard),
//! [`FileView::guarded`](crate::FileView::guarded)). A system call that accesses truncated memory
//! fails with `EFAULT`, without a signal; the damage stays unnoticed until an instruction accesses
//! the memory.
//!
//! # Invariants
//!
//! - The handler only loads and stores atomics and makes system calls: it takes no lock and
//!   allocates nothing.
//! - The previous handler is kept, and called for every fault outside the registered ranges. This
//!   file's handler is never removed, because another handler may have chained to it.
//! - A range is unregistered before it is unmapped.
//! - A forked child ignores the ranges of its parent: in the child they are not mapped, or hold
//!   other memory.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::io;
use std::sync::OnceLock;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// A range of addresses that the SIGBUS handler guards; dropping the value unregisters the range.
#[derive(Debug)]
pub(crate) struct Guarded {
    entry: usize,
}

impl Guarded {
    /// Registers `len` bytes from address `start`: the whole of one mapping, which must outlive the
    /// returned value.
    pub(crate) fn register(start: usize, len: usize) -> Result<Guarded, TableFull> {
        install().map_err(|source| TableFull { source: Some(source) })?;
        for (index, entry) in TABLE.iter().enumerate() {
            // ORDER: Acquire pairs with the Release by which an earlier guard of this table entry
            // was dropped: this thread sees the entry as that guard left it. The handler ignores an
            // entry whose length is 0.
            let (free, taken) = (Ordering::Acquire, Ordering::Relaxed);
            if entry.is_taken.compare_exchange(false, true, free, taken).is_ok() {
                entry.is_damaged.store(false, Ordering::Relaxed);
                entry.process.store(std::process::id(), Ordering::Relaxed);
                entry.start.store(start, Ordering::Relaxed);
                // ORDER: Release pairs with the Acquire in `covering`, by which the SIGBUS handler
                // looks for the range of a fault: a thread that sees the length of the guarded
                // range sees its start address.
                entry.len.store(len, Ordering::Release);
                return Ok(Guarded { entry: index });
            }
        }
        Err(TableFull { source: None })
    }

    /// The flag that the SIGBUS handler sets once a fault has occurred in the guarded range. The
    /// flag belongs to this range as long as the value lives. A caller that cannot afford a
    /// function call loads the flag itself.
    pub(crate) fn damage(&self) -> &'static AtomicBool {
        &TABLE[self.entry].is_damaged
    }

    /// Whether a fault has occurred in the guarded range; if so, zeros have replaced the memory of
    /// the range.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        // ORDER: Acquire pairs with the Release by which the SIGBUS handler sets the flag, perhaps
        // on another thread: a thread that sees the flag set also sees the zeros that replaced the
        // memory.
        TABLE[self.entry].is_damaged.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let entry = &TABLE[self.entry];
        // ORDER: Release for both stores, of `len` and of `is_taken`. A thread that registers
        // another range takes a free entry of the table by an exchange of `is_taken` with Acquire.
        // So it finds the entry's length cleared.
        entry.len.store(0, Ordering::Release);
        entry.is_taken.store(false, Ordering::Release);
    }
}

/// Why a mapping cannot be guarded.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot guard against truncated memory: {}",
    source.as_ref().map_or_else(|| format!("{RANGES_MAX} mappings are guarded already"), ToString::to_string)
)]
pub struct TableFull {
    /// The error that the system returned when the SIGBUS handler was installed; `None` if the
    /// table of guarded mappings is full.
    source: Option<io::Error>,
}

struct Entry {
    is_taken: AtomicBool,
    is_damaged: AtomicBool,
    /// Id of the process that registered this range of guarded addresses.
    process: AtomicU32,
    start: AtomicUsize,
    /// Length in bytes of the range of guarded addresses; 0 if this entry of the table is free.
    len: AtomicUsize,
}

#[expect(clippy::declare_interior_mutable_const, reason = "the value that an array repeats")]
const FREE: Entry = Entry {
    is_taken: AtomicBool::new(false),
    is_damaged: AtomicBool::new(false),
    process: AtomicU32::new(0),
    start: AtomicUsize::new(0),
    len: AtomicUsize::new(0),
};

static TABLE: [Entry; RANGES_MAX] = [FREE; RANGES_MAX];

/// The flag that says whether a mapping without a guard is damaged: always false, because no code
/// sets it.
pub(crate) static UNDAMAGED: AtomicBool = AtomicBool::new(false);

/// The previous handler of SIGBUS; it is set before this file's handler can run for a registered
/// range.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the SIGBUS handler at the first call. Returns an error if the system rejects the
/// handler.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = INSTALLED.get_or_init(|| {
        let failed = || Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
        // The previous handler is queried first, so that PREVIOUS is set before the new handler can
        // run. No other code should change the handler between `current` and `sigaction`.
        let Some(previous) = current() else { return failed() };
        let _ = PREVIOUS.set(previous);
        let mut ours = previous;
        ours.sa_sigaction = on_fault as *const () as usize;
        // The SIGBUS handler runs on the alternate signal stack, because the faulting thread may
        // have little stack left. SA_RESTART is not set: a fault interrupts no system call, and a
        // SIGBUS that a process sends is passed on to the previous handler.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the signal set is a field of a local variable, which was initialised by copying
        // the previous action.
        unsafe { libc::sigemptyset(&mut ours.sa_mask) };
        // SAFETY: the handler is an `extern "C"` function with the three arguments that SA_SIGINFO
        // promises, and may run between any two instructions: it takes no lock, allocates nothing,
        // and only uses atomics and system calls.
        let set = unsafe { libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut()) };
        if set == 0 { Ok(()) } else { failed() }
    });
    done.map_err(io::Error::from_raw_os_error)
}

fn current() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call installs no handler, because it passes no new action; `action` has room for
    // the present one, which the kernel writes.
    let asked = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the kernel filled in `action` if it returned 0. Otherwise `action` is all zeros,
    // which is a valid value, too.
    let action = unsafe { action.assume_init() };
    (asked == 0).then_some(action)
}

/// The handler of SIGBUS. For a fault in a registered range it maps zeros over that range; every
/// other SIGBUS it passes on to the previous handler.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a siginfo_t that is valid while the
    // handler runs.
    let (code, address) = unsafe { fault(info) };
    // A signal code above 0 means that the kernel raised SIGBUS, so the address is that of a fault.
    if code > 0 && mend(address) {
        return;
    }
    // SAFETY: the arguments are those that the kernel gave to this handler.
    unsafe { pass_on(signal, code, info, context) };
}

/// The code of a signal, and the address of the fault for which the kernel sent it.
///
/// # Safety
///
/// `info` must be the kernel's argument to a handler that is still running.
unsafe fn fault(info: *mut libc::siginfo_t) -> (c_int, usize) {
    // SAFETY: the caller promises that `info` is what the kernel gave to a handler that is still
    // running, so it is valid.
    let info = unsafe { &*info };
    // SAFETY: for a SIGBUS fault the union holds an address; for a signal that a process sent, the
    // union holds a number, which the caller then ignores.
    let address = unsafe { info.si_addr() };
    (info.si_code, address.addr())
}

/// Maps zeros over the registered range that contains `address`; false if no range does.
fn mend(address: usize) -> bool {
    let Some((entry, start, len)) = covering(address) else { return false };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // The flag MAP_NORESERVE is set, because the pages of zeros will hardly be used, and a shortage
    // of memory must not make the mapping fail.
    let kind = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the range is a whole mapping that its owner registered and keeps until it is
    // unregistered. The call replaces the pages by others with the same access, and the code of
    // this process assumes nothing of their content but that they are bytes.
    let mapped =
        unsafe { mmap_anonymous(ptr::with_exposed_provenance_mut(start), len, access, kind) };
    if mapped.is_err() {
        return false;
    }
    // ORDER: Release pairs with the Acquire in `is_damaged`: a thread that sees the flag
    // `is_damaged` set also sees the zeros that replaced the memory of the range.
    entry.is_damaged.store(true, Ordering::Release);
    true
}

fn covering(address: usize) -> Option<(&'static Entry, usize, usize)> {
    // `std::process::id` calls `getpid`, a plain system call, which a signal handler may make.
    let process = std::process::id();
    TABLE.iter().find_map(|entry| {
        // ORDER: Acquire pairs with the Release in `register`, which enters a guarded range in the
        // table: a thread that sees the length of the guarded range sees its start address.
        let len = entry.len.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Relaxed);
        let is_here = len != 0 && address >= start && address - start < len;
        let is_ours = entry.process.load(Ordering::Relaxed) == process;
        (is_here && is_ours).then_some((entry, start, len))
    })
}

/// Gives the signal the effect that it would have without this file's handler. The function calls
/// the previous handler, ignores the signal, or restores the action that kills the process.
///
/// # Safety
///
/// The arguments must be those of a running handler of SIGBUS.
unsafe fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // `install` sets PREVIOUS before it installs this handler, so PREVIOUS is set here.
    let Some(previous) = PREVIOUS.get() else { return };
    let handler = previous.sa_sigaction;
    if handler == libc::SIG_IGN && code <= 0 {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // When the handler returns, the fault recurs and kills the process; the kernel lets no
        // process ignore a fault. SAFETY: `previous` is the action of SIGBUS that the kernel
        // returned when this file's handler was installed, so it is valid.
        unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
        if code <= 0 {
            // A signal sent by a process is sent again, and arrives when the handler returns.
            // SAFETY: `raise` is async-signal-safe, and takes only a number.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the address is that of the previous handler, which the kernel would have called
        // with the same arguments.
        let handler = unsafe { core::mem::transmute::<usize, WithInfo>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the address is that of the previous handler, which the kernel would have called
        // with the signal alone, because SA_SIGINFO is not set.
        let handler = unsafe { core::mem::transmute::<usize, Plain>(handler) };
        handler(signal);
    }
}

type WithInfo = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type Plain = extern "C" fn(c_int);

/// Number of mappings that can be guarded at the same time: two for each session that a process can
/// serve.
const RANGES_MAX: usize = 4096;
