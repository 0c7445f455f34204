//! Fuzzing of 1RMA: a peer that has keys to some regions, knows every nonce on the wire and follows no rule;
//! and programs that write arbitrary bytes into their portal.
//!
//! The peer encrypts its messages with the real ciphers, so most of them are authentic. A model records
//! which messages were valid and checks the NIC by them: only those may change memory, no byte may be sent
//! that the peer must not have, each command ends once, and the solicitation window is complete at the end.

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

/// The parameters of the simulated network.
#[derive(Arbitrary, Copy, Clone, Debug)]
struct Setup {
    shape: u8,
    window: u8,
    mtu: u8,
    tables: u8,
}

/// An offset or a length, near limits at which a check could be wrong.
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

/// The choice of a length.
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

/// An action of an input.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Action {
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

fn kind(number: u8) -> Kind {
    [Kind::Read, Kind::Write, Kind::Rekey][usize::from(number) % 3]
}

impl Input {
    /// Runs the input.
    ///
    /// # Panics
    /// Panics if the NIC violates a requirement.
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
