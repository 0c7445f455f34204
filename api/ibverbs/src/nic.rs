//! The NIC of this process, which every opened device is a view of, and who learns of its events.

use remora_broker::client::Watch;
use remora_verbs::AsyncEvent;
use remora_verbs::raw::{ChannelAdapter, EventQueue};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address::Opened;
use crate::port_view::PortView;
use crate::source::Sources;
use crate::{address, errno};

/// Asynchronous events of one context that wait to be read.
pub const MAX_EVENTS: usize = 1 << 12;

/// The NIC and the subjects of its asynchronous events.
pub struct Nic {
    pub adapter: Arc<ChannelAdapter>,
    /// Fails the NIC when the broker of its address is gone.
    watch: Option<Watch>,
    pub port: Arc<PortView>,
    pub sources: Sources,
    subjects: Arc<Subjects>,
    /// The thread that waits for packets and serves them, by the system's number; 0: none. One is enough: a
    /// packet need not wake more.
    waiter: AtomicI32,
}

/// The subjects of asynchronous events, and who is told of each. The threads that tell have it, and not the
/// NIC: whoever gives up the NIC waits for them.
#[derive(Default)]
struct Subjects(Mutex<BTreeMap<Subject, Watcher>>);

/// The object that an asynchronous event is about, by its number in the NIC.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Cq(u32),
    Qp(u32),
    Srq(u32),
    /// The device itself, as the context whose events have this descriptor sees it.
    Device(i32),
}

/// An event on its way to the program.
#[derive(Clone, Debug)]
pub struct Event {
    pub element: u64,
    pub event_type: c_int,
    /// The count of the object's events that were delivered.
    pub delivered: Arc<AtomicU32>,
}

/// Who is told of a subject's events.
#[derive(Clone, Debug)]
pub struct Watcher {
    pub element: u64,
    pub delivered: Arc<AtomicU32>,
    pub events: Arc<EventQueue<Event>>,
}

static NIC: Mutex<Option<Arc<Nic>>> = Mutex::new(None);

/// The NIC of this process, opened at the first call. A forked child opens one of its own. One that has
/// failed is given up: once its last context is closed, so are its sockets, and there may be another one.
pub fn shared() -> Result<Arc<Nic>, c_int> {
    let mut place = NIC.lock().unwrap_or_else(PoisonError::into_inner);
    let inherited = place.as_ref().is_some_and(|nic| nic.adapter.is_child());
    if !inherited {
        // Its thread may not have seen the broker's end yet.
        place.take_if(|nic| nic.adapter.has_failed() || nic.sources.are_lost());
    }
    if let (Some(nic), false) = (&*place, inherited) {
        return Ok(Arc::clone(nic));
    }
    let Opened { adapter, watch, port, sources } = address::open(inherited).map_err(|error| {
        eprintln!("remora: {error}");
        errno::of_open(&error)
    })?;
    let subjects = Arc::new(Subjects::default());
    let told = Arc::clone(&subjects);
    adapter.on_event(Arc::new(move |event| told.tell(event)));
    let told = Arc::clone(&subjects);
    port.on_event(move |event_type| told.tell_all(PORT, event_type));
    let nic = Arc::new(Nic { adapter, watch, port, sources, subjects, waiter: AtomicI32::new(0) });
    // What was inherited is the parent's: it is left to the exit.
    std::mem::forget(place.replace(Arc::clone(&nic)));
    Ok(nic)
}

impl Nic {
    /// From now on `watcher` is told of this subject's events, unless another handle of it is.
    pub fn watch(&self, subject: Subject, watcher: &Watcher) {
        self.subjects.all().entry(subject).or_insert_with(|| watcher.clone());
    }

