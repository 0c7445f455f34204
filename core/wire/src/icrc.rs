//! The invariant CRC (ICRC): the last four bytes of a packet, computed over all fields that switches may not
//! change.
//!
//! The ICRC is the CRC-32 of Ethernet over 8 bytes of ones (in place of InfiniBand's local header), the IP
//! header, the UDP header and the transport bytes before the ICRC. Fields that may change in transit count
//! as ones: TOS, TTL and header checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP
//! checksum; BTH byte 4. The ICRC is transmitted with the least significant byte first (IBTA volume 1,
//! chapter 7.8 and annex A17).
//!
//! # Performance
//!
//! A CRC is linear: for messages of equal length, changing some bits changes the CRC by a value that depends
//! only on these bits and on the number of bytes after them. The part before the BTH is therefore computed
//! once per flow, with zero lengths and identification ([`Flow`]). Tables supply the contribution of the
//! lengths, the identification and the masked BTH byte of each frame (`icrc/tables.rs`). One CRC over the
//! transport bytes remains, without a copy.
//!
//! # Unknown IPv4 identification
//!
//! A UDP socket does not expose the IPv4 identification. Frames of a sender that uses only the numbers 0 to
//! 127 (0 for single frames, k for the k-th of a train) can still be checked. A wrong identification leaves
//! a *syndrome*, computed XOR received. The 128 possible syndromes form a space of 7 out of 32 dimensions
//! ([`Flow::accepts_unknown_id`]). This leaves 25 check bits: a random corruption passes once in 2^25
//! instead of once in 2^32.
//!
//! Other senders number their packets consecutively. All 65 536 identifications form a space of 16
//! dimensions, so a syndrome determines at most one of them ([`Syndrome::any_id`]). This leaves 16 check
//! bits. A receiver that remembers the last identification of a sender and accepts only the next 1024 has
//! 22.

mod spans;
mod tables;

pub use spans::{IdSpans, MAX_UNKNOWN_ID};

use crate::frame::{Endpoint, Network};
use crate::{ipv4, ipv6, udp};

/// Length of the ICRC in bytes.
pub const LEN: usize = 4;

/// BTH byte 4: FECN, BECN and six reserved bits.
const MASKED_BTH_BYTE: usize = 4;

// Offsets of masked bytes, and the bits that count as ones. IPv6's version shares a byte with the traffic
// class.
const MASKS_V4: [(usize, u8); 4] = [(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)];
const MASKS_V6: [(usize, u8); 5] = [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)];
const MASKS_UDP: [(usize, u8); 2] = [(6, 0xff), (7, 0xff)];
const MASKS_BTH: [(usize, u8); 1] = [(MASKED_BTH_BYTE, 0xff)];

/// Returns the ICRC in the last four bytes of a frame or packet, or `None` if `bytes` is shorter.
#[inline]
pub fn read(bytes: &[u8]) -> Option<u32> {
    bytes.last_chunk().map(|crc| u32::from_le_bytes(*crc))
}

/// Writes `icrc` into the last four bytes of `bytes`. Panics if `bytes` is shorter.
#[inline]
pub fn write(bytes: &mut [u8], icrc: u32) {
    *bytes.last_chunk_mut().expect("space for the ICRC") = icrc.to_le_bytes();
}

/// Computes the ICRC by its definition, from an IPv4 (20 bytes) or IPv6 (40 bytes) header, a UDP header (8
/// bytes), and the transport bytes from the BTH up to the ICRC. For tests and as a reference; [`Flow`]
/// computes the same value faster. Other lengths give a meaningless result.
pub fn compute(ip: &[u8], udp: &[u8], transport: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xff; 8]);
    let masks_ip: &[_] = if ip.len() == ipv4::LEN { &MASKS_V4 } else { &MASKS_V6 };
    for (bytes, masks) in [(ip, masks_ip), (udp, &MASKS_UDP), (transport, &MASKS_BTH)] {
        for (index, byte) in bytes.iter().enumerate() {
            let mask = masks.iter().find(|(masked, _)| *masked == index).map_or(0, |(_, mask)| *mask);
            crc.update(&[byte | mask]);
        }
    }
    crc.finalize()
}

/// The part of the ICRC that all frames between two endpoints share: the CRC up to the BTH of a frame with
/// zero lengths and identification. A queue pair can store it in 8 bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// CRC state before the BTH.
    base: u32,
    is_ipv4: bool,
}

impl Flow {
    /// Returns the flow of frames from `source` to `destination` with the don't-fragment flag, which RoCE
    /// senders set. The flow is IPv4 if both addresses are.
    pub fn new(source: Endpoint, destination: Endpoint) -> Flow {
        let (_, network, udp) = crate::frame::Route::new(source, destination).headers(0, 0);
        Flow::of(&network, &udp)
    }

