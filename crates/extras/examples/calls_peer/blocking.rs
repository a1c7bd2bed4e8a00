// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server and the client of calls in the form `blocking`, which needs no runtime.

use super::{
    ABORTED, AT_ONCE, Counts, FAILURES, ONE_WAY, Outcome, REFUSED, SIZES, TIMED_OUT, Waiting,
    check, counts, echo, expect, expect_failure, failing, failure, report_lost,
};
use partywall::blocking::{Listener, connect_with};
use partywall::{Config, ErrorCode};
use partywall_extras::calls::blocking::{Call, Client, Request, Server};
use partywall_extras::calls::{CallError, CallsConfig};
use partywall_testkit::soon;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub fn run(task: &str, address: &str, config: &Config, number: usize) -> Outcome {
    if task == "serve" {
        return serve(address, config, number);
    }
    let session = connect_with(address, config)?;
    let client = Client::new(session.open(b"calls")?, CallsConfig::default());
    match task {
        "call" => call(&client, number)?,
        "busy" => exceed(&client, number)?,
        "lost" => lose(&client, number)?,
        other => return Err(format!("no task {other}").into()),
    }
    drop(client);
    session.close(0, "");
    Ok(())
}

/// Limits how many handler threads run at a time.
struct Places {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Places {
    /// Waits until another handler thread may run, and counts it as running.
    fn take(&self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
    }

    fn give(&self) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_one();
    }
}

fn serve(address: &str, config: &Config, limit: usize) -> Outcome {
    let mut listener = Listener::bind_with(address, config)?;
    println!("ready {}", listener.local_address());
    let session = listener.accept()?;
    let stream = session.accept()?.ok_or("the session ends early")?;
    let server = Server::new(stream, super::limits(limit));
    let counts = Arc::new(Counts::default());
    let places = Places { free: Mutex::new(limit), changed: Condvar::new() };
    let code = thread::scope(|scope| {
        loop {
            // While as many handler threads run as the limit allows, this thread receives no call.
            // Meanwhile the running threads receive the messages that arrive, because each polls
            // `is_cancelled`.
            places.take();
            let request = match server.recv(None) {
                Ok(Some(request)) => request,
                Ok(None) => return 0,
                Err(error) => return error.code(),
            };
            let (counts, places) = (Arc::clone(&counts), &places);
            scope.spawn(move || {
                handle(&counts, request);
                places.give();
            });
        }
    });
    println!("served {code}");
    // The server waits until the client, which opens no further stream, closes the session: by then
    // the client has received every answer.
    while let Ok(Some(_)) = session.accept() {}
    Ok(())
}

/// Answers a call in the way that the first byte of its payload selects. If sending the answer
/// fails, the error is ignored, because the server's next `recv` returns the same error.
fn handle(counts: &Arc<Counts>, request: Request) {
    let _ = match request.first() {
        Some(b'e') => {
            let answer = request.to_vec();
            request.answer(&answer, None)
        }
        Some(b'f') => {
            let call = request.to_vec();
            let (code, detail) = failure(&call);
            request.fail(code, detail, None)
        }
        Some(b'w') => {
            let _waiting = Waiting::begin(Arc::clone(counts));
            while !request.is_cancelled() {
                thread::yield_now();
            }
            return;
        }
        Some(b'o') if request.is_one_way() => {
            counts.add([0, 0, 1]);
            return;
        }
        Some(b's') => request.answer(&counts.add([0; 3]).map(u32::to_le_bytes).concat(), None),
        _ => return, // dropping the request aborts the call
    };
}

fn call(client: &Client, count: usize) -> Outcome {
    for len in SIZES {
        check(&echo(len), &client.call(&echo(len), Some(soon()))?)?;
    }
    let mut under_way: VecDeque<(usize, Call)> = VecDeque::new();
    for index in 0..count {
        if under_way.len() == AT_ONCE {
            check_next(&mut under_way)?;
        }
        let len = 1 + index * 97 % 5000;
        under_way.push_back((len, client.begin(&echo(len), Some(soon()))?));
    }
    while !under_way.is_empty() {
        check_next(&mut under_way)?;
    }
    for (code, detail) in FAILURES {
        expect_failure(client.call(&failing(code, detail), Some(soon())), code, detail)?;
    }
    expect(client.call(b"p", Some(soon())), ABORTED)?;
    for _ in 0..ONE_WAY {
        client.call_one_way(b"o", Some(soon()))?;
    }
    reach(client, |[_, _, one_way]| one_way == ONE_WAY)?;
    give_up(client)?;
    println!("called {count}");
    Ok(())
}

/// Waits for the answer of the call that was made first, and checks the answer.
fn check_next(under_way: &mut VecDeque<(usize, Call)>) -> Outcome {
    let (len, mut call) = under_way.pop_front().ok_or("no call is under way")?;
    check(&echo(len), &call.wait(Some(soon()))?)
}

/// Makes calls that begin with the byte `w`, whose handlers never answer.
fn begin(client: &Client, count: usize) -> Result<Vec<Call>, CallError> {
    (0..count).map(|_| client.begin(b"w", None)).collect()
}

/// Cancels three calls, and lets the deadline of a fourth call pass; each time the server must end
/// the handler.
fn give_up(client: &Client) -> Outcome {
    let calls = begin(client, 3)?;
    reach(client, |[begun, _, _]| begun == 3)?;
    drop(calls);
    reach(client, |[_, ended, _]| ended == 3)?;
    let deadline = Instant::now() + Duration::from_millis(20);
    expect(client.call(b"w", Some(deadline)), TIMED_OUT)?;
    reach(client, |[begun, ended, _]| begun == ended)
}

/// Makes as many calls that are never answered (first byte `w`) as the server runs and keeps
/// waiting, and then one more, which the server must refuse.
fn exceed(client: &Client, limit: usize) -> Outcome {
    let deadline = Some(soon());
    loop {
        let calls = begin(client, 2 * limit)?;
        // In a blocking server a call waits until a thread of the program takes it. So a server
        // whose threads are late may refuse an earlier call in place of the last one, which then
        // waits for its deadline. In this case all calls are made again.
        let last = client.call(b"e", Some(Instant::now() + Duration::from_secs(1)));
        drop(calls);
        let is_refused = matches!(&last, Err(error) if error.code() == REFUSED);
        if !is_refused {
            expect(last, TIMED_OUT)?;
        }
        while let Err(error) = client.call(b"e", deadline) {
            if error.code() != REFUSED {
                return Err(error.into());
            }
        }
        if is_refused {
            break;
        }
    }
    println!("refused {limit}");
    Ok(())
}

/// Makes calls that begin with the byte `w` and are never answered, and waits until they fail
/// because the server is gone.
fn lose(client: &Client, count: usize) -> Outcome {
    let calls = begin(client, count)?;
    reach(client, |[begun, _, _]| begun as usize == count)?;
    println!("begun {count}");
    let mut codes = Vec::new();
    for mut call in calls {
        match call.wait(Some(soon())) {
            Err(CallError::Lost(lost)) => codes.push(lost.code()),
            other => return Err(format!("a call to a server that has gone: {other:?}").into()),
        }
    }
    report_lost(&mut codes);
    Ok(())
}

/// Polls the server's counts of handlers that have begun and ended, until they are as expected.
fn reach(client: &Client, expected: impl Fn([u32; 3]) -> bool) -> Result<(), Box<dyn Error>> {
    let deadline = Some(soon());
    while !expected(counts(&client.call(b"s", deadline)?)) {}
    Ok(())
}
