//! Encoder of the blocks of a pcapng file (draft-ietf-opsawg-pcapng), little-endian: only what one
//! interface with nanosecond timestamps needs.

/// Link type of the only interface: `LINKTYPE_ETHERNET`.
const LINK_ETHERNET: u16 = 1;

/// Bytes of a packet block in addition to the packet and its padding: header 28, flags 8, end of options 4,
/// trailing length 4.
const PACKET_OVERHEAD: usize = 44;

/// The direction of a packet, as the lowest bits of `epb_flags`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PacketDirection {
    /// A received packet.
    In = 1,
    /// A sent packet.
    Out = 2,
}

/// Writes a block: its type, its body (padded by the caller to 4 bytes), and its length at both ends.
fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    debug_assert!(body.len().is_multiple_of(4));
    let len = (body.len() + 12) as u32;
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&len.to_le_bytes());
}

/// Writes an option, padded to 4 bytes.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns the first bytes of a file: the section header, and one Ethernet interface of this name with
/// nanosecond timestamps.
pub(super) fn opening(interface: &str, description: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut body = Vec::new();
    body.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
    body.extend_from_slice(&1u16.to_le_bytes());
    body.extend_from_slice(&0u16.to_le_bytes());
    body.extend_from_slice(&u64::MAX.to_le_bytes());
    option(&mut body, 4, b"remora");
    option(&mut body, 0, &[]);
    block(&mut out, 0x0a0d_0d0a, &body);
    body.clear();
    body.extend_from_slice(&LINK_ETHERNET.to_le_bytes());
    body.extend_from_slice(&[0; 6]);
    option(&mut body, 2, interface.as_bytes());
    if !description.is_empty() {
        option(&mut body, 3, description.as_bytes());
    }
    // The timestamp resolution is 10^-9 s.
    option(&mut body, 9, &[9]);
    option(&mut body, 0, &[]);
    block(&mut out, 1, &body);
    out
}

/// Returns the number of bytes that a packet of `len` bytes takes in the file.
pub(super) fn packet_len(len: usize) -> usize {
    PACKET_OVERHEAD + len.next_multiple_of(4)
}

/// Writes a packet, which is given in pieces. Allocates nothing if `out` has a spare capacity of
/// [`packet_len`].
pub(super) fn packet(out: &mut Vec<u8>, time_ns: u64, direction: PacketDirection, pieces: &[&[u8]]) {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    let total = packet_len(len) as u32;
    let words = [6, total, 0, (time_ns >> 32) as u32, time_ns as u32, len as u32, len as u32];
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    out.resize(out.len() + len.next_multiple_of(4) - len, 0);
    option(out, 2, &(direction as u32).to_le_bytes());
    option(out, 0, &[]);
    out.extend_from_slice(&total.to_le_bytes());
}

/// Returns the last block of a file: the number of packets seen, and the number of those that are missing.
pub(super) fn closing(time_ns: u64, seen: u64, dropped: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&0u32.to_le_bytes());
    body.extend_from_slice(&((time_ns >> 32) as u32).to_le_bytes());
    body.extend_from_slice(&(time_ns as u32).to_le_bytes());
    option(&mut body, 4, &seen.to_le_bytes());
    option(&mut body, 5, &dropped.to_le_bytes());
    option(&mut body, 0, &[]);
    let mut out = Vec::new();
    block(&mut out, 5, &body);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_block_is_these_bytes() {
        let mut out = Vec::new();
        packet(&mut out, 0x0102_0304_0506_0708, PacketDirection::Out, &[&[0xaa, 0xbb], &[0xcc]]);
        #[rustfmt::skip]
        let expected = [
            6, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0,
            4, 3, 2, 1, 8, 7, 6, 5,
            3, 0, 0, 0, 3, 0, 0, 0,
            0xaa, 0xbb, 0xcc, 0,
            2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0,
            48, 0, 0, 0,
        ];
        assert_eq!(out, expected);
        assert_eq!(out.len(), packet_len(3));
    }

    #[test]
    fn every_block_says_its_length_at_both_ends() {
        for bytes in [opening("udp 127.0.0.1:4791", "as RoCE"), closing(1, 2, 3)] {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let len = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
                assert!(len.is_multiple_of(4));
                assert_eq!(rest[len - 4..len], rest[4..8]);
                rest = &rest[len..];
            }
        }
    }
}
