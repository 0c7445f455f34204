//! [`Capture`]: a port that is recorded.

use super::ethernet::{MAX_HEADERS, complete, headers, sealed_id};
use super::pcapng::PacketDirection;
use super::recorder::{Recorded, Recorder};
use crate::clock::{Clock, Wall};
use crate::staging::{Staging, forward, reseal};
use crate::{Counters, Port};
use remora_wire::Qpn;
use remora_wire::frame::{Class, Egress, Endpoint, Ingress, Lease, Origin, Peer, Start};
use remora_wire::icrc::{self, IdSpans};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::Path;

/// Calls to `receive` that find nothing, after which recorded frames are written: a quiet port's capture is
/// whole.
const QUIET_CALLS: u32 = 4096;

/// Any port, with every frame that passes recorded in a pcapng file.
///
/// The data path copies each frame into a bounded buffer; a thread writes. If the disk is too slow, frames
/// are missing in the file, never in the traffic. [`Capture::recorded`] and the file's last block count the
/// missing frames.
#[derive(Debug)]
pub struct Capture<P, C = Wall> {
    port: P,
    clock: C,
    recorder: Recorder,
    staging: Staging,
    /// A frame was committed here, but the port had no space for it.
    stuck: bool,
    spans: IdSpans,
    quiet: u32,
}

/// The `-d` argument with which tshark decodes this port's frames as RoCE v2: tshark knows only UDP port
/// 4791. Empty for that port.
fn decode_as(endpoint: Endpoint) -> String {
    match endpoint.udp_port {
        remora_wire::ROCE_PORT => String::new(),
        port => format!("tshark -d udp.port=={port},infiniband"),
    }
}

impl<P: Port> Capture<P> {
    /// Records to a new file at `path`.
    ///
    /// # Errors
    /// The error of creating or writing the file.
    pub fn create(port: P, path: impl AsRef<Path>) -> io::Result<Self> {
        Capture::new(port, File::create(path)?, Wall)
    }
}

impl<P: Port, C: Clock> Capture<P, C> {
    /// Records to `file`, with the times of `clock` (nanoseconds since 1970).
    ///
    /// # Errors
    /// The error of writing the file's first bytes.
    pub fn new<W: Write + Send + 'static>(port: P, file: W, clock: C) -> io::Result<Self> {
        let endpoint = port.endpoint();
        let recorder = Recorder::new(file, &format!("remora {endpoint}"), &decode_as(endpoint))?;
        let spans = IdSpans::new();
        Ok(Capture { port, clock, recorder, staging: Staging::default(), stuck: false, spans, quiet: 0 })
    }

    /// The port inside.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port inside, to make peers and the like.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Frames seen, and those of them that are missing in the file.
    pub fn recorded(&self) -> Recorded {
        self.recorder.recorded()
    }

    /// Writes everything and closes the file; gives back the port.
    ///
    /// # Errors
    /// The first error of writing the file, perhaps long ago; the port is lost then.
    pub fn finish(mut self) -> io::Result<(P, Recorded)> {
        if self.stuck {
            self.send();
        }
        let recorded = self.recorder.finish()?;
        Ok((self.port, recorded))
    }

    /// Sends the committed frame and records it. `false`: the port has no space, and the frame stays.
    fn send(&mut self) -> bool {
        let Some((peer, bytes)) = self.staging.take() else { return true };
        let Some(ip_id) = forward(&mut self.port, peer, bytes) else {
            self.stuck = true;
            self.staging.put_back(peer);
            return false;
        };
        self.stuck = false;
        let time = self.clock.now_ns();
        let (start, sealed) = (self.port.start(peer), self.port.seals(peer));
        if start == Start::Bth && sealed {
            reseal(bytes, ip_id);
        }
        if let Some((source, destination)) = self.port.ethernet_addresses(peer)
            && start == Start::Ethernet
        {
            bytes[..6].copy_from_slice(&destination);
            bytes[6..12].copy_from_slice(&source);
        }
        let ends = self.port.peer_endpoint(peer).map(|to| (self.port.source_to(peer), to));
        record(&mut self.recorder, time, PacketDirection::Out, start, sealed, ends, ip_id, bytes);
        true
    }
}

