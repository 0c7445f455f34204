//! [`Tap`]: the port of a NIC that is recorded.

use remora_port::staging::{Staging, forward};
use remora_port::{Class, Counters, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Port, Start};
use remora_wire::Qpn;
use std::os::fd::RawFd;

use super::event::{Event, PeerFacts};
use super::recorder::Recorder;

/// A wrapper that records what a NIC asks of its port. It holds the recorder of the NIC, which records the
/// calls of the NIC itself.
#[derive(Debug)]
pub(crate) struct Tap<P> {
    port: P,
    /// `None` if nothing is recorded: frames pass as without the wrapper.
    recorder: Option<Box<Recorder>>,
    staging: Staging,
    /// True if the port had no space for the last committed frame, which still waits in `staging`.
    stuck: bool,
    /// Fields of the IP headers of the frames that are lent from now on.
    fields: IpFields,
}

impl<P: Port> Tap<P> {
    /// Wraps `port`.
    pub(crate) fn new(port: P, recorder: Option<Recorder>) -> Tap<P> {
        let recorder = recorder.map(Box::new);
        Tap { port, recorder, staging: Staging::default(), stuck: false, fields: IpFields::default() }
    }

    /// Returns the wrapped port.
    pub(crate) fn port(&self) -> &P {
        &self.port
    }

    /// Returns the wrapped port, mutably.
    pub(crate) fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the recorder, if there is one.
    pub(crate) fn recorder_mut(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_deref_mut()
    }

    /// Sends the committed frame. Returns false if the port has no space; the frame then stays.
    fn send(&mut self) -> bool {
        let Some((header, bytes)) = self.staging.take() else { return true };
        self.stuck = forward(&mut self.port, header, bytes).is_none();
        if self.stuck {
            self.staging.put_back(header);
        }
        !self.stuck
    }

    fn put(&self, event: impl FnOnce() -> Event) {
        if let Some(recorder) = &self.recorder {
            recorder.put(&event());
        }
    }
}

impl<P: Port> Egress for Tap<P> {
    fn start(&self, peer: Peer) -> Start {
        let start = self.port.start(peer);
        if let Some(recorder) = &self.recorder {
            recorder.answered(peer, PeerFacts { start, seals: self.port.seals(peer) });
        }
        start
    }

    fn seals(&self, peer: Peer) -> bool {
        let seals = self.port.seals(peer);
        if let Some(recorder) = &self.recorder {
            recorder.answered(peer, PeerFacts { start: self.port.start(peer), seals });
        }
        seals
    }

    fn nearest(&mut self, peer: Peer, qp: Qpn) -> Peer {
        let answer = self.port.nearest(peer, qp);
        self.put(|| Event::Nearest { peer, qp, answer });
        answer
    }

    fn peer_of(&mut self, endpoint: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        let answer = self.port.peer_of(endpoint, origin);
        self.put(|| Event::PeerOf { endpoint: *endpoint, origin, answer });
        answer
    }

    fn mark(&mut self, fields: IpFields) {
        self.fields = fields;
        self.staging.mark(fields);
        if self.recorder.is_none() {
            self.port.mark(fields);
        }
    }

    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        if self.recorder.is_none() {
            return self.port.lend(peer, class, len);
        }
        let granted = !self.stuck || self.send();
        self.put(|| Event::Lent { peer, class, len: len as u32, granted });
        granted.then(|| self.staging.lend(peer, len))
    }

    fn commit(&mut self) {
        if let Some(recorder) = &self.recorder {
            if let Some((header, bytes)) = self.staging.take() {
                recorder.sent(header.peer, self.port.start(header.peer), bytes, self.fields);
                self.staging.put_back(header);
            }
            self.send();
        } else {
            self.port.commit();
        }
    }

    fn flush(&mut self) {
        self.put(|| Event::Flushed);
        if self.stuck {
            self.send();
        }
        self.port.flush();
    }
}

impl<P: Port> Port for Tap<P> {
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        self.port.receive(budget, take)
    }

    fn receives_to_silence(&self) -> u32 {
        self.port.receives_to_silence()
    }

    fn endpoint(&self) -> Endpoint {
        self.port.endpoint()
    }

    fn source(&self) -> Endpoint {
        self.port.source()
    }

    fn source_to(&self, peer: Peer) -> Endpoint {
        self.port.source_to(peer)
    }

    fn max_transport_bytes(&self) -> usize {
        self.port.max_transport_bytes()
    }

    fn arm(&mut self) -> bool {
        if let Some(recorder) = &self.recorder {
            recorder.flush();
        }
        let stuck = self.stuck && !self.send();
        self.port.arm() || stuck
    }

    fn disarm(&mut self) {
        self.port.disarm();
    }

    fn poll_fds(&self, out: &mut Vec<RawFd>) {
        self.port.poll_fds(out);
    }

    fn show_ip_fields(&mut self) {
        self.port.show_ip_fields();
    }

    fn counters(&self) -> Counters {
        self.port.counters()
    }

    fn peer_endpoint(&self, peer: Peer) -> Option<Endpoint> {
        self.port.peer_endpoint(peer)
    }

    fn ethernet_addresses(&self, peer: Peer) -> Option<([u8; 6], [u8; 6])> {
        self.port.ethernet_addresses(peer)
    }
}
