//! The calls that a shard's program executes for a client: lock, update and unlock. Each completes at once.

use remora_nic::{
    CompletionKind, Flags, Operation, Payload, ReceiveRequest, Status, WorkCompletion, WorkRequest,
};

use super::calls::{Ask, Reply};
use super::layout::{FRONT, LOG_FRONT, NONE, Record, Word, next, record_len};
use super::shard::{Shard, ShardConfig};
use crate::send_queue::{Account, SendQueue};
use crate::words::u64_at;
use crate::{Broken, Post, QueueNeeds};

/// A client whose calls a shard serves.
#[derive(Debug)]
pub struct Caller {
    holder: u32,
    answers: SendQueue,
}

impl ShardConfig {
    /// Returns the sizes that a client's queue pair needs at the shard.
    pub fn needs(&self) -> QueueNeeds {
        let calls = self.entries();
        // An answer is signaled for each quarter of the send queue, so few of them bring a completion.
        QueueNeeds { send: SendQueue::depth_for(calls), receive: calls, sges: 1, completions: calls + 6 }
    }
}

impl Shard {
    /// Starts to serve the client that was [accepted](Shard::accept) under this name. Returns `None` if
    /// there is no such client.
    ///
    /// # Errors
    /// The queue pair takes no receive requests.
    pub fn listen(&self, name: u64, nic: &mut impl Post) -> Result<Option<Caller>, Broken> {
        let Some(holder) = self.holder(name) else { return Ok(None) };
        (0..self.config.entries()).try_for_each(|_| listen(nic))?;
        Ok(Some(Caller { holder, answers: SendQueue::new(self.config.entries()) }))
    }

    /// Processes a completion of a client's queue pair.
    ///
    /// # Errors
    /// The connection failed, or the client violated the protocol.
    pub fn handle(
        &mut self,
        caller: &mut Caller,
        completion: &WorkCompletion,
        nic: &mut impl Post,
    ) -> Result<(), Broken> {
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        if !matches!(completion.kind, CompletionKind::Receive | CompletionKind::ReceiveWriteImm) {
            caller.answers.retire(completion.id as u32);
            return Ok(());
        }
        let (ask, entry) = completion.imm.and_then(Ask::parse).ok_or(Broken::Protocol)?;
        if entry >= self.config.entries() {
            return Err(Broken::Protocol);
        }
        let reply = match ask {
            Ask::Lock => self.lock(caller.holder, entry)?,
            Ask::Update => self.end(caller.holder, entry, true),
            Ask::Unlock => self.end(caller.holder, entry, false),
        };
        listen(nic)?;
        let (number, signaled) = caller.answers.enter(false);
        let flags = Flags { signaled, ..Flags::default() };
        let operation = Operation::SendImm(reply.pack(entry));
        Ok(nic.post_send(&WorkRequest {
            id: number.into(),
            operation,
            payload: Payload::Sges(&[]),
            flags,
        })?)
    }

    fn lock(&mut self, holder: u32, entry: u32) -> Result<Reply, Broken> {
        let log = self.config.log_at(holder, entry);
        let mut front = [0; LOG_FRONT + FRONT];
        self.bytes(log, &mut front);
        let record = Record::front(&front[LOG_FRONT..]);
        if record.len() > record_len(self.config.max_pair) || u64_at(&front, 0) == 0 {
            return Err(Broken::Protocol);
        }
        let object = match u64_at(&front, 8) {
            NONE => match self.object_for(log + LOG_FRONT, &record) {
                Some(object) => object,
                None => return Ok(Reply::Full),
            },
            object if object < self.config.keys => object,
            _ => return Err(Broken::Protocol),
        };
        let offset = self.config.object_at(object);
        let word = Word::parse(self.word(offset));
        if word.holder != 0 || next(word.version) != record.version {
            return Ok(Reply::Changed);
        }
        self.set(log + 8, object);
        self.set(offset, Word::locked(word.version, holder, entry).pack());
        let (place, key) = self.place(holder, entry);
        self.locks[place] |= 1 << key;
        Ok(Reply::Done)
    }

    /// Returns the object of a key that had none when the client looked, adding one if necessary.
    fn object_for(&mut self, record_at: usize, record: &Record) -> Option<u64> {
        let mut key = std::mem::take(&mut self.scratch);
        key.resize(FRONT + record.key_len as usize, 0);
        self.bytes(record_at, &mut key);
        let object = match self.find(&key[FRONT..]) {
            Ok(object) => Some(object),
            Err(index) => index.and_then(|index| self.add(&mut key, index)),
        };
        self.scratch = key;
        object
    }

    /// Returns the index in `locks` of an entry's transaction, and the index of the key in the transaction.
    fn place(&self, holder: u32, entry: u32) -> (usize, u32) {
        let place = entry / self.config.max_keys;
        let key = entry % self.config.max_keys;
        ((holder as usize - 1) * self.config.window as usize + place as usize, key)
    }

    /// Ends the transaction of an entry. If `happens`, its locked keys are written first.
    fn end(&mut self, holder: u32, entry: u32, happens: bool) -> Reply {
        let (place, _) = self.place(holder, entry);
        let first = entry - entry % self.config.max_keys;
        let mut locked = std::mem::take(&mut self.locks[place]);
        if happens && locked != 0 {
            let number = self.word(self.config.log_at(holder, first + locked.trailing_zeros()));
            self.set(self.config.mark_at(holder, entry / self.config.max_keys), number);
        }
        while locked != 0 {
            self.finish(holder, first + locked.trailing_zeros(), happens);
            locked &= locked - 1;
        }
        Reply::Done
    }

    fn finish(&mut self, holder: u32, entry: u32, happens: bool) {
        let log = self.config.log_at(holder, entry);
        let object = self.word(log + 8);
        // A client that has overwritten its own log keeps the object locked until the client is removed.
        if object >= self.config.keys {
            return;
        }
        let offset = self.config.object_at(object);
        let word = Word::parse(self.word(offset));
        if (word.holder, word.entry) != (holder, entry) {
            return;
        }
        let mut version = word.version;
        if happens {
            self.install(log + LOG_FRONT, object);
            version = next(version);
        }
        self.set(offset, Word::free(version).pack());
    }

    /// Copies the record of a log entry to an object.
    fn install(&mut self, record_at: usize, object: u64) {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.resize(FRONT, 0);
        self.bytes(record_at, &mut bytes);
        let len = Record::front(&bytes).len().min(record_len(self.config.max_pair));
        bytes.resize(len, 0);
        self.bytes(record_at, &mut bytes);
        self.put(object, &bytes);
        self.scratch = bytes;
    }
}

/// Posts a receive request without memory: messages carry only immediate data.
fn listen(nic: &mut impl Post) -> Result<(), Broken> {
    Ok(nic.post_receive(&ReceiveRequest { id: 0, sges: &[] })?)
}
