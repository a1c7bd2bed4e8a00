// SPDX-License-Identifier: MIT OR Apache-2.0
//! Async links switch to another address of the same server while messages flow.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support_ends;
use crate::support_link_async;

use support_ends::{Ground, Via, message, number};
use support_link_async::{Ends, config, echo, ends, on_runtimes};

#[test]
fn switch_to_another_address_while_messages_flow_loses_nothing() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, true);
        let Ends { server, client: _client, served, link } = ends(&ground, &config());
        let (near, far) =
            (server.local_address().clone(), server.listen_also("tcp:127.0.0.1:0").unwrap());
        let served = tokio::spawn(async move { echo(&served, 2_000).await });
        for n in 0..2_000 {
            if n % 50 == 0 {
                let address = if n % 100 == 0 { &far } else { &near };
                link.switch_to(address.clone()).unwrap();
            }
            link.send(&message(n, 8)).await.unwrap();
            let back = link.recv().await.unwrap().unwrap();
            assert_eq!(number(&back), n);
            back.ack().unwrap();
        }
        served.await.unwrap();
        assert!(link.stats().connections > 1);
    });
}
