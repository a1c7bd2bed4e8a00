// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts a recording of the proxy into text that is the same in each run, so that tests can
//! compare handshakes.
//!
//! ```text
//! client 00 00 00 08 77 58 03 04              one message, or the byte that carries descriptors
//! client-descriptor 33554432 0x1 /memfd:…     came with the line above: size, seals, name
//! ```
//!
//! Two parts of a recording are rewritten. In names, the client's process id becomes a fixed number
//! ([`PID`]), and the three lengths that depend on it change as well. Of the wake-ups, only the
//! first in each direction is kept, at the end, the client's before the server's: their number and
//! order depend on the scheduler. For the client of `partywall-shmipc` ([`Client::Ours`]) the
//! random token before the process id in names is removed, and its memfds are written as unsealed.
//! The text of its handshake is then equal to that of a published client.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::{From, Passed};

/// The number that replaces the client's process id.
pub const PID: &str = "4242";

/// The client of the recorded connection. Its kind decides which names and seals the text replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// A client of shmipc-go or shmipc-rs (a published peer) with this process id.
    Published(u32),
    /// The client of `partywall-shmipc` with this process id: the names of its shared memory
    /// contain a random token, and its memfds are sealed.
    Ours(u32),
}

/// Writes the first connection of a recording, up to and including the first wake-up in each
/// direction.
///
/// # Errors
/// If the bytes are not messages, or a message has no names where it should.
pub fn write(recording: &[Passed], client: Client) -> Result<String> {
    let mut text = String::new();
    let mut pending = [Vec::new(), Vec::new()];
    let mut woken = [false, false];
    let mut wake_ups = [String::new(), String::new()];
    for passed in recording.iter().filter(|passed| passed.connection == 0) {
        let side = passed.from as usize;
        if !passed.descriptors.is_empty() {
            ensure!(pending[side].is_empty(), "descriptors came inside of a message");
            write_descriptors(&mut text, passed, client)?;
            continue;
        }
        pending[side].extend_from_slice(&passed.bytes);
        while let Some(message) = take_message(&mut pending[side])? {
            let established = [1, 2, 3, 8, 9].contains(&message[7]);
            if established && (message[7] != WAKE_UP || woken[side]) {
                continue;
            }
            if established {
                woken[side] = true;
                write_line(&mut wake_ups[side], passed.from, &message)?;
                continue;
            }
            let message = renamed(&message, client)?;
            write_line(&mut text, passed.from, &message)?;
        }
    }
    Ok(text + &wake_ups.concat())
}

impl Client {
    /// Returns the name `name` of shared memory as the text states it: with a fixed number
    /// ([`PID`]) instead of the process id, and without the token of `partywall-shmipc`.
    fn renamed(self, name: &str) -> Result<String> {
        let (Self::Published(pid) | Self::Ours(pid)) = self;
        let pid = format!("_{pid}_");
        let (before, after) =
            name.split_once(&pid).with_context(|| format!("no process id in {name}"))?;
        let before = match self {
            Self::Published(_) => before,
            Self::Ours(_) => {
                let (start, token) = before.rsplit_once('_').context("no token")?;
                let is_token = token.len() == 16 && token.bytes().all(|c| c.is_ascii_hexdigit());
                ensure!(is_token, "{token} in {name} is no token");
                start
            }
        };
        Ok(format!("{before}_{PID}_{after}"))
    }

    /// Returns the seals that the rewritten text states. A memfd of `partywall-shmipc` must have
    /// the seals that fix its size; for such a memfd the text states the seals of a memfd that was
    /// created without flags ([`UNSEALED`]).
    fn seals(self, seals: &str) -> Result<&str> {
        match self {
            Self::Published(_) => Ok(seals),
            Self::Ours(_) => {
                ensure!(SIZE_SEALED.contains(&seals), "sealed with {seals}, not {SIZE_SEALED:?}");
                Ok(UNSEALED)
            }
        }
    }
}

fn write_descriptors(text: &mut String, passed: &Passed, client: Client) -> Result<()> {
    write_line(text, passed.from, &passed.bytes)?;
    for descriptor in &passed.descriptors {
        let name = client.renamed(&descriptor.name)?;
        let (who, size) = (who(passed.from), descriptor.size_bytes);
        let seals = client.seals(&descriptor.seals)?;
        writeln!(text, "{who}-descriptor {size} {seals} {name}")?;
    }
    Ok(())
}

