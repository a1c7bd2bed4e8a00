// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thrift service of these tests, in the form that Volo's code generator produces:
//!
//! ```thrift
//! service Echo { binary echo(1: binary payload) }
//! ```

use motore::BoxCloneService;
use motore::service::Service;
use pilota::Bytes;
use pilota::thrift::{
    TAsyncInputProtocol, TInputProtocol, TLengthProtocol, TMessageIdentifier, TOutputProtocol,
    TStructIdentifier, TType, ThriftException,
};
use volo::client::MkClient;
use volo_thrift::context::{ClientContext, ServerContext};
use volo_thrift::{ClientError, EntryMessage, ServerError};

const METHOD: &str = "echo";

/// A thrift struct with one field of bytes, whose number is `FIELD`: the arguments or the result of
/// `echo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload<const FIELD: i16>(pub Bytes);

/// The arguments of the thrift method `echo`.
pub type Request = Payload<1>;

/// The result of the thrift method `echo`. Thrift gives the success of a method the field number 0.
pub type Reply = Payload<0>;

const STRUCT: TStructIdentifier = TStructIdentifier { name: "Echo" };

impl<const FIELD: i16> EntryMessage for Payload<FIELD> {
    fn encode<T: TOutputProtocol>(&self, protocol: &mut T) -> Result<(), ThriftException> {
        protocol.write_struct_begin(&STRUCT)?;
        protocol.write_field_begin(TType::Binary, FIELD)?;
        protocol.write_bytes(self.0.clone())?;
        protocol.write_field_end()?;
        protocol.write_field_stop()?;
        protocol.write_struct_end()
    }

    fn decode<T: TInputProtocol>(
        protocol: &mut T,
        _: &TMessageIdentifier,
    ) -> Result<Self, ThriftException> {
        let mut payload = Bytes::new();
        protocol.read_struct_begin()?;
        loop {
            let field = protocol.read_field_begin()?;
            match (field.field_type, field.id) {
                (TType::Stop, _) => break,
                (TType::Binary, Some(id)) if id == FIELD => payload = protocol.read_bytes()?,
                (other, _) => drop(protocol.skip(other)?),
            }
            protocol.read_field_end()?;
        }
        protocol.read_struct_end()?;
        Ok(Self(payload))
    }

    async fn decode_async<T: TAsyncInputProtocol>(
        protocol: &mut T,
        _: &TMessageIdentifier,
    ) -> Result<Self, ThriftException> {
        let mut payload = Bytes::new();
        protocol.read_struct_begin().await?;
        loop {
            let field = protocol.read_field_begin().await?;
            match (field.field_type, field.id) {
                (TType::Stop, _) => break,
                (TType::Binary, Some(id)) if id == FIELD => payload = protocol.read_bytes().await?,
                (other, _) => protocol.skip(other).await?,
            }
            protocol.read_field_end().await?;
        }
        protocol.read_struct_end().await?;
        Ok(Self(payload))
    }

    fn size<T: TLengthProtocol>(&self, protocol: &mut T) -> usize {
        protocol.struct_begin_len(&STRUCT)
            + protocol.field_begin_len(TType::Binary, Some(FIELD))
            + protocol.bytes_len(&self.0)
            + protocol.field_end_len()
            + protocol.field_stop_len()
            + protocol.struct_end_len()
    }
}

/// The server's implementation of the thrift method `echo`: the reply is the request.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

impl Service<ServerContext, Request> for Echo {
    type Response = Reply;
    type Error = ServerError;

    async fn call(&self, _: &mut ServerContext, request: Request) -> Result<Reply, ServerError> {
        Ok(Payload(request.0))
    }
}

type Calls = BoxCloneService<ClientContext, Request, Option<Reply>, ClientError>;

/// A client of the thrift service `Echo`; clones share its connections.
#[derive(Clone)]
pub struct EchoClient(volo_thrift::Client<Calls>);

impl EchoClient {
    /// Calls `echo`, and returns the payload of the reply.
    ///
    /// # Errors
    /// Fails if the connection fails or has ended, and if the server answers with an exception.
    pub async fn echo(&self, payload: Bytes) -> Result<Bytes, ClientError> {
        let mut context = self.0.make_cx(METHOD, false);
        let reply = self.0.call(&mut context, Payload(payload)).await?;
        Ok(reply.map_or_else(Bytes::new, |reply| reply.0))
    }
}

/// Makes the client of `Echo` from Volo's generic client.
pub struct MakeEchoClient;

impl MkClient<volo_thrift::Client<Calls>> for MakeEchoClient {
    type Target = EchoClient;

    fn mk_client(&self, client: volo_thrift::Client<Calls>) -> EchoClient {
        EchoClient(client)
    }
}
