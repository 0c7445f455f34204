//! StRoM's lookup: the choice of the slot that the kernel reads next.

use super::{HEADER, OPCODE, WAYS};
use crate::kv::checksum::crc64;
use crate::kv::hash::choice;
use crate::kv::lookup::{Ask, Lookup, MOST_TRIES, Step};
use crate::kv::session::{Design, Grant};
use crate::words::{set_u64, u64_at};
use remora_nic::kernel::{Slot, Status};

/// The layout of a StRoM server's table, as a client knows it.
#[derive(Copy, Clone, Debug)]
pub struct Strom {
    slots: u64,
    slots_len: u64,
}

/// The state of one GET.
#[derive(Copy, Clone, Debug, Default)]
pub struct Progress {
    hash: u64,
    way: u8,
    tries: u32,
}

impl Lookup for Strom {
    type Progress = Progress;
    const DESIGN: Design = Design::Strom;
    const ASKS: bool = true;

    fn new(grant: &Grant, _: usize) -> Strom {
        Strom { slots: grant.index.addr, slots_len: grant.index_len.max(1) }
    }

    fn landing_len(max_key: usize, max_value: usize) -> usize {
        HEADER + max_key + max_value
    }

    fn read_lens(_: usize, _: usize) -> Option<(usize, usize)> {
        None
    }

    #[inline]
    fn begin(&self, progress: &mut Progress, hash: u64) -> Step {
        progress.hash = hash;
        self.ask(progress, 0)
    }

    fn advance(&self, _: &mut Progress, _: &[u8], _: &mut [u8]) -> Step {
        Step::Contended
    }

    #[inline]
    fn kernel_answered(
        &self,
        progress: &mut Progress,
        key: &[u8],
        status: Status,
        landed: &mut [u8],
    ) -> Step {
        match status {
            Status::DONE => self.verify(progress, key, landed),
            Status::MISS if usize::from(progress.way) + 1 < WAYS => self.ask(progress, progress.way + 1),
            // While a key is in the table, it moves only from its first slot to the later one. So at some
            // moment between the two reads the key was absent.
            Status::MISS => Step::Absent,
            Status::NO_ROOM => Step::TooLong { len: landed.len() },
            // The kernel lacks rights or lanes: the server's NIC is not set up for this design.
            _ => Step::Contended,
        }
    }

    fn tries(progress: &Progress) -> u32 {
        progress.tries
    }
}

impl Strom {
    fn ask(&self, progress: &mut Progress, way: u8) -> Step {
        progress.way = way;
        let slot = choice(progress.hash, way.into(), self.slots_len) * Slot::LEN as u64;
        let mut params = [0; Ask::LEN];
        set_u64(&mut params, 0, self.slots.wrapping_add(slot));
        set_u64(&mut params, 8, progress.hash);
        Step::Ask(Ask { opcode: OPCODE, params })
    }

    fn verify(&self, progress: &mut Progress, key: &[u8], landed: &[u8]) -> Step {
        let whole = landed.len() >= HEADER && crc64(&landed[HEADER..]) == u64_at(landed, 0);
        match landed.get(HEADER..).and_then(|object| object.strip_prefix(key)) {
            Some(value) if whole => Step::Found { start: HEADER + key.len(), len: value.len() },
            _ => self.retry(progress),
        }
    }

    /// Starts over, because the object was overwritten during the lookup.
    fn retry(&self, progress: &mut Progress) -> Step {
        progress.tries += 1;
        if progress.tries >= MOST_TRIES {
            return Step::Contended;
        }
        self.ask(progress, 0)
    }
}
