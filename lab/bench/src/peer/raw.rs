//! The peer's raw ends for the measurements of lower bounds.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use remora_port::shm;
use remora_port::udp::{self, Socket};

use crate::testbed::page::{Page, Ticket};
use crate::{floor, packets, stream};

/// The raw ends for the measurements of lower bounds.
pub(crate) struct Raw {
    /// The socket, with the same settings as that of the port.
    pub socket: Socket,
    bench: Option<rustix::net::SocketAddrAny>,
    link: Option<shm::Link>,
    /// Accepts the bench's link.
    pub listener: shm::Listener,
    cold: Vec<u8>,
}

impl Raw {
    /// Opens the socket and the listener.
    pub(crate) fn open() -> Result<Raw> {
        let geometry = shm::Geometry::new(4096, 4352).context("the ring's shape")?;
        Ok(Raw {
            socket: Socket::open("127.0.0.1:0".parse()?, &udp::Options::default())?,
            bench: None,
            link: None,
            listener: shm::Listener::new(geometry, shm::Admit::SameUser)?,
            cold: vec![1; stream::COLD],
        })
    }

    /// Stores the address of the bench's only socket.
    pub(crate) fn resolve(&mut self, port: u16) {
        let bench = SocketAddr::from(([127, 0, 0, 1], port));
        self.bench.get_or_insert_with(|| self.socket.destination(bench));
    }

    /// Accepts the bench's link, if that has not happened yet.
    pub(crate) fn accept(&mut self) -> Result<()> {
        let started = std::time::Instant::now();
        while self.link.is_none() && started.elapsed() < Duration::from_secs(5) {
            self.link = self.listener.accept()?;
        }
        Ok(())
    }

    /// Answers frames until the bench sends another command.
    pub(crate) fn udp(&self, answer: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let destination = self.bench.as_ref().context("the bench's socket")?;
        floor::udp_peer(&self.socket, destination, answer, page, ticket)
    }

    /// Receives a stream until the bench sends another command.
    pub(crate) fn stream(&mut self, page: &Page, ticket: Ticket) -> Result<()> {
        let destination = self.bench.as_ref().context("the bench's socket")?;
        stream::sink(&mut self.socket, destination, &mut self.cold, page, ticket)
    }

    /// Receives packets until the bench sends another command.
    pub(crate) fn packets(&mut self, len: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let destination = self.bench.as_ref().context("the bench's socket")?;
        packets::sink(&mut self.socket, destination, len, page, ticket)
    }

    /// Answers frames of the ring.
    pub(crate) fn ring(&mut self, answer: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let link = self.link.as_mut().context("the bench's ring")?;
        let (sender, receiver) = link.rings();
        floor::ring_peer(sender, receiver, answer, page, ticket)
    }
}
