//! [`Capture`]: a port whose frames are recorded.

use super::ethernet::{Below, MAX_HEADERS, complete, sealed_id};
use super::pcapng::PacketDirection;
use super::recorder::{Recorded, Recorder};
use crate::clock::{Clock, Wall};
use crate::staging::{Staging, forward, reseal};
use crate::{Counters, Port};
use remora_wire::Qpn;
use remora_wire::frame::{Class, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Start};
use remora_wire::icrc::{self, IdSpans};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::Path;

/// Number of consecutive calls of `receive` without a frame after which recorded frames are written, so
/// that the capture of a quiet port is complete.
const QUIET_CALLS: u32 = 4096;

/// Default limit of a capture's size in bytes.
pub const CAPTURE_LIMIT: u64 = 1 << 30;

/// A wrapper that records every frame of a port in a pcapng file.
///
/// The data path copies each frame into a bounded buffer, and a thread writes the buffers. If the disk is
/// too slow, frames are missing in the file, never in the traffic. Frames beyond the file's size limit are
/// missing as well, so a flood of frames cannot fill a disk. [`Capture::recorded`] and the last block of
/// the file count the missing frames.
#[derive(Debug)]
pub struct Capture<P, C = Wall> {
    port: P,
    clock: C,
    /// `None` if nothing is recorded: frames pass as without the wrapper.
    recorder: Option<Recorder>,
    staging: Staging,
    /// True if the port had no space for the last committed frame, which still waits in `staging`.
    stuck: bool,
    spans: IdSpans,
    quiet: u32,
}

/// Returns the tshark command with the `-d` argument that decodes this port's frames as RoCE v2, because
/// tshark knows only UDP port 4791. Empty for that port.
fn decode_as(endpoint: Endpoint) -> String {
    match endpoint.udp_port {
        remora_wire::ROCE_PORT => String::new(),
        port => format!("tshark -d udp.port=={port},infiniband"),
    }
}

impl<P: Port> Capture<P> {
    /// Records to a new file at `path`, up to [`CAPTURE_LIMIT`] bytes.
    ///
    /// # Errors
    /// The error of creating or writing the file.
    pub fn create(port: P, path: impl AsRef<Path>) -> io::Result<Self> {
        Capture::limited(port, path, CAPTURE_LIMIT)
    }

    /// Records to a new file at `path`, up to `limit` bytes; the last block may exceed the limit.
    ///
    /// # Errors
    /// The error of creating or writing the file.
    pub fn limited(port: P, path: impl AsRef<Path>, limit: u64) -> io::Result<Self> {
        Capture::with_clock(port, File::create(path)?, Wall, limit)
    }

    /// Records nothing: frames pass as without the wrapper.
    pub fn absent(port: P) -> Self {
        Capture::over(port, None, Wall)
    }
}

impl<P: Port, C: Clock> Capture<P, C> {
    /// Records to `file`, with timestamps of `clock` (nanoseconds since 1970), up to [`CAPTURE_LIMIT`]
    /// bytes.
    ///
    /// # Errors
    /// The error of writing the file's first bytes.
    pub fn new<W: Write + Send + 'static>(port: P, file: W, clock: C) -> io::Result<Self> {
        Capture::with_clock(port, file, clock, CAPTURE_LIMIT)
    }

    /// Records to `file`, with timestamps of `clock`, up to `limit` bytes.
    fn with_clock<W: Write + Send + 'static>(mut port: P, file: W, clock: C, limit: u64) -> io::Result<Self> {
        port.show_ip_fields();
        let endpoint = port.endpoint();
        let recorder = Recorder::new(file, &format!("remora {endpoint}"), &decode_as(endpoint), limit)?;
        Ok(Capture::over(port, Some(recorder), clock))
    }

    fn over(port: P, recorder: Option<Recorder>, clock: C) -> Self {
        let spans = IdSpans::new();
        Capture { port, clock, recorder, staging: Staging::default(), stuck: false, spans, quiet: 0 }
    }

    /// Returns the wrapped port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Returns the wrapped port, mutably, to create peers for example.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the number of frames seen, and of those missing in the file.
    pub fn recorded(&self) -> Recorded {
        self.recorder.as_ref().map(Recorder::recorded).unwrap_or_default()
    }

    /// Writes all recorded frames, closes the file, and returns the port.
    ///
    /// # Errors
    /// The first error of writing the file, which may have occurred long before; the port is dropped then.
    pub fn finish(mut self) -> io::Result<(P, Recorded)> {
        if self.stuck {
            self.send();
        }
        let recorded = self.recorder.as_mut().map(Recorder::finish).transpose()?.unwrap_or_default();
        Ok((self.port, recorded))
    }

    /// Sends the committed frame and records it. Returns false if the port has no space; the frame then
    /// stays.
    fn send(&mut self) -> bool {
        let Some((header, bytes)) = self.staging.take() else { return true };
        let peer = header.peer;
        let Some(ip_id) = forward(&mut self.port, header, bytes) else {
            self.stuck = true;
            self.staging.put_back(header);
            return false;
        };
        self.stuck = false;
        let time = self.clock.now_ns();
        let start = self.port.start(peer);
        let sealed = self.port.seals(peer);
        if start == Start::Bth && sealed {
            reseal(bytes, ip_id);
        }
        if let Some((source, destination)) = self.port.ethernet_addresses(peer)
            && start == Start::Ethernet
        {
            bytes[..6].copy_from_slice(&destination);
            bytes[6..12].copy_from_slice(&source);
        }
        let below = self.port.peer_endpoint(peer).map(|destination| Below {
            source: self.port.source_to(peer),
            destination,
            fields: header.fields,
            ip_id,
            checksum: true,
        });
        if let Some(recorder) = &mut self.recorder {
            record(recorder, time, PacketDirection::Out, start, sealed, below, bytes);
        }
        true
    }
}

