//! Multicast groups: what is sent to a group goes to every datagram queue pair that is attached to it (IBTA vol. 1 §10.5).
//!
//! Such a packet names no queue pair but all ones, and the group by its destination address. Whether frames for a group come
//! to the port at all is the port's business.

use remora_memory::Mem;
use remora_transport::state::Service;
use remora_wire::frame::Address;
use remora_wire::{Qpn, packet};

use crate::ingress::Arrived;
use crate::nic::{Nic, NicError};

/// The queue pair number that stands for all that are attached to the group.
pub const MULTICAST_QPN: u32 = 0x00ff_ffff;

struct Group {
    address: Address,
    members: Vec<Qpn>,
}

/// The groups of an engine.
pub(crate) struct Groups {
    groups: Vec<Group>,
    max_groups: usize,
    max_members: usize,
}

impl Groups {
    pub fn new(max_groups: u32, max_members: u32) -> Groups {
        Groups { groups: Vec::new(), max_groups: max_groups as usize, max_members: max_members as usize }
    }

    fn attach(&mut self, address: Address, number: Qpn) -> Result<(), NicError> {
        if !address.is_multicast() {
            return Err(NicError::NotAGroup);
        }
        if let Some(group) = self.groups.iter_mut().find(|group| group.address == address) {
            if group.members.contains(&number) {
                return Err(NicError::Busy);
            }
            if group.members.len() >= self.max_members {
                return Err(NicError::Full);
            }
            group.members.push(number);
            return Ok(());
        }
        if self.groups.len() >= self.max_groups || self.max_members == 0 {
            return Err(NicError::Full);
        }
        self.groups.push(Group { address, members: vec![number] });
        Ok(())
    }

    fn detach(&mut self, address: Address, number: Qpn) -> Result<(), NicError> {
        let place = self.groups.iter().position(|group| group.address == address).ok_or(NicError::Unknown)?;
        let members = &mut self.groups[place].members;
        let member = members.iter().position(|member| *member == number).ok_or(NicError::Unknown)?;
        members.remove(member);
        if members.is_empty() {
            self.groups.swap_remove(place);
        }
        Ok(())
    }

    /// Is it attached to any group?
    pub fn has(&self, number: Qpn) -> bool {
        self.groups.iter().any(|group| group.members.contains(&number))
    }

    /// Place of a group.
    fn of(&self, address: Address) -> Option<usize> {
        self.groups.iter().position(|group| group.address == address)
    }

    /// A member of the group at a place.
    fn member(&self, place: usize, index: usize) -> Option<Qpn> {
        self.groups.get(place)?.members.get(index).copied()
    }
}

impl Nic {
    /// Attaches a datagram queue pair to a group: from now on it gets what is sent there with its Q_Key.
    ///
    /// # Errors
    /// `Unknown` queue pair; `NotThisService`; `NotAGroup`; `Busy` if it is attached already; `Full`: groups, or their members.
    pub fn attach_multicast(&mut self, number: Qpn, group: Address) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let service = self.qps[index as usize].as_ref().map(|qp| qp.service);
        if service != Some(Service::Ud) {
            return Err(NicError::NotThisService);
        }
        self.shared.groups.attach(group, number)
    }

    /// Takes a queue pair out of a group.
    ///
    /// # Errors
    /// `Unknown`: it is not attached to it.
    pub fn detach_multicast(&mut self, number: Qpn, group: Address) -> Result<(), NicError> {
        self.shared.groups.detach(group, number)
    }

    /// A packet for no queue pair that there is: one for a group, or nobody's.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive_for_many(
        &mut self,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
    ) {
        let to_group = packet.bth.dest_qp.get() == MULTICAST_QPN
            && packet.bth.opcode.service() == Some(remora_wire::Service::Ud);
        let place = arrived.destination().filter(|_| to_group).and_then(|group| self.shared.groups.of(group));
        let Some(place) = place else {
            self.shared.counters.unknown_qp += 1;
            return;
        };
        let (mut index, mut taken) = (0, false);
        while let Some(number) = self.shared.groups.member(place, index) {
            index += 1;
            let Some(place) = self.index(number) else { continue };
            let (Some(qp), shared) = (&mut self.qps[place as usize], &mut self.shared) else { continue };
            if !qp.admits_unreliable(arrived, packet, shared) {
                continue;
            }
            taken = true;
            qp.take_unreliable(mem, arrived, packet, shared);
            self.attend(place);
        }
        if taken {
            self.shared.counters.rcvd_pkts += 1;
            self.shared.counters.rcvd_bytes += arrived.transport.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn at(last: u8) -> Address {
        IpAddr::from(Ipv4Addr::new(239, 1, 2, last)).into()
    }

    #[test]
    fn groups_and_their_members_are_bounded() {
        let mut groups = Groups::new(2, 3);
        (1..4).for_each(|number| groups.attach(at(1), Qpn::new(number)).unwrap());
        assert_eq!(groups.attach(at(1), Qpn::new(4)), Err(NicError::Full), "members");
        assert_eq!(groups.attach(at(1), Qpn::new(3)), Err(NicError::Busy), "attached already");
        groups.attach(at(2), Qpn::new(4)).unwrap();
        assert_eq!(groups.attach(at(3), Qpn::new(4)), Err(NicError::Full), "groups");
        groups.detach(at(1), Qpn::new(2)).unwrap();
        assert_eq!(groups.detach(at(1), Qpn::new(2)), Err(NicError::Unknown));
        groups.attach(at(1), Qpn::new(4)).unwrap();
        assert_eq!(groups.attach(at(1), Qpn::new(5)), Err(NicError::Full));
        // The last member takes the group with it.
        groups.detach(at(2), Qpn::new(4)).unwrap();
        assert!(groups.of(at(2)).is_none() && groups.has(Qpn::new(4)));
        groups.attach(at(3), Qpn::new(6)).unwrap();
        assert_eq!(groups.detach(at(2), Qpn::new(4)), Err(NicError::Unknown));
    }

    #[test]
    fn only_groups_are_groups() {
        let mut groups = Groups::new(2, 3);
        for host in ["10.0.0.1", "255.255.255.255", "fd00::1", "::"] {
            let host: IpAddr = host.parse().unwrap();
            assert_eq!(groups.attach(host.into(), Qpn::new(2)), Err(NicError::NotAGroup), "{host}");
        }
        let v6: IpAddr = "ff12::77".parse().unwrap();
        groups.attach(v6.into(), Qpn::new(2)).unwrap();
    }
}
