//! The events of a recording in order, and their comparison with what the replayed NIC does.

use remora_nic::wqe::SLOT;
use remora_nic::{Command, CommandError, MAX_RING_SLOTS, Reply, Ring, Word};
use remora_port::{Endpoint, Ingress, Peer};
use remora_transport::{Counters, Instant};
use remora_wire::Qpn;
use std::fmt::Debug;
use std::io::Read;

use super::difference::{Difference, Tally};
use super::text;
use crate::recording::{
    Connections, End, Event, Fresh, Header, PeerFacts, Queues, Reader, ReceivedFrame, ReplayError,
};

/// Maximum number of bytes of all queues of a replayed NIC.
const MAX_QUEUES: u64 = 16 << 30;

/// The reason why a replay stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// The recording ends, with or without an end.
    End(Option<End>),
    /// The replayed NIC did something else.
    Different(Box<Difference>),
    /// The file is damaged.
    Damaged(ReplayError),
}

/// The events of a recording, and the state that follows from them.
pub(super) struct Player<R> {
    reader: Reader<R>,
    /// The event that was read to look ahead.
    ahead: Option<Event>,
    /// Number of events that were taken.
    taken: u64,
    pub(super) queues: Queues,
    /// Bytes of all queues.
    queue_bytes: u64,
    pub(super) tally: Tally,
    own: Endpoint,
    first: Option<Instant>,
    now: Instant,
    pub(super) connections: Connections,
    /// The recorded port's answers about each peer.
    peers: std::collections::BTreeMap<u32, PeerFacts>,
}

/// Returns the configuration of the recorded NIC; `None` if no NIC has such a configuration.
pub(super) fn checked(header: &Header) -> Option<remora_nic::Config> {
    let config = header.nic;
    let counts = [
        config.max_qps,
        config.max_cqs,
        config.max_srqs,
        config.max_xrc_domains,
        config.max_address_handles,
        config.max_groups,
        config.max_group_members,
        config.max_events,
        config.max_free_lists,
        config.max_kernels,
    ];
    let places = header.memory.regions.checked_add(header.memory.windows)?;
    let fits = counts.iter().all(|count| *count <= 1 << 20) && config.max_qps <= 1 << 16 && places < 1 << 24;
    let sizes = (256..=4096).contains(&config.mtu) && config.qpn_range.is_none_or(|range| range < 128);
    (fits && sizes && (1..=1 << 16).contains(&config.window)).then_some(config)
}

impl<R: Read> Player<R> {
    pub(super) fn new(reader: Reader<R>, own: Endpoint) -> Player<R> {
        Player {
            reader,
            ahead: None,
            taken: 0,
            queues: Queues::default(),
            queue_bytes: 0,
            tally: Tally::default(),
            own,
            first: None,
            now: Instant(0),
            connections: Connections::default(),
            peers: std::collections::BTreeMap::new(),
        }
    }

    /// Returns the number of events that were replayed.
    pub(super) fn count(&self) -> u64 {
        self.taken
    }

    /// Returns the time from the first to the last call, in nanoseconds.
    pub(super) fn duration_ns(&self) -> u64 {
        self.first.map_or(0, |first| self.now.since(first))
    }

    /// Takes the next event.
    pub(super) fn next(&mut self) -> Result<Event, Stop> {
        let event = match self.ahead.take() {
            Some(event) => event,
            None => self.read()?.ok_or(Stop::End(None))?,
        };
        self.taken += 1;
        Ok(event)
    }

    /// Returns the next event without taking it; `None` at the end of the file.
    pub(super) fn look(&mut self) -> Result<Option<&Event>, Stop> {
        if self.ahead.is_none() {
            self.ahead = self.read()?;
        }
        Ok(self.ahead.as_ref())
    }

    fn read(&mut self) -> Result<Option<Event>, Stop> {
        self.reader.read().map_err(Stop::Damaged)
    }

    /// Takes the event that holds the port's answers about a peer.
    pub(super) fn learn(&mut self, peer: Peer, facts: PeerFacts) -> Result<(), Stop> {
        self.next()?;
        self.peers.insert(peer.0, facts);
        Ok(())
    }

    /// Returns the port's answers about a peer; `None` if there are none.
    pub(super) fn facts(&self, peer: Peer) -> Option<PeerFacts> {
        self.peers.get(&peer.0).copied()
    }

    /// Sets the time of the call that follows.
    pub(super) fn at(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.now = now;
    }

    pub(super) fn impossible(&self, why: &str) -> Stop {
        Stop::Damaged(ReplayError::Impossible(self.taken, why.to_owned()))
    }

    /// Returns the difference at the event that was taken last.
    pub(super) fn differs(
        &self,
        kind: &'static str,
        qp: Option<Qpn>,
        expected: String,
        found: String,
    ) -> Stop {
        let event = self.taken;
        Stop::Different(Box::new(Difference { event, time: self.now, kind, qp, expected, found }))
    }

    /// Compares a value of the event that was taken last.
    pub(super) fn equal<T: PartialEq + Debug>(&self, expected: &T, found: &T) -> Result<(), Stop> {
        if expected == found {
            return Ok(());
        }
        Err(self.differs("value of the NIC", None, format!("{expected:?}"), format!("{found:?}")))
    }

    /// Returns the memory of a queue of this many slots.
    pub(super) fn ring(&mut self, slots: u32) -> Result<Ring, Stop> {
        self.queue_bytes += Ring::size(slots) as u64;
        if !slots.is_power_of_two() || slots > MAX_RING_SLOTS || self.queue_bytes > MAX_QUEUES {
            return Err(self.impossible("a queue of this size"));
        }
        ring_of(slots).ok_or_else(|| self.impossible("no memory for a queue"))
    }

