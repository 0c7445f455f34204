//! The turn of a queue pair to send: its length, its usage and its end.

/// Number of packets, and of bytes, that one queue pair sends before the next one's turn.
pub(crate) const TURN_PACKETS: usize = 16;
pub(crate) const TURN_BYTES: usize = 16 << 10;

/// The used part of a turn.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct TurnUsage {
    pub packets: usize,
    pub bytes: usize,
}

/// The end of a queue pair's turn.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The queue pair has nothing more to send.
    Done,
    /// The queue pair has more to send.
    More,
    /// The port has no free frame.
    Blocked,
    /// The remaining packets wait for stopped transmit queues, which the queue pair has recorded.
    Stopped,
}
