//! The messages between FaRM shards about a client that has died: one question and one answer at a time,
//! over a queue pair like a client's.

use std::time::Duration;

use remora_store::codec;
use remora_store::txn::Member;
use remora_verbs::{
    Access, CompletionQueue, Context, EMPTY, MemoryRegion, QpOptions, QueuePair, Ready, ReceiveRequest,
    Status, work,
};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Result, bail, ensure, need};

/// The first message of a shard that connects to another one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecoveryHello {
    /// The run of the other shard, as clients reported it.
    pub run: u64,
}

impl RecoveryHello {
    /// Encodes the message.
    pub(crate) fn encode(self) -> Vec<u8> {
        codec::encode(b"RTP2", &self)
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<RecoveryHello> {
        codec::decode(b"RTP2", bytes)
    }
}

/// A question about the client with this name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Closes the client's connection; the answer lists its transactions that had begun to write.
    Decided(u64),
    /// Ends the client's transactions: the listed ones are committed, all others are aborted.
    Settle(u64, Vec<u64>),
    /// Frees the client's place.
    Release(u64),
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The connection is still being closed: repeat the question.
    Wait,
    /// The request was executed. For [`Question::Decided`], these transactions had begun to write.
    Done(Vec<u64>),
}

/// Maximum number of transactions in a message.
pub(crate) const MOST: usize = 2 * 64 * super::MOST_SHARDS;
/// Bytes of the longest message.
pub(crate) const LONGEST: usize = 32 + 10 * MOST;

impl Question {
    /// Encodes the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        codec::encode(b"RTQ1", self)
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Question> {
        codec::decode(b"RTQ1", bytes)
    }
}

impl Answer {
    /// Encodes the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        codec::encode(b"RTA1", self)
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Answer> {
        codec::decode(b"RTA1", bytes)
    }
}

/// A connection to another shard.
pub(crate) struct Peer {
    pair: QueuePair<Ready>,
    cq: CompletionQueue,
    /// A buffer for questions and a buffer for answers.
    memory: MemoryRegion,
}

/// Maximum time for another shard to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause before a question is repeated.
const AGAIN: Duration = Duration::from_millis(5);
/// Maximum number of times that a question is asked.
const ATTEMPTS: u32 = 400;

impl Peer {
    /// Connects to the shard that clients have reported.
    ///
    /// # Errors
    /// The shard does not answer, or is another one.
    pub(crate) fn connect(context: &Context, member: Member) -> Result<Peer> {
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(8)?;
        let memory = domain.allocate(2 * LONGEST, Access::LOCAL_WRITE)?;
        let private_data = RecoveryHello { run: member.run }.encode();
        let options = QpOptions {
            max_send_wr: 2,
            max_recv_wr: 2,
            private_data,
            connect_timeout: PATIENCE,
            ..QpOptions::default()
        };
        let pair = domain.create_qp(&cq, &cq, &options)?.connect(member.address);
        let pair = pair.with_context(|| format!("the shard at {}", member.address))?;
        Ok(Peer { pair, cq, memory })
    }

    /// Repeats a question until it is answered, and returns the numbers in the answer.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) fn ask(&mut self, question: &Question) -> Result<Vec<u64>> {
        for _ in 0..ATTEMPTS {
            match self.ask_once(&question.encode())? {
                Answer::Done(numbers) => return Ok(numbers),
                Answer::Wait => std::thread::sleep(AGAIN),
            }
        }
        bail!(Silent, "another shard does not end the client's connection")
    }

    fn ask_once(&mut self, question: &[u8]) -> Result<Answer> {
        ensure!(
            question.len() <= LONGEST,
            Config,
            "the client has more transactions than a message between shards can name"
        );
        self.memory.write(0, question)?;
        let into = [self.memory.sge(LONGEST, LONGEST)];
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &into })?;
        self.pair.post_send(&work::send(0, &[self.memory.sge(0, question.len())]))?;
        loop {
            let mut done = [EMPTY; 1];
            let got = self.cq.wait(&mut done, PATIENCE).context("another shard does not answer")?;
            ensure!(got == 1, Silent, "another shard does not answer");
            let status = done[0].status;
            ensure!(status == Status::Success, Silent, "another shard is gone: {}", status.explain());
            if done[0].id == 1 {
                let mut bytes = vec![0; (done[0].byte_len as usize).min(LONGEST)];
                self.memory.read(LONGEST, &mut bytes)?;
                return Ok(need!(Answer::decode(&bytes), Peer, "another shard answers nonsense"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_went_and_nothing_else_does() {
        let hello = RecoveryHello { run: u64::MAX - 3 };
        assert_eq!(RecoveryHello::decode(&hello.encode()), Some(hello));
        assert_eq!(RecoveryHello::decode(&hello.encode()[1..]), None);
        for question in [Question::Decided(7), Question::Settle(7, vec![1, 2]), Question::Release(7)] {
            let bytes = question.encode();
            assert_eq!(Question::decode(&bytes), Some(question));
            assert!((0..bytes.len()).all(|len| Question::decode(&bytes[..len]).is_none()));
            assert_eq!(Answer::decode(&bytes), None);
        }
        for answer in [Answer::Wait, Answer::Done(vec![]), Answer::Done(vec![3])] {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes), Some(answer));
            assert_eq!(Question::decode(&bytes), None);
        }
        assert_eq!(Question::decode(&[0xff; 40]), None);
        assert!(Question::Settle(u64::MAX, vec![u64::MAX; MOST]).encode().len() <= LONGEST);
    }
}