    /// Copies the work requests that the program posted into the ring.
    pub(super) fn post(&mut self, ring: u32, produced: u64, first: u64, slots: &[u8]) -> Result<(), Stop> {
        let Some(queue) = self.queues.get(ring) else { return Err(self.impossible("no such ring")) };
        let (slots, rest) = slots.as_chunks::<SLOT>();
        if !rest.is_empty() || slots.len() as u64 > queue.ring.slots() || first > 1 << 62 {
            return Err(self.impossible("work requests that do not fit their queue"));
        }
        for (index, slot) in (first..).zip(slots) {
            queue.ring.store(index, slot);
        }
        queue.ring.set_word(Word::Produced, produced);
        Ok(())
    }

    /// Sets the consumer index of a completion queue.
    pub(super) fn poll(&mut self, ring: u32, consumed: u64) -> Result<(), Stop> {
        let Some(queue) = self.queues.get(ring) else { return Err(self.impossible("no such ring")) };
        queue.ring.set_word(Word::Consumed, consumed);
        Ok(())
    }

    /// Compares the reply to a command, and follows the command.
    pub(super) fn command(
        &mut self,
        command: &Command,
        expected: &Result<Reply, CommandError>,
        found: &Result<Reply, CommandError>,
    ) -> Result<(), Stop> {
        let mut qp = None;
        command.names(|name| {
            if let remora_nic::ObjectName::Qp(named) = name {
                qp = Some(named);
            }
        });
        if expected != found {
            let text = |reply: &Result<Reply, CommandError>| match reply {
                Ok(reply) => format!("{}: {reply:?}", command.kind()),
                Err(error) => error.to_string(),
            };
            return Err(self.differs("reply to a command", qp, text(expected), text(found)));
        }
        if found.is_ok() {
            self.connections.follow(command);
        }
        self.queues.follow(command, found.as_ref().ok());
        Ok(())
    }

    /// Passes a received frame to `receive`, which returns whether the NIC dropped it because of its ICRC.
    pub(super) fn receive(
        &mut self,
        received: &ReceivedFrame,
        receive: impl FnOnce(&Ingress<'_>) -> bool,
    ) -> Result<(), Stop> {
        let bytes = received.frame.bytes();
        let mut bytes = bytes.ok_or_else(|| self.impossible("a frame of these lengths"))?;
        if received.is_corrupt {
            crate::recording::corrupt(received, self.own, &mut bytes);
        }
        // A frame whose ICRC was right is replayed as one without, because it has no payload.
        let ingress = Ingress {
            bytes: &bytes,
            start: received.start,
            sealed: received.is_corrupt,
            source: received.source,
            destination: received.destination,
            origin: received.origin,
        };
        let is_corrupt = receive(&ingress);
        if is_corrupt != received.is_corrupt {
            let name = |corrupt| if corrupt { "dropped for its ICRC" } else { "not dropped for its ICRC" };
            let frame = text::frame(received.start, &received.frame);
            let text = |corrupt| format!("{frame}: {}", name(corrupt));
            return Err(self.differs("received frame", None, text(received.is_corrupt), text(is_corrupt)));
        }
        Ok(())
    }

    /// Compares the completions after a call.
    pub(super) fn settle(&mut self) -> Result<(), Stop> {
        let fresh = self.queues.fresh(|_, _, _| ());
        for Fresh { cq, first, slots } in fresh {
            self.tally.completions += (slots.len() / SLOT) as u64;
            let is_next = matches!(self.look()?, Some(Event::Completions { .. }));
            let found = text::Completions { cq, first, slots: &slots };
            if !is_next {
                if self.ahead.is_none() || matches!(self.ahead, Some(Event::End(_))) {
                    // The file ends in the middle of the call.
                    return Err(Stop::End(self.ending()));
                }
                self.taken += 1;
                return Err(self.differs("completion", found.qp(0), "none".to_owned(), found.text(0)));
            }
            let Event::Completions { cq, first, slots } = self.next()? else { continue };
            let expected = text::Completions { cq, first, slots: &slots };
            if let Some(place) = expected.difference(&found) {
                let qp = expected.qp(place).or(found.qp(place));
                return Err(self.differs("completion", qp, expected.text(place), found.text(place)));
            }
        }
        if matches!(self.look()?, Some(Event::Completions { .. }))
            && let Event::Completions { cq, first, slots } = self.next()?
        {
            let expected = text::Completions { cq, first, slots: &slots };
            return Err(self.differs("completion", expected.qp(0), expected.text(0), "none".to_owned()));
        }
        Ok(())
    }

    /// Returns the end of the recording if it is the next event.
    pub(super) fn ending(&mut self) -> Option<End> {
        match self.ahead.take() {
            Some(Event::End(end)) => Some(end),
            _ => None,
        }
    }

    /// Compares the counters.
    pub(super) fn counters(&self, expected: &Counters, found: &Counters) -> Result<(), Stop> {
        if expected == found {
            return Ok(());
        }
        let text = |one: &Counters, other: &Counters| {
            let pairs = one.each().zip(other.each()).filter(|(one, other)| one.2 != other.2);
            let texts: Vec<String> = pairs.map(|(one, _)| format!("{} {}", one.0, one.2)).collect();
            texts.join(", ")
        };
        Err(self.differs("counters", None, text(expected, found), text(found, expected)))
    }
}

/// Returns the memory of a queue.
fn ring_of(slots: u32) -> Option<Ring> {
    Ring::new(remora_memory::Bytes::zeros(Ring::size(slots)).ok()?)
}