/// Records a frame as it would look on a wire. `below` describes the headers before its BTH, for a frame
/// that does not contain them.
fn record(
    recorder: &mut Recorder,
    time: u64,
    direction: PacketDirection,
    start: Start,
    sealed: bool,
    below: Option<Below>,
    bytes: &[u8],
) {
    let mut headers = [0; MAX_HEADERS];
    with_pieces(start, sealed, below, bytes, &mut headers, |pieces| {
        recorder.record(time, direction, pieces);
    });
}

/// Passes the pieces of a frame, as it would look on a wire, to `take`. `buffer` holds headers that the
/// frame lacks.
pub(super) fn with_pieces(
    start: Start,
    sealed: bool,
    below: Option<Below>,
    bytes: &[u8],
    buffer: &mut [u8; MAX_HEADERS],
    take: impl FnOnce(&[&[u8]]),
) {
    match (start, below) {
        (Start::Bth, Some(below)) => {
            let len = below.emit(bytes, buffer);
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
    crate::forward::forward_egress!();

    fn mark(&mut self, fields: IpFields) {
        self.staging.mark(fields);
        if self.recorder.is_none() {
            self.port.mark(fields);
        }
    }

    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        if self.recorder.is_none() {
            return self.port.lend(peer, class, len);
        }
        if self.stuck && !self.send() {
            return None;
        }
        Some(self.staging.lend(peer, len))
    }

    fn commit(&mut self) {
        if self.recorder.is_none() {
            return self.port.commit();
        }
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
    crate::forward::forward_port!();

    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let here = self.port.endpoint();
        let Capture { port, clock, recorder: Some(recorder), spans, .. } = self else {
            return self.port.receive(budget, take);
        };
        let count = port.receive(budget, &mut |frame| {
            let start = frame.start;
            let sealed = frame.sealed;
            let source = frame.source;
            let here = frame.destination.unwrap_or(here);
            let reads_id = start == Start::Bth && here.address.is_ipv4();
            let ip_id = if reads_id { sealed_id(source, here, frame.bytes, spans) } else { 0 };
            let time = clock.now_ns();
            let fields =
                if let Some(Origin::Ip(fields)) = frame.origin { fields } else { IpFields::default() };
            let below = Below { source, destination: here, fields, ip_id, checksum: false };
            record(recorder, time, PacketDirection::In, start, sealed, Some(below), frame.bytes);
            take(frame);
        });
        self.quiet = if count > 0 { 0 } else { self.quiet.saturating_add(1) };
        if self.quiet == QUIET_CALLS && recorder.has_unwritten() {
            recorder.hand_over();
        }
        count
    }

    fn arm(&mut self) -> bool {
        if let Some(recorder) = &mut self.recorder {
            recorder.hand_over();
        }
        let stuck = self.stuck && !self.send();
        self.port.arm() || stuck
    }

    fn counters(&self) -> Counters {
        self.port.counters()
    }
}
