//! The port as programs see it: its state, its GIDs, and the events of their changes.

use remora_broker::{GidEntry, PortState};
use remora_verbs::Address;
use remora_verbs::raw::ChannelAdapter;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Numbers of events in `enum ibv_event_type`.
const IBV_EVENT_PORT_ACTIVE: c_int = 9;
const IBV_EVENT_PORT_ERR: c_int = 10;
const IBV_EVENT_GID_CHANGE: c_int = 18;

/// The receiver of the port's events, by their number in `enum ibv_event_type`.
type Hook = Box<dyn Fn(c_int) + Send + Sync>;

/// The port of this process's NIC.
pub(crate) struct PortView {
    state: Mutex<PortState>,
    hook: OnceLock<Hook>,
}

impl PortView {
    /// Creates a port whose broker reports changes.
    pub(crate) fn new(state: PortState) -> PortView {
        PortView { state: Mutex::new(state), hook: OnceLock::new() }
    }

    /// Creates a port without a broker, which is always active and keeps its address.
    pub(crate) fn always(adapter: &ChannelAdapter) -> PortView {
        let own = GidEntry { ip: adapter.facts().endpoint.address.into(), interface: 0 };
        PortView::new(PortState { active: true, gids: vec![Some(own)] })
    }

    fn state(&self) -> MutexGuard<'_, PortState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the port is active.
    pub(crate) fn is_active(&self) -> bool {
        self.state().active
    }

    /// The GID table.
    pub(crate) fn table(&self) -> Vec<Option<GidEntry>> {
        self.state().gids.clone()
    }

    /// Returns the GID at this index; `None` for an empty entry.
    pub(crate) fn gid(&self, index: u32) -> Option<GidEntry> {
        self.state().gids.get(index as usize).copied().flatten()
    }

    /// The addresses of the GID table.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.state().gids.iter().flatten().map(|entry| Address::from(entry.ip)).collect()
    }

    /// The entries of the GID table that are not empty, with their indices.
    pub(crate) fn gids(&self) -> Vec<(u32, GidEntry)> {
        let entries = self.state().gids.clone();
        (0..).zip(entries).filter_map(|(index, entry)| Some((index, entry?))).collect()
    }

    /// Sets the receiver of the port's events. Only the first call has an effect.
    pub(crate) fn on_event(&self, hook: impl Fn(c_int) + Send + Sync + 'static) {
        let _ = self.hook.set(Box::new(hook));
    }

    /// Changes the state of the port, and delivers the events of the change.
    pub(crate) fn change(&self, new: PortState) {
        let old = std::mem::replace(&mut *self.state(), new.clone());
        for event in events(&old, &new) {
            if let Some(hook) = self.hook.get() {
                hook(event);
            }
        }
    }
}

/// Returns the events of a change in the order of delivery.
fn events(old: &PortState, new: &PortState) -> impl Iterator<Item = c_int> {
    let state = if new.active { IBV_EVENT_PORT_ACTIVE } else { IBV_EVENT_PORT_ERR };
    let state = (old.active != new.active).then_some(state);
    let gids = (old.gids != new.gids).then_some(IBV_EVENT_GID_CHANGE);
    state.into_iter().chain(gids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_one_event_and_the_state_is_told_before_the_gids() {
        let state = |active: bool, last: Option<u8>| PortState {
            active,
            gids: vec![last.map(|last| GidEntry { ip: [10, 0, 0, last].into(), interface: 2 })],
        };
        let event_types = |old: &PortState, new: &PortState| events(old, new).collect::<Vec<_>>();
        assert_eq!(event_types(&state(true, Some(1)), &state(true, Some(1))), []);
        assert_eq!(event_types(&state(true, Some(1)), &state(false, None)), [10, 18]);
        assert_eq!(event_types(&state(false, None), &state(false, Some(1))), [18]);
        assert_eq!(event_types(&state(false, Some(1)), &state(true, Some(1))), [9]);
    }
}
