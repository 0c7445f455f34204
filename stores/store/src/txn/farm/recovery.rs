//! Recovery from a dead client: each of its transactions ends with the same outcome at all shards.

use super::layout::{LOG_FRONT, Word, next};
use super::shard::Shard;

/// An object that a dead client has locked, and the log entry that it is locked for.
#[derive(Copy, Clone, Debug)]
struct Held {
    object: u64,
    version: u64,
    entry: u32,
    /// Number of the client's transaction.
    number: u64,
}

impl Shard {
    /// Returns the objects that a client has locked here. The log points to them, so the table is not
    /// searched.
    fn held(&self, holder: u32) -> impl Iterator<Item = Held> {
        (0..self.config.entries()).filter_map(move |entry| {
            let log = self.config.log_at(holder, entry);
            let number = self.word(log);
            let object = self.word(log + 8);
            if number == 0 || object >= self.config.keys {
                return None;
            }
            let word = Word::parse(self.word(self.config.object_at(object)));
            let held = word.holder == holder && word.entry == entry;
            held.then_some(Held { object, version: word.version, entry, number })
        })
    }

    /// Returns true if a client never had a lock here. Then this shard knows nothing that the others need,
    /// and may [release](Shard::release) the client as soon as its connection has ended.
    pub fn is_untouched(&self, name: u64) -> bool {
        let Some(holder) = self.holder(name) else { return true };
        (0..self.config.entries()).all(|entry| self.word(self.config.log_at(holder, entry)) == 0)
    }

    /// Returns the transactions of a dead client that had begun to write, according to this shard.
    /// Everything was locked and validated by then.
    pub fn decided(&self, name: u64) -> Vec<u64> {
        let Some(holder) = self.holder(name) else { return Vec::new() };
        let marks = (0..self.config.window).map(|place| self.word(self.config.mark_at(holder, place)));
        marks.filter(|number| *number != 0).collect()
    }

    /// Ends the transactions of a dead client at this shard: those in `decided` are committed, the others
    /// aborted. The call is idempotent.
    pub fn settle(&self, name: u64, decided: &[u64]) {
        let Some(holder) = self.holder(name) else { return };
        for held in self.held(holder) {
            let object = self.config.object_at(held.object);
            if !decided.contains(&held.number) {
                self.set(object, Word::free(held.version).pack());
                continue;
            }
            // If the recovery is interrupted, it finds the decision when it starts over.
            self.set(self.config.mark_at(holder, held.entry / self.config.max_keys), held.number);
            let log = self.config.log_at(holder, held.entry) + LOG_FRONT;
            let Some((_, record)) = self.record(log) else {
                // The client violated the protocol and destroyed its log entry.
                self.set(object, Word::free(held.version).pack());
                continue;
            };
            self.put(held.object, &record);
            self.set(object, Word::free(next(held.version)).pack());
        }
    }

    /// Frees the client's number, after all shards have settled its transactions.
    pub fn release(&mut self, name: u64) {
        if let Some(holder) = self.holder(name) {
            self.forget(holder);
        }
    }
}

/// Ends the transactions of a dead client at all shards of the map.
///
/// Every shard must have closed the client's connection before, so that no request of it still arrives. The
/// call may be repeated if it is interrupted. Shards in different processes do the same by messages: all
/// report what is [decided](Shard::decided), all [settle](Shard::settle) it, and then all
/// [release](Shard::release) the client.
pub fn recover(shards: &mut [&mut Shard], name: u64) {
    let decided: Vec<u64> = shards.iter().flat_map(|shard| shard.decided(name)).collect();
    shards.iter().for_each(|shard| shard.settle(name, &decided));
    shards.iter_mut().for_each(|shard| shard.release(name));
}
