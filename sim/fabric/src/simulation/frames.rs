//! The bytes of frames under way.
//!
//! A frame whose data is zeros needs no more than its headers and its last four bytes: they fit into two
//! cache lines. All others are kept whole.

use crate::network::PacketId;

/// Bytes of a frame that are kept without its data, its last four included.
const KEPT: usize = 128;
/// The ICRC.
const TAIL: usize = 4;
/// Bytes of all headers of a frame, at most.
const HEADERS: usize = 256;

/// Frames by the numbers of their packets.
pub struct Frames {
    blank: Vec<[u8; KEPT]>,
    whole: Vec<Vec<u8>>,
    /// The frame that a NIC writes now.
    leaving: Box<[u8]>,
    /// The frame that a NIC reads now. All bytes are zero that no blank frame has set.
    arriving: Box<[u8]>,
    /// The whole frame that a NIC reads now.
    opened: Vec<u8>,
}

impl Frames {
    /// Space for frames with so much payload.
    pub fn new(mtu: usize) -> Frames {
        let longest = vec![0; mtu + HEADERS];
        Frames {
            blank: Vec::new(),
            whole: Vec::new(),
            leaving: longest.clone().into(),
            arriving: longest.into(),
            opened: Vec::new(),
        }
    }

    /// Where a NIC writes a frame of `len` bytes.
    #[inline]
    pub fn lend(&mut self, len: usize) -> &mut [u8] {
        &mut self.leaving[..len]
    }

    /// The frame of `len` bytes that the NIC has written.
    #[inline]
    pub fn written(&self, len: usize) -> &[u8] {
        &self.leaving[..len]
    }

    /// The written frame belongs to a packet from now on.
    #[inline]
    pub fn keep(&mut self, id: PacketId, whole: bool, len: usize) {
        let index = id.index();
        if whole {
            if self.whole.len() <= index {
                self.whole.resize_with(index + 1, Vec::new);
            }
            let kept = &mut self.whole[index];
            kept.clear();
            kept.extend_from_slice(&self.leaving[..len]);
            return;
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

    /// The frame of a packet that has arrived.
    #[inline]
    pub fn open(&mut self, id: PacketId, whole: bool, len: usize) -> &mut [u8] {
        if whole {
            self.opened = std::mem::take(&mut self.whole[id.index()]);
            return &mut self.opened;
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

    /// Appends the frame of a packet that is under way to `out`.
    pub fn copy(&self, id: PacketId, whole: bool, len: usize, out: &mut Vec<u8>) {
        if whole {
            return out.extend_from_slice(&self.whole[id.index()]);
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

    /// The NIC has read the frame of a packet.
    #[inline]
    pub fn close(&mut self, id: PacketId, whole: bool, len: usize) {
        if whole {
            self.whole[id.index()] = std::mem::take(&mut self.opened);
        } else if len > KEPT - TAIL {
            // Those before are written anew by each frame that reaches so far.
            self.arriving[(len - TAIL).max(KEPT - TAIL)..len].fill(0);
        }
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
            frames.copy(id, false, len, &mut copy);
            assert_eq!(copy[1..], sent, "{len}");
            assert_eq!(frames.open(id, false, len), sent, "{len}");
            frames.close(id, false, len);
        }
    }
}
