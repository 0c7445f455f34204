//! Asynchronous events of the NIC, each reported to the tenant that owns its object.

use remora_host::Channel;
use remora_nic::{AsyncEvent, ObjectName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::super::daemon_client::event_word;
use super::place::{Place, place};

/// The owners of the NIC's objects, as far as events name them. Reports are made inside the engine's lock, so
/// no lock of this module is held while the engine is called.
#[derive(Default)]
pub(in crate::nicd) struct EventRoutes {
    owners: Mutex<BTreeMap<Place, Weak<EventOwner>>>,
}

/// The tenant that gets the events of its objects.
pub(super) struct EventOwner {
    routes: Arc<EventRoutes>,
    /// The socket to the attached program.
    program: Mutex<Option<Channel>>,
}

/// Returns the object that an event names; `None` if the event is one of the whole NIC.
fn object_of(event: AsyncEvent) -> Option<ObjectName> {
    match event {
        AsyncEvent::QpFatal(qp)
        | AsyncEvent::QpRequest(qp)
        | AsyncEvent::QpAccess(qp)
        | AsyncEvent::CommunicationEstablished(qp)
        | AsyncEvent::SqDrained(qp)
        | AsyncEvent::LastWqe(qp) => Some(ObjectName::Qp(qp)),
        AsyncEvent::SrqLimit(srq) => Some(ObjectName::Srq(srq)),
        AsyncEvent::CqOverrun(cq) => Some(ObjectName::Cq(cq)),
        AsyncEvent::DeviceFatal => None,
    }
}

impl EventRoutes {
    fn owners(&self) -> MutexGuard<'_, BTreeMap<Place, Weak<EventOwner>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event to the owner of its object, or to all owners.
    pub(in crate::nicd) fn report(&self, event: AsyncEvent) {
        let owners = self.owners();
        let told: Vec<Arc<EventOwner>> = match object_of(event) {
            Some(object) => owners.get(&place(object)).and_then(Weak::upgrade).into_iter().collect(),
            None => {
                let mut all: Vec<Arc<EventOwner>> = owners.values().filter_map(Weak::upgrade).collect();
                all.sort_by_key(|owner| Arc::as_ptr(owner) as usize);
                all.dedup_by(|one, other| Arc::ptr_eq(one, other));
                all
            }
        };
        drop(owners);
        for owner in told {
            if let Some(channel) = &*owner.program.lock().unwrap_or_else(PoisonError::into_inner) {
                channel.put(event_word(event));
            }
        }
    }
}

impl EventOwner {
    pub(super) fn new(routes: &Arc<EventRoutes>) -> Arc<EventOwner> {
        Arc::new(EventOwner { routes: Arc::clone(routes), program: Mutex::default() })
    }

    /// Sets the socket to the attached program; `None` if no program is attached.
    pub(super) fn attach(&self, program: Option<Channel>) {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = program;
    }

    /// Makes this tenant the owner of an object.
    pub(super) fn own(self: &Arc<Self>, object: ObjectName) {
        self.routes.owners().insert(place(object), Arc::downgrade(self));
    }

    /// Removes an object that was destroyed.
    pub(super) fn forget(&self, object: ObjectName) {
        self.routes.owners().remove(&place(object));
    }
}