fn write_line(text: &mut String, from: From, message: &[u8]) -> Result<()> {
    let hex: Vec<String> = message.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(text, "{} {}", who(from), hex.join(" "))?;
    Ok(())
}

fn who(from: From) -> &'static str {
    match from {
        From::Client => "client",
        From::Server => "server",
    }
}

/// Takes the first whole message from `pending`, the received bytes; returns `None` if there is
/// none.
fn take_message(pending: &mut Vec<u8>) -> Result<Option<Vec<u8>>> {
    if pending.len() < HEADER_BYTES {
        return Ok(None);
    }
    let length = pending.first_chunk().map_or(0, |&word| u32::from_be_bytes(word)) as usize;
    ensure!(pending[4..6] == [0x77, 0x58], "no magic in {:x?}", &pending[..8]);
    ensure!(length >= HEADER_BYTES, "a message of {length} bytes");
    if pending.len() < length {
        return Ok(None);
    }
    Ok(Some(pending.drain(..length).collect()))
}

/// Returns the message with a fixed number ([`PID`]) instead of the process id in the names that it
/// contains. A message without names stays unchanged.
fn renamed(message: &[u8], client: Client) -> Result<Vec<u8>> {
    if ![BY_PATH, BY_MEMFD].contains(&message[7]) {
        return Ok(message.to_vec());
    }
    let (queue, rest) = name(&message[HEADER_BYTES..])?;
    let (buffer, rest) = name(rest)?;
    ensure!(rest.is_empty(), "{} bytes after the names", rest.len());
    let mut renamed = message[..HEADER_BYTES].to_vec();
    for name in [queue, buffer] {
        let name = client.renamed(name)?;
        renamed.extend_from_slice(&(name.len() as u16).to_be_bytes());
        renamed.extend_from_slice(name.as_bytes());
    }
    let length = renamed.len() as u32;
    renamed[..4].copy_from_slice(&length.to_be_bytes());
    Ok(renamed)
}

fn name(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let length = bytes.first_chunk().map(|&half| usize::from(u16::from_be_bytes(half)));
    let length = length.context("no length of a name")?;
    let rest = &bytes[2..];
    ensure!(rest.len() >= length, "a name of {length} bytes in {}", rest.len());
    let (name, rest) = rest.split_at(length);
    Ok((std::str::from_utf8(name)?, rest))
}

/// The seals of a memfd whose size is fixed: `F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW`, or the
/// same with `F_SEAL_EXEC`, which newer kernels add.
const SIZE_SEALED: [&str; 2] = ["0x7", "0x27"];
/// The seals of a memfd that was created without flags: `F_SEAL_SEAL`.
const UNSEALED: &str = "0x1";
const HEADER_BYTES: usize = 8;
const BY_PATH: u8 = 0;
const WAKE_UP: u8 = 1;
const BY_MEMFD: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_fixed_process_id_and_lengths_that_fit() {
        let mut message = vec![0, 0, 0, 0, 0x77, 0x58, 2, 0, 0, 8];
        message.extend_from_slice(b"/a_17_q0");
        message.extend_from_slice(&[0, 7]);
        message.extend_from_slice(b"/a_17_b");
        message[3] = message.len() as u8;
        let renamed = renamed(&message, Client::Published(17)).expect("well-formed");
        assert_eq!(renamed[3] as usize, renamed.len());
        assert_eq!(&renamed[8..20], b"\0\x0a/a_4242_q0");
    }

    #[test]
    fn of_ours_the_token_goes_and_only_the_token() {
        let ours = Client::Ours(17);
        let name = ours.renamed("/a_b_0123456789abcdef_17_queue_0").expect("well-formed");
        assert_eq!(name, "/a_b_4242_queue_0");
        assert!(ours.renamed("/a_b_17_queue_0").is_err());
        assert_eq!(ours.seals("0x7").expect("sealed"), "0x1");
        assert!(ours.seals("0x1").is_err());
    }
}
