//! Multicast groups: a packet to a group is delivered to every UD queue pair that is attached to the group
//! (IBTA vol. 1 §10.5).
//!
//! Such a packet has the destination queue pair number 0xffffff, and its destination IP address identifies
//! the group. Joining the group on the network (IGMP, MLD) is up to the port.

use remora_wire::Qpn;
use remora_wire::frame::Address;

use crate::config::NicError;

/// The destination queue pair number of multicast packets.
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
    pub(crate) fn new(max_groups: u32, max_members: u32) -> Groups {
        Groups { groups: Vec::new(), max_groups: max_groups as usize, max_members: max_members as usize }
    }

    pub(crate) fn attach(&mut self, address: Address, number: Qpn) -> Result<(), NicError> {
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

    pub(crate) fn detach(&mut self, address: Address, number: Qpn) -> Result<(), NicError> {
        let place = self.groups.iter().position(|group| group.address == address).ok_or(NicError::Unknown)?;
        let members = &mut self.groups[place].members;
        let member = members.iter().position(|member| *member == number).ok_or(NicError::Unknown)?;
        members.remove(member);
        if members.is_empty() {
            self.groups.swap_remove(place);
        }
        Ok(())
    }

    /// Returns true if the queue pair is attached to any group.
    pub(crate) fn has(&self, number: Qpn) -> bool {
        self.groups.iter().any(|group| group.members.contains(&number))
    }

    /// Returns the index of a group.
    pub(crate) fn of(&self, address: Address) -> Option<usize> {
        self.groups.iter().position(|group| group.address == address)
    }

    /// Returns a member of the group at index `place`.
    pub(crate) fn member(&self, place: usize, index: usize) -> Option<Qpn> {
        self.groups.get(place)?.members.get(index).copied()
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
        // A group is removed with its last member.
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
