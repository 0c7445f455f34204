//! Packets of a hostile peer with any opcode, PSN, key, length and payload, and a valid ICRC.

use arbitrary::Arbitrary;
use remora_fabric::forge::Forge;
use remora_memory::Key;
use remora_wire::irn::{Additions, fetch, message, sack};
use remora_wire::{
    Extensions, Opcode, Operation, Packet, Psn, Qpn, Syndrome, aeth, atomic_ack, atomic_eth, bth, deth, ieth,
    immdt, reth, xrceth,
};

use crate::hostile_address::{Edge, HostileAddress};
use crate::node_memory::{NodeMemory, harmless};

/// The upper three bits of the opcodes of unreliable services.
const UC: u8 = 0x20;
const UD: u8 = 0x60;
/// The maximum payload in bytes.
const LONGEST: u16 = 1200;

/// The lengths of regions, receives, windows and atomics, and neighbouring values.
const EDGES: [u32; 15] = [0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 2048];
/// The opcodes of requests that need no earlier packet.
const STARTS: [Opcode; 7] = [
    Opcode::RC_SEND_ONLY,
    Opcode::RC_RDMA_WRITE_FIRST,
    Opcode::RC_RDMA_WRITE_ONLY,
    Opcode::RC_RDMA_WRITE_ONLY_IMM,
    Opcode::RC_RDMA_READ_REQUEST,
    Opcode::RC_FETCH_ADD,
    Opcode::RC_SEND_ONLY_INV,
];
/// The number of packets in 256 whose lengths do not fit their opcode.
const ODD: u8 = 0x40;
/// The lowest value of [`Crafted::fit`] for a probe: a packet that is valid except for a bound or a right.
const PROBE: u8 = 0xd0;
/// The opcodes of the probes on a reliable connection, and their lengths. An unreliable connection uses only
/// the first one.
const PROBES: [Opcode; 4] =
    [Opcode::RC_RDMA_WRITE_ONLY, Opcode::RC_RDMA_READ_REQUEST, Opcode::RC_FETCH_ADD, Opcode::RC_COMPARE_SWAP];
const PROBE_LENGTHS: [u32; 4] = [16, 1, 64, 200];
/// The maximum length of a READ that fits its opcode.
const WHOLE: u32 = 2048;

/// A length in bytes, often at a limit.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub enum Length {
    /// The given number of packets of the path MTU.
    Packets(u8),
    /// The given number of packets, and then the given number of bytes more.
    More(u8, u8),
    /// The given number of bytes.
    Few(u8),
    /// An entry of [`EDGES`], the lengths at known limits.
    Edge(u8),
    /// An arbitrary length.
    Any(u32),
}

impl Length {
    /// Returns the length in bytes.
    pub fn bytes(self, mtu: u32) -> u32 {
        match self {
            Length::Packets(count) => u32::from(count) * mtu,
            Length::More(count, more) => u32::from(count) * mtu + u32::from(more),
            Length::Few(bytes) => u32::from(bytes),
            Length::Edge(which) => EDGES[usize::from(which) % EDGES.len()],
            Length::Any(bytes) => bytes,
        }
    }
}

/// A packet of a hostile peer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Crafted {
    /// The choice of the opcode: the operation in the lower five bits, a starting request, or any opcode.
    opcode: u8,
    flags: u8,
    /// The distance from the next PSN, which is mostly zero.
    psn: i8,
    /// The choice of validity: below [`ODD`] any lengths, from [`PROBE`] on a probe that ignores most other
    /// fields.
    fit: u8,
    place: HostileAddress,
    payload: Length,
    total: Length,
    syndrome: u8,
    operand: u32,
    number: u8,
}

/// The connection that a packet attacks: the sender that the packet imitates, and the victim's memory.
pub struct Context<'a> {
    /// The builder of frames that seem to come from the peer.
    pub forge: &'a Forge,
    /// The victim's memory.
    pub memory: &'a NodeMemory,
    /// The key of the memory window in it.
    pub window: Key,
    /// The path MTU of the connection in bytes.
    pub mtu: u32,
    /// The upper three bits of the connection's opcodes.
    pub service: u8,
    /// True if the connection uses IRN.
    pub irn: bool,
    /// The next PSN of requests, and of answers.
    pub cursor: &'a mut [u32; 2],
    /// The remaining bytes of the message in progress.
    pub left: &'a mut u32,
    /// The number of READs and atomics sent as probes so far.
    pub fetches: &'a mut u32,
    /// The Q_Key of datagrams.
    pub qkey: u32,
    /// The number of the XRC shared receive queue.
    pub srq: Qpn,
}

