//! PRISM packets of a hostile peer with any flags, addresses, pointers, bounds, operands and masks, and a
//! valid ICRC.

use arbitrary::Arbitrary;
use remora_memory::Key;
use remora_wire::irn::{Additions, fetch};
use remora_wire::prism::operands::{self, Mode, Number, Operand};
use remora_wire::prism::operation_list::{self, Target};
use remora_wire::prism::{Flags, SCRATCH, addresses};
use remora_wire::{Extensions, Opcode, Psn, atomic_eth, bth, reth};

use crate::crafted::{Context, Length};
use crate::hostile_address::{Edge, HostileAddress};
use crate::node_memory::harmless;

/// The number of packets in 256 whose flags and lengths do not fit their opcode.
const ODD: u8 = 0x30;
/// The lowest value of [`Flagged::fit`] for a probe: a packet that is valid except for a bound or a right.
const PROBE: u8 = 0xc0;
/// The opcodes of the probes with their flags, and the lengths.
const PROBES: [(Opcode, Flags); 4] = [
    (Opcode::RC_RDMA_READ_REQUEST, Flags::CONDITIONAL),
    (Opcode::RC_RDMA_WRITE_ONLY, Flags::CONDITIONAL),
    (Opcode::RC_COMPARE_SWAP, Flags::EXTENDED),
    (Opcode::RC_FETCH_ADD, Flags::CONDITIONAL),
];
const PROBE_LENGTHS: [u32; 4] = [16, 8, 32, 64];
/// The maximum length of a packet that fits its opcode.
const WHOLE: u32 = 3000;

/// A remote address in a packet.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub enum PacketAddress {
    /// A pointer with its bound, in the open region.
    Pointer(u8),
    /// A word of the open region.
    Open(u8),
    /// An address in scratch memory, or near its start or end.
    Scratch(u8),
    /// An arbitrary hostile address.
    HostileAddress(HostileAddress),
}

/// The number of pointers at the start of the open region, of 16 bytes each.
pub const POINTERS: usize = 8;

impl PacketAddress {
    /// Returns the key and the address for an access of `len` bytes.
    pub fn of(self, context: &Context<'_>, len: u64) -> (Key, u64) {
        let open = context.memory.open(0);
        match self {
            PacketAddress::Pointer(which) => {
                (open.rkey, open.addr + 16 * (u64::from(which) % POINTERS as u64))
            }
            PacketAddress::Open(which) => (open.rkey, open.addr + 8 * (u64::from(which) % 128)),
            PacketAddress::Scratch(at @ ..0xe0) => (open.rkey, SCRATCH + 8 * u64::from(at & 3)),
            PacketAddress::Scratch(at) => (open.rkey, (SCRATCH - 8).wrapping_add(u64::from(at & 0x1f) * 2)),
            PacketAddress::HostileAddress(place) => place.of(context.memory, context.window, len),
        }
    }
}

/// A PRISM packet of a hostile peer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Flagged {
    verb: u8,
    flags: u8,
    /// The choice of validity: below [`ODD`] any flags and lengths, from [`PROBE`] on a probe that ignores
    /// most other fields.
    fit: u8,
    psn: i8,
    target: PacketAddress,
    redirect: PacketAddress,
    source: PacketAddress,
    len: Length,
    /// The mode, the size, the choice of masks, and the operands that are in the responder's memory.
    shape: u16,
    numbers: [u16; 2],
    /// The offset of a byte after the headers, and the change of that byte.
    bent: Option<(u8, u8)>,
}

/// The state that a peer keeps of its own packets.
#[derive(Copy, Clone, Debug, Default)]
pub struct Progress {
    flags: u8,
    left: u32,
    /// The number of READs, atomics and PRISM operations so far.
    fetches: u32,
}

/// Returns the flags that the opcode may have, including the required ones.
fn fitting(opcode: Opcode, bits: u8) -> Flags {
    let without = |flags: Flags| bits & !flags.bits();
    let indirect = Flags::ADDR_INDIRECT;
    let bounded = Flags::ADDR_BOUNDED;
    let bits = match opcode {
        Opcode::RC_RDMA_READ_REQUEST => {
            without(Flags::DATA_INDIRECT.and(Flags::ALLOCATE).and(Flags::EXTENDED))
        }
        Opcode::RC_COMPARE_SWAP => without(bounded.and(Flags::ALLOCATE)) | Flags::EXTENDED.bits(),
        Opcode::RC_FETCH_ADD => without(bounded.and(Flags::ALLOCATE)),
        _ if bits & Flags::ALLOCATE.bits() != 0 => without(indirect.and(bounded).and(Flags::EXTENDED)),
        _ => without(Flags::REDIRECT.and(Flags::EXTENDED)),
    };
    let alone = bits & bounded.bits() != 0 && bits & indirect.bits() == 0;
    Flags::from_bits(if alone { bits | indirect.bits() } else { bits })
}

