//! Unreliable datagram: each message is one packet to whomever it names, and may be lost (IBTA vol. 1
//! §9.8.3).
//!
//! A receiver takes a datagram from any sender that knows its Q_Key, and keeps no sequence: a duplicate
//! arrives twice.

use crate::rc::{Kind, Retired};
use crate::{Notice, Status};
use remora_wire::prism::Verdict;
use remora_wire::{Extensions, Opcode, Psn, Qpn, deth, immdt, packet};

/// Where a datagram goes, beside its address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The queue pair there; all ones for a multicast group.
    pub qp: Qpn,
    /// The Q_Key that it wants. With the highest bit set the sender's own is sent instead (IBTA vol. 1
    /// §10.2.5).
    pub qkey: u32,
}

/// Q_Keys with this bit are not a program's to name: its queue pair's own stands for them.
const CONTROLLED: u32 = 1 << 31;

/// A datagram as submitted, with a context `D` of the NIC.
#[derive(Copy, Clone, Debug)]
pub struct Datagram<D> {
    /// Where it goes.
    pub to: Destination,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Bytes: no more than the port's MTU.
    pub len: u32,
    /// Asks for a solicited event.
    pub solicited: bool,
    /// The NIC's context.
    pub context: D,
}

impl<D: Copy> Datagram<D> {
    /// What it is as a message.
    fn kind(&self) -> Kind {
        self.imm.map_or(Kind::Send, Kind::SendImm)
    }

    /// It has ended.
    pub fn retired(&self, status: Status) -> Retired<D> {
        Retired { context: self.context, len: self.len, kind: self.kind(), status, verdict: Verdict::Done }
    }
}

/// The packet of a datagram: everything but the bytes.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Op-code.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// The queue pair that it is for.
    pub to: Qpn,
    /// Solicited event.
    pub solicited: bool,
    /// Extension headers.
    pub ext: Extensions,
    /// Payload bytes.
    pub len: u32,
}

/// The sender: one datagram at a time is on its way out.
#[derive(Clone, Debug)]
pub struct Sender<D> {
    psn: Psn,
    own: Qpn,
    /// The queue pair's Q_Key.
    pub qkey: u32,
    current: Option<Datagram<D>>,
}

impl<D: Copy> Sender<D> {
    /// A sender of queue pair `own` with this Q_Key, whose first packet carries `first`.
    pub fn new(first: Psn, own: Qpn, qkey: u32) -> Self {
        Sender { psn: first, own, qkey, current: None }
    }

    /// Is a datagram under way?
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Takes a datagram. The caller has checked that none is under way.
    pub fn submit(&mut self, datagram: Datagram<D>) {
        debug_assert!(self.current.is_none());
        self.current = Some(datagram);
    }

    /// The context of the datagram under way.
    pub fn context(&self) -> Option<&D> {
        self.current.as_ref().map(|datagram| &datagram.context)
    }

    /// The packet that would leave now.
    pub fn plan(&self) -> Option<Plan> {
        let Datagram { to, imm, len, solicited, .. } = self.current.as_ref()?;
        let qkey = if to.qkey & CONTROLLED != 0 { self.qkey } else { to.qkey };
        let ext = Extensions {
            deth: Some(deth::Repr { qkey, src_qp: self.own }),
            imm: imm.map(|value| immdt::Repr { value }),
            ..Extensions::NONE
        };
        let opcode = if imm.is_some() { Opcode::UD_SEND_ONLY_IMM } else { Opcode::UD_SEND_ONLY };
        Some(Plan { opcode, psn: self.psn, to: to.qp, solicited: *solicited, ext, len: *len })
    }

    /// The planned packet has left, and the datagram has ended with it.
    pub fn sent(&mut self) -> Option<Retired<D>> {
        self.psn = self.psn.next();
        self.end(Status::Success)
    }

    /// Asserts that the datagram under way fits one packet of `mtu` bytes.
    pub fn check(&self, mtu: u32) {
        if let Some(datagram) = &self.current {
            assert!(datagram.len <= mtu, "a datagram is one packet");
        }
    }

    /// Ends the datagram under way with this status.
    pub fn end(&mut self, status: Status) -> Option<Retired<D>> {
        self.current.take().map(|datagram| datagram.retired(status))
    }
}

/// The notice of a datagram for a queue pair with this Q_Key, and the queue pair that sent it. None: its
/// Q_Key is another.
pub fn receive(packet: &packet::View<'_>, qkey: u32) -> Option<(Notice, Qpn)> {
    let deth = packet.deth().filter(|deth| deth.qkey == qkey)?;
    let notice = Notice {
        len: packet.payload.len() as u32,
        imm: packet.imm().map(|imm| imm.value),
        invalidate: None,
        solicited: packet.bth.solicited,
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
        let (notice, from) = receive(&packet, 0x2222).unwrap();
        assert_eq!((notice.len, notice.imm, notice.solicited, from), (8, Some(9), true, OWN));
        for wrong in [0, 0x2223, 0x8000_2222] {
            assert_eq!(receive(&packet, wrong), None);
        }
    }
}
