// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that messages on a session's streams, and the ends of these streams, arrive in both
//! directions, over every transport.
#![cfg(feature = "tokio")]

use partywall::tokio::{Listener, Session, connect_with};
use partywall::{Begin, Config, TransportPolicy, TrustPolicy};

async fn pair(address: &str, config: &Config) -> (Session, Session) {
    let listener = Listener::bind_with(address, config).unwrap();
    let address = listener.local_address().to_string();
    let (client, server) = tokio::join!(connect_with(address, config), listener.accept());
    (client.unwrap(), server.unwrap())
}

fn kinds(path: &str) -> Vec<(&'static str, String, Config)> {
    let config = Config::default().begin(Begin::SharedMemory);
    vec![
        ("shm", path.into(), config.clone().transport(TransportPolicy::SharedMemory)),
        ("untrusted", path.into(), config.clone().trust(TrustPolicy::Untrusted)),
        ("unix", path.into(), config.clone().transport(TransportPolicy::Socket)),
        ("default", path.into(), Config::default()),
        ("tcp", "tcp:127.0.0.1:0".into(), config),
    ]
}

#[tokio::test]
async fn many_streams_echo_every_size() {
    let directory = tempfile::tempdir().unwrap();
    for (name, address, config) in kinds(&format!("unix:{}/s.sock", directory.path().display())) {
        let (client, server) = pair(&address, &config).await;
        let serving = tokio::spawn(async move {
            while let Ok(Some(mut stream)) = server.accept().await {
                tokio::spawn(async move {
                    assert_eq!(stream.metadata(), b"echo");
                    loop {
                        match stream.recv().await {
                            Ok(Some(message)) => stream.send(&message).await.unwrap(),
                            Ok(None) => break stream.finish(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let mut tasks = Vec::new();
        for index in 0..50usize {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let mut stream = client.open(b"echo").await.unwrap();
                for round in 0..20usize {
                    let len = [0, 1, 64, 1000, 1025, 20_000, 70_000, 300_000][(round + index) % 8];
                    let payload: Vec<u8> =
                        (0..len).map(|at| (at * 7 + index + round) as u8).collect();
                    stream.send(&payload).await.unwrap();
                    assert!(stream.recv().await.unwrap().unwrap() == payload, "{len} bytes differ");
                }
                stream.finish();
                assert!(matches!(stream.recv().await, Ok(None)));
            }));
        }
        for task in tasks {
            task.await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        client.drained().await.unwrap();
        assert!(client.ping().await.is_ok());
        drop(client);
        serving.await.unwrap();
    }
}