impl Flagged {
    fn opcode(&self, progress: &Progress) -> Opcode {
        match self.verb {
            ..0x40 => Opcode::RC_RDMA_READ_REQUEST,
            // Mostly, the message in progress continues.
            _ if progress.left > 0 && self.verb < 0xe0 => Opcode::RC_RDMA_WRITE_LAST,
            0x40..0x70 => Opcode::RC_RDMA_WRITE_ONLY,
            0x70..0x90 => Opcode::RC_RDMA_WRITE_FIRST,
            0x90..0xc0 => Opcode::RC_COMPARE_SWAP,
            0xc0..0xe0 => Opcode::RC_FETCH_ADD,
            0xe0..0xf0 => Opcode::RC_RDMA_WRITE_MIDDLE,
            _ => Opcode(self.verb & 0x1f),
        }
    }

    fn operand(&self, which: usize, number: Number, context: &Context<'_>) -> Operand {
        let size = u64::from(self.size());
        match self.shape >> (6 + which) & 1 {
            0 => Operand::Immediate(number),
            _ => Operand::At([self.redirect, self.source][which].of(context, size).1),
        }
    }

    fn size(&self) -> u8 {
        [8, 16, 32, 32][usize::from(self.shape >> 3 & 3)]
    }

    /// Writes the operands that follow an atomic's addresses, and returns the operand fields of its header.
    fn operands(&self, swaps: bool, context: &Context<'_>, out: &mut Vec<u8>) -> (u64, u64) {
        let limbs = usize::from(self.size()) / 8;
        let number = |kind: u16, value: u16| -> Number {
            std::array::from_fn(|limb| match kind & 3 {
                _ if limb >= limbs => 0,
                0 => 0,
                1 => u64::from(value),
                2 => u64::MAX,
                _ => 0xff << (value & 0x3f),
            })
        };
        let [compare, swap] = self.numbers;
        let operands = operands::Repr {
            mode: if swaps { Mode::ALL[usize::from(self.shape & 7) % 6] } else { Mode::Equal },
            size: self.size(),
            compare_mask: number(self.shape >> 8, compare),
            swap_mask: if swaps { number(self.shape >> 10, swap) } else { [0; 4] },
            compare: if swaps { self.operand(0, number(1, compare), context) } else { Operand::default() },
            swap_add: self.operand(1, number(1, swap), context),
        };
        let mut bytes = [0; operands::MAX_LEN];
        let (len, compare, swap_add) = operands.emit(swaps, &mut bytes);
        out.extend_from_slice(&bytes[..len]);
        (compare, swap_add)
    }

    /// Returns the bytes of payload of one packet, and of the whole WRITE.
    fn lengths(&self, opcode: Opcode, flags: Flags, mtu: u32, progress: &mut Progress) -> (u32, u32) {
        let any = self.len.bytes(mtu);
        if self.fit < ODD {
            return (any.min(1200), any);
        }
        match opcode {
            Opcode::RC_RDMA_WRITE_FIRST => {
                progress.left = 1 + any % (3 * mtu);
                (mtu, mtu + progress.left)
            }
            Opcode::RC_RDMA_WRITE_MIDDLE | Opcode::RC_RDMA_WRITE_LAST => {
                let here = progress.left.min(mtu);
                progress.left -= here;
                (here, here)
            }
            _ if opcode == Opcode::RC_RDMA_WRITE_ONLY && !flags.has(Flags::DATA_INDIRECT) => {
                (any.min(mtu), any.min(mtu))
            }
            _ => (0, any % WHOLE),
        }
    }

