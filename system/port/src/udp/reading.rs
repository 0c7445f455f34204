//! The choice of the receive call, and of the number of calls, from recent arrivals. No system calls.
//!
//! `recvfrom` is the fastest call for a lone frame. Only `recvmsg` reports how a joined train is cut, but
//! it lengthens a ping-pong by an eighth. So a port begins with `recvfrom` and without joining. It turns
//! joining on when frames arrive faster than they are read, and off after a long time of lone frames.

/// Number of frames in a row, without an empty call in between, at which joining is turned on: the sender
/// is ahead of the receiver.
const JOIN_AT: u32 = 8;

/// Number of lone frames in a row, each followed by an empty call, after which joining is turned off.
const PART_AT: u32 = 64;

/// Number of consecutive calls of `receive` with frames after which a call continues to read instead of
/// returning its frames. A lone frame (ping-pong) is thus answered without first polling the kernel for
/// another.
const READ_ON_AT: u32 = 2;

/// A change of the socket's joining.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Makes the kernel keep trains joined.
    Join,
    /// Makes the kernel cut trains. Only allowed while nothing waits to be read.
    Part,
}

/// Counts of recent calls, from which the next receive call is chosen.
#[derive(Debug)]
pub(super) struct Reading {
    joined: bool,
    /// Number of frames since the last empty call.
    frames: u32,
    /// Number of calls of `receive` since the last empty call.
    calls: u32,
    /// Number of consecutive lone frames, each followed by an empty call.
    lone: u32,
}

impl Reading {
    pub(super) fn new() -> Self {
        Reading { joined: false, frames: 0, calls: 0, lone: 0 }
    }

    /// Returns whether the kernel keeps trains joined, so that `recvmsg` must be used.
    #[inline(always)]
    pub(super) fn joined(&self) -> bool {
        self.joined
    }

    /// Returns whether a call that already has frames should read on.
    #[inline(always)]
    pub(super) fn reads_on(&self) -> bool {
        self.calls >= READ_ON_AT
    }

    /// Records that a call of `receive` ends with frames.
    #[inline(always)]
    pub(super) fn call_found_some(&mut self) {
        self.calls = self.calls.saturating_add(1);
    }

    /// Records the frames of one receive call. Returns the change that is due, if any.
    #[inline(always)]
    pub(super) fn came(&mut self, frames: u32) -> Option<Change> {
        self.frames = self.frames.saturating_add(frames);
        (!self.joined && self.frames >= JOIN_AT).then_some(Change::Join)
    }

    /// Records an empty receive call. Returns the change that is due, if any.
    #[inline(always)]
    pub(super) fn nothing(&mut self) -> Option<Change> {
        self.calls = 0;
        match std::mem::take(&mut self.frames) {
            0 => return None,
            1 => self.lone = self.lone.saturating_add(1),
            _ => self.lone = 0,
        }
        (self.joined && self.lone >= PART_AT).then_some(Change::Part)
    }

    /// Records whether the socket joins trains now.
    pub(super) fn set_joined(&mut self, joined: bool) {
        self.joined = joined;
        self.lone = 0;
        self.frames = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_frames_never_join_and_a_backlog_does() {
        let mut reading = Reading::new();
        for _ in 0..1000 {
            assert_eq!(reading.came(1), None);
            reading.call_found_some();
            assert!(!reading.reads_on(), "a lone frame is answered at once");
            assert_eq!(reading.nothing(), None);
        }
        for _ in 1..JOIN_AT {
            assert_eq!(reading.came(1), None);
        }
        assert_eq!(reading.came(1), Some(Change::Join));
    }

    #[test]
    fn joined_trains_part_only_after_many_lone_frames() {
        let mut reading = Reading::new();
        reading.set_joined(true);
        for round in 0..1000 {
            let frames = if round % 60 == 0 { 2 } else { 1 };
            assert_eq!(reading.came(frames), None);
            assert_eq!(reading.nothing(), None, "a burst came less than {PART_AT} rounds ago");
            assert_eq!(reading.nothing(), None, "idle rounds do not count");
        }
        let mut rounds = 0;
        while reading.came(1).is_some() || reading.nothing().is_none() {
            rounds += 1;
            assert!(rounds < PART_AT);
        }
    }

    #[test]
    fn calls_that_keep_finding_frames_read_on_until_one_finds_none() {
        let mut reading = Reading::new();
        for _ in 0..READ_ON_AT {
            assert!(!reading.reads_on());
            reading.came(1);
            reading.call_found_some();
        }
        assert!(reading.reads_on());
        reading.nothing();
        assert!(!reading.reads_on());
    }
}
