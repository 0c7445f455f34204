//! Counts of a run, to check that the test has provoked every kind of event.

use remora_nic::Status;

use super::trouble::Trouble;
use crate::operation::Verb;

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    verbs: [u64; Verb::ALL.len()],
    statuses: [u64; Status::ALL.len()],
    receive_statuses: [u64; Status::ALL.len()],
    troubles: [u64; Trouble::ALL.len()],
    /// Number of epochs, with and without errors.
    pub epochs: u64,
    /// Number of reconnections of queue pairs.
    pub reconnects: u64,
    /// Number of times that the faults of the link alone exhausted the retries.
    pub bad_luck: u64,
    /// Number of send work requests with more than 16 list elements.
    pub long_lists: u64,
    /// Number of work requests with inline data.
    pub inline: u64,
    /// Number of work requests with a fence.
    pub fenced: u64,
    /// Number of payload bytes posted.
    pub bytes: u64,
}

impl Report {
    pub(super) fn verb(&mut self, verb: Verb) {
        self.verbs[verb as usize] += 1;
    }

    pub(super) fn status(&mut self, status: Status, receive: bool) {
        let counts = if receive { &mut self.receive_statuses } else { &mut self.statuses };
        if let Some(place) = Status::ALL.iter().position(|other| *other == status) {
            counts[place] += 1;
        }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        self.troubles[trouble as usize] += 1;
    }

    /// Returns the total number of verbs posted.
    pub fn verbs(&self) -> u64 {
        self.verbs.iter().sum()
    }

    /// Returns the number of times that a verb was posted.
    pub fn count(&self, verb: Verb) -> u64 {
        self.verbs[verb as usize]
    }

    /// Returns the number of completions of send work requests with this status.
    pub fn completions(&self, status: Status) -> u64 {
        Status::ALL.iter().position(|other| *other == status).map_or(0, |place| self.statuses[place])
    }

    /// Returns the number of completions of receive work requests with this status.
    pub fn receive_completions(&self, status: Status) -> u64 {
        Status::ALL.iter().position(|other| *other == status).map_or(0, |place| self.receive_statuses[place])
    }

    /// Returns the number of epochs with this planned error.
    pub fn troubles(&self, trouble: Trouble) -> u64 {
        self.troubles[trouble as usize]
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Report) {
        let add = |mine: &mut [u64], theirs: &[u64]| {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        };
        add(&mut self.verbs, &other.verbs);
        add(&mut self.statuses, &other.statuses);
        add(&mut self.receive_statuses, &other.receive_statuses);
        add(&mut self.troubles, &other.troubles);
        self.epochs += other.epochs;
        self.reconnects += other.reconnects;
        self.bad_luck += other.bad_luck;
        self.long_lists += other.long_lists;
        self.inline += other.inline;
        self.fenced += other.fenced;
        self.bytes += other.bytes;
    }

    /// Returns the names of expected events that never happened.
    pub fn missing(&self) -> Vec<String> {
        let verbs = Verb::ALL.iter().filter(|verb| self.count(**verb) == 0).map(|verb| format!("{verb:?}"));
        let troubles =
            Trouble::ALL.iter().filter(|trouble| self.troubles(**trouble) == 0).map(|t| format!("{t:?}"));
        let statuses = [
            Status::Success,
            Status::LocalProtection,
            Status::WrFlushed,
            Status::RemoteInvalidRequest,
            Status::RemoteAccess,
            Status::RemoteOperation,
            Status::RetryExceeded,
            Status::RnrRetryExceeded,
        ];
        let statuses = statuses.iter().filter(|s| self.completions(**s) == 0).map(|s| format!("send {s:?}"));
        let receives = [Status::Success, Status::LocalLength, Status::LocalProtection, Status::WrFlushed];
        let receives =
            receives.iter().filter(|s| self.receive_completions(**s) == 0).map(|s| format!("receive {s:?}"));
        let rest = [
            (self.long_lists, "lists of more than 16"),
            (self.inline, "inline"),
            (self.fenced, "fence"),
            (self.reconnects, "reconnect"),
        ];
        let rest = rest.iter().filter(|(count, _)| *count == 0).map(|(_, name)| (*name).to_owned());
        verbs.chain(troubles).chain(statuses).chain(receives).chain(rest).collect()
    }
}
