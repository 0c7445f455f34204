//! The watch of a port's descriptors while no caller polls the engine. A caller can end the watch without
//! waking the watcher.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use remora_port::Port;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Number of passes of a caller after which it counts as polling, so that the watch ends. An occasional
/// visitor makes fewer (a request now and then) and leaves the watch in place, so that its departure costs
/// nothing.
const POLLS: u32 = 64;

/// Token of the waker that ends a sleep; engines use their numbers as tokens.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// The watch of an engine's port. It belongs to the engine, so that the thread inside may begin and end it.
#[derive(Debug)]
pub(crate) struct Watch {
    registry: Registry,
    waker: Arc<mio::Waker>,
    token: Token,
    descriptors: Vec<RawFd>,
    /// The descriptors that the port has now.
    wanted: Vec<RawFd>,
    /// True if callers do not end the watch.
    stays: bool,
    /// Number of callers' passes until the watch ends; 0 if there is no watch.
    left: u32,
}

/// The result of beginning a watch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The sleeper will be woken by the port.
    Watching,
    /// There is work already: do not sleep.
    Work,
    /// The system refused: sleep only on a short timer.
    Refused,
}

impl Watch {
    /// Creates a watch for the sleeper that waits with the `mio::Poll` of this registry. Events of the port
    /// carry `token`.
    pub(crate) fn new(registry: Registry, waker: Arc<mio::Waker>, token: Token) -> Watch {
        Watch {
            registry,
            waker,
            token,
            descriptors: Vec::with_capacity(4),
            wanted: Vec::with_capacity(4),
            stays: false,
            left: 0,
        }
    }

    /// Returns the registry, for other events that wake the sleeper.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Begins or renews the watch, because the sleeper is about to sleep. With `stays`, callers do not end
    /// the watch.
    pub(crate) fn begin(&mut self, port: &mut impl Port, stays: bool) -> Begun {
        if port.arm() {
            if !stays {
                self.end(port);
            }
            return Begun::Work;
        }
        (self.stays, self.left) = (stays, POLLS);
        self.wanted.clear();
        port.poll_fds(&mut self.wanted);
        if self.wanted == self.descriptors {
            // The descriptors are still registered: frames that arrive from now on cause a new edge.
            return Begun::Watching;
        }
        self.end_listening();
        self.descriptors.extend_from_slice(&self.wanted);
        let refused = self.descriptors.iter().any(|descriptor| {
            // Edge-triggered, but registering reports descriptors that are already readable.
            self.registry.register(&mut SourceFd(descriptor), self.token, Interest::READABLE).is_err()
        });
        if refused {
            self.end(port);
            return Begun::Refused;
        }
        Begun::Watching
    }

    /// Returns whether the port is being watched.
    #[inline]
    pub(crate) fn stands(&self) -> bool {
        self.left > 0
    }

    /// Returns whether the port is being watched by a watch that callers do not end.
    pub(crate) fn stays(&self) -> bool {
        self.stands() && self.stays
    }

    /// Counts a caller's pass while the port is watched.
    #[cold]
    pub(crate) fn visited(&mut self, port: &mut impl Port) {
        if self.stays {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            self.end(port);
            // The sleeper must return to checking the heartbeat: nothing else would wake it soon.
            let _ = self.waker.wake();
        }
    }

    /// Ends the watch: from now on packets do not wake the sleeper.
    pub(crate) fn end(&mut self, port: &mut impl Port) {
        self.left = 0;
        self.end_listening();
        port.disarm();
    }

    fn end_listening(&mut self) {
        for descriptor in self.descriptors.drain(..) {
            // Errors mean that the descriptor is not registered or was closed meanwhile; both are harmless.
            let _ = self.registry.deregister(&mut SourceFd(&descriptor));
        }
    }
}
