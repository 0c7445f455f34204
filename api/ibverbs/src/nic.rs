//! The NIC of this process, of which every opened device is a view, and the delivery of its asynchronous
//! events.

use remora_broker::client::Watch;
use remora_broker::environment;
use remora_verbs::AsyncEvent;
use remora_verbs::raw::{ChannelAdapter, EventQueue};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address::Opened;
use crate::faults::{self, Faults};
use crate::port_view::PortView;
use crate::source::Sources;
use crate::{address, errno};

/// Maximum number of unread asynchronous events of one context.
pub(crate) const MAX_EVENTS: usize = 1 << 12;

/// The NIC and the subjects of its asynchronous events.
pub(crate) struct Nic {
    pub adapter: Arc<ChannelAdapter>,
    /// Fails the NIC when the broker of its address is gone.
    watch: Option<Watch>,
    pub port: Arc<PortView>,
    pub sources: Sources,
    /// The faults of verbs that rules ask for.
    pub faults: Option<Arc<Faults>>,
    subjects: Arc<Subjects>,
    /// The kernel's id of the thread that waits for packets and serves them; 0 if there is none. One thread
    /// suffices, so that a packet does not wake several.
    waiter: AtomicI32,
}

/// The watcher of each subject of asynchronous events. The threads that deliver events share only this and
/// not the NIC, because dropping the NIC waits for those threads.
#[derive(Default)]
struct Subjects(Mutex<BTreeMap<Subject, Watcher>>);

/// The object that an asynchronous event is about, by its number in the NIC.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Cq(u32),
    Qp(u32),
    Srq(u32),
    /// The device itself, as seen by the context whose events have this descriptor.
    Device(i32),
}

/// An event on its way to the program.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub element: u64,
    pub event_type: c_int,
    /// The count of the object's delivered events.
    pub delivered: Arc<AtomicU32>,
}

/// The receiver of a subject's events.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    pub element: u64,
    pub delivered: Arc<AtomicU32>,
    pub events: Arc<EventQueue<Event>>,
}

static NIC: Mutex<Option<Arc<Nic>>> = Mutex::new(None);

/// Returns the NIC of this process, and opens it on the first call. A forked child opens a NIC of its own. A
/// failed NIC is replaced: its sockets are closed with its last context.
pub(crate) fn shared() -> Result<Arc<Nic>, c_int> {
    let mut place = NIC.lock().unwrap_or_else(PoisonError::into_inner);
    let inherited = place.as_ref().is_some_and(|nic| nic.adapter.is_child());
    if !inherited {
        // The NIC's thread may not have noticed the broker's end yet, so both are checked.
        place.take_if(|nic| nic.adapter.has_failed() || nic.sources.are_lost());
    }
    if let (Some(nic), false) = (&*place, inherited) {
        return Ok(Arc::clone(nic));
    }
    let Opened { adapter, watch, port, sources, faults } = address::open(inherited).map_err(|error| {
        eprintln!("remora: {error}");
        errno::of_open(&error)
    })?;
    let subjects = Arc::new(Subjects::default());
    let event_subjects = Arc::clone(&subjects);
    adapter.on_event(Arc::new(move |event| event_subjects.tell(event)));
    let port_subjects = Arc::clone(&subjects);
    port.on_event(move |event_type| port_subjects.tell_all(PORT, event_type));
    if let Some(faults) = &faults {
        let caused = Arc::downgrade(&subjects);
        let cause = move |event_type, qp| {
            if let Some(subjects) = caused.upgrade() {
                subjects.cause(event_type, qp);
            }
        };
        let target = faults::IncidentTarget {
            adapter: Arc::downgrade(&adapter),
            port: Arc::downgrade(&port),
            cause: Box::new(cause),
        };
        faults::start(faults, target);
    }
    let nic = Arc::new(Nic { adapter, watch, port, sources, faults, subjects, waiter: AtomicI32::new(0) });
    // A NIC inherited by fork belongs to the parent and must not be dropped here.
    std::mem::forget(place.replace(Arc::clone(&nic)));
    Ok(nic)
}

#[used]
#[unsafe(link_section = ".fini_array")]
static ENDS: extern "C" fn() = process_ends;

