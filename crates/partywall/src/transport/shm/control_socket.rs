// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket of a connection over shared memory: doorbells of a peer that has no eventfd
//! of this side, and the descriptors of further segments (SPEC 5.4, 6.6).
//!
//! ```text
//!   01                      doorbell
//!   02 nn nn nn nn  + fd    descriptor of segment nnnn
//! ```
//!
//! Reading never blocks and is bounded. More than the limits allow is a violation.

use partywall_layout::Violation;
use partywall_layout::hello::{CONTROL_DOORBELL, CONTROL_SEGMENT};
use partywall_sys::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// Length of a segment's frame.
const SEGMENT_FRAME: usize = 5;
/// Reads in one go at most: a flood of doorbells must not keep the reader here.
const READS_MAX: usize = 64;

/// Reads the control socket.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    /// An unfinished segment frame.
    frame: Vec<u8>,
    /// Descriptors whose frame is not complete yet.
    unclaimed: VecDeque<OwnedFd>,
    /// Numbers and descriptors of segments whose record has not come yet.
    segments: Vec<(u32, OwnedFd)>,
    segments_max: usize,
    hung_up: bool,
}

/// Events that were read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlEvents {
    /// At least one byte came: a sleeper must check its words.
    pub notified: bool,
    /// The peer has closed the socket.
    pub hung_up: bool,
}

impl ControlSocket {
    pub(crate) fn new(segments_max: u32) -> Self {
        Self {
            frame: Vec::with_capacity(SEGMENT_FRAME),
            unclaimed: VecDeque::new(),
            segments: Vec::new(),
            segments_max: segments_max as usize,
            hung_up: false,
        }
    }

    /// Reads all that is there.
    pub(crate) fn read(&mut self, socket: &Socket) -> Result<ControlEvents, Violation> {
        let mut events = ControlEvents { notified: false, hung_up: self.hung_up };
        let mut buffer = [0; 256];
        for _ in 0..READS_MAX {
            if self.hung_up {
                break;
            }
            match socket.receive(&mut buffer, true) {
                Ok(received) if received.bytes == 0 => self.hung_up = true,
                Ok(received) => {
                    events.notified = true;
                    self.unclaimed.extend(received.fds);
                    self.take(&buffer[..received.bytes])?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Reset by the peer or by the system, with the same effect.
                Err(_) => self.hung_up = true,
            }
        }
        events.hung_up = self.hung_up;
        Ok(events)
    }

    /// Takes the descriptor of segment `number`, which must have been sent before its record.
    /// Events that were read meanwhile may concern another sleeper.
    pub(crate) fn take_segment(
        &mut self,
        socket: &Socket,
        number: u32,
    ) -> Result<(OwnedFd, ControlEvents), Violation> {
        let mut events = ControlEvents::default();
        if !self.segments.iter().any(|(known, _)| *known == number) {
            events = self.read(socket)?;
        }
        let found = self.segments.iter().position(|(known, _)| *known == number);
        let index = found.ok_or(Violation::SegmentMissing { number })?;
        Ok((self.segments.swap_remove(index).1, events))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        for byte in bytes {
            if self.frame.is_empty() {
                match *byte {
                    CONTROL_DOORBELL => continue,
                    CONTROL_SEGMENT => {}
                    other => {
                        let what = "byte on the control socket";
                        return Err(Violation::Frame { what, found: other.into() });
                    }
                }
            }
            self.frame.push(*byte);
            if self.frame.len() == SEGMENT_FRAME {
                self.finish_segment()?;
            }
        }
        // A descriptor can be ahead of its frame by the rest of that frame only.
        if self.unclaimed.len() > 1 || (self.frame.is_empty() && !self.unclaimed.is_empty()) {
            let found = self.unclaimed.len() as u64;
            return Err(Violation::Frame { what: "descriptor on the control socket", found });
        }
        Ok(())
    }

    fn finish_segment(&mut self) -> Result<(), Violation> {
        let mut number = [0; 4];
        number.copy_from_slice(&self.frame[1..]);
        self.frame.clear();
        let number = u32::from_le_bytes(number);
        let descriptor = self.unclaimed.pop_front().ok_or(Violation::SegmentMissing { number })?;
        if self.segments.len() >= self.segments_max {
            let max = self.segments_max as u64;
            return Err(Violation::Segments { wanted: max + 1, max });
        }
        self.segments.push((number, descriptor));
        Ok(())
    }
}

/// The frame that announces segment `number`.
pub(crate) fn segment_frame(number: u32) -> [u8; SEGMENT_FRAME] {
    let mut frame = [CONTROL_SEGMENT; SEGMENT_FRAME];
    frame[1..].copy_from_slice(&number.to_le_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    #[test]
    fn doorbells_and_segments_mixed_are_separated() {
        let (ours, theirs) = Socket::pair().unwrap();
        let mut control_socket = ControlSocket::new(4);
        theirs.write(&[IoSlice::new(&[1, 1])], true).unwrap();
        theirs.send(&[IoSlice::new(&segment_frame(7))], &[theirs.as_fd()], false, true).unwrap();
        theirs.send(&[IoSlice::new(&segment_frame(8))], &[theirs.as_fd()], false, true).unwrap();
        theirs.write(&[IoSlice::new(&[1])], true).unwrap();
        assert!(control_socket.take_segment(&ours, 8).is_ok());
        assert!(control_socket.take_segment(&ours, 7).is_ok());
        assert_eq!(
            control_socket.take_segment(&ours, 7).unwrap_err(),
            Violation::SegmentMissing { number: 7 }
        );
        drop(theirs);
        assert!(control_socket.read(&ours).unwrap().hung_up);
    }

    #[test]
    fn unknown_bytes_and_stray_descriptors_are_refused() {
        for bytes in [&[9][..], &[2, 1, 0, 0, 0]] {
            let (ours, theirs) = Socket::pair().unwrap();
            theirs.write(&[IoSlice::new(bytes)], true).unwrap();
            assert!(ControlSocket::new(4).read(&ours).is_err(), "{bytes:?}");
        }
        let (ours, theirs) = Socket::pair().unwrap();
        theirs.send(&[IoSlice::new(&[1])], &[theirs.as_fd()], false, true).unwrap();
        assert!(ControlSocket::new(4).read(&ours).is_err(), "a descriptor without a frame");
    }

    #[test]
    fn segment_descriptors_beyond_the_limit_are_refused() {
        let (ours, theirs) = Socket::pair().unwrap();
        let mut control_socket = ControlSocket::new(2);
        for number in 0..3 {
            let frame = segment_frame(number);
            theirs.send(&[IoSlice::new(&frame)], &[theirs.as_fd()], false, true).unwrap();
        }
        assert!(control_socket.read(&ours).is_err());
    }
}
