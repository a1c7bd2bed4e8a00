// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes on the socket beside a wall: bells of a neighbour that has no eventfd of ours, and the
//! descriptors of further segments (SPEC 5.4, 6.6).
//!
//! ```text
//!   01                      bell
//!   02 nn nn nn nn  + fd    descriptor of segment nnnn
//! ```
//!
//! Reading never blocks and is bounded: what a hostile neighbour floods us with beyond the limits is
//! a violation.

use partywall_layout::Violation;
use partywall_layout::hello::{CONTROL_DOORBELL, CONTROL_SEGMENT};
use partywall_sys::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// Length of a segment's frame.
const SEGMENT_FRAME: usize = 5;
/// Reads at most so often in one go: a flood of bells must not keep us here.
const READS_MAX: usize = 64;

/// Reads the socket beside a wall.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    /// An unfinished segment frame.
    frame: Vec<u8>,
    /// Descriptors whose frame is not complete yet.
    unclaimed: VecDeque<OwnedFd>,
    /// Descriptors whose record has not come yet.
    segments: Vec<(u32, OwnedFd)>,
    segments_max: usize,
    hung_up: bool,
}

/// What reading brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// At least one byte came: whoever sleeps must look.
    pub doorbell: bool,
    /// The neighbour has closed the socket.
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
    pub(crate) fn read(&mut self, socket: &Socket) -> Result<News, Violation> {
        let mut news = News { doorbell: false, hung_up: self.hung_up };
        let mut buffer = [0; 256];
        for _ in 0..READS_MAX {
            if self.hung_up {
                break;
            }
            match socket.receive(&mut buffer, true) {
                Ok(received) if received.bytes == 0 => self.hung_up = true,
                Ok(received) => {
                    news.doorbell = true;
                    self.unclaimed.extend(received.fds);
                    self.take(&buffer[..received.bytes])?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Reset by the neighbour, or by the system: it comes to the same.
                Err(_) => self.hung_up = true,
            }
        }
        news.hung_up = self.hung_up;
        Ok(news)
    }

    /// The descriptor of segment `number`, which must have been sent before its record; and what else
    /// was read on the way, which may be meant for another sleeper.
    pub(crate) fn take_segment(
        &mut self,
        socket: &Socket,
        number: u32,
    ) -> Result<(OwnedFd, News), Violation> {
        let mut news = News::default();
        if !self.segments.iter().any(|(known, _)| *known == number) {
            news = self.read(socket)?;
        }
        let found = self.segments.iter().position(|(known, _)| *known == number);
        let index = found.ok_or(Violation::SegmentMissing { number })?;
        Ok((self.segments.swap_remove(index).1, news))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        for byte in bytes {
            if self.frame.is_empty() {
                match *byte {
                    CONTROL_DOORBELL => continue,
                    CONTROL_SEGMENT => {}
                    other => {
                        let what = "byte beside the wall";
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
            return Err(Violation::Frame { what: "descriptor beside the wall", found });
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
    fn doorbells_and_segments_come_apart() {
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
    fn what_cannot_be_is_refused() {
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
    fn segments_under_way_are_bounded() {
        let (ours, theirs) = Socket::pair().unwrap();
        let mut control_socket = ControlSocket::new(2);
        for number in 0..3 {
            let frame = segment_frame(number);
            theirs.send(&[IoSlice::new(&frame)], &[theirs.as_fd()], false, true).unwrap();
        }
        assert!(control_socket.read(&ours).is_err());
    }
}