    /// The watcher's handle ends: events that it has not read are dropped.
    pub fn forget(&self, subject: Subject, watcher: &Watcher) {
        let mut subjects = self.subjects.all();
        let is_own = |known: &mut Watcher| Arc::ptr_eq(&known.delivered, &watcher.delivered);
        if subjects.get_mut(&subject).is_some_and(is_own) {
            subjects.remove(&subject);
        }
        drop(subjects);
        watcher.events.withdraw(|event| Arc::ptr_eq(&event.delivered, &watcher.delivered));
    }

    /// Makes the calling thread the one that waits for packets, unless another one does.
    pub fn begin_waiting(&self) -> bool {
        // SAFETY: asks the system for a number.
        let own = unsafe { libc::gettid() };
        let take = |from| self.waiter.compare_exchange(from, own, Ordering::AcqRel, Ordering::Acquire);
        match take(0) {
            Ok(_) => true,
            // A thread that was cancelled has not said that it waits no more.
            Err(other) => is_gone(other) && take(other).is_ok(),
        }
    }

    /// The calling thread, which was the one, waits no more; `woken`: something had come.
    pub fn end_waiting(&self, woken: bool) {
        self.adapter.end_await(woken);
        self.waiter.store(0, Ordering::Release);
    }

    /// Has what was counted in the broker's sums now: the program may end before the thread looks again.
    pub fn publish(&self) {
        if let Some(watch) = self.watch.as_ref().filter(|_| !self.adapter.is_child()) {
            watch.publish();
        }
    }
}

impl Subjects {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Subject, Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called inside the engine's lock.
    fn tell(&self, event: AsyncEvent) {
        let Some((subject, event_type)) = subject(event) else {
            return self.tell_all(0, IBV_EVENT_DEVICE_FATAL);
        };
        if let Some(watcher) = self.all().get(&subject) {
            watcher.put(watcher.element, event_type);
        }
    }

    /// Tells every context.
    fn tell_all(&self, element: u64, event_type: c_int) {
        let subjects = self.all();
        for (_, watcher) in subjects.range(Subject::Device(0)..) {
            watcher.put(element, event_type);
        }
    }
}

/// Has this thread of the process ended?
fn is_gone(thread: i32) -> bool {
    // SAFETY: signal 0 is none: the system only looks for the thread.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    found < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

impl Watcher {
    /// A watcher for the object at this address.
    pub fn new<T>(element: *mut T, events: &Arc<EventQueue<Event>>) -> Watcher {
        Watcher {
            element: element as u64,
            delivered: Arc::new(AtomicU32::new(0)),
            events: Arc::clone(events),
        }
    }

    fn put(&self, element: u64, event_type: c_int) {
        self.events.put(Event { element, event_type, delivered: Arc::clone(&self.delivered) });
    }

    /// Events that the program has read.
    pub fn delivered(&self) -> u32 {
        self.delivered.load(Ordering::Acquire)
    }
}

/// What an event of the port is about: its number, `element.port_num`.
const PORT: u64 = 1;

/// In `enum ibv_event_type`.
const IBV_EVENT_DEVICE_FATAL: c_int = 8;

/// Whom an event is about, and its number in `enum ibv_event_type`. None: the device has failed.
fn subject(event: AsyncEvent) -> Option<(Subject, c_int)> {
    Some(match event {
        AsyncEvent::CqOverrun(cq) => (Subject::Cq(cq), 0),
        AsyncEvent::QpFatal(qp) => (Subject::Qp(qp.get()), 1),
        AsyncEvent::QpRequest(qp) => (Subject::Qp(qp.get()), 2),
        AsyncEvent::QpAccess(qp) => (Subject::Qp(qp.get()), 3),
        AsyncEvent::CommunicationEstablished(qp) => (Subject::Qp(qp.get()), 4),
        AsyncEvent::SqDrained(qp) => (Subject::Qp(qp.get()), 5),
        AsyncEvent::SrqLimit(srq) => (Subject::Srq(srq.get()), 15),
        AsyncEvent::LastWqe(qp) => (Subject::Qp(qp.get()), 16),
        AsyncEvent::DeviceFatal => return None,
    })
}
