// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket of a connection over shared memory. It carries the descriptors of further
//! segments, and doorbell bytes for a peer that has no eventfd of this side (SPEC 5.4, 6.6).
//!
//! ```text
//!   01                      doorbell
//!   02 nn nn nn nn  + fd    descriptor of segment nnnn
//! ```
//!
//! Reading never blocks and is bounded. Data beyond the limits is a violation.

use partywall_layout::Violation;
use partywall_layout::hello::{CONTROL_DOORBELL, CONTROL_SEGMENT};
use partywall_sys::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// Length in bytes of the frame that carries a segment's descriptor.
const SEGMENT_FRAME: usize = 5;
/// Most reads in one call: a peer that sends doorbells without pause must not keep the reader busy.
const READS_MAX: usize = 64;

/// The reader of the control socket.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    /// The bytes of an incomplete segment frame.
    frame: Vec<u8>,
    /// Descriptors whose frame is incomplete.
    unclaimed: VecDeque<OwnedFd>,
    /// Numbers and descriptors of segments whose SEGMENT record was not read yet.
    segments: Vec<(u32, OwnedFd)>,
    segments_max: usize,
    hung_up: bool,
}

/// The events that one call of `read` found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlEvents {
    /// Whether at least one byte arrived: sleepers of this side must check the ring and the release
    /// ring.
    pub notified: bool,
    /// Whether the peer has closed the socket.
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

    /// Reads everything that has arrived.
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
                // A reset connection counts as a hang-up, whether the peer or the kernel caused it.
                Err(_) => self.hung_up = true,
            }
        }
        events.hung_up = self.hung_up;
        Ok(events)
    }

    /// Takes the descriptor of segment `number`, which the peer must have sent before the record.
    /// Returns the events that were read meanwhile: they may concern the other sleeper.
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
        // At most one descriptor may wait for its frame, and only while that frame is incomplete.
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

/// Returns the frame that carries the descriptor of segment `number`.
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
