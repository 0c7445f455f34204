//! The work requests of FaRM: the requests of each step of a transaction to a shard.

use remora_nic::{Flags, Operation, Payload, ReceiveRequest, Remote, Sge, WorkRequest};

use super::calls::Ask;
use super::client::Client;
use super::grant::Grant;
use super::layout::{LOG_FRONT, NEAR, WORD, record_len};
use super::work::{Work, id};
use crate::{Broken, Connections, Post};

impl Client {
    fn grant(&self, entry_index: u32) -> &Grant {
        &self.grants[usize::from(self.window.entries[entry_index as usize].shard)]
    }

    fn post(
        &self,
        work: Work,
        entry_index: u32,
        operation: Operation,
        sges: &[Sge],
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let flags = Flags { signaled: work != Work::Call, ..Flags::default() };
        let payload = Payload::Sges(sges);
        let shard = self.window.entries[entry_index as usize].shard.into();
        Ok(connections.endpoint(shard).post_send(&WorkRequest {
            id: id(work, entry_index),
            operation,
            payload,
            flags,
        })?)
    }

    /// Returns the index word at which a key's lookup continues.
    fn index_word(&self, entry_index: u32) -> Remote {
        let entry = &self.window.entries[entry_index as usize];
        self.grant(entry_index).index_at(entry.home + u64::from(entry.further))
    }

    /// Posts a READ of the next index words.
    pub(super) fn post_search(
        &self,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let landing = self.arena.sge(self.config.landing_at(entry_index, self.max_pair), NEAR as usize * 8);
        self.post(
            Work::Search,
            entry_index,
            Operation::Read(self.index_word(entry_index)),
            &[landing],
            connections,
        )
    }

    /// Posts a READ of the object to which the index points.
    pub(super) fn post_look(
        &self,
        entry_index: u32,
        object: u64,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let grant = self.grant(entry_index);
        let landing = self
            .arena
            .sge(self.config.landing_at(entry_index, self.max_pair), WORD + record_len(grant.max_pair));
        let source = grant.object_at(object);
        self.post(Work::Look, entry_index, Operation::Read(source), &[landing], connections)
    }

    /// Posts a READ of the word that shows whether a key has changed: the first word of its object, or the
    /// index word that would point to it.
    pub(super) fn post_validate(
        &self,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let source = match self.window.entries[entry_index as usize].object {
            Some(object) => self.grant(entry_index).object_at(object),
            None => self.index_word(entry_index),
        };
        let landing = self.arena.sge(self.config.entry_at(entry_index, self.max_pair), WORD);
        self.post(Work::Validate, entry_index, Operation::Read(source), &[landing], connections)
    }

    /// Posts the WRITE of a log entry, with the request to lock its key.
    pub(super) fn post_lock(
        &self,
        entry_index: u32,
        len: usize,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let log = self.grant(entry_index).log_at(entry_index);
        let bytes = self.arena.sge(self.config.outgoing_at(entry_index, self.max_pair), LOG_FRONT + len);
        self.post(
            Work::Call,
            entry_index,
            Operation::WriteImm(log, Ask::Lock.pack(entry_index)),
            &[bytes],
            connections,
        )
    }

    /// Posts the request to write or only unlock what a key's transaction has locked at its shard.
    pub(super) fn post_end(
        &self,
        entry_index: u32,
        ask: Ask,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        self.post(Work::Call, entry_index, Operation::SendImm(ask.pack(entry_index)), &[], connections)
    }

    /// Posts a receive request without memory, because the answer to a call carries no bytes.
    pub(super) fn post_receive(
        &self,
        shard: usize,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        Ok(connections.endpoint(shard).post_receive(&ReceiveRequest { id: 0, sges: &[] })?)
    }
}
