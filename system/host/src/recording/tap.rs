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

    /// Sends the frame that the port had no space for, if there is one and the port has space now. The NIC
    /// has committed it, and does not ask for it again.
    fn send_stuck(&mut self) {
        if self.stuck && self.send() {
            self.port.flush();
        }
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
        self.port.flush();
        self.send_stuck();
    }
}

impl<P: Port> Port for Tap<P> {
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        self.send_stuck();
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
        self.send_stuck();
        self.port.arm() || self.stuck
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

#[cfg(test)]
mod tests {
    use remora_memory::Table;
    use remora_port::shm::{Geometry, Limits, Link, ShmPort};

    use crate::PortKind;

    use super::super::event::{self, Header};
    use super::super::log::Log;
    use super::*;

    const LEN: usize = 100;

    /// Returns a recorded port that is linked to itself, with the path of its recording.
    fn recorded() -> (Tap<ShmPort>, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("remora-tap-{}", std::process::id()));
        let nic = remora_nic::Config::default();
        let geometry = Geometry::new(64, 1000).unwrap();
        let mut port = ShmPort::new(nic.endpoint, Limits { links: 1, frame: 1000 }).unwrap();
        assert_eq!(port.add_link(Link::loopback(geometry).unwrap()), Ok(Peer(0)));
        let header = Header {
            version: String::new(),
            port: PortKind::Shm,
            endpoint: nic.endpoint,
            nic,
            memory: event::Limits { regions: 1, windows: 1, ranges: 1 },
        };
        let log = Log::create(&path, u64::MAX, &header).unwrap();
        (
            Tap::new(port, Some(Recorder::new(log, &Table::new(remora_memory::Config::default()).unwrap()))),
            path,
        )
    }

    /// Regression: a frame for which the port had no space waited for the next frame of the NIC. The last
    /// packet of a batch left with the timeout of its acknowledgement.
    #[test]
    fn a_committed_frame_waits_only_for_space_in_the_port() {
        let (mut tap, path) = recorded();
        let mut sent = 0;
        while let Some(lease) = tap.lend(Peer(0), Class::default(), LEN) {
            lease.bytes.fill(sent);
            tap.commit();
            tap.flush();
            sent += 1;
        }
        let mut received = Vec::new();
        for _ in 0..3 {
            tap.receive(1000, &mut |frame| received.push(frame.bytes[0]));
        }
        assert_eq!(received, (0..sent).collect::<Vec<_>>());
        std::fs::remove_file(path).unwrap();
    }
}
