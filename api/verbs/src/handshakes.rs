//! Connection set-up for several peers at once, on threads of its own, so that the calling thread never
//! waits.

use remora_host::Signal;
use remora_host::connect::{Capacity, ConnectError, Full, SetupConnection};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::listener::Answered;
use crate::{ConnectRequest, Init, QueuePair};

/// Stack size of a thread in bytes. The thread only exchanges four small messages.
const STACK: usize = 256 << 10;

/// Connections that are being set up with queue pairs of this process. A peer may take up to its
/// [`connect_timeout`](crate::QpOptions::connect_timeout); meanwhile the calling thread serves other peers
/// and asks from time to time which hand-shakes have finished.
///
/// ```
/// use remora_verbs::{Device, Handshakes, Listener, QpOptions};
/// use std::time::Duration;
///
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.address();
/// let client = std::thread::spawn(move || {
///     let context = Device::shm().open().unwrap();
///     let (domain, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
///     domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap().connect(address).unwrap()
/// });
///
/// let context = Device::shm().open()?;
/// let (domain, cq) = (context.alloc_pd()?, context.create_cq(16)?);
/// let mut handshakes = Handshakes::new()?;
/// let pair = loop {
///     if handshakes.has_capacity(Handshakes::HASTE)
///         && let Some(request) = listener.accept(Some(Duration::ZERO))?
///     {
///         handshakes.begin(request, domain.create_qp(&cq, &cq, &QpOptions::default())?)?;
///     }
///     // Other clients are served here.
///     if let Some((_, answered)) = handshakes.finished() {
///         break answered?.go()?;
///     }
/// };
/// # drop((client.join(), pair));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handshakes {
    done: Arc<Signal<Done>>,
    /// The hand-shakes under way, oldest first.
    under_way: VecDeque<UnderWay>,
    next: u64,
}

#[derive(Debug)]
struct Done {
    id: u64,
    outcome: Result<Answered, ConnectError>,
}

#[derive(Debug)]
struct UnderWay {
    id: u64,
    began: Instant,
    connection: SetupConnection,
    /// True if the hand-shake was asked to end.
    ending: bool,
}

impl Handshakes {
    /// Connections that are set up at a time. One more ends the oldest.
    pub const MOST: usize = 32;
    /// Maximum number of threads. It includes hand-shakes that were ended early and whose thread still waits
    /// for the network.
    const THREADS: usize = 2 * Handshakes::MOST;

    /// A usual time for one hand-shake while others wait for [capacity](Handshakes::has_capacity).
    pub const HASTE: Duration = Duration::from_millis(200);

    /// Creates a set without hand-shakes.
    ///
    /// # Errors
    /// An error of the operating system if it gives no descriptor.
    pub fn new() -> std::io::Result<Handshakes> {
        let done = Arc::new(Signal::new(Handshakes::THREADS)?);
        Ok(Handshakes { done, under_way: VecDeque::new(), next: 1 })
    }

    /// Begins to answer a request with a queue pair. Returns the number by which
    /// [`finished`](Handshakes::finished) reports the hand-shake.
    ///
    /// # Errors
    /// The operating system gives no descriptor or thread, or too many hand-shakes are ending. The peer is
    /// notified, and `pair` is dropped.
    pub fn begin(&mut self, request: ConnectRequest, pair: QueuePair<Init>) -> Result<u64, ConnectError> {
        if self.under_way.iter().filter(|one| !one.ending).count() >= Handshakes::MOST {
            self.end_oldest(Duration::ZERO);
        }
        if self.under_way.len() >= Handshakes::THREADS {
            let most = Handshakes::MOST as u32;
            let full = Full { capacity: Capacity::Handshakes, taken: most, most };
            request.reject_full(full);
            return Err(ConnectError::Full(full));
        }
        let connection = request.connection().map_err(ConnectError::Tcp)?;
        let id = self.next;
        let done = Arc::clone(&self.done);
        std::thread::Builder::new()
            .name("remora-accept".to_owned())
            .stack_size(STACK)
            .spawn(move || done.put(Done { id, outcome: request.answer(pair) }))
            .map_err(ConnectError::Tcp)?;
        self.next += 1;
        self.under_way.push_back(UnderWay { id, began: Instant::now(), connection, ending: false });
        Ok(id)
    }

    /// Returns whether one more hand-shake can begin. If not, ends the oldest one, provided that it began at
    /// least `haste` ago. Meanwhile a new request waits in the listener.
    pub fn has_capacity(&mut self, haste: Duration) -> bool {
        let capacity = self.under_way.len() < Handshakes::MOST;
        if !capacity {
            self.end_oldest(haste);
        }
        capacity
    }

    /// Returns the next finished hand-shake with its number, or `None`. On `Ok`, the peer is ready and waits
    /// for [`go`](crate::Answered::go). On `Err`, the set-up failed.
    pub fn finished(&mut self) -> Option<(u64, Result<Answered, ConnectError>)> {
        let Done { id, outcome } = self.done.take()?;
        self.under_way.retain(|one| one.id != id);
        Some((id, outcome))
    }

    /// Ends the oldest hand-shake if it began at least `at_least` ago. Returns false if there is none.
    /// [`finished`](Handshakes::finished) reports the hand-shake once it has ended.
    pub fn end_oldest(&mut self, at_least: Duration) -> bool {
        let oldest = self.under_way.iter_mut().find(|one| !one.ending);
        let Some(oldest) = oldest.filter(|one| one.began.elapsed() >= at_least) else { return false };
        oldest.ending = true;
        oldest.connection.end();
        true
    }

    /// Ends hand-shake `id`; no effect if there is none.
    pub fn end(&mut self, id: u64) {
        if let Some(one) = self.under_way.iter_mut().find(|one| one.id == id) {
            one.ending = true;
            one.connection.end();
        }
    }

    /// The number of hand-shakes that [`finished`](Handshakes::finished) has not reported.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Returns whether every hand-shake was reported by [`finished`](Handshakes::finished).
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }
}

impl AsFd for Handshakes {
    /// Returns a descriptor that is readable while a finished hand-shake waits for
    /// [`finished`](Handshakes::finished).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        // The threads end by themselves and drop their queue pairs.
        self.under_way.iter().for_each(|one| one.connection.end());
    }
}
