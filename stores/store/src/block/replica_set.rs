//! The replicas as a client sees them: their connections, their backlog, and the ids of requests to them.

use remora_nic::WorkCompletion;

use super::set::Set;
use super::{ClientConfig, Grant, Lost};
use crate::Broken;

/// The id of a request: its purpose, its slot, and the number of the connection to the replica.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkId {
    pub step: u8,
    pub connection: u16,
    pub slot: u16,
}

impl WorkId {
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.step) << 32 | u64::from(self.connection) << 16 | u64::from(self.slot)
    }

    pub(crate) fn decode(id: u64) -> WorkId {
        WorkId { step: (id >> 32) as u8, connection: (id >> 16) as u16, slot: id as u16 }
    }
}

/// A client's view of one replica.
#[derive(Debug, Default)]
struct Member {
    grant: Option<Grant>,
    /// Number of connections to the replica so far; wraps.
    connection: u16,
    /// Operations that are over for their user but still have a request at this replica.
    tails: u32,
    lost: Option<Broken>,
}

/// All replicas of a store as one client sees them.
#[derive(Debug)]
pub(crate) struct ReplicaSet {
    members: Vec<Member>,
    most_tails: u32,
    /// Replicas that were skipped because they had too many outstanding requests.
    passed: Set,
}

impl ReplicaSet {
    pub(crate) fn new(config: &ClientConfig) -> ReplicaSet {
        ReplicaSet {
            members: (0..config.replicas).map(|_| Member::default()).collect(),
            most_tails: config.tails(),
            passed: Set::NONE,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn join(&mut self, replica: usize, grant: Grant) {
        let member = &mut self.members[replica];
        let connection = member.connection.wrapping_add(1);
        *member = Member { grant: Some(grant), connection, ..Member::default() };
    }

    pub(crate) fn leave(&mut self, replica: usize) {
        let member = &mut self.members[replica];
        (member.grant, member.tails, member.lost) = (None, 0, None);
        self.passed.remove(replica);
    }

    /// Returns the replica's grant, or `None` if the replica is not connected.
    #[inline]
    pub(crate) fn grant(&self, replica: usize) -> Option<&Grant> {
        self.members[replica].grant.as_ref()
    }

    /// Returns true if the replica is connected and does not have too many outstanding requests.
    #[inline]
    pub(crate) fn is_free(&self, replica: usize) -> bool {
        let member = &self.members[replica];
        member.grant.is_some() && member.tails < self.most_tails
    }

    /// Returns true if the replica may get a new request. If not, the client retries when the replica has
    /// [caught up](ReplicaSet::caught_up).
    #[inline]
    pub(crate) fn takes(&mut self, replica: usize, has_space: bool) -> bool {
        let takes = has_space && self.members[replica].tails < self.most_tails;
        if !takes {
            self.passed.add(replica);
        }
        takes
    }

    /// Returns true once when a replica that was skipped takes requests again.
    pub(crate) fn caught_up(&mut self, replica: usize, has_space: bool) -> bool {
        let caught = self.passed.has(replica) && has_space && self.members[replica].tails < self.most_tails;
        if caught {
            self.passed.remove(replica);
        }
        caught
    }

    /// Counts one more (`more`) or one less finished operation with a request at this replica.
    pub(crate) fn tail(&mut self, replica: usize, more: bool) {
        let tails = &mut self.members[replica].tails;
        *tails = if more { *tails + 1 } else { tails.saturating_sub(1) };
    }

    pub(crate) fn id(&self, replica: usize, step: u8, slot: usize) -> u64 {
        WorkId { step, connection: self.members[replica].connection, slot: slot as u16 }.encode()
    }

    /// Returns the id of a completed request. Returns `None` if the completion belongs to an earlier
    /// connection or reports a failure.
    pub(crate) fn take(&mut self, replica: usize, completion: &WorkCompletion) -> Option<WorkId> {
        let id = WorkId::decode(completion.id);
        let member = &self.members[replica];
        if member.grant.is_none() || id.connection != member.connection {
            return None;
        }
        if completion.status != remora_transport::Status::Success {
            self.lose(replica, Broken::Completion(completion.status));
            return None;
        }
        Some(id)
    }

    /// Notes that a connection must be closed.
    pub(crate) fn lose(&mut self, replica: usize, why: Broken) {
        self.members[replica].lost.get_or_insert(why);
    }

    pub(crate) fn lost(&self) -> Option<Lost> {
        let all = self.members.iter().enumerate();
        all.filter_map(|(replica, member)| Some(Lost { replica, why: member.lost? })).next()
    }
}
