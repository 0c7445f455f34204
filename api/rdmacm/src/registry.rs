//! The ids of this process by their number at the broker, which events contain.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::channel::ChannelObject;
use crate::cm_device::CmDevice;
use crate::id::IdObject;

/// The address of an id's `CmDevice`, and the id's number there. A forked child has another device than its
/// parent.
type Key = (usize, u64);

static IDS: Mutex<BTreeMap<Key, Arc<IdObject>>> = Mutex::new(BTreeMap::new());

fn ids() -> MutexGuard<'static, BTreeMap<Key, Arc<IdObject>>> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(manager: &Arc<CmDevice>, number: u64) -> Key {
    (Arc::as_ptr(manager) as usize, number)
}

/// Adds an id.
pub(crate) fn add(id: &Arc<IdObject>) {
    ids().insert(key(&id.manager, id.number), Arc::clone(id));
}

/// Removes an id. Further events of it are dropped.
pub(crate) fn remove(id: &IdObject) {
    ids().remove(&key(&id.manager, id.number));
}

/// Returns the id with this number, and counts an event that is delivered to it. The id is not destroyed
/// before the event is acknowledged.
pub(crate) fn deliver_to(manager: &Arc<CmDevice>, number: u64) -> Option<Arc<IdObject>> {
    let ids = ids();
    let id = ids.get(&key(manager, number))?;
    id.outstanding.deliver();
    Some(Arc::clone(id))
}

/// Returns an id of this channel that was not told that the device is gone, and marks it as told.
pub(crate) fn next_bereft(channel: &Arc<ChannelObject>) -> Option<Arc<IdObject>> {
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
