//! Unreliable datagram (UD): each message is one packet to a destination of its own, and may be lost (IBTA
//! vol. 1 §9.8.3).
//!
//! A receiver accepts datagrams from every sender that knows its Q_Key. PSNs are not checked, so a
//! duplicated datagram is delivered twice.

use crate::rc::{Kind, Retired};
use crate::{Notice, Status};
use remora_wire::prism::Verdict;
use remora_wire::{Extensions, Opcode, Psn, Qpn, deth, immdt, packet};

/// The destination of a datagram, without its network address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Destination queue pair number; all ones for a multicast group.
    pub qp: Qpn,
    /// Q_Key of the destination. If the highest bit is set, the Q_Key of the sender's queue pair is sent
    /// instead (IBTA vol. 1 §10.2.5).
    pub qkey: u32,
}

/// Bit of controlled Q_Keys, which a program may not choose per datagram.
const CONTROLLED: u32 = 1 << 31;

/// A submitted datagram, with a context `D` of the NIC.
#[derive(Copy, Clone, Debug)]
pub struct Datagram<D> {
    /// Destination of the datagram.
    pub to: Destination,
    /// Immediate data of the message.
    pub imm: Option<u32>,
    /// Length in bytes, at most the port's MTU.
    pub len: u32,
    /// Requests a solicited event at the receiver.
    pub solicited: bool,
    /// Context of the NIC.
    pub context: D,
}

impl<D: Copy> Datagram<D> {
    /// Returns the corresponding kind of message.
    fn kind(&self) -> Kind {
        self.imm.map_or(Kind::Send, Kind::SendImm)
    }

    /// Returns the finished datagram with this status.
    pub fn retired(&self, status: Status) -> Retired<D> {
        Retired { context: self.context, len: self.len, kind: self.kind(), status, verdict: Verdict::Done }
    }
}

/// The next packet without its payload.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Op-code of the packet.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// Destination queue pair number.
    pub to: Qpn,
    /// Solicited-event bit of the BTH.
    pub solicited: bool,
    /// Extension headers of the packet.
    pub ext: Extensions,
    /// Length of the payload in bytes.
    pub len: u32,
}

/// The sender, which holds at most one datagram.
#[derive(Clone, Debug)]
pub struct Sender<D> {
    psn: Psn,
    own: Qpn,
    /// Q_Key of the queue pair.
    pub qkey: u32,
    current: Option<Datagram<D>>,
}

impl<D: Copy> Sender<D> {
    /// Returns a sender for queue pair `own` with this Q_Key, whose first packet has PSN `first`.
    pub fn new(first: Psn, own: Qpn, qkey: u32) -> Self {
        Sender { psn: first, own, qkey, current: None }
    }

    /// Returns true if a datagram waits to be sent.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Submits a datagram. The caller has checked `is_busy`.
    pub fn submit(&mut self, datagram: Datagram<D>) {
        debug_assert!(self.current.is_none());
        self.current = Some(datagram);
    }

    /// Returns the context of the current datagram.
    pub fn context(&self) -> Option<&D> {
        self.current.as_ref().map(|datagram| &datagram.context)
    }

    /// Returns the next packet, or `None` if there is no datagram.
    pub fn plan(&self) -> Option<Plan> {
        let Datagram { to: destination, imm, len, solicited, .. } = self.current.as_ref()?;
        let qkey = if destination.qkey & CONTROLLED != 0 { self.qkey } else { destination.qkey };
        let ext = Extensions {
            deth: Some(deth::Repr { qkey, src_qp: self.own }),
            imm: imm.map(|value| immdt::Repr { value }),
            ..Extensions::NONE
        };
        let opcode = if imm.is_some() { Opcode::UD_SEND_ONLY_IMM } else { Opcode::UD_SEND_ONLY };
        Some(Plan { opcode, psn: self.psn, to: destination.qp, solicited: *solicited, ext, len: *len })
    }

    /// Records that the planned packet was sent, which ends the datagram.
    pub fn sent(&mut self) -> Option<Retired<D>> {
        self.psn = self.psn.next();
        self.end(Status::Success)
    }

    /// Asserts that the current datagram fits one packet of `mtu` bytes.
    pub fn check(&self, mtu: u32) {
        if let Some(datagram) = &self.current {
            assert!(datagram.len <= mtu, "a datagram fits one packet");
        }
    }

    /// Ends the current datagram with this status.
    pub fn end(&mut self, status: Status) -> Option<Retired<D>> {
        self.current.take().map(|datagram| datagram.retired(status))
    }
}

/// Returns the completion information of a received datagram and its source queue pair. Returns `None` if
/// the datagram's Q_Key differs from `qkey`.
pub fn receive(packet: &packet::View<'_>, qkey: u32) -> Option<(Notice, Qpn)> {
    let deth = packet.deth().filter(|deth| deth.qkey == qkey)?;
    let notice = Notice {
        len: packet.payload.len() as u32,
        imm: packet.imm().map(|imm| imm.value),
        invalidate: None,
        solicited: packet.bth.solicited(),
        write: false,
    };
    Some((notice, deth.src_qp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::{Packet, bth};

    const OWN: Qpn = Qpn::new(17);

    fn datagram(qkey: u32, imm: Option<u32>) -> Datagram<u8> {
        Datagram { to: Destination { qp: Qpn::new(5), qkey }, imm, len: 8, solicited: true, context: 1 }
    }

    #[test]
    fn a_datagram_names_its_sender_and_bears_the_key_that_it_was_given() {
        let mut sender = Sender::new(Psn::new(0xff_ffff), OWN, 0x1111);
        for (imm, opcode) in [(None, Opcode::UD_SEND_ONLY), (Some(9), Opcode::UD_SEND_ONLY_IMM)] {
            sender.submit(datagram(0x2222, imm));
            let plan = sender.plan().unwrap();
            assert_eq!((plan.opcode, plan.to, plan.len), (opcode, Qpn::new(5), 8));
            assert_eq!(plan.ext.deth, Some(deth::Repr { qkey: 0x2222, src_qp: OWN }));
            assert_eq!(plan.ext.imm.map(|imm| imm.value), imm);
            assert_eq!(sender.sent().map(|retired| retired.status), Some(Status::Success));
        }
        sender.submit(datagram(0x8000_0000, None));
        let plan = sender.plan().unwrap();
        assert_eq!((plan.psn, plan.ext.deth.map(|deth| deth.qkey)), (Psn::new(1), Some(0x1111)));
    }

    #[test]
    fn only_the_right_key_opens() {
        let mut sender = Sender::new(Psn::new(3), OWN, 1);
        sender.submit(datagram(0x2222, Some(9)));
        let plan = sender.plan().unwrap();
        let bth = bth::Repr { solicited: true, ..bth::Repr::new(plan.opcode, plan.to, plan.psn) };
        let packet = Packet::new(bth, plan.ext, &[0; 8]);
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes);
        let packet = packet::View::new(&bytes).unwrap();
        let (notice, source) = receive(&packet, 0x2222).unwrap();
        assert_eq!((notice.len, notice.imm, notice.solicited, source), (8, Some(9), true, OWN));
        for wrong in [0, 0x2223, 0x8000_2222] {
            assert_eq!(receive(&packet, wrong), None);
        }
    }
}
