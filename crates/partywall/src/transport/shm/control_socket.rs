// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket of a connection over shared memory. It carries the descriptors of further
//! segments, and doorbell bytes for a peer that has no eventfd of this side (SPEC 5.4, 6.6).
//!
//! ```text
//!   01                                  doorbell
//!   02 01 08 00  nn nn nn nn   + fd     descriptor of segment nnnn
//!   80..ff  count  length  …   + fds    skipped, and its descriptors closed
//! ```
//!
//! Reading never blocks and is bounded. Data beyond the limits is a violation.

use partywall_layout::Violation;
use partywall_layout::control::{
    CONTROL_DESCRIPTORS_MAX, CONTROL_DOORBELL, CONTROL_FRAME_MAX, CONTROL_HEAD_BYTES,
    CONTROL_SEGMENT, ControlHead, ControlSegment,
};
use partywall_sys::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use zerocopy::FromBytes;

/// Most reads of the socket in one call of `read`: a peer that sends doorbells without pause must
/// not keep the reader busy.
const READS_MAX: usize = 64;

/// The reader of a connection's control socket, which collects frames and the descriptors of
/// segments.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    /// The received bytes of a frame on the control socket that has not arrived completely.
    frame: Vec<u8>,
    /// Received descriptors that belong to the incomplete frame.
    unclaimed: VecDeque<OwnedFd>,
    /// Numbers and descriptors of segments whose SEGMENT record was not read yet.
    segments: Vec<(u32, OwnedFd)>,
    segments_max: usize,
    hung_up: bool,
}

/// The events that one call of `read` found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlEvents {
    /// Whether at least one byte has arrived. Any byte may be a doorbell, so this side's receiver
    /// must check the ring, and its sender the release ring.
    pub notified: bool,
    /// Whether the peer has closed the control socket.
    pub hung_up: bool,
}

impl ControlSocket {
    pub(crate) fn new(segments_max: u32) -> Self {
        Self {
            frame: Vec::with_capacity(CONTROL_FRAME_MAX),
            unclaimed: VecDeque::new(),
            segments: Vec::new(),
            segments_max: segments_max as usize,
            hung_up: false,
        }
    }

    /// Reads the frames that have arrived on the control socket, within `READS_MAX` reads.
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

