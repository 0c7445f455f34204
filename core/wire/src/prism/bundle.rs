//! PRISM bundles: several packets of one queue pair in one frame, used between peers that agreed on PRISM.
//!
//! ```text
//!        0               1               2               3
//!  +-------------------------------+-------------------------------+
//! 0|   bytes of the packet (n)     |               0               |
//!  +-------------------------------+-------------------------------+
//! 4|  a packet as it travels alone, from its BTH to its pad         |
//!  +---------------------------------------------------------------+
//! 4 + n: the next one
//! ```
//!
//! This is the payload of a packet with op-code [`Opcode::BUNDLE`] and the PSN of its first packet. The
//! packets are processed in order, as if each had arrived alone. A bundle may not contain a bundle.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use crate::packet::View;
use crate::{Opcode, WireError};

/// Length of the header before each packet, in bytes.
pub const HEAD: usize = 4;

/// Writes the header of a packet of `len` bytes at the start of `out`. Panics if `out` is shorter.
#[inline]
pub fn emit_head(len: usize, out: &mut [u8]) {
    let head = [U16::new(len as u16), U16::new(0)];
    out[..HEAD].copy_from_slice(head.as_bytes());
}

/// Iterator over the packets in the payload of a bundle.
#[derive(Copy, Clone, Debug)]
pub struct Parts<'a>(&'a [u8]);

/// Returns the packets in the payload of a bundle.
pub fn parts(payload: &[u8]) -> Parts<'_> {
    Parts(payload)
}

impl<'a> Parts<'a> {
    #[inline(always)]
    fn part(&mut self) -> Result<View<'a>, WireError> {
        let (len, _) = U16::read_from_prefix(self.0).map_err(|_| WireError::Truncated)?;
        let packet = self.0.get(HEAD..HEAD + usize::from(len.get())).ok_or(WireError::Truncated)?;
        self.0 = &self.0[HEAD + packet.len()..];
        let view = View::unsealed(packet)?;
        if view.bth.opcode() == Opcode::BUNDLE {
            return Err(WireError::UnknownOpcode(Opcode::BUNDLE.0));
        }
        Ok(view)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<View<'a>, WireError>;

    /// Ends after the first invalid packet.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Extensions, Psn, Qpn, aeth, atomic_ack, bth, icrc, packet};

    fn answer(psn: u32, payload: &[u8]) -> Vec<u8> {
        let bth = bth::Repr::new(Opcode::RC_ATOMIC_ACKNOWLEDGE, Qpn::new(7), Psn::new(psn));
        let ext = Extensions {
            aeth: Some(aeth::Repr { syndrome: crate::Syndrome::ack(aeth::NO_CREDITS), msn: 1 }),
            atomic_ack: Some(atomic_ack::Repr { original: u64::from(psn) }),
            ..Extensions::default()
        };
        let packet = packet::Packet::new(bth, ext, payload);
        let mut bytes = vec![0; packet.buffer_len() - icrc::LEN];
        packet.emit(&mut bytes);
        bytes
    }

    fn bundle(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for packet in packets {
            let mut head = [0; HEAD];
            emit_head(packet.len(), &mut head);
            bytes.extend(head);
            bytes.extend(packet);
        }
        bytes
    }

    #[test]
    fn packets_come_out_as_they_went_in() {
        let bytes = bundle(&[answer(1, &[]), answer(2, &[5; 24]), answer(3, &[6; 3])]);
        let parts: Vec<_> = parts(&bytes).map(|part| part.unwrap()).collect();
        let seen: Vec<_> = parts.iter().map(|part| (part.bth.psn().get(), part.payload.len())).collect();
        assert_eq!(seen, [(1, 0), (2, 24), (3, 3)]);
        assert_eq!(parts[1].atomic_ack().unwrap().original, 2);
    }

    #[test]
    fn what_makes_no_sense_ends_it() {
        let whole = bundle(&[answer(1, &[]), answer(2, &[])]);
        for len in 0..whole.len() {
            let good = parts(&whole[..len]).filter(Result::is_ok).count();
            assert!(good <= usize::from(len >= whole.len() / 2), "{len}");
            assert_eq!(
                parts(&whole[..len]).filter(Result::is_err).count(),
                usize::from(len % 28 != 0),
                "{len}"
            );
        }
        let inner = bth::Repr::new(Opcode::BUNDLE, Qpn::new(7), Psn::new(1));
        let mut bytes = vec![0; bth::LEN];
        inner.emit(&mut bytes);
        assert_eq!(
            parts(&bundle(&[bytes])).next().unwrap().err(),
            Some(WireError::UnknownOpcode(Opcode::BUNDLE.0))
        );
        assert!(parts(&[0, 0, 0, 0]).next().unwrap().is_err(), "a packet of no bytes");
    }
}
