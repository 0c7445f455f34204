//! Timestamps: a clock and a client; and versions, which are timestamps with a state.

/// Bits of a state, of a client's number.
const STATE_BITS: u32 = 2;
const CLIENT_BITS: u32 = 14;
const CLOCK_SHIFT: u32 = STATE_BITS + CLIENT_BITS;

/// Clients are numbered below this; 0 is the loader's.
pub const CLIENTS: u32 = 1 << CLIENT_BITS;
/// The clock's last tick.
pub const LAST_TICK: u64 = (1 << (64 - CLOCK_SHIFT)) - 1;

/// When a transaction happens: 48 bits of a clock in microseconds, 14 bits of the client's number, two zeros.
/// No two transactions have the same.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Of a clock's reading and a client's number, both cut to their bits.
    pub fn new(clock: u64, client: u32) -> Timestamp {
        let client = u64::from(client % CLIENTS) << STATE_BITS;
        Timestamp((clock & LAST_TICK) << CLOCK_SHIFT | client)
    }

    /// The clock's reading.
    pub fn clock(self) -> u64 {
        self.0 >> CLOCK_SHIFT
    }

    /// The word in memory.
    pub fn word(self) -> u64 {
        self.0
    }

    /// From memory; the state's bits are dropped.
    pub fn of(word: u64) -> Timestamp {
        Timestamp(word & !STATE)
    }

    /// With a state.
    pub fn is(self, tx_state: TxState) -> u64 {
        self.0 | tx_state as u64
    }
}

/// The bits of a word that are its state.
pub const STATE: u64 = (1 << STATE_BITS) - 1;

/// The state of a transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TxState {
    /// Not decided when this word was written.
    Pending = 0,
    /// Decided: the transaction happened.
    Committed = 1,
    /// Decided: the transaction did not happen.
    Aborted = 2,
}

impl TxState {
    /// The state in a word; None if it is none.
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
        let at = Timestamp::new;
        assert!(at(1, CLIENTS - 1) < at(2, 0) && at(2, 0) < at(2, 1));
        assert_eq!((at(77, 5).clock(), Timestamp::of(at(77, 5).is(TxState::Aborted))), (77, at(77, 5)));
        assert_eq!(at(LAST_TICK, CLIENTS - 1).word(), u64::MAX - STATE);
        let states = [0, 1, 2, 3].map(TxState::of);
        assert_eq!(states, [Some(TxState::Pending), Some(TxState::Committed), Some(TxState::Aborted), None]);
    }
}