    /// Builds the frame. `lists` are the numbers of a free list that the peer may use and of one that it may
    /// not.
    pub fn frame(&self, context: &mut Context<'_>, lists: [u64; 2], progress: &mut Progress) -> Vec<u8> {
        let (bth, ext, payload) = self.packet(context, lists, progress);
        let opcode = bth.opcode;
        let flags = Flags::from_bits(bth.resv7);
        let additions = additions(opcode, flags, progress, &ext);
        let mut bytes = vec![0; if context.irn { additions.len() } else { 0 }];
        if context.irn {
            additions.emit(&mut bytes);
        }
        bytes.extend_from_slice(&payload);
        progress.fetches += u32::from(opcode.is_last() || opcode.is_only());
        if !opcode.is_known() || ext_differs(opcode, &ext) {
            return Vec::new();
        }
        let bth = bth::Repr { pad: remora_wire::packet::pad_for(bytes.len()), ..bth };
        context.forge.frame(bth, ext, &bytes)
    }

    /// Builds a frame with these operations as an operation list. `odd` replaces the count in its header.
    pub fn chain(
        these: &[Flagged],
        odd: Option<u8>,
        context: &mut Context<'_>,
        lists: [u64; 2],
        progress: &mut Progress,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut first = None;
        for one in these {
            let (bth, ext, payload) = one.packet(context, lists, progress);
            first = first.or(Some(bth.psn));
            let target = match (ext.reth, ext.atomic) {
                (Some(reth), _) => Target::Range(reth),
                (None, Some(eth)) => Target::Atomic(eth),
                (None, None) => continue,
            };
            let at = bytes.len();
            bytes.resize(at + operation_list::len_of(bth.opcode, payload.len()), 0);
            let opcode = bth.opcode;
            let flags = Flags::from_bits(bth.resv7);
            if let Some((body, _)) =
                operation_list::emit(opcode, flags, &target, payload.len(), &mut bytes[at..])
            {
                body.copy_from_slice(&payload);
            }
        }
        let count = odd.unwrap_or(these.len() as u8) & 0x7f;
        let psn = first.map_or(0, |psn: Psn| psn.get());
        let bth = bth::Repr { resv7: count, ..context.forge.bth(Opcode::OPERATION_LIST, psn) };
        context.forge.frame(bth, Extensions::NONE, &bytes)
    }

    /// Builds an operation in order, at or beyond the end of a region or of scratch memory. Only checks of
    /// bounds and rights can refuse it.
    fn probe(&self, context: &mut Context<'_>, progress: &mut Progress) -> (bth::Repr, Extensions, Vec<u8>) {
        let (opcode, flags) = PROBES[usize::from(self.verb) % PROBES.len()];
        (progress.flags, progress.left) = (flags.bits(), 0);
        let [region, over] = self.numbers.map(|number| number as u8);
        let mut payload = Vec::new();
        let mut ext = Extensions::NONE;
        let atomic = opcode.has_atomic_eth();
        let mut compare = 1;
        let mut swap_add = 1;
        let mut len = PROBE_LENGTHS[usize::from(self.shape) % 4];
        if flags.has(Flags::EXTENDED) {
            (compare, swap_add) = self.operands(true, context, &mut payload);
            len = self.size().into();
        } else if atomic {
            len = 8;
        }
        let (key, va) = match region {
            0x80..0xc0 => {
                // The range ends at the end of the address space, or beyond.
                let beyond = if over & 1 == 0 { 0 } else { 8u64 };
                (context.memory.open(0).rkey, beyond.wrapping_sub(len.into()))
            }
            _ => Edge { region, over }.of(context.memory, context.window, len.into()),
        };
        let rkey = key.get();
        if atomic {
            ext.atomic = Some(atomic_eth::Repr { va, rkey, swap_add, compare });
        } else {
            ext.reth = Some(reth::Repr { va, rkey, dma_len: len });
        }
        if opcode == Opcode::RC_RDMA_WRITE_ONLY {
            payload.resize(len as usize, 0xee);
        }
        harmless(&mut payload);
        let cursor = &mut context.cursor[0];
        let bth = bth::Repr { resv7: flags.bits(), ..context.forge.bth(opcode, *cursor) };
        *cursor = (*cursor + 1) & 0x00ff_ffff;
        (bth, ext, payload)
    }