/// Ends the recording of the NIC when the process exits. The NIC lives as long as the process, so nothing
/// else closes it.
extern "C" fn process_ends() {
    if environment::variable(address::RECORD).is_none() {
        return;
    }
    if let Ok(place) = NIC.try_lock()
        && let Some(nic) = &*place
    {
        nic.adapter.close_recording();
    }
}

impl Nic {
    /// Delivers this subject's events to `watcher`, unless another handle of the subject receives them.
    pub(crate) fn watch(&self, subject: Subject, watcher: &Watcher) {
        self.subjects.all().entry(subject).or_insert_with(|| watcher.clone());
    }

    /// Removes a watcher whose handle is destroyed. Its unread events are dropped.
    pub(crate) fn forget(&self, subject: Subject, watcher: &Watcher) {
        let mut subjects = self.subjects.all();
        let is_own = |known: &mut Watcher| Arc::ptr_eq(&known.delivered, &watcher.delivered);
        if subjects.get_mut(&subject).is_some_and(is_own) {
            subjects.remove(&subject);
        }
        drop(subjects);
        watcher.events.withdraw(|event| Arc::ptr_eq(&event.delivered, &watcher.delivered));
    }

    /// Makes the calling thread the one that waits for packets. Returns false if another thread is.
    pub(crate) fn begin_waiting(&self) -> bool {
        let own = rustix::thread::gettid().as_raw_pid();
        let take =
            |expected| self.waiter.compare_exchange(expected, own, Ordering::AcqRel, Ordering::Acquire);
        match take(0) {
            Ok(_) => true,
            // A thread that was cancelled has not given up its role.
            Err(other) => is_gone(other) && take(other).is_ok(),
        }
    }

    /// Ends the calling thread's role of waiting for packets. `woken`: a packet or event had come.
    pub(crate) fn end_waiting(&self, woken: bool) {
        self.adapter.end_await(woken);
        self.waiter.store(0, Ordering::Release);
    }

    /// Adds the counters to the broker's sums now, because the program may end before the thread does it.
    pub(crate) fn publish(&self) {
        if let Some(watch) = self.watch.as_ref().filter(|_| !self.adapter.is_child()) {
            watch.publish();
        }
    }
}

impl Subjects {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Subject, Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers an event. Called inside the engine's lock.
    fn tell(&self, event: AsyncEvent) {
        let Some((subject, event_type)) = subject(event) else {
            return self.tell_all(0, IBV_EVENT_DEVICE_FATAL);
        };
        if let Some(watcher) = self.all().get(&subject) {
            watcher.put(watcher.element, event_type);
        }
    }

    /// Delivers an event that a fault asks for: of a queue pair, or of the port or device.
    fn cause(&self, event_type: c_int, qp: Option<u32>) {
        match qp {
            None if event_type == IBV_EVENT_DEVICE_FATAL => self.tell_all(0, event_type),
            None => self.tell_all(PORT, event_type),
            Some(qp) => {
                if let Some(watcher) = self.all().get(&Subject::Qp(qp)) {
                    watcher.put(watcher.element, event_type);
                }
            }
        }
    }

    /// Delivers an event to every context.
    fn tell_all(&self, element: u64, event_type: c_int) {
        let subjects = self.all();
        for (_, watcher) in subjects.range(Subject::Device(0)..) {
            watcher.put(element, event_type);
        }
    }
}

/// Returns whether this thread of the process has ended.
fn is_gone(thread: i32) -> bool {
    // SAFETY: signal 0 only checks whether the thread exists.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

impl Watcher {
    /// Creates a watcher for the object at this address.
    pub(crate) fn new<T>(element: *mut T, events: &Arc<EventQueue<Event>>) -> Watcher {
        Watcher {
            element: element as u64,
            delivered: Arc::new(AtomicU32::new(0)),
            events: Arc::clone(events),
        }
    }

    fn put(&self, element: u64, event_type: c_int) {
        self.events.put(Event { element, event_type, delivered: Arc::clone(&self.delivered) });
    }

    /// The number of events that the program has read.
    pub(crate) fn delivered(&self) -> u32 {
        self.delivered.load(Ordering::Acquire)
    }
}

/// The port number in events of the port (`element.port_num`).
const PORT: u64 = 1;

/// The number of the event in `enum ibv_event_type`.
const IBV_EVENT_DEVICE_FATAL: c_int = 8;

/// The subject of an event, and its number in `enum ibv_event_type`. `None` if the device has failed.
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
