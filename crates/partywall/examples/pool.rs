// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool that outlives its server. The server stops and starts again, the pool reports events, and
//! the caller decides whether to repeat a request. The example ends by itself.
//!
//! `cargo run -p partywall --features tokio --example pool`

use partywall::tokio::{Incoming, Listener, Pool, PoolConfig};
use std::error::Error;
use tokio::task::JoinHandle;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("unix:{}/app.sock", directory.path().display());
    let config = PoolConfig::default().sessions(2).on_event(|event| println!("pool: {event}"));
    let pool = Pool::new(&address, config)?;

    for life in 1..=2 {
        let server = serve(&address, life)?;
        for attempt in 1..=3 {
            match ask(&pool).await {
                Ok(answer) => {
                    println!("attempt {attempt}: {answer}");
                    break;
                }
                // The stream may have been opened in a session that was ending, so the request may
                // have been lost. The pool does not repeat the request.
                Err(error) => println!("attempt {attempt}: {error}"),
            }
        }
        server.abort();
        // The server's aborted task is awaited, because the task closes its listener when it ends.
        let _ = server.await;
    }
    pool.close().await;
    Ok(())
}

async fn ask(pool: &Pool) -> Result<String, Box<dyn Error>> {
    let mut stream = pool.open(b"").await?; // waits until the pool has a session
    stream.send(b"who is there?").await?;
    Ok(String::from_utf8(
        stream.recv().await?.ok_or("the server finished without an answer")?.to_vec(),
    )?)
}

/// Runs a server that answers every stream with its number `life`, until the task is aborted.
fn serve(address: &str, life: u32) -> Result<JoinHandle<()>, Box<dyn Error>> {
    use tokio::io::AsyncWriteExt;
    let mut incoming = Incoming::new(Listener::bind(address)?);
    Ok(tokio::spawn(async move {
        loop {
            let (mut stream, caller) = incoming.accept().await;
            let answer = format!("the server in life {life}, to {caller}");
            // An error of writing the answer is ignored, because the client may have closed the
            // stream.
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }))
}
