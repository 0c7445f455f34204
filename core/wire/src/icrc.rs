//! The invariant CRC: the last four bytes of a packet, over everything that no switch may change.
//!
//! It is the CRC-32 of Ethernet over 8 bytes of ones (where InfiniBand has its local header), the IP header,
//! the UDP header and the transport bytes up to the ICRC itself. Ones stand in place of fields that may
//! change on the way: TOS, TTL and header checksum of IPv4; traffic class, flow label and hop limit of IPv6;
//! the UDP checksum; BTH byte 4. On the wire its least significant byte comes first (IBTA volume 1, chapter
//! 7.8 and annex A17).
//!
//! # How it is fast
//!
//! A CRC is linear. For messages of equal length, changing some bits changes the CRC by a value that depends
//! only on those bits and on how many bytes follow them. So everything before the BTH is computed once for a
//! flow, with zero for lengths and identification ([`Flow`]). Tables have what a frame's own lengths,
//! identification and masked BTH byte add (`icrc/tables.rs`). There remains one CRC over the transport bytes
//! where they stand, without a copy.
//!
//! # When the identification is unknown
//!
//! A UDP socket never shows the IPv4 identification. A sender known to use the numbers 0 to 127 (0 for single
//! frames, k for the k-th of a train) can still be checked. The wrong identification leaves a *syndrome*,
//! computed XOR received. The 128 possible syndromes form a space of 7 dimensions out of 32
//! ([`Flow::accepts_unknown_id`]). That leaves 25 bits of check: a random corruption passes once in 2^25
//! instead of once in 2^32.
//!
//! Other senders count their packets. All 65 536 identifications form a space of 16 dimensions, so a syndrome
//! still names one at most ([`Syndrome::any_id`]). That leaves 16 bits. Who keeps the last identification of
//! a sender and takes only the next 1024 has 22.

mod spans;
mod tables;

pub use spans::{IdSpans, MAX_UNKNOWN_ID};

use crate::frame::{Endpoint, Network};
use crate::{ipv4, ipv6, udp};

/// Bytes of the ICRC.
pub const LEN: usize = 4;

/// BTH byte 4: FECN, BECN and six reserved bits.
const MASKED_BTH_BYTE: usize = 4;

// Bytes and which of their bits count as ones; IPv6's version shares its byte with the class.
const MASKS_V4: [(usize, u8); 4] = [(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)];
const MASKS_V6: [(usize, u8); 5] = [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)];
const MASKS_UDP: [(usize, u8); 2] = [(6, 0xff), (7, 0xff)];
const MASKS_BTH: [(usize, u8); 1] = [(MASKED_BTH_BYTE, 0xff)];

/// The ICRC in the last four bytes of a frame or packet; `None` if there are not four.
#[inline]
pub fn read(bytes: &[u8]) -> Option<u32> {
    bytes.last_chunk().map(|crc| u32::from_le_bytes(*crc))
}

/// Writes `icrc` into the last four bytes of `bytes`; panics if there are not four.
#[inline]
pub fn write(bytes: &mut [u8], icrc: u32) {
    *bytes.last_chunk_mut().expect("space for the ICRC") = icrc.to_le_bytes();
}

/// The ICRC by its definition. The bytes are those of an IPv4 (20) or IPv6 (40) header, of a UDP header (8),
/// and of the transport from the BTH up to the ICRC, without it. For tests and readers of the definition;
/// [`Flow`] is the same, fast. Other lengths give a number that means nothing.
pub fn compute(ip: &[u8], udp: &[u8], transport: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xff; 8]);
    let masks_ip: &[_] = if ip.len() == ipv4::LEN { &MASKS_V4 } else { &MASKS_V6 };
    for (bytes, masks) in [(ip, masks_ip), (udp, &MASKS_UDP), (transport, &MASKS_BTH)] {
        for (at, byte) in bytes.iter().enumerate() {
            let mask = masks.iter().find(|(masked, _)| *masked == at).map_or(0, |(_, mask)| *mask);
            crc.update(&[byte | mask]);
        }
    }
    crc.finalize()
}

/// The part of the ICRC that all frames between two endpoints share. It is the CRC up to the BTH of a frame
/// with zero in its length fields and its identification. Eight bytes; keep one with each queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The CRC so far.
    base: u32,
    is_ipv4: bool,
}

impl Flow {
    /// The flow of frames from `source` to `destination` that may not be fragmented, as RoCE senders mark
    /// them. IPv4 if both addresses are.
    pub fn new(source: Endpoint, destination: Endpoint) -> Flow {
        let (_, network, udp) = crate::frame::Route::new(source, destination).headers(0, 0);
        Flow::of(&network, &udp)
    }

