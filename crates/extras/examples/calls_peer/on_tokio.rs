// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server and the client of calls in the form `tokio`.

use super::{
    ABORTED, AT_ONCE, Counts, FAILURES, ONE_WAY, Outcome, REFUSED, SIZES, TIMED_OUT, Waiting,
    check, counts, echo, expect, expect_failure, failing, failure, report_lost,
};
use partywall::tokio::{Listener, connect_with};
use partywall::{Config, ErrorCode, Message};
use partywall_extras::calls::{CallError, Client, Failure, Request, Server};
use partywall_testkit::soon;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub async fn run(task: &str, address: &str, config: &Config, number: usize) -> Outcome {
    if task == "serve" {
        return serve(address, config, number).await;
    }
    let session = connect_with(address, config).await?;
    let client = Client::new(session.open(b"calls").await?);
    match task {
        "call" => call(&client, number).await?,
        "busy" => exceed(&client, number).await?,
        "lost" => lose(&client, number).await?,
        other => return Err(format!("no task {other}").into()),
    }
    drop(client);
    session.drained().await.ok();
    session.close(0, "");
    session.finished().await;
    Ok(())
}

async fn serve(address: &str, config: &Config, limit: usize) -> Outcome {
    let listener = Listener::bind_with(address, config)?;
    println!("ready {}", listener.local_address());
    let session = listener.accept().await?;
    let stream = session.accept().await?.ok_or("the session ends early")?;
    let limits = super::limits(limit);
    let counts = Arc::new(Counts::default());
    let handler = move |request| handle(Arc::clone(&counts), request);
    let served = Server::with(stream, limits).serve(handler).await;
    println!("served {}", served.map_or_else(|error| error.code(), |()| 0));
    // The server waits until the client, which opens no further stream, closes the session: by then
    // the client has received every answer.
    while let Ok(Some(_)) = session.accept().await {}
    Ok(())
}

async fn handle(counts: Arc<Counts>, request: Request) -> Result<Vec<u8>, Failure> {
    match request.first() {
        Some(b'e') => Ok(request.to_vec()),
        Some(b'f') => {
            let (code, detail) = failure(&request);
            Err(Failure::new(code, detail.to_vec()))
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

async fn call(client: &Client, count: usize) -> Outcome {
    for len in SIZES {
        check(&echo(len), &client.call_deadline(&echo(len), soon()).await?)?;
    }
    let mut under_way = JoinSet::new();
    for index in 0..count {
        if under_way.len() == AT_ONCE {
            check_next(&mut under_way).await?;
        }
        let client = client.clone();
        under_way.spawn(async move {
            let call = echo(1 + index * 97 % 5000);
            let answer = client.call_deadline(&call, soon()).await;
            (call, answer)
        });
    }
    while !under_way.is_empty() {
        check_next(&mut under_way).await?;
    }
    for (code, detail) in FAILURES {
        let called = client.call_deadline(&failing(code, detail), soon()).await;
        expect_failure(called, code, detail)?;
    }
    expect(client.call_deadline(b"p", soon()).await, ABORTED)?;
    for _ in 0..ONE_WAY {
        client.call_one_way(b"o").await?;
    }
    reach(client, |[_, _, one_way]| one_way == ONE_WAY).await?;
    give_up(client).await?;
    println!("called {count}");
    Ok(())
}

type Answered = (Vec<u8>, Result<Message, CallError>);

/// Waits until any of the calls in flight is answered, and checks the answer.
async fn check_next(under_way: &mut JoinSet<Answered>) -> Outcome {
    let (call, answer) = under_way.join_next().await.ok_or("no call is under way")??;
    check(&call, &answer?)
}

/// Makes calls that begin with the byte `w`, whose handlers never answer.
fn begin(client: &Client, count: usize) -> JoinSet<Result<Message, CallError>> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        calls.spawn(async move { client.call(b"w").await });
    }
    calls
}

/// Cancels three calls, and lets the deadline of a fourth call pass; each time the server must end
/// the handler.
async fn give_up(client: &Client) -> Outcome {
    let calls = begin(client, 3);
    reach(client, |[begun, _, _]| begun == 3).await?;
    drop(calls);
    reach(client, |[_, ended, _]| ended == 3).await?;
    let deadline = Instant::now() + Duration::from_millis(20);
    expect(client.call_deadline(b"w", deadline).await, TIMED_OUT)?;
    reach(client, |[begun, ended, _]| begun == ended).await
}

/// Makes calls that are never answered (first byte `w`), one more than the server runs and keeps
/// waiting. So the server must refuse one of them.
async fn exceed(client: &Client, limit: usize) -> Outcome {
    let mut calls = begin(client, 2 * limit + 1);
    expect(calls.join_next().await.ok_or("no call was made")??, REFUSED)?;
    drop(calls);
    let deadline = soon();
    while let Err(error) = client.call_deadline(b"e", deadline).await {
        if error.code() != REFUSED {
            return Err(error.into());
        }
    }
    println!("refused {limit}");
    Ok(())
}

/// Makes calls that begin with the byte `w` and are never answered, and waits until they fail
/// because the server is gone.
async fn lose(client: &Client, count: usize) -> Outcome {
    let mut calls = begin(client, count);
    reach(client, |[begun, _, _]| begun as usize == count).await?;
    println!("begun {count}");
    let mut codes = Vec::new();
    while let Some(called) = calls.join_next().await {
        match called? {
            Err(CallError::Lost(lost)) => codes.push(lost.code()),
            other => return Err(format!("a call to a server that has gone: {other:?}").into()),
        }
    }
    report_lost(&mut codes);
    Ok(())
}

/// Polls the server's counts of handlers that have begun and ended, until they are as expected.
async fn reach(client: &Client, expected: impl Fn([u32; 3]) -> bool) -> Result<(), Box<dyn Error>> {
    let deadline = soon();
    while !expected(counts(&client.call_deadline(b"s", deadline).await?)) {}
    Ok(())
}
