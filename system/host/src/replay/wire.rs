//! The port of a replayed NIC: it answers as the recorded port did, and compares the frames.

use remora_port::{Class, Egress, Endpoint, IpFields, Lease, Origin, Peer, Start};
use remora_wire::Qpn;
use std::cell::RefCell;
use std::io::Read;

use super::player::{Player, Stop};
use super::text;
use crate::recording::{self, Abridged, Event, PeerFacts};

/// The port during one call of transmit. After the first difference no buffer is lent, so that the call ends.
pub(super) struct Wire<'a, R> {
    inside: RefCell<Inside<'a, R>>,
    /// The buffer of the frame that was lent.
    bytes: Vec<u8>,
    peer: Peer,
    fields: IpFields,
}

struct Inside<'a, R> {
    player: &'a mut Player<R>,
    stop: Option<Stop>,
}

impl<'a, R: Read> Wire<'a, R> {
    pub(super) fn new(player: &'a mut Player<R>) -> Wire<'a, R> {
        let inside = RefCell::new(Inside { player, stop: None });
        Wire { inside, bytes: Vec::new(), peer: Peer(0), fields: IpFields::default() }
    }

    /// Compares the end of the call.
    ///
    /// # Errors
    /// The first difference of the call, or the end of the recording in it.
    pub(super) fn finish(self, count: u64) -> Result<(), Stop> {
        let Inside { player, stop } = self.inside.into_inner();
        if let Some(stop) = stop {
            return Err(stop);
        }
        match player.next()? {
            Event::Transmitted { count: expected } if expected == count => Ok(()),
            Event::Transmitted { count: expected } => {
                let text = |count| format!("{count} frames");
                Err(player.differs("end of transmission", None, text(expected), text(count)))
            }
            Event::End(end) => Err(Stop::End(Some(end))),
            other => {
                let text = describe(&other);
                Err(player.differs(other.name(), None, text, "end of transmission".to_owned()))
            }
        }
    }
}

/// Returns an event of a call of transmit as text.
fn describe(event: &Event) -> String {
    match event {
        // The start is not part of the event: it is known from the peer.
        Event::Sent { frame, .. } => format!("a frame of {} bytes", frame.len),
        Event::Transmitted { count } => format!("end after {count} frames"),
        other => format!("{other:?}"),
    }
}

impl<R: Read> Inside<'_, R> {
    /// Takes the next event if `wanted` returns an answer from it. Otherwise the event differs from what the
    /// NIC does: `found`, for the queue pair `qp`.
    fn expect<T>(
        &mut self,
        wanted: impl FnOnce(&Event) -> Option<T>,
        kind: &'static str,
        found: impl FnOnce() -> String,
    ) -> Option<T> {
        if self.stop.is_some() {
            return None;
        }
        let event = match self.player.next() {
            Ok(Event::End(end)) => {
                self.stop = Some(Stop::End(Some(end)));
                return None;
            }
            Ok(event) => event,
            Err(stop) => {
                self.stop = Some(stop);
                return None;
            }
        };
        let answer = wanted(&event);
        if answer.is_none() {
            self.stop = Some(self.player.differs(kind, None, describe(&event), found()));
        }
        answer
    }

    /// Returns the port's answers about a peer.
    fn facts(&mut self, peer: Peer) -> Option<PeerFacts> {
        if self.stop.is_none() {
            match self.player.look() {
                Ok(Some(Event::Peer { peer: named, facts })) if *named == peer => {
                    let facts = *facts;
                    if let Err(stop) = self.player.learn(peer, facts) {
                        self.stop = Some(stop);
                    }
                }
                Ok(_) => {}
                Err(stop) => self.stop = Some(stop),
            }
        }
        let known = self.player.facts(peer);
        if known.is_none() && self.stop.is_none() {
            let found = format!("a frame to peer {}", peer.0);
            let expected = "no frame to this peer".to_owned();
            self.stop = Some(self.player.differs("question to the port", None, expected, found));
        }
        known
    }
}

impl<R: Read> Egress for Wire<'_, R> {
    fn start(&self, peer: Peer) -> Start {
        self.inside.borrow_mut().facts(peer).map_or(Start::Bth, |facts| facts.start)
    }

    fn seals(&self, peer: Peer) -> bool {
        self.inside.borrow_mut().facts(peer).is_some_and(|facts| facts.seals)
    }

    fn nearest(&mut self, peer: Peer, qp: Qpn) -> Peer {
        let wanted = |event: &Event| match *event {
            Event::Nearest { peer: asked, qp: number, answer } if (asked, number) == (peer, qp) => {
                Some(answer)
            }
            _ => None,
        };
        let found = || format!("a datagram for queue pair {qp} by peer {}", peer.0);
        self.inside.get_mut().expect(wanted, "question to the port", found).unwrap_or(peer)
    }

    fn peer_of(&mut self, endpoint: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        let wanted = |event: &Event| match *event {
            Event::PeerOf { endpoint: asked, origin: from, answer }
                if (asked, from) == (*endpoint, origin) =>
            {
                Some(answer)
            }
            _ => None,
        };
        let found = || format!("the peer of {endpoint}");
        self.inside.get_mut().expect(wanted, "question to the port", found).flatten()
    }

    fn mark(&mut self, fields: IpFields) {
        self.fields = fields;
    }

    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        let wanted = |event: &Event| match *event {
            Event::Lent { peer: asked, class: queue, len: bytes, granted }
                if (asked, queue, bytes as usize) == (peer, class, len) =>
            {
                Some(granted)
            }
            _ => None,
        };
        let found = || format!("a frame of {len} bytes to peer {} in class {}", peer.0, class.number());
        let granted = self.inside.get_mut().expect(wanted, "buffer for a frame", found)?;
        self.peer = peer;
        self.bytes.clear();
        self.bytes.resize(len, 0);
        granted.then_some(Lease { bytes: &mut self.bytes, ip_id: 0 })
    }

    fn commit(&mut self) {
        let fields = self.fields;
        let inside = self.inside.get_mut();
        let Some(PeerFacts { start, .. }) = inside.facts(self.peer) else { return };
        let remote = recording::destination(start, &self.bytes);
        let peer = self.peer;
        let connections = &inside.player.connections;
        let irn = remote.is_some_and(|remote| connections.sends_irn(peer, remote));
        let frame = Abridged::new(start, &self.bytes, irn);
        let wanted = |event: &Event| match event {
            Event::Sent { frame, fields } => Some((frame.clone(), *fields)),
            _ => None,
        };
        let found = || text::frame(start, &frame);
        let Some((expected, marked)) = inside.expect(wanted, "sent frame", found) else { return };
        inside.player.tally.sent += 1;
        if (&expected, marked) == (&frame, fields) {
            return;
        }
        let remote = text::destination(start, &expected).or(remote);
        let qp = remote.and_then(|remote| inside.player.connections.own(peer, remote));
        let texts = text::frames(start, &expected, &frame);
        let [expected, found] = match marked == fields {
            true => texts,
            false => [format!("{} {marked:?}", texts[0]), format!("{} {fields:?}", texts[1])],
        };
        inside.stop = Some(inside.player.differs("sent frame", qp, expected, found));
    }

    fn flush(&mut self) {
        let wanted = |event: &Event| matches!(event, Event::Flushed).then_some(());
        let _ = self.inside.get_mut().expect(wanted, "flush", || "flush".to_owned());
    }
}