    /// Takes the descriptor of segment `number`, which the peer must have sent before its SEGMENT
    /// record. Returns the other events that were read from the socket. They may concern this
    /// side's sender, which may be asleep until there is room.
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
                if *byte == CONTROL_DOORBELL {
                    continue;
                }
                ControlHead::check_kind(*byte)?;
            }
            self.frame.push(*byte);
            let is_whole = |head: &ControlHead| self.frame.len() == usize::from(head.length.get());
            if let Some(head) = self.head()?.filter(is_whole) {
                self.finish_frame(head)?;
            }
        }
        // Descriptors come with the first byte of their frame. So only an incomplete frame may have
        // descriptors that no frame has taken, and no more than the fields at its start say.
        let expected = match self.head()? {
            Some(head) => head.descriptors,
            None if self.frame.is_empty() => 0,
            None => CONTROL_DESCRIPTORS_MAX,
        };
        if self.unclaimed.len() > usize::from(expected) {
            let found = self.unclaimed.len() as u64;
            return Err(Violation::Frame { what: "descriptor on the control socket", found });
        }
        Ok(())
    }

    /// Returns the head of the incomplete frame, the fields with which every frame begins, or
    /// `None` while bytes of the head are missing.
    fn head(&self) -> Result<Option<ControlHead>, Violation> {
        self.frame.first_chunk::<CONTROL_HEAD_BYTES>().map(ControlHead::read).transpose()
    }

    fn finish_frame(&mut self, head: ControlHead) -> Result<(), Violation> {
        let count = usize::from(head.descriptors).min(self.unclaimed.len());
        let descriptor = self.unclaimed.drain(..count).next();
        let frame = std::mem::take(&mut self.frame);
        if head.kind != CONTROL_SEGMENT {
            return Ok(());
        }
        // The head of the frame, the fields at its start, was checked, and all bytes that it
        // announces have arrived. So the frame is long enough.
        let Ok((segment, _)) = ControlSegment::read_from_prefix(&frame) else { return Ok(()) };
        let number = segment.number.get();
        let descriptor = descriptor.ok_or(Violation::SegmentMissing { number })?;
        if self.segments.len() >= self.segments_max {
            let max = self.segments_max as u64;
            return Err(Violation::Segments { wanted: max + 1, max });
        }
        self.segments.push((number, descriptor));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use std::os::fd::AsFd;
    use zerocopy::IntoBytes;

    fn segment(number: u32) -> Vec<u8> {
        ControlSegment::new(number).as_bytes().to_vec()
    }

    /// Test input: `image`, the bytes of frames as the peer sends them. Sends each frame to a
    /// reader of a control socket. Returns the numbers of the segments that the reader found, or
    /// the code of the violation.
    fn read_image(image: &[u8]) -> Result<Vec<u32>, u32> {
        let (ours, theirs) = Socket::pair().unwrap();
        let mut control_socket = ControlSocket::new(4);
        let mut rest = image;
        while let [kind, ..] = *rest {
            let head = rest.first_chunk().and_then(|head| ControlHead::read(head).ok());
            let is_frame = kind != CONTROL_DOORBELL;
            // If the fields at the start of the frame are invalid, all remaining bytes of `image`
            // are sent together, with one descriptor.
            let (len, descriptors) = match head.filter(|_| is_frame) {
                Some(head) => (usize::from(head.length.get()), usize::from(head.descriptors)),
                None if is_frame => (rest.len(), 1),
                None => (1, 0),
            };
            let (frame, behind) = rest.split_at(len.min(rest.len()));
            let descriptors = vec![theirs.as_fd(); descriptors];
            theirs.send(&[IoSlice::new(frame)], &descriptors, false, true).unwrap();
            rest = behind;
        }
        control_socket.read(&ours).map_err(|violation| violation.code())?;
        assert!(control_socket.unclaimed.is_empty(), "descriptors of skipped frames are closed");
        Ok(control_socket.segments.iter().map(|(number, _)| *number).collect())
    }

    #[test]
    fn images_of_the_specification_are_read_as_they_say() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec");
        let images = |kind: &str| -> Vec<(String, Vec<u8>)> {
            let entries = std::fs::read_dir(format!("{directory}/{kind}")).unwrap();
            let paths = entries.map(|entry| entry.unwrap().path());
            let name = |path: &std::path::Path| path.file_name().unwrap().display().to_string();
            let images = paths.map(|path| (name(&path), path));
            let images = images.filter(|(name, _)| name.starts_with("control-"));
            images.map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
        };
        let good = images("vectors");
        assert_eq!(good.len(), 2);
        for (name, image) in good {
            assert_eq!(read_image(&image), Ok(vec![1, 2]), "{name}");
        }
        let hostile = images("hostile");
        assert!(hostile.len() >= 10, "{hostile:?}");
        for (name, image) in hostile {
            assert_eq!(read_image(&image), Err(15), "{name}");
        }
    }

    #[test]
    fn frame_that_arrives_byte_by_byte_is_read() {
        let (ours, theirs) = Socket::pair().unwrap();
        let mut control_socket = ControlSocket::new(4);
        for (index, byte) in segment(3).into_iter().enumerate() {
            let descriptors = [theirs.as_fd()];
            let descriptors = if index == 0 { &descriptors[..] } else { &[] };
            theirs.send(&[IoSlice::new(&[byte])], descriptors, false, true).unwrap();
            control_socket.read(&ours).unwrap();
        }
        assert!(control_socket.take_segment(&ours, 3).is_ok());
    }

    #[test]
    fn doorbells_and_segments_mixed_are_separated() {
        let (ours, theirs) = Socket::pair().unwrap();
        let mut control_socket = ControlSocket::new(4);
        theirs.write(&[IoSlice::new(&[1, 1])], true).unwrap();
        theirs.send(&[IoSlice::new(&segment(7))], &[theirs.as_fd()], false, true).unwrap();
        theirs.send(&[IoSlice::new(&segment(8))], &[theirs.as_fd()], false, true).unwrap();
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
        for bytes in [&[9][..], &[2, 1, 0, 0, 0], &segment(1)] {
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
            let frame = segment(number);
            theirs.send(&[IoSlice::new(&frame)], &[theirs.as_fd()], false, true).unwrap();
        }
        assert!(control_socket.read(&ours).is_err());
    }
}
