//! The ports of one port space of `rdma_cm`, and the ids that are bound to them.

use super::zoned_address::ZonedAddress;
use std::collections::BTreeMap;

/// The ports from which one is taken if a program does not choose: the ephemeral range of Linux.
const EPHEMERAL: std::ops::Range<u16> = 32_768..61_000;

/// An id's binding to a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Binding {
    id: u64,
    /// `None` stands for every address.
    address: Option<ZonedAddress>,
    /// True if the id shares the port with others that do so, until one of them listens
    /// (`RDMA_OPTION_ID_REUSEADDR`).
    reuses: bool,
    listens: bool,
}

impl Binding {
    fn conflicts(&self, other: &Binding) -> bool {
        let overlap = match (self.address, other.address) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let shared = self.reuses && other.reuses && !self.listens && !other.listens;
        overlap && !shared
    }
}

/// The error that the port is taken, or that all ephemeral ports are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct PortTaken;

/// All bound ports. An id has at most one, so there are no more entries than ids.
#[derive(Debug)]
pub(super) struct PortTable {
    by_port: BTreeMap<u16, Vec<Binding>>,
    /// The port at which the search for an ephemeral port begins. It advances, so that a freed port is not
    /// reused at once.
    next: u16,
}

impl PortTable {
    /// Creates an empty table. `start` should be random, because it determines the first ephemeral port.
    pub(crate) fn new(start: u64) -> PortTable {
        let count = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        PortTable { by_port: BTreeMap::new(), next: EPHEMERAL.start + (start % count) as u16 }
    }

    /// Binds an id to a port of an address (`None`: of all addresses), or with port 0 to a port that no id
    /// has. Returns the port.
    pub(crate) fn bind(
        &mut self,
        id: u64,
        address: Option<ZonedAddress>,
        port: u16,
        reuses: bool,
    ) -> Result<u16, PortTaken> {
        let port = if port == 0 { self.ephemeral().ok_or(PortTaken)? } else { port };
        let binding = Binding { id, address, reuses, listens: false };
        let there = self.by_port.get(&port).map_or(&[][..], Vec::as_slice);
        if there.iter().any(|other| other.conflicts(&binding)) {
            return Err(PortTaken);
        }
        self.by_port.entry(port).or_default().push(binding);
        Ok(port)
    }

    fn ephemeral(&mut self) -> Option<u16> {
        let mut order = (self.next..EPHEMERAL.end).chain(EPHEMERAL.start..self.next);
        let free = order.find(|port| !self.by_port.contains_key(port))?;
        self.next = if free + 1 < EPHEMERAL.end { free + 1 } else { EPHEMERAL.start };
        Some(free)
    }

    /// Makes the id listen, for which no other id may share its port.
    pub(crate) fn listen(&mut self, id: u64, port: u16) -> Result<(), PortTaken> {
        let bindings = self.by_port.get_mut(&port).ok_or(PortTaken)?;
        let index = bindings.iter().position(|binding| binding.id == id).ok_or(PortTaken)?;
        let listening = Binding { listens: true, ..bindings[index] };
        if bindings.iter().any(|other| other.id != id && other.conflicts(&listening)) {
            return Err(PortTaken);
        }
        bindings[index] = listening;
        Ok(())
    }

    /// Returns whether the id listens at this port.
    pub(crate) fn is_listening(&self, id: u64, port: u16) -> bool {
        let there = self.by_port.get(&port).map_or(&[][..], Vec::as_slice);
        there.iter().any(|binding| binding.id == id && binding.listens)
    }

    /// Frees the id's port.
    pub(crate) fn release(&mut self, id: u64, port: u16) {
        if let Some(bindings) = self.by_port.get_mut(&port) {
            bindings.retain(|binding| binding.id != id);
            if bindings.is_empty() {
                self.by_port.remove(&port);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn host(n: u8) -> Option<ZonedAddress> {
        Some(ZonedAddress { address: Ipv4Addr::new(10, 0, 0, n).into(), zone: 0 })
    }

    #[test]
    fn a_port_is_one_ids_at_an_address_and_every_address_is_each_of_them() {
        let mut ports = PortTable::new(0);
        assert_eq!(ports.bind(1, host(1), 7174, false), Ok(7174));
        assert_eq!(ports.bind(2, host(1), 7174, false), Err(PortTaken));
        assert_eq!(ports.bind(2, None, 7174, false), Err(PortTaken));
        assert_eq!(ports.bind(2, host(2), 7174, false), Ok(7174));
        ports.release(1, 7174);
        assert_eq!(ports.bind(3, host(1), 7174, false), Ok(7174));
        assert_eq!(ports.listen(3, 7174), Ok(()));
        assert_eq!(ports.listen(1, 7174), Err(PortTaken), "a program that owns no socket at the port");
    }

    #[test]
    fn a_port_of_a_link_local_address_is_one_ids_on_each_link() {
        let mut ports = PortTable::new(0);
        let on = |zone| host(1).map(|host| ZonedAddress { zone, ..host });
        assert_eq!(ports.bind(1, on(3), 7174, false), Ok(7174));
        assert_eq!(ports.bind(2, on(3), 7174, false), Err(PortTaken));
        assert_eq!(ports.bind(2, on(4), 7174, false), Ok(7174));
        assert_eq!(ports.bind(3, None, 7174, false), Err(PortTaken));
    }

    #[test]
    fn those_who_reuse_a_port_share_it_until_one_listens() {
        let mut ports = PortTable::new(0);
        assert_eq!(ports.bind(1, None, 7174, true), Ok(7174));
        assert_eq!(ports.bind(2, host(1), 7174, true), Ok(7174));
        assert_eq!(ports.bind(3, host(1), 7174, false), Err(PortTaken));
        assert_eq!(ports.listen(1, 7174), Err(PortTaken), "another program is bound to the port, too");
        ports.release(2, 7174);
        assert_eq!(ports.listen(1, 7174), Ok(()));
        assert_eq!(ports.bind(2, host(1), 7174, true), Err(PortTaken));
    }

    #[test]
    fn ephemeral_ports_are_all_different_until_there_is_none() {
        let mut ports = PortTable::new(28_000);
        let count = EPHEMERAL.len() as u64;
        let mut bound: Vec<u16> = (0..count).map(|id| ports.bind(id, host(1), 0, false).unwrap()).collect();
        assert_eq!(ports.bind(count, host(2), 0, false), Err(PortTaken));
        ports.release(77, bound[77]);
        assert_eq!(ports.bind(count, host(2), 0, false), Ok(bound[77]));
        bound.sort_unstable();
        bound.dedup();
        assert_eq!((bound.len() as u64, bound[0]), (count, EPHEMERAL.start));
    }
}