/// Records one frame as it would look on a wire. `ends` are its sender and receiver, where the frame does not
/// contain them.
#[expect(
    clippy::too_many_arguments,
    reason = "the facts of one frame, from two places that know them differently"
)]
fn record(
    recorder: &mut Recorder,
    time: u64,
    direction: PacketDirection,
    start: Start,
    sealed: bool,
    ends: Option<(Endpoint, Endpoint)>,
    ip_id: u16,
    bytes: &[u8],
) {
    let mut headers = [0; MAX_HEADERS];
    with_pieces(start, sealed, ends, ip_id, bytes, &mut headers, |pieces| {
        recorder.record(time, direction, pieces);
    });
}

/// Gives a frame as it would look on a wire, in pieces, to `take`. `buffer` is for headers that it lacks.
pub(super) fn with_pieces(
    start: Start,
    sealed: bool,
    ends: Option<(Endpoint, Endpoint)>,
    ip_id: u16,
    bytes: &[u8],
    buffer: &mut [u8; MAX_HEADERS],
    take: impl FnOnce(&[&[u8]]),
) {
    match (start, ends) {
        (Start::Bth, Some((from, to))) => {
            let len = headers(from, to, ip_id, bytes.len(), buffer);
            take(&[&buffer[..len], bytes]);
        }
        (Start::Ip, _) => match complete(bytes, buffer) {
            Some(icrc) if !sealed => {
                let covered = bytes.len() - icrc::LEN;
                let seal = icrc.to_le_bytes();
                take(&[&buffer[..remora_wire::ethernet::LEN], &bytes[..covered], &seal]);
            }
            _ => take(&[&buffer[..remora_wire::ethernet::LEN], bytes]),
        },
        _ => take(&[bytes]),
    }
}

impl<P: Port, C: Clock> Egress for Capture<P, C> {
    fn start(&self, peer: Peer) -> Start {
        self.port.start(peer)
    }

    fn seals(&self, peer: Peer) -> bool {
        self.port.seals(peer)
    }

    fn nearest(&mut self, peer: Peer, to: Qpn) -> Peer {
        self.port.nearest(peer, to)
    }

    fn peer_of(&mut self, to: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        self.port.peer_of(to, origin)
    }

    fn lend(&mut self, peer: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        if self.stuck && !self.send() {
            return None;
        }
        Some(self.staging.lend(peer, len))
    }

    fn commit(&mut self) {
        self.send();
    }

    fn flush(&mut self) {
        if self.stuck {
            self.send();
        }
        self.port.flush();
    }
}

impl<P: Port, C: Clock> Port for Capture<P, C> {
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let here = self.port.endpoint();
        let Capture { port, clock, recorder, spans, .. } = self;
        let found = port.receive(budget, &mut |frame| {
            let (start, sealed, from) = (frame.start, frame.sealed, frame.source);
            let here = frame.destination.unwrap_or(here);
            let reads_id = start == Start::Bth && here.address.is_ipv4();
            let ip_id = if reads_id { sealed_id(from, here, frame.bytes, spans) } else { 0 };
            let time = clock.now_ns();
            record(
                recorder,
                time,
                PacketDirection::In,
                start,
                sealed,
                Some((from, here)),
                ip_id,
                frame.bytes,
            );
            take(frame);
        });
        self.quiet = if found > 0 { 0 } else { self.quiet.saturating_add(1) };
        if self.quiet == QUIET_CALLS && self.recorder.has_unwritten() {
            self.recorder.hand_over();
        }
        found
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
        self.recorder.hand_over();
        let stuck = self.stuck && !self.send();
        self.port.arm() || stuck
    }

    fn disarm(&mut self) {
        self.port.disarm();
    }

    fn poll_fds(&self, out: &mut Vec<RawFd>) {
        self.port.poll_fds(out);
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
