// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recorded exchange as text that does not change from run to run.
//!
//! ```text
//! client 00 00 00 08 77 58 03 04                     one message, or the byte that carries descriptors
//! client-descriptor 33554432 0x1 /memfd:…            what came with the line above: size, seals, name
//! ```
//! Two things are rewritten: the client's process id in names becomes [`PID`], with the three lengths around it, and
//! of the wake-ups only the first in each direction is kept, because how many there are depends on the scheduler.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::{From, Passed};

/// Stands for the client's process id.
pub const PID: &str = "4242";

/// Writes the first connection of a recording, up to and with the first wake-up in each direction.
///
/// # Errors
/// The bytes are not messages, or the names in them are not where they should be.
pub fn write(recording: &[Passed], client_pid: u32) -> Result<String> {
    let mut text = String::new();
    let mut pending = [Vec::new(), Vec::new()];
    let mut woken = [false, false];
    for passed in recording.iter().filter(|passed| passed.connection == 0) {
        let side = passed.from as usize;
        if !passed.descriptors.is_empty() {
            ensure!(pending[side].is_empty(), "descriptors came inside of a message");
            write_descriptors(&mut text, passed, client_pid)?;
            continue;
        }
        pending[side].extend_from_slice(&passed.bytes);
        while let Some(message) = take_message(&mut pending[side])? {
            let established = [1, 2, 3, 8, 9].contains(&message[7]);
            if established && (message[7] != WAKE_UP || woken[side]) {
                continue;
            }
            woken[side] |= established;
            let message = renamed(&message, client_pid)?;
            write_line(&mut text, passed.from, &message)?;
        }
    }
    Ok(text)
}

fn write_descriptors(text: &mut String, passed: &Passed, client_pid: u32) -> Result<()> {
    write_line(text, passed.from, &passed.bytes)?;
    for descriptor in &passed.descriptors {
        let name = descriptor.name.replace(&format!("_{client_pid}"), &format!("_{PID}"));
        let (who, size) = (who(passed.from), descriptor.size_bytes);
        writeln!(text, "{who}-descriptor {size} {} {name}", descriptor.seals)?;
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

/// The first whole message of what has come.
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

/// The message with [`PID`] in its names; other messages stay as they are.
fn renamed(message: &[u8], client_pid: u32) -> Result<Vec<u8>> {
    if ![BY_PATH, BY_MEMFD].contains(&message[7]) {
        return Ok(message.to_vec());
    }
    let (queue, rest) = name(&message[HEADER_BYTES..])?;
    let (buffer, rest) = name(rest)?;
    ensure!(rest.is_empty(), "{} bytes after the names", rest.len());
    let pid = format!("_{client_pid}");
    let mut renamed = message[..HEADER_BYTES].to_vec();
    for name in [queue, buffer] {
        ensure!(name.contains(&pid), "no process id in {name}");
        let name = name.replace(&pid, &format!("_{PID}"));
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
        message.extend_from_slice(&[0, 6]);
        message.extend_from_slice(b"/a_17b");
        message[3] = message.len() as u8;
        let renamed = renamed(&message, 17).expect("well-formed");
        assert_eq!(renamed[3] as usize, renamed.len());
        assert_eq!(&renamed[8..20], b"\0\x0a/a_4242_q0");
    }
}