    /// The flow to which a frame with these headers belongs.
    pub fn of(network: &Network, udp: &udp::Repr) -> Flow {
        let mut ip_bytes = [0; ipv6::LEN];
        let ip_len = network.emit(&mut ip_bytes);
        let mut udp_bytes = [0; udp::LEN];
        udp.emit(&mut udp_bytes);
        let is_ipv4 = matches!(network, Network::V4(_));
        // Zero where a frame's own lengths and identification will be added.
        let (lengths, masks_ip): (_, &[_]) = if is_ipv4 { (2..6, &MASKS_V4) } else { (4..6, &MASKS_V6) };
        ip_bytes[lengths].fill(0);
        udp_bytes[4..6].fill(0);
        masks_ip.iter().for_each(|(at, mask)| ip_bytes[*at] |= mask);
        MASKS_UDP.iter().for_each(|(at, mask)| udp_bytes[*at] |= mask);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&[0xff; 8]);
        crc.update(&ip_bytes[..ip_len]);
        crc.update(&udp_bytes);
        Flow { base: crc.finalize(), is_ipv4 }
    }

    /// The CRC up to the BTH of a frame with `transport_len` bytes from BTH to before the ICRC.
    #[inline]
    fn prefix(&self, ip_id: u16, transport_len: usize) -> u32 {
        let udp_len = (transport_len + LEN + udp::LEN) as u16;
        let lengths = if self.is_ipv4 {
            tables::total_len_v4(udp_len.wrapping_add(ipv4::LEN as u16)) ^ tables::ip_id(ip_id)
        } else {
            tables::payload_len_v6(udp_len)
        };
        self.base ^ lengths ^ tables::udp_len(udp_len)
    }

    /// The ICRC of a frame of this flow with IPv4 identification `ip_id` (not looked at for IPv6).
    /// `transport` is the frame's bytes from the BTH up to the ICRC, without it. Neither copies nor
    /// allocates.
    #[inline]
    pub fn seal(&self, ip_id: u16, transport: &[u8]) -> u32 {
        let masked = transport.get(MASKED_BTH_BYTE).map_or(0, |byte| tables::masked_bth_byte(*byte));
        let prefix = self.prefix(ip_id, transport.len()) ^ masked;
        let mut crc = crc32fast::Hasher::new_with_initial(prefix);
        crc.update(transport);
        crc.finalize()
    }

    /// Is `received` the ICRC of this frame, whose identification is known? Arguments as for [`Flow::seal`].
    #[inline]
    pub fn accepts(&self, ip_id: u16, transport: &[u8], received: u32) -> bool {
        self.seal(ip_id, transport) == received
    }

    /// The identification, at most [`MAX_UNKNOWN_ID`], with which `received` is the ICRC of this frame.
    /// `None`: no such identification, the frame is corrupt. Over IPv6 there is no identification and the
    /// check is exact: the answer is 0 or `None`. `spans` is a cache and may serve any number of flows.
    #[inline]
    pub fn accepts_unknown_id(&self, spans: &mut IdSpans, transport: &[u8], received: u32) -> Option<u16> {
        self.syndrome(transport, received).small_id(spans)
    }

    /// How `received` differs from the ICRC of this frame with identification 0. Arguments as for
    /// [`Flow::seal`].
    #[inline]
    pub fn syndrome(&self, transport: &[u8], received: u32) -> Syndrome {
        let difference = self.seal(0, transport) ^ received;
        Syndrome { difference, transport_len: transport.len(), is_ipv4: self.is_ipv4 }
    }
}

/// What the ICRC of a frame tells about an identification that nobody saw. `spans` is a cache and may serve
/// any number of flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Syndrome {
    difference: u32,
    transport_len: usize,
    is_ipv4: bool,
}

impl Syndrome {
    /// The identification, at most [`MAX_UNKNOWN_ID`], with which the ICRC is right. `None`: there is none.
    /// Over IPv6 the answer is 0 or `None`.
    #[inline]
    pub fn small_id(self, spans: &mut IdSpans) -> Option<u16> {
        if self.difference == 0 {
            return Some(0);
        }
        if self.is_ipv4 { spans.small_id(self.difference, self.transport_len) } else { None }
    }

    /// The identification of 16 bits with which the ICRC is right; there is one at most. `None`: the frame is
    /// corrupt. Over IPv6 the answer is 0 or `None`.
    #[inline]
    pub fn any_id(self, spans: &mut IdSpans) -> Option<u16> {
        if self.difference == 0 {
            return Some(0);
        }
        if self.is_ipv4 { spans.any_id(self.difference, self.transport_len) } else { None }
    }
}

/// The difference (XOR) of the ICRC of an IPv4 frame with identification `ip_id` from that of the same frame
/// with identification 0. The frame has `transport_len` bytes from the BTH up to the ICRC, without it.
pub fn delta(ip_id: u16, transport_len: usize) -> u32 {
    tables::advance(tables::ip_id(ip_id), transport_len)
}

#[cfg(test)]
mod tests;
