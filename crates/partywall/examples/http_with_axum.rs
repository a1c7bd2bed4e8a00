// SPDX-License-Identifier: MIT OR Apache-2.0
//! An axum application over shared memory, whose handlers know the process of each caller. The
//! example ends by itself.
//!
//! `cargo run -p partywall --features axum,hyper --example http_with_axum`

use axum::Router;
use axum::extract::{ConnectInfo, Path};
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use partywall::axum::Incoming;
use partywall::hyper::Connector;
use partywall::tokio::{Listener, Pool, PoolConfig};
use std::error::Error;

async fn greet(
    Path(name): Path<String>,
    ConnectInfo(caller): ConnectInfo<partywall::axum::ConnectInfo>,
) -> String {
    format!("hello {name}, you are {caller}")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("unix:{}/app.sock", directory.path().display());
    let incoming = Incoming::new(Listener::bind(&address)?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(async {
        let app = Router::new().route("/greet/{name}", get(greet));
        axum::serve(
            incoming,
            app.into_make_service_with_connect_info::<partywall::axum::ConnectInfo>(),
        )
        .with_graceful_shutdown(async {
            let _ = stopped.await;
        })
        .await
    });

    let pool = Pool::new(&address, PoolConfig::default())?;
    let client: Client<_, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build(Connector::from(pool.clone()));
    for name in ["north", "south"] {
        let response = client.get(format!("http://app/greet/{name}").parse()?).await?;
        let greeting = response.into_body().collect().await?.to_bytes();
        println!("{}", String::from_utf8_lossy(&greeting));
    }
    let _ = stop.send(());
    server.await??;
    pool.close().await;
    Ok(())
}