impl Crafted {
    fn opcode(&self, service: u8) -> Opcode {
        match self.opcode {
            ..0x60 => Opcode(service | self.opcode & 0x1f),
            0x60..0xe0 => Opcode(service | STARTS[usize::from(self.opcode) % STARTS.len()].0),
            _ => Opcode(self.operand as u8),
        }
    }

    /// Returns the distance from the next PSN: mostly 0, otherwise a few packets, or about the window of a
    /// peer with IRN.
    fn distance(&self) -> i32 {
        match self.psn {
            few @ -16..=16 => i32::from(few),
            far @ 96.. => i32::from(far) + 24,
            _ => 0,
        }
    }

    /// Returns the bytes of payload and of the whole message. `left` is updated to the bytes that are still
    /// to follow.
    fn lengths(&self, opcode: Opcode, mtu: u32, left: &mut u32) -> (u32, u32) {
        let payload = self.payload.bytes(mtu);
        let total = self.total.bytes(mtu);
        if self.fit < ODD {
            return (payload, total);
        }
        match opcode.operation() {
            Some(Operation::Send | Operation::Write) if opcode.is_first() => {
                *left = 1 + total % (3 * mtu);
                (mtu, mtu + *left)
            }
            Some(Operation::Send | Operation::Write) if opcode.is_middle() => {
                *left = left.saturating_sub(mtu).max(1);
                (mtu, *left)
            }
            Some(Operation::Send | Operation::Write) if opcode.is_last() => {
                let all = (*left).clamp(1, mtu);
                (all, all)
            }
            Some(Operation::Send | Operation::Write) => (payload.min(mtu), payload.min(mtu)),
            _ if opcode.has_payload() => (payload.min(mtu), total),
            _ => (0, total % WHOLE),
        }
    }

    fn bth(&self, context: &mut Context<'_>) -> bth::Repr {
        let opcode = self.opcode(context.service);
        let cursor = &mut context.cursor[usize::from(opcode.is_response())];
        let psn = Psn::new(cursor.wrapping_add_signed(self.distance()) & 0x00ff_ffff);
        // A repeated or early packet does not advance the next PSN.
        if self.distance() == 0 {
            *cursor = (*cursor + 1) & 0x00ff_ffff;
        }
        let right = context.forge.bth(opcode, psn.get());
        let bth = bth::Repr {
            ack_req: self.flags & 1 == 0,
            solicited: self.flags & 2 != 0,
            becn: self.flags & 4 != 0,
            fecn: self.flags & 8 != 0,
            ..right
        };
        match self.flags >> 4 {
            0xf => bth::Repr { tver: 1, ..bth },
            0xe => bth::Repr { pkey: self.operand as u16, ..bth },
            0xd => bth::Repr { dest_qp: unknown_qpn(self.operand), ..bth },
            0xc => bth::Repr { resv6: 0x2a, resv7: 0x55, mig_req: false, ..bth },
            _ => bth,
        }
    }

    fn extensions(
        &self,
        opcode: Opcode,
        key: Key,
        va: u64,
        dma_len: u32,
        context: &Context<'_>,
    ) -> Extensions {
        let rkey = key.get();
        // The upper bits are zeros, so that an operand cannot contain bytes of the secret.
        let swap_add = u64::from(self.operand);
        let compare = u64::from(self.number) * 0x11;
        let qkey = if self.number < 0xf0 { context.qkey } else { self.operand };
        let srq = if self.number < 0xf0 { context.srq } else { Qpn::new(self.operand & 0x00ff_ffff) };
        Extensions {
            xrceth: opcode.has_xrceth().then_some(xrceth::Repr { srq }),
            deth: opcode.has_deth().then_some(deth::Repr { qkey, src_qp: Qpn::new(self.operand & 0xff) }),
            reth: opcode.has_reth().then_some(reth::Repr { va, rkey, dma_len }),
            atomic: opcode.has_atomic_eth().then_some(atomic_eth::Repr { va, rkey, swap_add, compare }),
            aeth: opcode
                .has_aeth()
                .then_some(aeth::Repr { syndrome: Syndrome(self.syndrome), msn: self.operand & 0x00ff_ffff }),
            atomic_ack: opcode.has_atomic_ack().then_some(atomic_ack::Repr { original: swap_add }),
            imm: opcode.has_imm().then_some(immdt::Repr { value: self.operand }),
            ieth: opcode.has_ieth().then_some(ieth::Repr { rkey }),
        }
    }

