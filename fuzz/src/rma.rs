//! 1RMA against a rude peer: it has keys to some regions, knows every nonce on the wire, and keeps to no
//! rule; and against programs that write any bytes into their portal.
//!
//! The peer seals what it sends with the ciphers that ship, so that most of it is authentic. The model knows
//! which messages were true, and holds the NIC to it: memory changes only by them, no byte leaves that the
//! peer may not have, each command ends once, and the window is whole in the end.

mod forger;
mod model;

use arbitrary::Arbitrary;
use remora_wire::rma::{Class, Kind};

use crate::to_the_end;
use forger::Wrong;
use model::Model;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    setup: Setup,
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
}

/// The parameters of the world.
#[derive(Arbitrary, Copy, Clone, Debug)]
struct Setup {
    shape: u8,
    window: u8,
    mtu: u8,
    tables: u8,
}

/// A place, or a length, near the bounds at which something could be wrong.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Near {
    Start(u8),
    End(i8),
    Any(u64),
}

impl Near {
    fn of(self, end: u64) -> u64 {
        match self {
            Near::Start(units) => u64::from(units) * 16,
            Near::End(away) => end.wrapping_add(away as i64 as u64),
            Near::Any(any) => any,
        }
    }
}

/// What a length is.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Size {
    Units(u8),
    Bytes(u16),
    Longest,
}

impl Size {
    fn of(self) -> u32 {
        match self {
            Size::Units(units) => (u32::from(units) % 64 + 1) * 64,
            Size::Bytes(bytes) => u32::from(bytes) % 4100,
            Size::Longest => 4096,
        }
    }
}

/// One action of an input.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Action {
    /// A request of the peer.
    Request { kind: u8, region: u8, offset: Near, size: Size, wrong: Wrong },
    /// Data for a write or rekey of the peer that the NIC has solicited.
    Written { which: u8, offset: Near, size: Size, wrong: Wrong },
    /// An answer to a command of the NIC's program.
    Answer { which: u8, kind: u8, offset: Near, size: Size, timeout: u16, wrong: Wrong },
    /// A piece of a read of the NIC's program that is as it should be, the next one or the one before.
    Piece { which: u8, again: bool },
    /// A message that was on the wire, once more, to either side.
    Replay { which: u8, bit: u16, flips: bool },
    /// Any bytes behind a first byte of 1RMA.
    Bytes { kind: u8, seed: u64, len: u8 },
    /// A command of the NIC's program that keeps to the rules.
    Command { kind: u8, slot: u8, size: Size, offset: Near, bulk: bool },
    /// Any 64 bytes as a command.
    Slot { seed: u64, like: u8 },
    /// The region's owner gives it another key, or ends it.
    Owner { region: u8, ends: bool },
    /// Time passes, nanoseconds.
    Wait(u16),
}

fn kind(number: u8) -> Kind {
    [Kind::Read, Kind::Write, Kind::Rekey][usize::from(number) % 3]
}

impl Input {
    /// Runs the input.
    ///
    /// # Panics
    /// If the NIC does what it must not.
    pub fn run(self) {
        let mut model = Model::new(&self.setup);
        for action in &self.actions {
            model.act(action);
            model.look();
        }
        model.end();
    }
}

fn class(bulk: bool) -> Class {
    if bulk { Class::Bulk } else { Class::Latency }
}
