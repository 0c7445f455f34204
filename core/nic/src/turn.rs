//! A queue pair's turn to send: how long it is, how much of it is used and how it ended.

/// Packets, and bytes, that one queue pair sends before the next one's turn.
pub(crate) const TURN_PACKETS: usize = 16;
pub(crate) const TURN_BYTES: usize = 16 << 10;

/// How much of a turn is used up.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct TurnUsage {
    pub packets: usize,
    pub bytes: usize,
}

/// How a queue pair's turn ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// It has nothing to send now.
    Done,
    /// It has more.
    More,
    /// The port has no free frame.
    Blocked,
    /// The rest waits for transmit queues that are stopped: those noted in the queue pair.
    Stopped,
}
