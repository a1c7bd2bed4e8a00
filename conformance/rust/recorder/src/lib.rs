// SPDX-License-Identifier: MIT OR Apache-2.0
//! A proxy for Unix sockets that records every byte and every descriptor, in both directions, in
//! order.
//!
//! ```text
//! client ──▶ listening path ──▶ [ recvmsg, record, sendmsg ] ──▶ server's path
//!        ◀──                    [ recvmsg, record, sendmsg ] ◀──
//! ```
//!
//! The proxy does *not* parse the bytes; [`normal`] does, to turn a recording into text that is the
//! same in each run.
//!
//! Invariant: the proxy passes descriptors on with the bytes that they came with, in their order.

pub mod normal;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown,
};

/// The side of a recorded connection that sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The client of the recorded connection, which connected to the proxy.
    Client,
    /// The server of the recorded connection, to which the proxy connected.
    Server,
}

/// The bytes and descriptors that one `recvmsg` of the proxy returned, and that it passed on.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The number of the connection over which the bytes passed; the first connection has number 0.
    pub connection: usize,
    /// The side of the connection that sent the bytes.
    pub from: From,
    /// The bytes that one `recvmsg` returned, which the proxy then passed on.
    pub bytes: Vec<u8>,
    /// The descriptors that one `recvmsg` returned together with the bytes.
    pub descriptors: Vec<Described>,
}

/// Name, size and seals of the file behind a descriptor that passed through the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Name of the descriptor's file, as `/proc` shows it.
    pub name: String,
    /// Size of the descriptor's file in bytes.
    pub size_bytes: u64,
    /// Seals of the file as a hexadecimal number, or "impossible" if the file cannot have any.
    pub seals: String,
}

/// The proxy, which records all bytes and descriptors that pass through it. It runs until this
/// process ends.
#[derive(Clone, Debug)]
pub struct Recorder {
    passed: Arc<Mutex<Vec<Passed>>>,
}

impl Recorder {
    /// Listens at `listening` and connects each client to `server`.
    ///
    /// # Errors
    /// If the proxy cannot listen at the path `listening`.
    pub fn start(listening: &Path, server: PathBuf) -> Result<Self> {
        let listener = UnixListener::bind(listening).context("binding the proxy")?;
        let recorder = Self { passed: Arc::default() };
        let accepting = recorder.clone();
        std::thread::spawn(move || {
            for (connection, client) in listener.incoming().flatten().enumerate() {
                if let Err(error) = accepting.connect(connection, client, &server) {
                    eprintln!("recorder: {error:#}");
                }
            }
        });
        Ok(recorder)
    }

    /// Everything that the proxy has recorded so far.
    pub fn passed(&self) -> Vec<Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn connect(&self, connection: usize, client: UnixStream, server: &Path) -> Result<()> {
        let server = UnixStream::connect(server).context("connecting to the server")?;
        let (to_server, to_client) = (server.try_clone()?, client.try_clone()?);
        for (from, input, output) in
            [(From::Client, client, to_server), (From::Server, server, to_client)]
        {
            let recorder = self.clone();
            std::thread::spawn(move || {
                if let Err(error) = recorder.pass(connection, from, &input, &output) {
                    eprintln!("recorder, {from:?}: {error:#}");
                }
                // An error of the shutdown of `output` is ignored: the process that reads from it
                // may have closed the connection already.
                let _ = rustix::net::shutdown(&output, Shutdown::Write);
            });
        }
        Ok(())
    }

    fn pass(
        &self,
        connection: usize,
        from: From,
        input: &UnixStream,
        output: &UnixStream,
    ) -> Result<()> {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let (count, descriptors) = receive(input, &mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let bytes = buffer[..count].to_vec();
            let described = descriptors.iter().map(describe).collect::<Result<_>>()?;
            let passed = Passed { connection, from, bytes, descriptors: described };
            // The proxy records bytes before it passes them on, so that no answer is recorded
            // before its question.
            self.passed.lock().unwrap_or_else(PoisonError::into_inner).push(passed);
            send(output, &buffer[..count], &descriptors)?;
        }
    }
}

fn receive(input: &UnixStream, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let parts = &mut [IoSliceMut::new(buffer)];
    let received = rustix::net::recvmsg(input, parts, &mut control, flags).context("receiving")?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

fn send(output: &UnixStream, mut bytes: &[u8], descriptors: &[OwnedFd]) -> Result<()> {
    let mut borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            let pushed = control.push(SendAncillaryMessage::ScmRights(&borrowed));
            ensure!(pushed, "{} descriptors do not fit", borrowed.len());
        }
        let parts = &[IoSlice::new(bytes)];
        let sent = rustix::net::sendmsg(output, parts, &mut control, SendFlags::NOSIGNAL);
        bytes = &bytes[sent.context("sending")?..];
        borrowed.clear();
    }
    Ok(())
}

fn describe(descriptor: &OwnedFd) -> Result<Described> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let name = std::fs::read_link(link).context("naming a descriptor")?;
    let size_bytes = rustix::fs::fstat(descriptor).context("fstat")?.st_size.unsigned_abs();
    let seals = match rustix::fs::fcntl_get_seals(descriptor) {
        Ok(seals) => format!("{:#x}", seals.bits()),
        Err(_) => "impossible".to_owned(),
    };
    Ok(Described { name: name.to_string_lossy().into_owned(), size_bytes, seals })
}

const PIECE_BYTES: usize = 64 << 10;
const DESCRIPTORS_MAX: usize = 16;
