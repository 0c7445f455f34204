//! The lower bound of large transfers over UDP: a raw GSO/GRO stream. The sender copies from a cold source
//! and the receiver to a cold destination, because an RDMA WRITE does so. A small credit keeps the
//! receiver's socket buffer from overflowing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use remora_port::udp::Socket;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use crate::testbed::page::{Page, Ticket};

/// The payload of a segment in bytes: the path MTU.
pub(crate) const PAYLOAD: usize = 4096;
/// The length of a segment: BTH, payload and ICRC, like a middle packet of a WRITE.
const SEGMENT: usize = 12 + PAYLOAD + 4;
/// The number of segments of a train.
const TRAIN: usize = 15;
/// The maximum number of trains in flight.
const WINDOW: usize = 4;
/// The size of the memory that the copies use, which is far more than any cache.
pub(crate) const COLD: usize = 64 << 20;

/// Sends `bytes`, waits until the peer has them all, and returns the payload in bytes per second.
pub(crate) fn send(
    socket: &mut Socket,
    destination: &SocketAddrAny,
    source: &[u8],
    bytes: usize,
) -> Result<f64> {
    let mut train = vec![0; SEGMENT * TRAIN];
    let mut credit = [0; 16];
    let mut sent = 0;
    let mut acked = 0;
    let mut place = 0;
    let trains = bytes.div_ceil(PAYLOAD * TRAIN);
    socket.join(false).ok();
    let started = Instant::now();
    while acked < trains {
        while sent < trains && sent - acked < WINDOW {
            for segment in train.chunks_exact_mut(SEGMENT) {
                segment[12..12 + PAYLOAD].copy_from_slice(&source[place..place + PAYLOAD]);
                place = (place + PAYLOAD) % COLD;
            }
            loop {
                match socket.send_train(&train, SEGMENT as u16, destination) {
                    Ok(()) => break,
                    Err(Errno::AGAIN | Errno::NOBUFS) => {}
                    Err(errno) => return Err(errno).context("raw UDP stream"),
                }
            }
            sent += 1;
        }
        if socket.recv_from(&mut credit)?.is_some() {
            acked += 1;
        }
        if started.elapsed() > Duration::from_secs(20) {
            bail!("the raw UDP stream lost a train: {acked} of {trains} arrived");
        }
    }
    Ok((trains * PAYLOAD * TRAIN) as f64 / started.elapsed().as_secs_f64())
}

/// The peer's end of [`send`]; it returns one credit for each train.
pub(crate) fn sink(
    socket: &mut Socket,
    destination: &SocketAddrAny,
    target: &mut [u8],
    page: &Page,
    ticket: Ticket,
) -> Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut place = 0;
    let mut segments = 0;
    socket.join(true).ok();
    while page.is_wanted(ticket) {
        let Some(arrival) = socket.recv_train(&mut buffer)? else { continue };
        for segment in buffer[..arrival.len].chunks(arrival.segment) {
            if segment.len() == SEGMENT {
                target[place..place + PAYLOAD].copy_from_slice(&segment[12..12 + PAYLOAD]);
                place = (place + PAYLOAD) % COLD;
                segments += 1;
            }
        }
        while segments >= TRAIN {
            segments -= TRAIN;
            socket.send_to(&[0; 8], destination)?;
        }
    }
    socket.join(false).ok();
    Ok(())
}