    /// Builds the packet without IRN's additional headers.
    fn packet(
        &self,
        context: &mut Context<'_>,
        lists: [u64; 2],
        progress: &mut Progress,
    ) -> (bth::Repr, Extensions, Vec<u8>) {
        if self.fit >= PROBE {
            return self.probe(context, progress);
        }
        let mtu = context.mtu;
        let mut opcode = self.opcode(progress);
        if opcode == Opcode::RC_RDMA_WRITE_LAST && progress.left > mtu {
            opcode = Opcode::RC_RDMA_WRITE_MIDDLE;
        }
        let goes_on = opcode.is_middle() || opcode.is_last();
        let flags = match () {
            () if self.fit < ODD => Flags::from_bits(self.flags),
            () if goes_on => Flags::from_bits(progress.flags),
            () => fitting(opcode, self.flags & 0x7f),
        };
        progress.flags = flags.bits();
        let (len, total) = self.lengths(opcode, flags, mtu, progress);
        let (key, mut va) = self.target.of(context, u64::from(total));
        // The free list in the open region, or the list that peers may not use.
        if flags.has(Flags::ALLOCATE) && self.fit >= ODD {
            va = lists[usize::from(self.flags >> 7)];
        }
        let rkey = key.get();
        let mut payload = Vec::new();
        let starts = !goes_on;
        let named = addresses::Repr {
            redirect: (starts && flags.has(Flags::REDIRECT)).then(|| self.redirect.of(context, 8).1),
            source: (starts && opcode.has_reth() && flags.has(Flags::DATA_INDIRECT) && !is_read(opcode))
                .then(|| self.source.of(context, u64::from(total)).1),
        };
        payload.resize(named.len(), 0);
        named.emit(&mut payload);
        let mut ext = Extensions {
            reth: opcode.has_reth().then_some(reth::Repr { va, rkey, dma_len: total }),
            ..Extensions::NONE
        };
        if opcode.has_atomic_eth() {
            let swaps = opcode == Opcode::RC_COMPARE_SWAP;
            let mut compare = u64::from(self.numbers[0]);
            let mut swap_add = u64::from(self.numbers[1]);
            if flags.has(Flags::EXTENDED) {
                (compare, swap_add) = self.operands(swaps, context, &mut payload);
            }
            ext.atomic = Some(atomic_eth::Repr { va, rkey, swap_add, compare });
        } else {
            payload.resize(payload.len() + len as usize, 0xee);
        }
        if let Some((at, bits)) = self.bent
            && let Some(byte) = payload.get_mut(usize::from(at))
        {
            *byte ^= bits;
        }
        harmless(&mut payload);
        let psn = self.psn(context, opcode, flags, total);
        let bth = bth::Repr { resv7: flags.bits(), ..context.forge.bth(opcode, psn.get()) };
        (bth, ext, payload)
    }

    /// Returns the PSN: mostly the next one, otherwise one a few before or after it.
    fn psn(&self, context: &mut Context<'_>, opcode: Opcode, flags: Flags, total: u32) -> Psn {
        let cursor = &mut context.cursor[0];
        let distance = match self.psn {
            few @ -6..=6 => i32::from(few),
            _ => 0,
        };
        let psn = Psn::new(cursor.wrapping_add_signed(distance) & 0x00ff_ffff);
        let reserves = is_read(opcode) && !context.irn && !flags.has(Flags::REDIRECT);
        let count = if reserves { total.div_ceil(context.mtu).max(1) } else { 1 };
        if distance == 0 {
            *cursor = cursor.wrapping_add(count) & 0x00ff_ffff;
        }
        psn
    }
}

fn is_read(opcode: Opcode) -> bool {
    opcode == Opcode::RC_RDMA_READ_REQUEST
}

/// Returns true if the opcode needs headers other than those in `ext`.
fn ext_differs(opcode: Opcode, ext: &Extensions) -> bool {
    opcode.has_reth() != ext.reth.is_some()
        || opcode.has_atomic_eth() != ext.atomic.is_some()
        || opcode.has_imm()
        || opcode.has_ieth()
        || opcode.has_aeth()
        || opcode.has_deth()
        || opcode.has_xrceth()
        || opcode.has_atomic_ack()
}

/// Builds IRN's additional headers. A packet with PRISM flags has none.
fn additions(opcode: Opcode, flags: Flags, progress: &Progress, ext: &Extensions) -> Additions {
    let none = Additions::default();
    if flags != Flags::NONE {
        return none;
    }
    let number = progress.fetches & 0x00ff_ffff;
    let fetches = is_read(opcode) || ext.atomic.is_some();
    Additions { fetch: fetches.then_some(fetch::Repr { number }), ..none }
}
