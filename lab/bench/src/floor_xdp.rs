//! The lower bound of port xdp: frames over AF_XDP rings between two veth ends, without any processing.

use std::hint::{black_box, spin_loop};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use remora_port::xdp::{Attachment, Flushed, Options, Queue, Resolver};
use remora_wire::frame::{Endpoint, Route, Start};

use super::floor::Lengths;
use crate::testbed::page::{Page, Ticket};
use crate::typical;

/// The UDP port of both ends.
const PORT: u16 = 4791;
/// The frames in flight in [`Raw::echo`], and the frames sent together, as in the rate measurement of the
/// verbs.
const WINDOW: usize = 128;
const BATCH: usize = 32;
/// Time without a frame after which the frames in flight count as lost. It exceeds the time that the peer
/// waits for a core on a busy machine.
const LOST: Duration = Duration::from_secs(5);

/// Computation unrelated to frames, about as long as a NIC's work for a READ: it parses a short JSON text.
#[inline(never)]
pub(crate) fn work() {
    let _ = black_box(serde_json::from_str::<serde_json::Value>(black_box(r#"{"a":[1,2.5],"b":"c\n"}"#)));
}

/// An end of the raw AF_XDP echo: the rings of an interface and the headers of its frames.
pub(crate) struct Raw {
    attachment: Attachment,
    route: Route,
}

impl Raw {
    /// Attaches to `interface`. The frames go to `peer` at its other end.
    pub(crate) fn open(interface: &str, peer: IpAddr) -> Result<Raw> {
        let attachment = Attachment::open(interface, None, &Options::default())?;
        let far = Endpoint { address: peer.into(), udp_port: PORT };
        let resolver = Resolver::of(&attachment).context("asking the kernel for neighbours")?;
        let destination_mac = resolver.mac(far, Duration::from_secs(5))?;
        let source_mac = attachment.interface().mac;
        let route = Route { source_mac, destination_mac, ..Route::new(attachment.endpoint(), far) };
        Ok(Raw { attachment, route })
    }

    /// Returns a frame with `transport` bytes after its headers.
    fn frame(&self, transport: usize) -> Vec<u8> {
        let headers = Start::Ethernet.overhead(self.route.source.address.is_ipv4());
        let mut frame = vec![0x5a; headers + transport];
        self.route.emit(Start::Ethernet, 0, transport as u16, &mut frame);
        frame
    }

    /// Measures the round trip of single frames in nanoseconds; `work` runs after each.
    pub(crate) fn ping_pong(&mut self, lengths: Lengths, trips: u64, mut work: impl FnMut()) -> Result<f64> {
        let frame = self.frame(lengths.there);
        let queue = self.attachment.sender();
        typical(trips, || {
            send(queue, &frame, 1)?;
            let started = Instant::now();
            let mut spins = 0u32;
            while receive(queue, 1) == 0 {
                spins = spins.wrapping_add(1);
                if spins.is_multiple_of(1 << 16) && started.elapsed() > LOST {
                    bail!("a raw frame was lost");
                }
                spin_loop();
            }
            work();
            Ok(())
        })
    }

    /// Measures like `ping_pong`, with [`work`] after each frame at this end. Also returns the median time of
    /// the work, in nanoseconds.
    pub(crate) fn ping_pong_working(&mut self, lengths: Lengths, trips: u64) -> Result<(f64, f64)> {
        let mut own = Vec::with_capacity(trips as usize);
        let took = self.ping_pong(lengths, trips, || {
            let started = Instant::now();
            work();
            own.push(started.elapsed().as_nanos() as f64);
        })?;
        Ok((took, super::median(&own)))
    }

    /// Measures the frames per second that go and return, with [`WINDOW`] frames in flight.
    pub(crate) fn echo(&mut self, lengths: Lengths, count: usize) -> Result<f64> {
        let frame = self.frame(lengths.there);
        let queue = self.attachment.sender();
        let mut sent = 0_usize;
        let mut back = 0_usize;
        let mut lost = 0_usize;
        let started = Instant::now();
        let mut last = Instant::now();
        while back + lost < count {
            if sent < count && sent.saturating_sub(back + lost) + BATCH <= WINDOW {
                send(queue, &frame, BATCH)?;
                sent += BATCH;
            }
            match receive(queue, 64) {
                0 if last.elapsed() > LOST => lost = sent.saturating_sub(back),
                0 => {}
                came => {
                    back += came;
                    last = Instant::now();
                }
            }
        }
        if lost * 100 > count {
            bail!("{lost} of {count} raw frames were lost");
        }
        Ok(back as f64 / started.elapsed().as_secs_f64())
    }

    /// Runs the peer's end of both measurements: it answers each frame with `back` bytes after the headers,
    /// after `work`.
    pub(crate) fn answer(&mut self, back: usize, work: impl Fn(), page: &Page, ticket: Ticket) -> Result<()> {
        let frame = self.frame(back);
        let queue = self.attachment.sender();
        while page.is_wanted(ticket) {
            for _ in 0..64 {
                let came = receive(queue, 64);
                if came > 0 {
                    work();
                    send(queue, &frame, came)?;
                }
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn receive(queue: &mut Queue, budget: usize) -> usize {
    queue
        .receive(budget, &mut |bytes| {
            black_box(bytes);
        })
        .0
}

#[inline(always)]
fn send(queue: &mut Queue, frame: &[u8], count: usize) -> Result<()> {
    for _ in 0..count {
        while queue.lend(frame.len()).is_none() {
            if let Flushed::Refused(errno) = queue.flush() {
                bail!("the interface of the benchmark has failed: {errno}");
            }
        }
        if let Some(frame_out) = queue.lent() {
            frame_out.copy_from_slice(frame);
        }
        queue.commit();
    }
    while let Flushed::Some = queue.flush() {}
    Ok(())
}
