//! Timestamps, which consist of a clock and a client number, and version words, which are timestamps with a
//! state.

use serde::{Deserialize, Serialize};

/// Number of bits of a state, and of a client's number.
const STATE_BITS: u32 = 2;
const CLIENT_BITS: u32 = 14;
const CLOCK_SHIFT: u32 = STATE_BITS + CLIENT_BITS;

/// Upper bound, exclusive, of a client's number; 0 is the loader's.
pub(crate) const CLIENTS: u32 = 1 << CLIENT_BITS;
/// The clock's last tick.
pub(crate) const LAST_TICK: u64 = (1 << (64 - CLOCK_SHIFT)) - 1;

/// The position of a transaction in the serial order: 48 bits of a clock in microseconds, 14 bits of the
/// client's number, two zeros. No two transactions have the same timestamp.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u64")]
pub struct Timestamp(u64);

impl From<u64> for Timestamp {
    fn from(word: u64) -> Timestamp {
        Timestamp::of(word)
    }
}

impl Timestamp {
    /// Returns the timestamp of a clock's reading and a client's number, both truncated to their bits.
    pub fn new(clock: u64, client: u32) -> Timestamp {
        let client = u64::from(client % CLIENTS) << STATE_BITS;
        Timestamp((clock & LAST_TICK) << CLOCK_SHIFT | client)
    }

    /// Returns the clock's reading.
    pub fn clock(self) -> u64 {
        self.0 >> CLOCK_SHIFT
    }

    /// Returns the timestamp as a word in memory.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns the timestamp in a word; the bits of the state are dropped.
    pub fn of(word: u64) -> Timestamp {
        Timestamp(word & !STATE)
    }

    /// Returns the word of this timestamp with a state.
    pub fn is(self, tx_state: TxState) -> u64 {
        self.0 | tx_state as u64
    }
}

/// Mask of the bits of a word that are its state.
pub(crate) const STATE: u64 = (1 << STATE_BITS) - 1;

/// The state of a transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TxState {
    /// Not decided when this word was written.
    Pending = 0,
    /// Decided: the transaction is committed.
    Committed = 1,
    /// Decided: the transaction is aborted.
    Aborted = 2,
}

impl TxState {
    /// Returns the state in a word, or `None` if the bits are invalid.
    pub fn of(word: u64) -> Option<TxState> {
        [TxState::Pending, TxState::Committed, TxState::Aborted]
            .into_iter()
            .find(|tx_state| *tx_state as u64 == word & STATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_first_then_the_client() {
        let stamp = Timestamp::new;
        assert!(stamp(1, CLIENTS - 1) < stamp(2, 0) && stamp(2, 0) < stamp(2, 1));
        assert_eq!(
            (stamp(77, 5).clock(), Timestamp::of(stamp(77, 5).is(TxState::Aborted))),
            (77, stamp(77, 5))
        );
        assert_eq!(stamp(LAST_TICK, CLIENTS - 1).word(), u64::MAX - STATE);
        let states = [0, 1, 2, 3].map(TxState::of);
        assert_eq!(states, [Some(TxState::Pending), Some(TxState::Committed), Some(TxState::Aborted), None]);
    }
}
