//! The state of a listener that its thread shares: the socket, and the requests that wait to be answered.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::full::{Capacity, Full};
use super::request::Request;
use crate::signal::Signal;

/// Maximum number of requests that wait to be answered.
pub const REQUESTS: usize = 64;

/// The part of a listener that its thread uses as well.
pub(super) struct Shared {
    pub socket: TcpListener,
    pub stopped: AtomicBool,
    pub refused: AtomicUsize,
    pub requests: Signal<Request>,
}

impl Shared {
    pub(crate) fn new(socket: TcpListener) -> io::Result<Shared> {
        let requests = Signal::new(REQUESTS)?;
        Ok(Shared { socket, stopped: AtomicBool::new(false), refused: AtomicUsize::new(0), requests })
    }

    /// Queues a request whose first message is complete. If the queue is full, requests whose peers have
    /// hung up are removed first.
    pub(crate) fn put(&self, request: Request) {
        let Err(request) = self.requests.offer(request) else { return };
        self.requests.retain(|request| !request.has_hung_up());
        if let Err(request) = self.requests.offer(request) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let most = REQUESTS as u32;
            request.reject_full(Full { capacity: Capacity::Handshakes, taken: most, most });
        }
    }
}
