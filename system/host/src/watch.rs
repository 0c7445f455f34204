//! Watching a port's descriptors while nobody polls the engine, and ending the watch without waking the
//! watcher.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use remora_port::Port;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Passes of a caller after which it counts as polling, and the watch ends. A visitor makes fewer (one
/// request now and then) and leaves the watch standing, so that its departure costs nothing.
const POLLS: u32 = 64;

/// The token of the waker that ends a sleep; engines have their numbers.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// The watch over one engine's port. It belongs to the engine, so the thread inside may begin and end it.
#[derive(Debug)]
pub(crate) struct Watch {
    registry: Registry,
    waker: Arc<mio::Waker>,
    token: Token,
    descriptors: Vec<RawFd>,
    /// Those that the port has now.
    wanted: Vec<RawFd>,
    /// Callers do not end it.
    stays: bool,
    /// Caller's passes until the watch ends; 0: there is none.
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
    /// A watch for the sleeper that waits with the `mio::Poll` of this registry; events of the port bear
    /// `token`.
    pub fn new(registry: Registry, waker: Arc<mio::Waker>, token: Token) -> Watch {
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

    /// The registry for other events that wake the sleeper.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Begins the watch, or renews it: the sleeper is about to sleep. If it `stays`, callers do not end it.
    pub fn begin(&mut self, port: &mut impl Port, stays: bool) -> Begun {
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
            // Registered still: what arrives from now on is a new edge.
            return Begun::Watching;
        }
        self.end_listening();
        self.descriptors.extend_from_slice(&self.wanted);
        let refused = self.descriptors.iter().any(|descriptor| {
            // Edge-triggered, but registering reports what is readable already.
            self.registry.register(&mut SourceFd(descriptor), self.token, Interest::READABLE).is_err()
        });
        if refused {
            self.end(port);
            return Begun::Refused;
        }
        Begun::Watching
    }

    /// Is the port being watched?
    #[inline]
    pub fn stands(&self) -> bool {
        self.left > 0
    }

    /// Is it being watched, whatever callers do?
    pub fn stays(&self) -> bool {
        self.stands() && self.stays
    }

    /// Counts a caller's pass while the port is watched.
    #[cold]
    pub fn visited(&mut self, port: &mut impl Port) {
        if self.stays {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            self.end(port);
            // The sleeper must go back to looking at the heartbeat: nothing else would wake it soon.
            let _ = self.waker.wake();
        }
    }

    /// Ends the watch: from now on packets wake nobody.
    pub fn end(&mut self, port: &mut impl Port) {
        self.left = 0;
        self.end_listening();
        port.disarm();
    }

    fn end_listening(&mut self) {
        for descriptor in self.descriptors.drain(..) {
            // Not registered, or closed meanwhile: both are fine.
            let _ = self.registry.deregister(&mut SourceFd(&descriptor));
        }
    }
}
