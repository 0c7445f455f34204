//! The lower bound of packet rates over UDP: short segments of equal length, sent as GSO trains and received
//! as GRO trains without any processing. A small credit keeps the receiver's socket buffer from overflowing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use remora_port::udp::Socket;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use crate::testbed::page::{Page, Ticket};

/// The number of segments of a train, which is the kernel's maximum.
const TRAIN: usize = 64;
/// The maximum number of trains in flight.
const WINDOW: usize = 4;

/// Sends `count` segments of `len` bytes, waits until the peer has them, and returns the segments per
/// second.
pub(crate) fn send(
    socket: &mut Socket,
    destination: &SocketAddrAny,
    len: usize,
    count: usize,
) -> Result<f64> {
    let train = vec![0x5a; len * TRAIN];
    let mut credit = [0; 16];
    let trains = count.div_ceil(TRAIN);
    let mut sent = 0;
    let mut acked = 0;
    socket.join(false).ok();
    let started = Instant::now();
    while acked < trains {
        while sent < trains && sent - acked < WINDOW {
            match socket.send_train(&train, len as u16, destination) {
                Ok(()) => sent += 1,
                Err(Errno::AGAIN | Errno::NOBUFS) => break,
                Err(errno) => return Err(errno).context("raw UDP packets"),
            }
        }
        while socket.recv_from(&mut credit)?.is_some() {
            acked += 1;
        }
        if started.elapsed() > Duration::from_secs(20) {
            bail!("raw UDP packets were lost: {acked} of {trains} trains arrived");
        }
    }
    Ok((trains * TRAIN) as f64 / started.elapsed().as_secs_f64())
}

/// The peer's end of [`send`]; it returns one credit for each train.
pub(crate) fn sink(
    socket: &mut Socket,
    destination: &SocketAddrAny,
    len: usize,
    page: &Page,
    ticket: Ticket,
) -> Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut segments = 0;
    socket.join(true).ok();
    while page.is_wanted(ticket) {
        for _ in 0..64 {
            let Some(arrival) = socket.recv_train(&mut buffer)? else { continue };
            segments += arrival.len / len.max(1);
            while segments >= TRAIN {
                segments -= TRAIN;
                socket.send_to(&[0; 8], destination)?;
            }
        }
    }
    socket.join(false).ok();
    Ok(())
}
