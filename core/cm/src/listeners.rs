//! The services that programs listen for, and the number of requests that wait for each.

use remora_wire::Address;
use remora_wire::mad::ServiceId;

use crate::index::Index;
use crate::{CmError, GidPair, Listen};

/// A service at an address, or at all addresses ([`ANY`]).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceAddress {
    service_id: ServiceId,
    address: Address,
    zone: u32,
}

/// The unspecified address, which peers cannot send to.
const ANY: Address = Address([0; 16]);

/// A listener: its handle, its address, and its backlog with the number of pending requests.
#[derive(Copy, Clone, Debug)]
struct Listening {
    handle: u64,
    place: ServiceAddress,
    backlog: u32,
    pending: u32,
}

/// The listeners of a node, indexed by handle and by address.
#[derive(Debug)]
pub(crate) struct Listeners {
    slots: Vec<Option<Listening>>,
    by_handle: Index<u64>,
    by_place: Index<ServiceAddress>,
}

impl Listeners {
    /// Creates a table for `max` listeners.
    pub(crate) fn new(max: u32) -> Listeners {
        let max = max as usize;
        Listeners { slots: vec![None; max], by_handle: Index::new(max), by_place: Index::new(max) }
    }

    /// Adds a listener.
    pub(crate) fn insert(&mut self, handle: u64, listen: &Listen) -> Result<(), CmError> {
        let address = listen.address.unwrap_or(ANY);
        if listen.backlog == 0 || listen.address.is_some_and(|address| !address.is_host()) {
            return Err(CmError::OutOfRange);
        }
        let place = ServiceAddress { service_id: listen.service_id, address, zone: listen.zone };
        if self.by_place.get(&place).is_some() {
            return Err(CmError::AddressInUse);
        }
        let free = self.slots.iter().position(Option::is_none).ok_or(CmError::NoResources)?;
        self.slots[free] = Some(Listening { handle, place, backlog: listen.backlog, pending: 0 });
        self.by_handle.insert(handle, free as u32);
        self.by_place.insert(place, free as u32);
        Ok(())
    }

    /// Removes a listener and returns its slot.
    pub(crate) fn remove(&mut self, handle: u64) -> Option<u32> {
        let slot = self.by_handle.get(&handle)?;
        let listener = self.slots[slot as usize].take()?;
        self.by_handle.remove(&handle);
        self.by_place.remove(&listener.place);
        Some(slot)
    }

    /// Returns whether a listener has this handle.
    pub(crate) fn has(&self, handle: u64) -> bool {
        self.by_handle.get(&handle).is_some()
    }

    /// Finds the listener for a service at the local address of `gids`. A listener of that address takes
    /// precedence over one of all addresses.
    pub(crate) fn find(&self, service_id: ServiceId, gids: GidPair) -> Option<u32> {
        let lookup = |address, zone| self.by_place.get(&ServiceAddress { service_id, address, zone });
        lookup(gids.local, gids.zone).or_else(|| lookup(ANY, 0))
    }

    /// Returns the handle of a listener.
    pub(crate) fn handle(&self, slot: u32) -> u64 {
        self.slots[slot as usize].map_or(0, |listener| listener.handle)
    }

    /// Returns whether the listener's backlog has space for one more request.
    pub(crate) fn has_space(&self, slot: u32) -> bool {
        self.slots[slot as usize].is_some_and(|listener| listener.pending < listener.backlog)
    }

    /// Adds a request to the listener's backlog.
    pub(crate) fn add_pending(&mut self, slot: u32) {
        if let Some(listener) = &mut self.slots[slot as usize] {
            listener.pending += 1;
        }
    }

    /// Removes a request from the listener's backlog.
    pub(crate) fn remove_pending(&mut self, slot: u32) {
        if let Some(listener) = &mut self.slots[slot as usize] {
            listener.pending -= 1;
        }
    }

    /// Asserts that each listener's backlog has the number of requests that `pending` returns for its slot,
    /// and not more than its limit.
    pub(crate) fn check(&self, pending: impl Fn(u32) -> usize) {
        self.by_handle.check();
        self.by_place.check();
        let there = self.slots.iter().flatten().count();
        assert_eq!(
            (self.by_handle.len(), self.by_place.len()),
            (there, there),
            "listeners stand in both indices"
        );
        for (slot, listener) in (0..).zip(&self.slots) {
            if let Some(listener) = listener {
                assert!(listener.pending <= listener.backlog, "requests that wait <= backlog");
                assert_eq!(listener.pending as usize, pending(slot), "requests that wait are ids");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SERVICE: ServiceId = ServiceId(7);

    fn listen(address: Option<Address>) -> Listen {
        Listen { service_id: SERVICE, address, backlog: 2, zone: 0 }
    }

    #[test]
    fn the_listener_of_an_address_comes_before_that_of_all() {
        let [one, two] = [1, 2].map(|last| Address::from(Ipv4Addr::new(10, 0, 0, last)));
        let mut listeners = Listeners::new(4);
        listeners.insert(10, &listen(None)).unwrap();
        listeners.insert(11, &listen(Some(one))).unwrap();
        let handle = |listeners: &Listeners, address| {
            let gids = GidPair::new(address, address);
            listeners.find(SERVICE, gids).map(|slot| listeners.handle(slot))
        };
        assert_eq!((handle(&listeners, one), handle(&listeners, two)), (Some(11), Some(10)));
        assert_eq!(listeners.find(ServiceId(8), GidPair::new(one, one)), None);
        listeners.remove(10).unwrap();
        assert_eq!((handle(&listeners, one), handle(&listeners, two)), (Some(11), None));
        listeners.check(|_| 0);
    }

    #[test]
    fn one_link_local_address_on_two_links_has_two_listeners() {
        let address = Address::from("fe80::1".parse::<std::net::Ipv6Addr>().unwrap());
        let mut listeners = Listeners::new(2);
        for zone in [3, 4] {
            listeners.insert(zone.into(), &Listen { zone, ..listen(Some(address)) }).unwrap();
        }
        let lookup = |zone| listeners.find(SERVICE, GidPair { zone, ..GidPair::new(address, address) });
        assert_eq!([3, 4].map(|zone| lookup(zone).map(|slot| listeners.handle(slot))), [Some(3), Some(4)]);
        assert_eq!(lookup(5), None);
        let again = Listen { zone: 3, ..listen(Some(address)) };
        assert_eq!(listeners.insert(7, &again), Err(CmError::AddressInUse));
    }

    #[test]
    fn a_service_has_one_listener_at_an_address_and_there_are_so_many() {
        let mut listeners = Listeners::new(1);
        listeners.insert(1, &listen(None)).unwrap();
        assert_eq!(listeners.insert(2, &listen(None)), Err(CmError::AddressInUse));
        let other = Listen { service_id: ServiceId(9), ..listen(None) };
        assert_eq!(listeners.insert(2, &other), Err(CmError::NoResources));
        assert!(listeners.has(1) && !listeners.has(2));
        assert_eq!(listeners.remove(2), None);
        listeners.remove(1).unwrap();
        listeners.insert(2, &other).unwrap();
    }

    #[test]
    fn no_backlog_and_addresses_of_no_host_are_refused() {
        let mut listeners = Listeners::new(1);
        assert_eq!(listeners.insert(1, &Listen { backlog: 0, ..listen(None) }), Err(CmError::OutOfRange));
        for address in [ANY, Ipv4Addr::BROADCAST.into(), Ipv4Addr::new(224, 0, 0, 1).into()] {
            assert_eq!(listeners.insert(1, &listen(Some(address))), Err(CmError::OutOfRange));
        }
    }
}
