//! The servers that a program's 1RMA commands name. The port keeps the way to each server that is listed
//! here.

use remora_memory::ForkMark;
use remora_wire::frame::{Endpoint, Peer};
use std::collections::VecDeque;

use crate::engine_handle::EngineHandle;

/// The resolved way to a server. Dropping it releases the port's entry.
#[derive(Debug)]
pub(crate) struct Reached {
    engine: EngineHandle,
    server: Endpoint,
    peer: Peer,
    fork: ForkMark,
}

impl Reached {
    /// Wraps a peer entry that [`reach`](Uplink::reach) has found.
    pub(crate) fn new(engine: &EngineHandle, server: Endpoint, peer: Peer) -> Reached {
        Reached { engine: engine.clone(), server, peer, fork: ForkMark::get() }
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if !self.fork.is_child() {
            self.engine.uplink().release_peer(self.peer);
        }
    }
}

/// The servers of one program: the latest [`Servers::MOST`] of them.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    reached: VecDeque<Reached>,
}

impl Servers {
    /// Servers that one program has at a time. The way to an older one must be resolved again before use.
    pub(crate) const MOST: usize = 1024;

    /// Keeps the way to one more server. At the limit, releases the way to the oldest.
    pub(crate) fn keep(&mut self, reached: Reached) {
        self.reached.retain(|known| known.server != reached.server);
        if self.reached.len() == Servers::MOST {
            self.reached.pop_front();
        }
        self.reached.push_back(reached);
    }
}
