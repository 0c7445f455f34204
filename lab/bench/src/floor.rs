//! Lower bounds: the speed of the machine itself, measured in the same run as the software on top of it.
//! Each measurement has two ends, in different processes; the peer's end runs until the next command.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result};
use remora_port::shm::{Receiver, Sender};
use remora_port::udp::Socket;
use rustix::net::SocketAddrAny;

use crate::testbed::page::{Page, Ticket};
use crate::typical;

/// The line floor: one line per direction (a poller keeps a line shared, so every hop is an invalidation and
/// a fetch).
pub(crate) fn line(page: &Page, trips: u64) -> Result<f64> {
    let (there, back) = page.lines();
    let mut value = there.load(Ordering::Relaxed);
    typical(trips, || {
        value += 1;
        there.store(value, Ordering::Release);
        while back.load(Ordering::Acquire) != value {
            spin_loop();
        }
        Ok(())
    })
}

/// The peer's end of [`line()`].
pub(crate) fn line_peer(page: &Page, ticket: Ticket) {
    let (there, back) = page.lines();
    // The old value must not be read from `there`, because the bench may have written already.
    let mut seen = back.load(Ordering::Relaxed);
    while page.is_wanted(ticket) {
        for _ in 0..1000 {
            let value = there.load(Ordering::Acquire);
            if value != seen {
                seen = value;
                back.store(value, Ordering::Release);
            }
        }
    }
}

/// Frame lengths of a ping-pong, there and back.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// Bytes of the request.
    pub there: usize,
    /// Bytes of the answer.
    pub back: usize,
}

/// A raw ping-pong over UDP: both ends spin on unconnected sockets.
pub(crate) fn udp(socket: &Socket, destination: &SocketAddrAny, lengths: Lengths, trips: u64) -> Result<f64> {
    let frame = [0x5a; 9000];
    let mut buffer = [0; 9000];
    typical(trips, || {
        socket.send_to(&frame[..lengths.there], destination).context("raw UDP ping-pong")?;
        while socket.recv_from(&mut buffer).context("raw UDP ping-pong")?.is_none() {}
        Ok(())
    })
}

/// The peer's end of [`udp`].
pub(crate) fn udp_peer(
    socket: &Socket,
    destination: &SocketAddrAny,
    back: usize,
    page: &Page,
    ticket: Ticket,
) -> Result<()> {
    let frame = [0xa5; 9000];
    let mut buffer = [0; 9000];
    while page.is_wanted(ticket) {
        for _ in 0..64 {
            if socket.recv_from(&mut buffer)?.is_some() {
                socket.send_to(&frame[..back], destination)?;
            }
        }
    }
    Ok(())
}

/// Measures a ping-pong of frames over the rings of a link.
pub(crate) fn ring(
    sender: &mut Sender,
    receiver: &mut Receiver,
    lengths: Lengths,
    trips: u64,
) -> Result<f64> {
    typical(trips, || {
        send(sender, lengths.there)?;
        while receiver
            .receive(|bytes| {
                black_box(bytes);
            })
            .map_err(broken)?
            .is_none()
        {
            spin_loop();
        }
        Ok(())
    })
}

/// The peer's end of [`ring`].
pub(crate) fn ring_peer(
    sender: &mut Sender,
    receiver: &mut Receiver,
    back: usize,
    page: &Page,
    ticket: Ticket,
) -> Result<()> {
    while page.is_wanted(ticket) {
        for _ in 0..1000 {
            if receiver
                .receive(|bytes| {
                    black_box(bytes);
                })
                .map_err(broken)?
                .is_some()
            {
                send(sender, back)?;
            }
        }
    }
    Ok(())
}

fn send(sender: &mut Sender, len: usize) -> Result<()> {
    while !sender.reserve(len).map_err(broken)? {
        spin_loop();
    }
    sender.bytes().fill(0x5a);
    sender.commit();
    sender.flush();
    Ok(())
}

fn broken(_: remora_port::shm::Broken) -> anyhow::Error {
    anyhow::anyhow!("the ring of the benchmark is damaged")
}

/// Measures copies of `chunk` bytes through buffers far larger than the caches, in bytes per second.
pub(crate) fn memcpy(source: &[u8], target: &mut [u8], chunk: usize) -> f64 {
    let started = Instant::now();
    for (source, target) in source.chunks_exact(chunk).zip(target.chunks_exact_mut(chunk)) {
        target.copy_from_slice(source);
        black_box(&target);
    }
    source.len() as f64 / started.elapsed().as_secs_f64()
}
