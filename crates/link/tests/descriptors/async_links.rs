// SPDX-License-Identifier: MIT OR Apache-2.0
//! Async links leave no descriptor and no task behind. The tests need a process of their own,
//! because they count its descriptors.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support_ends;
use crate::support_link_async;
use crate::{alone, descriptors};

use support_ends::Ground;
use support_link_async::{Ends, config, echo, ends, runtimes, within};

#[test]
fn no_descriptor_and_no_task_is_left() {
    let _alone = alone();
    let grounds = Ground::all();
    for runtime in runtimes() {
        let (before, tasks) = (descriptors(), || runtime.metrics().num_alive_tasks());
        for round in 0..3 * grounds.len() {
            runtime.block_on(within(async {
                let Ends { server, client, served, link } =
                    ends(&grounds[round % grounds.len()], &config());
                assert!(descriptors() > before);
                link.send(b"hello").await.unwrap();
                let echoes = tokio::spawn(async move { echo(&served, 1).await });
                link.recv().await.unwrap().unwrap().ack().unwrap();
                echoes.await.unwrap();
                // The test makes links in several rounds. The first rounds close each link, the
                // next rounds drop it, and the last rounds drop the server and client too.
                match round / grounds.len() {
                    0 => link.close().await.unwrap(),
                    1 => drop(link),
                    _ => drop((server, client, link)),
                }
            }));
            runtime.block_on(within(async {
                while tasks() > 0 || descriptors() > before {
                    tokio::task::yield_now().await;
                }
            }));
        }
    }
}
