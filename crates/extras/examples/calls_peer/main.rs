// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server or a client of calls, as a process that the tests of another implementation start and
//! kill. The Go module has the same program, in `go/calls/peer_test.go`.
//!
//! ```text
//! calls_peer FORM TASK ADDRESS TRANSPORT NUMBER
//!
//! FORM: tokio, or blocking, which needs no runtime
//! TRANSPORT: shared, unix or tcp
//!
//! task      prints                 does
//! serve N   ready ADDRESS          serves the calls of one stream: N may run, and N wait; a line
//!           begun, ended           for each call that waits; how the stream has ended
//!           served CODE
//! call N    called N               makes N calls, and each other kind of call, and checks results
//! busy N    refused N              makes calls until a server with the limits N refuses one
//! lost N    begun N, lost N CODE   makes N calls that wait, until the server has gone
//!
//! first byte of a call
//! e   the answer is the call
//! f   fails with the code that follows, u32, and the rest as detail
//! p   panics, or is dropped without an answer
//! w   waits until nobody waits for the answer
//! o   is counted; it is one-way
//! s   the answer is how many calls `w` have begun, how many have ended, and how many `o` there
//!     were: three u32
//! ```
//!
//! The process ends with code 0, or with code 1 and a text.
#![deny(unsafe_code)]

mod blocking;
mod on_tokio;

use partywall::{Config, ErrorCode, TransportPolicy};
use partywall_extras::calls::{CallError, CallsConfig};
use partywall_testkit::pattern;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [form, task, address, transport, number] = &arguments[..] else {
        return Err("calls_peer FORM serve|call|busy|lost ADDRESS TRANSPORT NUMBER".into());
    };
    let policy = match &**transport {
        "shared" => TransportPolicy::SharedMemory,
        "unix" => TransportPolicy::Socket,
        "tcp" => TransportPolicy::Auto,
        other => return Err(format!("no transport {other}").into()),
    };
    let config = Config::default().transport(policy);
    let number: usize = number.parse()?;
    match &**form {
        "tokio" => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(on_tokio::run(task, address, &config, number))
        }
        "blocking" => blocking::run(task, address, &config, number),
        other => Err(format!("no form {other}").into()),
    }
}

/// Three counts of a server: the handlers that have begun to wait (calls with first byte `w`),
/// those of them that have ended, and the one-way calls (first byte `o`).
#[derive(Default)]
struct Counts(Mutex<[u32; 3]>);

impl Counts {
    fn add(&self, added: [u32; 3]) -> [u32; 3] {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (count, added) in counts.iter_mut().zip(added) {
            *count += added;
        }
        *counts
    }
}

/// A guard that each waiting handler (of a call with first byte `w`) holds. Its creation counts the
/// handler as begun, and its drop counts the handler as ended.
struct Waiting(Arc<Counts>);

impl Waiting {
    fn begin(counts: Arc<Counts>) -> Self {
        counts.add([1, 0, 0]);
        println!("begun");
        Self(counts)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.add([0, 1, 0]);
        println!("ended");
    }
}

/// The limits of a server that runs `limit` calls at a time and keeps `limit` more waiting.
fn limits(limit: usize) -> CallsConfig {
    CallsConfig::default().running_max(limit).waiting_max(limit)
}

/// Returns the error code and the detail that a failing call (first byte `f`) contains.
fn failure(call: &[u8]) -> (u32, &[u8]) {
    (u32::from_le_bytes([call[1], call[2], call[3], call[4]]), &call[5..])
}

/// Returns the three counts of handlers in the answer to a call with first byte `s`.
fn counts(answer: &[u8]) -> [u32; 3] {
    let word = |at: usize| [answer[at], answer[at + 1], answer[at + 2], answer[at + 3]];
    [0, 4, 8].map(|at| u32::from_le_bytes(word(at)))
}

fn check(call: &[u8], answer: &[u8]) -> Outcome {
    if call == answer {
        return Ok(());
    }
    Err(format!("{} bytes are answered by {} others", call.len(), answer.len()).into())
}

fn expect<T: std::fmt::Debug>(called: Result<T, CallError>, code: u32) -> Outcome {
    match called {
        Err(error) if error.code() == code => Ok(()),
        other => Err(format!("error {code} was expected: {other:?}").into()),
    }
}

/// Checks that a call (first byte `f`) has failed with `code` and `detail`.
fn expect_failure<T: std::fmt::Debug>(
    called: Result<T, CallError>,
    code: u32,
    detail: &[u8],
) -> Outcome {
    match called {
        Err(CallError::Failed { code: found, detail: text })
            if found == code && text[..] == *detail =>
        {
            Ok(())
        }
        other => Err(format!("a call that fails with {code}: {other:?}").into()),
    }
}

/// Prints how many calls failed because the server is gone, and the codes of their errors.
fn report_lost(codes: &mut Vec<u32>) {
    let count = codes.len();
    codes.dedup();
    println!("lost {count} {}", codes.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
}

/// Makes the bytes of a call of `len` bytes with first byte `e`, whose answer is equal to the call.
fn echo(len: usize) -> Vec<u8> {
    let mut call = pattern(len, len as u64);
    call[0] = b'e';
    call
}

/// Makes the bytes of a call with first byte `f`, which the server fails with `code` and `detail`.
fn failing(code: u32, detail: &[u8]) -> Vec<u8> {
    [b"f", &u32::to_le_bytes(code)[..], detail].concat()
}

/// The error codes and details with which the test makes calls fail.
const FAILURES: [(u32, &[u8]); 2] = [(7, b"why"), (0xffff_feff, b"")];
const SIZES: [usize; 9] = [1, 16, 495, 496, 497, 1024, 65_536, 1 << 20, 4 << 20];
/// Number of calls that the client keeps in flight.
const AT_ONCE: usize = 16;
const ONE_WAY: u32 = 10;
/// The number that SPEC 17 assigns to the error of a deadline that has passed.
const TIMED_OUT: u32 = 4;
const REFUSED: u32 = 712;
const ABORTED: u32 = 713;
