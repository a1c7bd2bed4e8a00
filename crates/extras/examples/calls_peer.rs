// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server or a client of calls, as a process that the tests of another implementation start and
//! kill. The Go module has the same program, in `go/calls/peer_test.go`.
//!
//! ```text
//! calls_peer TASK ADDRESS TRANSPORT NUMBER
//!
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
//! p   panics
//! w   waits until nobody waits for the answer
//! o   is counted; it is one-way
//! s   the answer is how many calls `w` have begun, how many have ended, and how many `o` there
//!     were: three u32
//! ```
//!
//! The process ends with code 0, or with code 1 and a text.
#![deny(unsafe_code)]

use partywall::blocking::{self, Session};
use partywall::tokio::Listener;
use partywall::{Config, ErrorCode, Message, TransportPolicy};
use partywall_extras::calls::blocking::{Call, Client};
use partywall_extras::calls::{CallError, CallsConfig, Failure, Request, Server};
use partywall_testkit::{pattern, soon};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, address, transport, number] = &arguments[..] else {
        return Err("calls_peer serve|call|busy|lost ADDRESS TRANSPORT NUMBER".into());
    };
    let policy = match &**transport {
        "shared" => TransportPolicy::SharedMemory,
        "unix" => TransportPolicy::Socket,
        "tcp" => TransportPolicy::Auto,
        other => return Err(format!("no transport {other}").into()),
    };
    let config = Config::default().transport(policy);
    let number: usize = number.parse()?;
    if task == "serve" {
        let runtime = tokio::runtime::Runtime::new()?;
        return runtime.block_on(serve(address, &config, number));
    }
    let session = blocking::connect_with(&**address, &config)?;
    match &**task {
        "call" => call(&session, number),
        "busy" => exceed(&session, number),
        "lost" => lose(&session, number),
        other => Err(format!("no task {other}").into()),
    }
}

/// How many calls `w` have begun, how many have ended, and how many calls `o` there were.
#[derive(Default)]
struct Counts(Mutex<[u32; 3]>);

impl Counts {
    /// Counts one more call, and returns all counts.
    fn add(&self, added: [u32; 3]) -> [u32; 3] {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (count, added) in counts.iter_mut().zip(added) {
            *count += added;
        }
        *counts
    }
}

/// A call that waits. Dropping it is the end of its handler.
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

async fn serve(address: &str, config: &Config, limit: usize) -> Outcome {
    let listener = Listener::bind_with(address, config)?;
    println!("ready {}", listener.local_address());
    let session = listener.accept().await?;
    let stream = session.accept().await?.ok_or("the session ends early")?;
    let limits = CallsConfig::default().running_max(limit).waiting_max(limit);
    let counts = Arc::new(Counts::default());
    let handler = move |request| handle(Arc::clone(&counts), request);
    let served = Server::with(stream, limits).serve(handler).await;
    println!("served {}", served.map_or_else(|error| error.code(), |()| 0));
    // The client closes the session once it has received everything.
    while let Ok(Some(_)) = session.accept().await {}
    Ok(())
}

async fn handle(counts: Arc<Counts>, request: Request) -> Result<Vec<u8>, Failure> {
    match request.first() {
        Some(b'e') => Ok(request.to_vec()),
        Some(b'f') => {
            let code = [request[1], request[2], request[3], request[4]];
            Err(Failure::new(u32::from_le_bytes(code), request[5..].to_vec()))
        }
        Some(b'w') => {
            let _waiting = Waiting::begin(counts);
            std::future::pending().await
        }
        Some(b'o') if request.is_one_way() => {
            counts.add([0, 0, 1]);
            Ok(Vec::new())
        }
        Some(b's') => Ok(counts.add([0; 3]).map(u32::to_le_bytes).concat()),
        _ => panic!("a call that is not known"),
    }
}

fn client(session: &Session) -> Result<Client, Box<dyn Error>> {
    Ok(Client::new(session.open(b"calls")?, CallsConfig::default()))
}

/// Makes each kind of call.
fn call(session: &Session, count: usize) -> Outcome {
    let client = client(session)?;
    for len in SIZES {
        check(&echo(len), &client.call(&echo(len), Some(soon()))?)?;
    }
    call_at_once(&client, count)?;
    for (code, detail) in [(7, &b"why"[..]), (0xffff_feff, b"")] {
        let call = [b"f", &u32::to_le_bytes(code)[..], detail].concat();
        match client.call(&call, Some(soon())) {
            Err(CallError::Failed { code: found, detail: text })
                if found == code && text[..] == *detail => {}
            other => return Err(format!("a call that fails with {code}: {other:?}").into()),
        }
    }
    expect(client.call(b"p", Some(soon())), 713)?;
    for _ in 0..ONE_WAY {
        client.call_one_way(b"o", Some(soon()))?;
    }
    reach(&client, |[_, _, one_way]| one_way == ONE_WAY)?;
    give_up(&client)?;
    drop(client);
    session.close(0, "");
    println!("called {count}");
    Ok(())
}

