//! Facts about an interface: its index, MAC address, MTU and IP addresses.

use super::netlink::{Ask, Netlink};
use super::options::OpenError;
use super::rtnetlink::{Link, Message};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rustix::io::Errno;
use std::net::IpAddr;

use crate::address::{settle, single, tentative};

/// A network interface, with its properties at the time of the look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name in this network namespace, such as `eth0`.
    pub name: String,
    /// The interface's index (if_nametoindex(3)).
    pub index: u32,
    /// The MAC address of the interface.
    pub mac: [u8; 6],
    /// Largest IP packet, in bytes, that the interface accepts.
    pub mtu: usize,
    /// The usable addresses in the kernel's order, without IPv6 addresses that are still being checked.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// Looks up an interface of this network namespace by name.
    ///
    /// # Errors
    /// [`OpenError`] if there is no such interface, if it is not Ethernet or is down, or if the kernel does
    /// not answer.
    pub(super) fn find(netlink: &mut Netlink, name: &str) -> Result<Interface, OpenError> {
        let question = Link { name: Some(name.to_owned()), ..Link::default() };
        let mut reply = None;
        let asked = netlink.ask(Message::GetLink(question), Ask::One, |answer| {
            if let Message::NewLink(link) = answer {
                reply = Some(link);
            }
        });
        let link = match (asked, reply) {
            (Ok(()), Some(link)) => link,
            // No interface can have a name that is too long, so these errors also mean that there is none.
            (Err(Errno::NODEV | Errno::RANGE | Errno::INVAL), _) | (Ok(()), None) => {
                return Err(OpenError::NoInterface(name.to_owned()));
            }
            (Err(errno), _) => return Err(OpenError::Os("looking the interface up", errno)),
        };
        let Some(mut interface) = ethernet(&link) else {
            return Err(OpenError::NotEthernet(name.to_owned()));
        };
        if !link.has_any(libc::IFF_UP) {
            return Err(OpenError::Down(name.to_owned()));
        }
        // The kernel also finds an interface by its alternative names.
        name.clone_into(&mut interface.name);
        interface.addresses = addresses(netlink, interface.index)?;
        Ok(interface)
    }

    /// Looks up an interface, and chooses the address of a port on it. Waits while the kernel is still
    /// checking that address.
    ///
    /// # Errors
    /// The errors of [`find`](Interface::find) and [`choose`](Interface::choose); `Unfit`.
    pub(super) fn settled(
        netlink: &mut Netlink,
        name: &str,
        wanted: Option<IpAddr>,
    ) -> Result<(Interface, IpAddr), OpenError> {
        loop {
            let interface = Interface::find(netlink, name)?;
            let refused = match interface.choose(wanted) {
                Ok(address) => return Ok((interface, address)),
                Err(refused) => refused,
            };
            let Some(checked) = wanted.or_else(|| tentative(interface.index)) else { return Err(refused) };
            if !settle(checked, interface.index).map_err(OpenError::Unfit)? {
                return Err(refused);
            }
        }
    }

    /// Returns all Ethernet interfaces of this network namespace that are up.
    ///
    /// # Errors
    /// [`OpenError::Os`] if the kernel does not answer.
    pub(super) fn all(netlink: &mut Netlink) -> Result<Vec<Interface>, OpenError> {
        let mut all = Vec::new();
        let question = Message::GetLink(Link::default());
        netlink
            .ask(question, Ask::All, |answer| {
                if let Message::NewLink(link) = answer
                    && link.has_any(libc::IFF_UP)
                {
                    all.extend(ethernet(&link));
                }
            })
            .map_err(|errno| OpenError::Os("looking the interfaces up", errno))?;
        for interface in &mut all {
            interface.addresses = addresses(netlink, interface.index)?;
        }
        Ok(all)
    }

    /// Returns the address of a port on this interface: the requested one, or else the first, IPv4 before
    /// IPv6 and global before link-local.
    ///
    /// # Errors
    /// [`OpenError`] if the interface has no address, or not the requested one.
    pub fn choose(&self, wanted: Option<IpAddr>) -> Result<IpAddr, OpenError> {
        let Some(wanted) = wanted else {
            let rank = |address: &&IpAddr| match address {
                IpAddr::V4(address) => u8::from(address.is_link_local()) * 2,
                IpAddr::V6(address) => 1 + u8::from(address.is_unicast_link_local()) * 2,
            };
            let best = self.addresses.iter().min_by_key(rank);
            return best.copied().ok_or_else(|| OpenError::NoAddress(self.name.clone()));
        };
        let wanted = wanted.to_canonical();
        single(wanted).map_err(OpenError::Unfit)?;
        if self.addresses.contains(&wanted) {
            return Ok(wanted);
        }
        Err(OpenError::NotItsAddress { interface: self.name.clone(), address: wanted })
    }
}

/// Parses the answer about an Ethernet interface, without its IP addresses; `None` if it is of another
/// kind.
fn ethernet(link: &Link) -> Option<Interface> {
    if link.kind != libc::ARPHRD_ETHER {
        return None;
    }
    let name = link.name.clone()?;
    Some(Interface { name, index: link.index, mac: link.mac?, mtu: link.mtu?, addresses: Vec::new() })
}

fn addresses(netlink: &mut Netlink, index: u32) -> Result<Vec<IpAddr>, OpenError> {
    let mut addresses = Vec::new();
    let question = Message::GetAddress(AddressMessage::default());
    netlink
        .ask(question, Ask::All, |answer| {
            if let Message::NewAddress(message) = answer
                && message.header.index == index
                && !message
                    .header
                    .flags
                    .intersects(AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed)
            {
                addresses.extend(local(&message));
            }
        })
        .map_err(|errno| OpenError::Os("looking its addresses up", errno))?;
    Ok(addresses)
}

/// Returns the interface's own address from an answer. On a point-to-point interface the answer also
/// contains the peer's address.
fn local(message: &AddressMessage) -> Option<IpAddr> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => return Some(*local),
            AddressAttribute::Address(either) => address = Some(*either),
            _ => {}
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(addresses: &[&str]) -> Interface {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Interface { name: "eth9".to_owned(), index: 9, mac: [2; 6], mtu: 1500, addresses }
    }

    #[test]
    fn the_address_is_the_wanted_one_or_the_best_there_is() {
        let all = with(&["fe80::1", "fd00::1", "169.254.1.1", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(all.choose(None), Ok("10.0.0.1".parse().unwrap()));
        assert_eq!(with(&["fe80::1", "fd00::1"]).choose(None), Ok("fd00::1".parse().unwrap()));
        assert_eq!(all.choose(Some("10.0.0.2".parse().unwrap())), Ok("10.0.0.2".parse().unwrap()));
        assert_eq!(with(&[]).choose(None), Err(OpenError::NoAddress("eth9".to_owned())));
        let foreign = "10.0.0.3".parse().unwrap();
        let refused = OpenError::NotItsAddress { interface: "eth9".to_owned(), address: foreign };
        assert_eq!(all.choose(Some(foreign)), Err(refused));
    }

    #[test]
    fn loopback_is_no_ethernet_and_what_is_not_there_is_told() {
        let mut netlink = Netlink::open(&[]).unwrap();
        assert_eq!(Interface::find(&mut netlink, "lo"), Err(OpenError::NotEthernet("lo".to_owned())));
        for name in ["remora-no-such", "a-name-that-is-longer-than-any"] {
            assert_eq!(Interface::find(&mut netlink, name), Err(OpenError::NoInterface(name.to_owned())));
        }
    }
}