    /// Builds IRN's additional headers for a packet of this opcode.
    fn additions(&self, bth: &bth::Repr, ext: &Extensions, dma_len: u32, context: &Context<'_>) -> Additions {
        let (key, va) = self.place.of(context.memory, context.window, u64::from(dma_len));
        let rest = reth::Repr { va, rkey: key.get(), dma_len };
        let number = u32::from(self.number & 0x0f);
        let message = message::Repr { number, offset: self.payload.bytes(context.mtu).wrapping_mul(number) };
        let arrived = Psn::new(bth.psn.get().wrapping_add(u32::from(self.number)) & 0x00ff_ffff);
        let shapes = (0..16u8).map(|bits| Additions {
            reth: (bits & 1 != 0).then_some(rest),
            message: (bits & 2 != 0).then_some(message),
            fetch: (bits & 4 != 0).then_some(fetch::Repr { number }),
            sack: (bits & 8 != 0).then_some(sack::Repr { psn: arrived }),
        });
        let syndrome = ext.aeth.map(|aeth| aeth.syndrome);
        let mut fitting = shapes.filter(|additions| additions.fit(bth.opcode, syndrome));
        fitting.next().unwrap_or_default()
    }

    /// Builds a request in order, at or beyond the end of a region, with the region's own key. Only checks of
    /// bounds and rights can refuse it.
    fn probe(&self, context: &mut Context<'_>) -> Vec<u8> {
        let among = if context.service == UC { 1 } else { PROBES.len() };
        let plain = PROBES[usize::from(self.opcode) % among];
        let opcode = Opcode(context.service | plain.0);
        let total = if opcode.has_atomic_eth() { 8 } else { PROBE_LENGTHS[usize::from(self.number) % 4] };
        let edge = Edge { region: self.flags, over: self.operand as u8 };
        let (key, va) = edge.of(context.memory, context.window, total.into());
        let cursor = &mut context.cursor[0];
        let bth = context.forge.bth(opcode, *cursor);
        *cursor = (*cursor + 1) & 0x00ff_ffff;
        let ext = self.extensions(opcode, key, va, total, context);
        let mut payload = Vec::new();
        if plain == Opcode::RC_RDMA_WRITE_ONLY {
            payload.resize(total as usize, 0xee);
        } else if context.irn {
            payload.resize(fetch::LEN, 0);
            fetch::Repr { number: *context.fetches & 0x00ff_ffff }.emit(&mut payload);
            *context.fetches += 1;
        }
        let pad = remora_wire::packet::pad_for(payload.len());
        context.forge.frame(bth::Repr { ack_req: true, pad, ..bth }, ext, &payload)
    }

    /// Builds the whole frame.
    pub fn frame(&self, context: &mut Context<'_>) -> Vec<u8> {
        if self.fit >= PROBE && context.service != UD {
            return self.probe(context);
        }
        let bth = self.bth(context);
        let (payload, total) = self.lengths(bth.opcode, context.mtu, context.left);
        let len = payload.min(u32::from(LONGEST)) as usize;
        if !bth.opcode.is_known() {
            let mut transport = vec![self.number; bth::LEN + len];
            harmless(&mut transport);
            bth.emit(&mut transport);
            return context.forge.wrap(transport);
        }
        let (key, va) = self.place.of(context.memory, context.window, u64::from(total));
        let ext = self.extensions(bth.opcode, key, va, total, context);
        let mut payload = [0; remora_wire::irn::MAX_LEN].to_vec();
        let added =
            if context.irn { self.additions(&bth, &ext, total, context).emit(&mut payload) } else { 0 };
        payload.truncate(added);
        payload.resize(added + len, 0xee);
        let packet = Packet::new(bth, ext, &payload);
        context.forge.frame(packet.bth, ext, &payload)
    }
}

/// Returns the number of a queue pair that no other connection has, because a frame that is forged in a
/// peer's name may end that peer's connection.
fn unknown_qpn(operand: u32) -> Qpn {
    const OTHERS: u32 = 0x10;
    let number = operand & 0x00ff_ffff;
    Qpn::new(if number < 2 { number } else { number | OTHERS })
}

/// Builds a sealed frame with arbitrary bytes after a valid base header.
pub fn behind(context: &mut Context<'_>, opcode: u8, psn: i8, bytes: &[u8]) -> Vec<u8> {
    let at = context.cursor[0].wrapping_add_signed(i32::from(psn)) & 0x00ff_ffff;
    let mut transport = vec![0; bth::LEN];
    context.forge.bth(Opcode(opcode), at).emit(&mut transport);
    transport.extend_from_slice(bytes);
    harmless(&mut transport[bth::LEN..]);
    context.forge.wrap(transport)
}
