//! The parts that no command of a tenant has named yet.

use remora_nic::{HandedPart, PartNumber};
use std::collections::BTreeMap;

use super::super::message::Refusal;
use super::super::users::Claim;
use super::LentMemory;

/// Largest number of a program's parts that no command has named yet.
pub(super) const MAX_HANDED: usize = 16;

/// A part that no command has named yet.
pub(crate) struct Part {
    pub handed: HandedPart,
    pub memory: Option<LentMemory>,
    pub claim: Option<Claim>,
}

/// The parts that no command has named yet.
#[derive(Default)]
pub(crate) struct Parts {
    pub(super) waiting: BTreeMap<u32, Part>,
    pub(super) next: u32,
}

impl Parts {
    /// Returns whether the program has a part with this number.
    pub(crate) fn has(&self, part: PartNumber) -> bool {
        self.waiting.contains_key(&part.0)
    }

    /// Takes the part with this number.
    pub(super) fn take(&mut self, part: PartNumber) -> Option<Part> {
        self.waiting.remove(&part.0)
    }

    pub(super) fn add(&mut self, part: Part) -> Result<u32, Refusal> {
        if self.waiting.len() == MAX_HANDED {
            return Err(
                format!("{MAX_HANDED} queues have memory and are not created: create them first").into()
            );
        }
        let number = self.next;
        self.next = (number + 1) % PartNumber::NONE.0;
        self.waiting.insert(number, part);
        Ok(number)
    }
}
