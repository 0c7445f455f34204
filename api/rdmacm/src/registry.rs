//! The ids of this process by the broker's number: whom events are about.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::channel::ChannelObject;
use crate::cm_device::CmDevice;
use crate::id::IdObject;

/// An id's manager, by its address, and its number there. A forked child has another manager than its parent.
type Key = (usize, u64);

static IDS: Mutex<BTreeMap<Key, Arc<IdObject>>> = Mutex::new(BTreeMap::new());

fn ids() -> MutexGuard<'static, BTreeMap<Key, Arc<IdObject>>> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(manager: &Arc<CmDevice>, number: u64) -> Key {
    (Arc::as_ptr(manager) as usize, number)
}

/// Knows an id from now on.
pub fn add(id: &Arc<IdObject>) {
    ids().insert(key(&id.manager, id.number), Arc::clone(id));
}

/// Knows the id no more: events of it are dropped.
pub fn remove(id: &IdObject) {
    ids().remove(&key(&id.manager, id.number));
}

/// The id of this number. An event of it is delivered: it does not end before that is acknowledged.
pub fn deliver_to(manager: &Arc<CmDevice>, number: u64) -> Option<Arc<IdObject>> {
    let ids = ids();
    let id = ids.get(&key(manager, number))?;
    id.outstanding.deliver();
    Some(Arc::clone(id))
}

/// An id whose events come by this channel, and that has not been told that the device is gone.
pub fn next_bereft(channel: &Arc<ChannelObject>) -> Option<Arc<IdObject>> {
    let ids = ids();
    let id = ids.values().find(|id| {
        let mut state = id.state();
        let is_it = Arc::ptr_eq(&state.channel, channel) && !state.is_bereft;
        state.is_bereft |= is_it;
        is_it
    })?;
    id.outstanding.deliver();
    Some(Arc::clone(id))
}
