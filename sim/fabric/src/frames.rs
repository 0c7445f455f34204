//! Storage of the frames that are in the network.
//!
//! A frame whose data is zeros is stored without its data: its headers and its last four bytes fit into two
//! cache lines. Other frames are stored whole, by exchanging buffers with the NIC instead of copying.

use crate::network::PacketId;

/// Bytes that are stored of a frame without its data, including the last four.
const KEPT: usize = 128;
/// Size of the ICRC.
const TAIL: usize = 4;
/// Largest size of all headers of a frame.
const HEADERS: usize = 256;

/// Frames by the ids of their packets.
pub(crate) struct Frames {
    blank: Vec<[u8; KEPT]>,
    whole: Vec<Box<[u8]>>,
    /// Buffer of the frame that a NIC is writing.
    leaving: Box<[u8]>,
    /// Buffer of the blank frame that a NIC is reading. All bytes outside of the stored parts are zero.
    arriving: Box<[u8]>,
    /// Buffer of the whole frame that a NIC is reading.
    opened: Box<[u8]>,
    /// Initial size of a buffer; longer frames get a larger one.
    usual: usize,
}

impl Frames {
    /// Creates a storage with buffers for frames with `mtu` bytes of payload. Longer frames are possible.
    pub(crate) fn new(mtu: usize) -> Frames {
        let usual = mtu + HEADERS;
        Frames {
            blank: Vec::new(),
            whole: Vec::new(),
            leaving: buffer(usual),
            arriving: buffer(usual),
            opened: Box::default(),
            usual,
        }
    }

    /// Returns a buffer of `len` bytes, into which the NIC writes a frame.
    #[inline]
    pub(crate) fn lend(&mut self, len: usize) -> &mut [u8] {
        if self.leaving.len() < len {
            self.leaving = buffer(len);
        }
        &mut self.leaving[..len]
    }

    /// Returns the frame of `len` bytes that the NIC has written.
    #[inline]
    pub(crate) fn written(&self, len: usize) -> &[u8] {
        &self.leaving[..len]
    }

    /// Returns the written frame for modification.
    pub(crate) fn written_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.leaving[..len]
    }

    /// Assigns the written frame to a packet. It can no longer be read by [`Frames::written`].
    #[inline]
    pub(crate) fn keep(&mut self, id: PacketId, whole: bool, len: usize) {
        let index = id.index();
        if whole {
            self.make_place(index);
            return std::mem::swap(&mut self.whole[index], &mut self.leaving);
        }
        if self.blank.len() <= index {
            self.blank.resize(index + 1, [0; KEPT]);
        }
        let kept = &mut self.blank[index];
        if len <= KEPT {
            kept[..len].copy_from_slice(&self.leaving[..len]);
        } else {
            kept[..KEPT - TAIL].copy_from_slice(&self.leaving[..KEPT - TAIL]);
            kept[KEPT - TAIL..].copy_from_slice(&self.leaving[len - TAIL..len]);
        }
    }

    /// Assigns a copy of the written frame to a packet.
    pub(crate) fn copy(&mut self, id: PacketId, len: usize) {
        self.make_place(id.index());
        fill(&mut self.whole[id.index()], &self.leaving[..len]);
    }

    /// Assigns these bytes to a packet.
    pub(crate) fn put(&mut self, id: PacketId, bytes: &[u8]) {
        self.make_place(id.index());
        fill(&mut self.whole[id.index()], bytes);
    }

    #[inline]
    fn make_place(&mut self, index: usize) {
        if self.whole.len() <= index {
            let usual = self.usual;
            self.whole.resize_with(index + 1, || buffer(usual));
        }
    }

    /// Returns the frame of a packet that has arrived, until [`Frames::close`].
    #[inline]
    pub(crate) fn open(&mut self, id: PacketId, whole: bool, len: usize) -> &mut [u8] {
        if whole {
            self.opened = std::mem::take(&mut self.whole[id.index()]);
            return &mut self.opened[..len];
        }
        let kept = &self.blank[id.index()];
        if len <= KEPT {
            self.arriving[..len].copy_from_slice(&kept[..len]);
        } else {
            self.arriving[..KEPT - TAIL].copy_from_slice(&kept[..KEPT - TAIL]);
            self.arriving[len - TAIL..len].copy_from_slice(&kept[KEPT - TAIL..]);
        }
        &mut self.arriving[..len]
    }

    /// Appends the frame of a packet in the network to `out`.
    pub(crate) fn append(&self, id: PacketId, whole: bool, len: usize, out: &mut Vec<u8>) {
        if whole {
            return out.extend_from_slice(&self.whole[id.index()][..len]);
        }
        let kept = &self.blank[id.index()];
        if len <= KEPT {
            return out.extend_from_slice(&kept[..len]);
        }
        let end = out.len() + len;
        out.extend_from_slice(&kept[..KEPT - TAIL]);
        out.resize(end - TAIL, 0);
        out.extend_from_slice(&kept[KEPT - TAIL..]);
    }

    /// Ends the reading of a frame that [`Frames::open`] returned.
    #[inline]
    pub(crate) fn close(&mut self, id: PacketId, whole: bool, len: usize) {
        if whole {
            self.whole[id.index()] = std::mem::take(&mut self.opened);
        } else if len > KEPT - TAIL {
            // Earlier bytes are overwritten by every frame that is long enough to reach them.
            self.arriving[(len - TAIL).max(KEPT - TAIL)..len].fill(0);
        }
    }
}

fn buffer(len: usize) -> Box<[u8]> {
    vec![0; len].into()
}

fn fill(buffer: &mut Box<[u8]>, bytes: &[u8]) {
    match buffer.get_mut(..bytes.len()) {
        Some(start) => start.copy_from_slice(bytes),
        None => *buffer = bytes.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Packet, Packets};

    #[test]
    fn a_blank_frame_comes_back_with_zeros_for_data() {
        let mut frames = Frames::new(1024);
        let id = Packets::default().add(Packet::new(0, 0, 0, 0));
        for len in [1088, 60, 128, 129, 1280, 60] {
            let frame = frames.lend(len);
            frame.fill(0);
            frame[..28].fill(0xab);
            frame[len - TAIL..].fill(0xcd);
            let sent = frame.to_vec();
            frames.keep(id, false, len);
            let mut copy = vec![7];
            frames.append(id, false, len, &mut copy);
            assert_eq!(copy[1..], sent, "{len}");
            assert_eq!(frames.open(id, false, len), sent, "{len}");
            frames.close(id, false, len);
        }
    }

    #[test]
    fn whole_frames_come_back_whatever_their_length_and_in_any_order() {
        let mut frames = Frames::new(1024);
        let mut packets = Packets::default();
        let mut next = || packets.add(Packet::new(0, 0, 0, 0));
        let mut all = Vec::new();
        for (number, len) in (1..).zip([60, 1280, 3000, 60, 5000]) {
            frames.lend(len).fill(number);
            let [copied, kept] = [next(), next()];
            frames.copy(copied, len);
            frames.written_mut(len)[0] = 0xff;
            frames.keep(kept, true, len);
            let put = next();
            frames.put(put, &vec![number; 2 * len]);
            let mut changed = vec![number; len];
            changed[0] = 0xff;
            all.extend([(copied, vec![number; len]), (kept, changed), (put, vec![number; 2 * len])]);
        }
        for (id, bytes) in all.iter().rev() {
            assert_eq!(frames.open(*id, true, bytes.len()), *bytes);
            frames.close(*id, true, bytes.len());
        }
    }
}
