//! The port as programs see it: its state and its GIDs, and the events of their changes.

use remora_broker::{GidEntry, PortState};
use remora_verbs::Address;
use remora_verbs::raw::ChannelAdapter;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// In `enum ibv_event_type`.
const IBV_EVENT_PORT_ACTIVE: c_int = 9;
const IBV_EVENT_PORT_ERR: c_int = 10;
const IBV_EVENT_GID_CHANGE: c_int = 18;

/// Who is told of the port's events, by their number in `enum ibv_event_type`.
type Hook = Box<dyn Fn(c_int) + Send + Sync>;

/// The port of this process's NIC.
pub struct PortView {
    state: Mutex<PortState>,
    hook: OnceLock<Hook>,
}

impl PortView {
    /// A port that changes when its broker says so.
    pub fn new(state: PortState) -> PortView {
        PortView { state: Mutex::new(state), hook: OnceLock::new() }
    }

    /// A port that nobody watches: it counts as active, and keeps its address.
    pub fn always(adapter: &ChannelAdapter) -> PortView {
        let own = GidEntry { ip: adapter.facts().endpoint.address.into(), interface: 0 };
        PortView::new(PortState { active: true, gids: vec![Some(own)] })
    }

    fn state(&self) -> MutexGuard<'_, PortState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is its interface up?
    pub fn is_active(&self) -> bool {
        self.state().active
    }

    /// The GID at this place of the table; None: an empty entry.
    pub fn gid(&self, index: u32) -> Option<GidEntry> {
        self.state().gids.get(index as usize).copied().flatten()
    }

    /// The addresses of the GID table.
    pub fn addresses(&self) -> Vec<Address> {
        self.state().gids.iter().flatten().map(|entry| Address::from(entry.ip)).collect()
    }

    /// The entries of the GID table that are not empty, and their indices.
    pub fn gids(&self) -> Vec<(u32, GidEntry)> {
        let entries = self.state().gids.clone();
        (0..).zip(entries).filter_map(|(index, entry)| Some((index, entry?))).collect()
    }

    /// From now on `hook` is told of the port's events; at most once.
    pub fn on_event(&self, hook: impl Fn(c_int) + Send + Sync + 'static) {
        let _ = self.hook.set(Box::new(hook));
    }

    /// The port is so from now on.
    pub fn change(&self, new: PortState) {
        let old = std::mem::replace(&mut *self.state(), new.clone());
        for event in events(&old, &new) {
            if let Some(hook) = self.hook.get() {
                hook(event);
            }
        }
    }
}

/// What programs are told of a change, in this order.
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
        let told = |old: &PortState, new: &PortState| events(old, new).collect::<Vec<_>>();
        assert_eq!(told(&state(true, Some(1)), &state(true, Some(1))), []);
        assert_eq!(told(&state(true, Some(1)), &state(false, None)), [10, 18]);
        assert_eq!(told(&state(false, None), &state(false, Some(1))), [18]);
        assert_eq!(told(&state(false, Some(1)), &state(true, Some(1))), [9]);
    }
}
