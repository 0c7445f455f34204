//! Fuzzes the parser of whole frames, beginning at any layer. An accepted frame must be emitted as a frame
//! of the same meaning, with the same ICRC.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_wire::frame::{Dissected, Network, dissect};
use remora_wire::icrc::{self, Flow};
use remora_wire::{Start, ethernet, ipv4, udp};

/// Checks that the ICRC computed from the frame's bytes by its definition equals the one that the NIC
/// computes.
fn same_icrc(start: Start, bytes: &[u8], whole: &Dissected<'_>) {
    let Some((network, header)) = &whole.network else { return };
    let ip = if start == Start::Ethernet { ethernet::LEN } else { 0 };
    let from_udp = ip + network.header_len();
    let from_bth = from_udp + udp::LEN;
    let end = from_udp + udp::LEN + usize::from(header.payload_len);
    let covered = &bytes[from_bth..end - icrc::LEN];
    let slow = icrc::compute(&bytes[ip..from_udp], &bytes[from_udp..from_bth], covered);
    let flow = Flow::of(network, header);
    let may_be_fragmented = matches!(network, Network::V4(header) if !header.dont_fragment);
    assert_eq!(flow.seal(network.ip_id(), covered), slow, "{may_be_fragmented}");
    assert_eq!(flow.accepts(network.ip_id(), covered, whole.icrc), slow == whole.icrc);
}

/// Corrects the checksum of an IPv4 header, which a mutation would hardly ever do.
fn mend(start: Start, bytes: &mut [u8]) {
    let at = if start == Start::Ethernet { ethernet::LEN } else { 0 };
    let Some(from_ip) = bytes.get_mut(at..) else { return };
    let Ok(header) = ipv4::View::new(from_ip).map(|view| ipv4::Repr::parse(&view)) else { return };
    header.emit(from_ip);
}

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    let start = [Start::Ethernet, Start::Ip, Start::Bth][usize::from(*which) % 3];
    let mut bytes = bytes.to_vec();
    if which & 0x80 != 0 && start != Start::Bth {
        mend(start, &mut bytes);
    }
    let bytes = &bytes[..];
    let Ok(whole) = dissect(start, bytes) else { return };
    let mut out = vec![0x5a; whole.buffer_len()];
    assert_eq!(whole.emit(&mut out), out.len());
    assert_eq!(dissect(start, &out), Ok(whole), "the emitted frame has the same meaning");
    assert!(out.len() <= bytes.len(), "what follows the packet is padding of a lower layer");
    let below = out.len() - whole.packet.buffer_len();
    let mut expected = bytes[..below].to_vec();
    if matches!(whole.network, Some((Network::V4(_), _))) {
        // Ones' complement has two zeros; the emitted checksum is the one of zero bits.
        let checksum = below - udp::LEN - ipv4::LEN + 10;
        if expected[checksum..checksum + 2] == [0xff; 2] {
            expected[checksum..checksum + 2].fill(0);
        }
    }
    assert_eq!(out[..below], expected);
    same_icrc(start, bytes, &whole);
});
