//! Fuzzing of 1RMA: a peer that has keys to some regions, knows every nonce on the wire and follows no rule;
//! and programs that write arbitrary bytes into their portal.
//!
//! The peer encrypts its messages with the real ciphers, so most of them are authentic. A model records
//! which messages were valid and checks the NIC by them: only those may change memory, no byte may be sent
//! that the peer must not have, each command ends once, and the solicitation window is complete at the end.

mod action;
mod forger;
mod model;

use arbitrary::Arbitrary;

use crate::to_the_end;
use action::{Action, Setup};
use model::Model;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    setup: Setup,
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
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