    /// Returns the flow of a frame with these headers.
    pub fn of(network: &Network, udp: &udp::Repr) -> Flow {
        let mut ip_bytes = [0; ipv6::LEN];
        let ip_len = network.emit(&mut ip_bytes);
        let mut udp_bytes = [0; udp::LEN];
        udp.emit(&mut udp_bytes);
        let is_ipv4 = matches!(network, Network::V4(_));
        // The lengths and the identification of a frame are added later.
        let (lengths, masks_ip): (_, &[_]) = if is_ipv4 { (2..6, &MASKS_V4) } else { (4..6, &MASKS_V6) };
        ip_bytes[lengths].fill(0);
        udp_bytes[4..6].fill(0);
        masks_ip.iter().for_each(|(index, mask)| ip_bytes[*index] |= mask);
        MASKS_UDP.iter().for_each(|(index, mask)| udp_bytes[*index] |= mask);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&[0xff; 8]);
        crc.update(&ip_bytes[..ip_len]);
        crc.update(&udp_bytes);
        Flow { base: crc.finalize(), is_ipv4 }
    }

    /// Returns the CRC state before the BTH of a frame with `transport_len` bytes from the BTH up to the
    /// ICRC.
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

    /// Computes the ICRC of a frame of this flow with IPv4 identification `ip_id` (ignored for IPv6).
    /// `transport` is the frame from the BTH up to the ICRC. Neither copies nor allocates.
    #[inline]
    pub fn seal(&self, ip_id: u16, transport: &[u8]) -> u32 {
        let masked = transport.get(MASKED_BTH_BYTE).map_or(0, |byte| tables::masked_bth_byte(*byte));
        let prefix = self.prefix(ip_id, transport.len()) ^ masked;
        let mut crc = crc32fast::Hasher::new_with_initial(prefix);
        crc.update(transport);
        crc.finalize()
    }

    /// Returns true if `received` is the ICRC of this frame, whose identification is known. The other
    /// arguments are those of [`Flow::seal`].
    #[inline]
    pub fn accepts(&self, ip_id: u16, transport: &[u8], received: u32) -> bool {
        self.seal(ip_id, transport) == received
    }

    /// Returns the identification, at most [`MAX_UNKNOWN_ID`], for which `received` is the ICRC of this
    /// frame, or `None` if the frame is corrupt. For IPv6 the check is exact and the result 0 or `None`.
    /// `spans` is a cache that any number of flows can share.
    #[inline]
    pub fn accepts_unknown_id(&self, spans: &mut IdSpans, transport: &[u8], received: u32) -> Option<u16> {
        self.syndrome(transport, received).small_id(spans)
    }

    /// Returns the difference between `received` and the ICRC of this frame with identification 0. The other
    /// arguments are those of [`Flow::seal`].
    #[inline]
    pub fn syndrome(&self, transport: &[u8], received: u32) -> Syndrome {
        let difference = self.seal(0, transport) ^ received;
        Syndrome { difference, transport_len: transport.len(), is_ipv4: self.is_ipv4 }
    }
}

/// The difference between a received ICRC and the expected one, which determines an unknown identification.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Syndrome {
    difference: u32,
    transport_len: usize,
    is_ipv4: bool,
}

impl Syndrome {
    /// Returns the identification, at most [`MAX_UNKNOWN_ID`], for which the ICRC is correct, or `None` if
    /// there is none. For IPv6 the result is 0 or `None`. `spans` is a cache that any number of flows can
    /// share.
    #[inline]
    pub fn small_id(self, spans: &mut IdSpans) -> Option<u16> {
        if self.difference == 0 {
            return Some(0);
        }
        if self.is_ipv4 { spans.small_id(self.difference, self.transport_len) } else { None }
    }

    /// Returns the 16-bit identification for which the ICRC is correct, or `None` if the frame is corrupt.
    /// At most one identification qualifies. For IPv6 the result is 0 or `None`.
    #[inline]
    pub fn any_id(self, spans: &mut IdSpans) -> Option<u16> {
        if self.difference == 0 {
            return Some(0);
        }
        if self.is_ipv4 { spans.any_id(self.difference, self.transport_len) } else { None }
    }
}

/// Returns the XOR of the ICRC of an IPv4 frame with identification `ip_id` and of the same frame with
/// identification 0. The frame has `transport_len` bytes from the BTH up to the ICRC.
pub fn delta(ip_id: u16, transport_len: usize) -> u32 {
    tables::advance(tables::ip_id(ip_id), transport_len)
}

#[cfg(test)]
mod tests;
