//! The addresses of a broker, and the sockets of each.

use remora_host::packet::PacketListener;
use remora_host::users::Claim;
use remora_port::udp::{Options, ReuseportGroup, SteeredBy};
use std::io::ErrorKind;
use std::net::SocketAddr;

use super::BrokerError;
use crate::GidEntry;
use crate::interface::Interfaces;
use crate::name;

/// Maximum number of addresses of one broker, which are the entries of the GID table.
pub(super) const ADDRESSES: usize = crate::GIDS;

/// An address: the socket at which programs find the broker, and the UDP sockets, once a program has asked
/// for them.
#[derive(Debug)]
pub(super) struct Address {
    pub local: SocketAddr,
    pub listener: PacketListener,
    pub group: Option<ReuseportGroup>,
    /// The interface that has the address or had it last. `None` if no interface ever had it.
    pub interface: Option<String>,
    /// The index of that interface. `None` if it no longer has the address.
    pub index: Option<u32>,
    /// True if the interface is up and has a carrier.
    pub runs: bool,
    /// The claim of the sockets.
    pub claim: Option<Claim>,
}

impl Address {
    /// Takes the socket name of an address, which no other broker can then have.
    pub(crate) fn new(local: SocketAddr) -> Result<Address, BrokerError> {
        remora_port::address::single(local.ip()).map_err(|why| BrokerError::Port(why.to_string()))?;
        remora_port::address::zoned(local).map_err(|why| BrokerError::Port(why.to_string()))?;
        let listener =
            PacketListener::bind_abstract(&name::of(local)).map_err(|error| match error.kind() {
                ErrorKind::AddrInUse => BrokerError::Running(local, name::holder(local)),
                _ => BrokerError::System("socket", error),
            })?;
        let mut address =
            Address { local, listener, group: None, interface: None, index: None, runs: true, claim: None };
        address.look(&Interfaces::now());
        Ok(address)
    }

    /// Updates the state of the address's interface.
    pub(crate) fn look(&mut self, interfaces: &Interfaces) {
        let interface = interfaces.of(self.local).map(str::to_owned);
        self.index = interface.as_ref().map(|name| interfaces.index(name));
        self.interface = interface.or(self.interface.take());
        self.runs = self.interface.as_ref().is_some_and(|name| interfaces.runs(name));
    }

    /// The address's entry of the GID table, while an interface has the address.
    pub(crate) fn gid(&self) -> Option<GidEntry> {
        self.index.map(|interface| GidEntry { ip: self.local.ip(), interface })
    }

    /// Binds the first socket, which receives the frames of all ranges, if it is not bound.
    pub(crate) fn begin(&mut self, steered: SteeredBy) -> Result<&mut ReuseportGroup, BrokerError> {
        let group = match self.group.take() {
            Some(bound) => bound,
            None => ReuseportGroup::begin(self.local, steered, &Options::default())
                .map_err(BrokerError::of_port)?,
        };
        Ok(self.group.insert(group))
    }
}
