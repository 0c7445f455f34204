//! The properties of a frame that rules can match, read from its bytes without validating the packet.

use super::rules::Direction;
use remora_wire::frame::{Endpoint, Network, Start};
use remora_wire::{ethernet, udp};

/// The properties of a frame that rules can match.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// First byte after the UDP header: the op-code of a BTH, or the kind of a 1RMA message (E0 to E7).
    /// `None` if the frame is invalid or empty.
    pub opcode: Option<u8>,
    /// Receiver of a sent frame or sender of a received frame, if known.
    pub peer: Option<Endpoint>,
    /// Number of bytes from the BTH to the end of the ICRC, or length of a 1RMA message.
    pub len: usize,
}

impl Facts {
    /// Returns the facts of a frame that starts at `start`, and the offset of its BTH. `peer` is used if the
    /// frame does not contain it. An invalid frame has no op-code, and offset 0.
    pub fn of(start: Start, bytes: &[u8], direction: Direction, peer: Option<Endpoint>) -> (Facts, usize) {
        let below = match start {
            Start::Bth => Some((0, peer)),
            Start::Ip => below(bytes, direction),
            Start::Ethernet => bytes
                .get(ethernet::LEN..)
                .and_then(|packet| below(packet, direction))
                .map(|(offset, peer)| (ethernet::LEN + offset, peer)),
        };
        let (offset, peer) = below.unwrap_or((0, peer));
        let opcode = below.and_then(|_| bytes.get(offset).copied());
        (Facts { opcode, peer, len: bytes.len() - offset }, offset)
    }
}

/// Returns the length of the IP and UDP headers, and the remote endpoint.
fn below(packet: &[u8], direction: Direction) -> Option<(usize, Option<Endpoint>)> {
    let (network, payload) = Network::parse(packet).ok()?;
    let udp = udp::Repr::parse(&udp::View::new(payload).ok()?);
    let (source, destination) = network.addresses();
    let peer = match direction {
        Direction::Send => Endpoint { address: destination, udp_port: udp.destination_port },
        Direction::Receive => Endpoint { address: source, udp_port: udp.source_port },
    };
    Some((network.header_len() + udp::LEN, Some(peer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::frame::Route;
    use std::net::IpAddr;

    #[test]
    fn the_op_code_and_the_far_end_are_found_wherever_a_frame_begins() {
        for (near, far) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let [near, far] = [near, far].map(|ip| ip.parse::<IpAddr>().unwrap());
            let near = Endpoint { address: near.into(), udp_port: 1 };
            let far = Endpoint { address: far.into(), udp_port: 2 };
            for start in [Start::Ethernet, Start::Ip, Start::Bth] {
                let mut bytes = vec![0; 200];
                let offset = Route::new(near, far).emit(start, 0, 40, &mut bytes);
                bytes.truncate(offset + 40);
                bytes[offset] = 0x0c;
                let known = (start == Start::Bth).then_some(far);
                let facts = Facts::of(start, &bytes, Direction::Send, known);
                assert_eq!(facts, (Facts { opcode: Some(0x0c), peer: Some(far), len: 40 }, offset));
                if start != Start::Bth {
                    assert_eq!(Facts::of(start, &bytes, Direction::Receive, None).0.peer, Some(near));
                }
            }
        }
    }

    /// Checks that a rule matches a 1RMA message by the kind in `docs/reference/wire/frames.md`, independent
    /// of the UDP port.
    #[test]
    fn messages_of_1rma_are_known_by_their_first_byte() {
        let near = Endpoint { address: IpAddr::from([10, 0, 0, 1]).into(), udp_port: 1 };
        for kind in remora_wire::rma::Kind::ALL {
            for start in [Start::Ethernet, Start::Ip, Start::Bth] {
                let mut bytes = vec![0; 200];
                let offset = Route::new(near, near).emit(start, 0, 48, &mut bytes);
                bytes.truncate(offset + 48);
                bytes[offset] = kind as u8;
                let facts = Facts::of(start, &bytes, Direction::Send, Some(near)).0;
                assert_eq!(facts, Facts { opcode: Some(kind as u8), peer: Some(near), len: 48 });
                let rules = format!("[[rule]]\nfault = 'drop'\nopcodes = [{:#04x}]", kind as u8);
                let mut policy = crate::Policy::new(&crate::Rules::parse(&rules).unwrap());
                assert_eq!(policy.judge(Direction::Send, &facts), crate::Verdict::Drop);
                let other = Facts { opcode: Some(kind as u8 ^ 1), ..facts };
                assert_eq!(policy.judge(Direction::Send, &other), crate::Verdict::Pass);
            }
        }
    }

    #[test]
    fn what_is_no_frame_has_no_op_code() {
        for start in [Start::Ethernet, Start::Ip, Start::Bth] {
            let facts = Facts::of(start, &[], Direction::Receive, None);
            assert_eq!(facts, (Facts { opcode: None, peer: None, len: 0 }, 0));
        }
        assert_eq!(Facts::of(Start::Ip, &[0x45; 60], Direction::Receive, None).0.opcode, None);
    }
}
