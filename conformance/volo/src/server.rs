// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server of the tests, which answers Volo's ping-pong calls on each stream of each session.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use motore::service::Service;
use partywall::tokio::Incoming;
use tokio::sync::Notify;
use volo_thrift::codec::{DefaultMakeCodec, MakeCodec};
use volo_thrift::context::ServerContext;
use volo_thrift::tracing::DefaultProvider;
use volo_thrift::transport::pingpong;
use volo_thrift::{EntryMessage, ServerError};

use crate::connector::Reader;

/// Serves the calls on every stream of `incoming`, each stream in a task of its own, until the
/// returned future is dropped. The tasks of streams that were accepted before continue after that.
pub async fn serve<S, Request, Reply>(mut incoming: Incoming, service: S)
where
    S: Service<ServerContext, Request, Response = Reply> + Clone + Send + Sync + 'static,
    S::Error: Into<ServerError> + Send,
    Request: EntryMessage + Send + 'static,
    Reply: EntryMessage + Send + 'static,
{
    loop {
        let (stream, _caller) = incoming.accept().await;
        let service = service.clone();
        tokio::spawn(async move {
            let (read, write) = stream.into_split();
            let (reader, writer) = Reader::accepted(read, write);
            let (encoder, decoder) = DefaultMakeCodec::default().make_codec(reader, writer);
            let shutdown = Notify::new();
            let is_shutting_down = Arc::new(AtomicBool::new(false));
            let (tracers, peer) = (Arc::new([]), None);
            let notified = shutdown.notified();
            pingpong::serve(
                encoder,
                decoder,
                notified,
                is_shutting_down,
                &service,
                tracers,
                peer,
                DefaultProvider,
            )
            .await;
        });
    }
}