/// Makes `count` calls, of which some are under way at a time.
fn call_at_once(client: &Client, count: usize) -> Outcome {
    let mut under_way: VecDeque<(usize, Call)> = VecDeque::new();
    for index in 0..count + AT_ONCE {
        if index >= AT_ONCE || index >= count {
            if let Some((len, mut call)) = under_way.pop_front() {
                check(&echo(len), &call.wait(Some(soon()))?)?;
            }
        }
        if index < count {
            let len = 1 + index * 97 % 5000;
            under_way.push_back((len, client.begin(&echo(len), Some(soon()))?));
        }
    }
    if under_way.is_empty() { Ok(()) } else { Err("not every call was waited for".into()) }
}

/// Cancels calls, and lets the deadline of one pass. Each handler ends.
fn give_up(client: &Client) -> Outcome {
    let calls = (0..3).map(|_| client.begin(b"w", Some(soon()))).collect::<Result<Vec<_>, _>>()?;
    reach(client, |[begun, _, _]| begun == 3)?;
    drop(calls);
    reach(client, |[_, ended, _]| ended == 3)?;
    let deadline = Instant::now() + Duration::from_millis(20);
    expect(client.call(b"w", Some(deadline)), 4)?;
    reach(client, |[begun, ended, _]| begun == ended)
}

/// Makes as many calls that wait as the server runs and keeps waiting, then one more.
fn exceed(session: &Session, limit: usize) -> Outcome {
    let client = client(session)?;
    let calls = (0..2 * limit).map(|_| client.begin(b"w", Some(soon())));
    let calls = calls.collect::<Result<Vec<_>, _>>()?;
    expect(client.call(b"e", Some(soon())), 712)?;
    drop(calls);
    let deadline = soon();
    while let Err(error) = client.call(b"e", Some(soon())) {
        if error.code() != 712 || Instant::now() > deadline {
            return Err(error.into());
        }
    }
    drop(client);
    session.close(0, "");
    println!("refused {limit}");
    Ok(())
}

/// Makes calls that wait, until the server has gone.
fn lose(session: &Session, count: usize) -> Outcome {
    let client = client(session)?;
    let calls = (0..count).map(|_| client.begin(b"w", None)).collect::<Result<Vec<_>, _>>()?;
    reach(&client, |[begun, _, _]| begun as usize == count)?;
    println!("begun {count}");
    let mut codes = Vec::new();
    for mut call in calls {
        match call.wait(Some(soon())) {
            Err(CallError::Lost(lost)) => codes.push(lost.code()),
            other => return Err(format!("a call to a server that has gone: {other:?}").into()),
        }
    }
    codes.dedup();
    println!("lost {count} {}", codes.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    Ok(())
}

/// Asks for the counts of the server until they are as expected.
fn reach(client: &Client, expected: impl Fn([u32; 3]) -> bool) -> Outcome {
    let deadline = soon();
    loop {
        let answer = client.call(b"s", Some(deadline))?;
        let count = |at: usize| answer[4 * at..4 * at + 4].try_into().map(u32::from_le_bytes);
        if expected([count(0)?, count(1)?, count(2)?]) {
            return Ok(());
        }
    }
}

fn check(call: &[u8], answer: &Message) -> Outcome {
    if call == &**answer {
        return Ok(());
    }
    Err(format!("{} bytes are answered by {} others", call.len(), answer.len()).into())
}

fn expect(called: Result<Message, CallError>, code: u32) -> Outcome {
    match called {
        Err(error) if error.code() == code => Ok(()),
        other => Err(format!("error {code} was expected: {other:?}").into()),
    }
}

/// A call of `len` bytes that is answered by itself.
fn echo(len: usize) -> Vec<u8> {
    let mut call = pattern(len, len as u64);
    call[0] = b'e';
    call
}

const SIZES: [usize; 9] = [1, 16, 495, 496, 497, 1024, 65_536, 1 << 20, 4 << 20];
/// Calls that are under way at a time.
const AT_ONCE: usize = 16;
const ONE_WAY: u32 = 10;
