//! The actions of an input, and their parameters.

use arbitrary::Arbitrary;
use remora_wire::rma::{Class, Kind};

use super::forger::Wrong;

/// The parameters of the simulated network.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub(super) struct Setup {
    pub shape: u8,
    pub window: u8,
    pub mtu: u8,
    pub tables: u8,
}

/// An offset or a length, near limits at which a check could be wrong.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub(super) enum Near {
    Start(u8),
    End(i8),
    Any(u64),
}

impl Near {
    pub(super) fn of(self, end: u64) -> u64 {
        match self {
            Near::Start(units) => u64::from(units) * 16,
            Near::End(away) => end.wrapping_add(away as i64 as u64),
            Near::Any(any) => any,
        }
    }
}

/// The choice of a length.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub(super) enum Size {
    Units(u8),
    Bytes(u16),
    Longest,
}

impl Size {
    pub(super) fn of(self) -> u32 {
        match self {
            Size::Units(units) => (u32::from(units) % 64 + 1) * 64,
            Size::Bytes(bytes) => u32::from(bytes) % 4100,
            Size::Longest => 4096,
        }
    }
}

/// An action of an input.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub(super) enum Action {
    /// A request of the peer.
    Request { kind: u8, region: u8, offset: Near, size: Size, wrong: Wrong },
    /// Data of a write or rekey of the peer that the NIC has solicited.
    Written { which: u8, offset: Near, size: Size, wrong: Wrong },
    /// An answer to a command of the NIC's program.
    Answer { which: u8, kind: u8, offset: Near, size: Size, timeout: u16, wrong: Wrong },
    /// A valid piece of a read of the NIC's program: the next one, or the one before.
    Piece { which: u8, again: bool },
    /// A replay of a message that was on the wire, to either side.
    Replay { which: u8, bit: u16, flips: bool },
    /// Arbitrary bytes after a first byte of 1RMA.
    Bytes { kind: u8, seed: u64, len: u8 },
    /// A valid command of the NIC's program.
    Command { kind: u8, slot: u8, size: Size, offset: Near, bulk: bool },
    /// A command of 64 arbitrary bytes.
    Slot { seed: u64, like: u8 },
    /// The owner of a region changes its key, or deregisters it.
    Owner { region: u8, ends: bool },
    /// The passing of time, in nanoseconds.
    Wait(u16),
}

pub(super) fn kind(number: u8) -> Kind {
    [Kind::Read, Kind::Write, Kind::Rekey][usize::from(number) % 3]
}

pub(super) fn class(bulk: bool) -> Class {
    if bulk { Class::Bulk } else { Class::Latency }
}
