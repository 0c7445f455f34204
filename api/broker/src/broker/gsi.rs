//! Queue pair 1 of the addresses: encoding and decoding frames with the datagrams of connection managers
//! (MADs). The broker sends them by the socket of range 0 and keeps no table of peers, which strangers could
//! fill.

use remora_wire::frame::Endpoint;
use remora_wire::icrc::{self, Flow, IdSpans};
use remora_wire::packet::{Packet, View};
use remora_wire::{Extensions, Opcode, Psn, Qpn, bth, deth, mad};

/// Queue pair 1, of the general services interface.
const GSI: Qpn = Qpn::new(1);
/// Length of a frame with a MAD in bytes, from the BTH to the end of the ICRC.
pub(super) const FRAME: usize = bth::LEN + deth::LEN + mad::LEN + icrc::LEN;
/// The bits of a P_Key except the membership bit. All of them are set in the default partition.
const PARTITION: u16 = 0x7fff;

/// Queue pair 1.
#[derive(Debug)]
pub(super) struct Gsi {
    psn: u32,
    /// A cache for checking ICRCs.
    spans: Box<IdSpans>,
}

impl Gsi {
    pub(crate) fn new() -> Gsi {
        Gsi { psn: 0, spans: Box::new(IdSpans::new()) }
    }

    /// Encodes a frame with a MAD. Its IPv4 identification is 0, as in the kernel's single datagrams.
    pub(crate) fn seal(
        &mut self,
        source: Endpoint,
        destination: Endpoint,
        mad: &[u8; mad::LEN],
    ) -> [u8; FRAME] {
        self.psn = self.psn.wrapping_add(1);
        let bth = bth::Repr::new(Opcode::UD_SEND_ONLY, GSI, Psn::new(self.psn & 0x00ff_ffff));
        let deth = Some(deth::Repr { qkey: mad::QKEY, src_qp: GSI });
        let mut frame = [0; FRAME];
        let end = Packet::new(bth, Extensions { deth, ..Extensions::NONE }, mad).emit(&mut frame);
        debug_assert_eq!(end + icrc::LEN, FRAME, "a MAD needs no pad");
        let sealed = Flow::new(source, destination).seal(0, &frame[..end]);
        icrc::write(&mut frame, sealed);
        frame
    }

    /// Returns the MAD in a frame. `None` if the frame is not an intact datagram from one queue pair 1 to the
    /// other.
    ///
    /// The socket does not report the IPv4 identification, and a stranger may use any. Of its ICRC, 16 bits
    /// can therefore be checked. Lengths, keys and ids must be right as well, and a MAD that is lost is
    /// repeated.
    pub(crate) fn open<'a>(
        &mut self,
        source: Endpoint,
        destination: Endpoint,
        frame: &'a [u8],
    ) -> Option<&'a [u8]> {
        let view = View::new(frame).ok()?;
        let deth = view.deth()?;
        let fits = view.bth.opcode() == Opcode::UD_SEND_ONLY
            && view.bth.tver() == 0
            && view.bth.pkey() & PARTITION == PARTITION
            && view.bth.dest_qp() == GSI
            && deth.src_qp == GSI
            && deth.qkey == mad::QKEY
            && view.payload.len() == mad::LEN;
        if !fits {
            return None;
        }
        let (covered, _) = frame.split_at_checked(frame.len().checked_sub(icrc::LEN)?)?;
        let syndrome = Flow::new(source, destination).syndrome(covered, icrc::read(frame)?);
        syndrome.any_id(&mut self.spans).map(|_| view.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::ROCE_PORT;
    use std::net::IpAddr;

    fn endpoint(ip: &str, udp_port: u16) -> Endpoint {
        Endpoint { address: ip.parse::<IpAddr>().unwrap().into(), udp_port }
    }

    #[test]
    fn a_sealed_mad_is_opened_and_a_changed_bit_is_not() {
        let mad: [u8; mad::LEN] = std::array::from_fn(|index| index as u8);
        for (here, there) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let here = endpoint(here, ROCE_PORT);
            let there = endpoint(there, ROCE_PORT);
            let mut gsi = Gsi::new();
            let frame = gsi.seal(here, there, &mad);
            assert_eq!(gsi.open(here, there, &frame), Some(&mad[..]));
            assert_eq!(
                gsi.open(endpoint("10.0.0.9", ROCE_PORT), there, &frame),
                None,
                "a frame from another source address"
            );
            // The ICRC does not cover the byte of the BTH with FECN and BECN.
            for index in (0..FRAME).filter(|index| *index != 4) {
                let mut changed = frame;
                changed[index] ^= 0x10;
                assert_eq!(gsi.open(here, there, &changed), None, "byte {index}");
                assert_eq!(gsi.open(here, there, &frame[..index]), None, "{index} bytes");
            }
        }
    }

    #[test]
    fn a_stranger_may_count_its_identifications() {
        let here = endpoint("10.0.0.1", 50_000);
        let there = endpoint("10.0.0.2", ROCE_PORT);
        let mut gsi = Gsi::new();
        let mut frame = gsi.seal(here, there, &[7; mad::LEN]);
        let covered = FRAME - icrc::LEN;
        let sealed = Flow::new(here, there).seal(0xbeef, &frame[..covered]);
        icrc::write(&mut frame, sealed);
        assert!(gsi.open(here, there, &frame).is_some());
    }

    #[test]
    fn other_queue_pairs_keys_partitions_and_lengths_are_no_mads() {
        let here = endpoint("10.0.0.1", ROCE_PORT);
        let there = endpoint("10.0.0.2", ROCE_PORT);
        let good = bth::Repr::new(Opcode::UD_SEND_ONLY, GSI, Psn::new(1));
        let key = deth::Repr { qkey: mad::QKEY, src_qp: GSI };
        let other = Qpn::new(2);
        let mut gsi = Gsi::new();
        for (bth, deth, len, taken) in [
            (good, key, mad::LEN, true),
            (bth::Repr { pkey: 0x7fff, ..good }, key, mad::LEN, true),
            (bth::Repr { pkey: 0x8001, ..good }, key, mad::LEN, false),
            (bth::Repr { dest_qp: other, ..good }, key, mad::LEN, false),
            (bth::Repr { tver: 1, ..good }, key, mad::LEN, false),
            (good, deth::Repr { src_qp: other, ..key }, mad::LEN, false),
            (good, deth::Repr { qkey: 1, ..key }, mad::LEN, false),
            (good, key, mad::LEN - 4, false),
            (good, key, mad::LEN + 4, false),
            (good, key, 0, false),
        ] {
            let payload = vec![1; len];
            let packet = Packet::new(bth, Extensions { deth: Some(deth), ..Extensions::NONE }, &payload);
            let mut frame = vec![0; packet.buffer_len()];
            let end = packet.emit(&mut frame);
            let sealed = Flow::new(here, there).seal(0, &frame[..end]);
            icrc::write(&mut frame, sealed);
            assert_eq!(gsi.open(here, there, &frame).is_some(), taken, "{bth} {deth} {len}");
        }
    }
}
