//! The addresses of the broker, which are the GID table of its programs. An address keeps its index. Its
//! sockets are bound when they are needed.

use remora_host::users::{Amounts, Resource};
use remora_port::udp::SteeredBy;
use std::net::SocketAddr;

use super::BrokerError;
use super::addresses::{ADDRESSES, Address};
use super::state::{Source, State, watch};
use crate::interface::Interfaces;

impl State {
    /// Adds an address and binds its first socket. Returns its place.
    pub(super) fn add_address(&mut self, local: SocketAddr) -> Result<usize, BrokerError> {
        let mut address = Address::new(local)?;
        address.begin(self.steering())?;
        let place = self.put_address(address)?;
        self.watch_from(place, 0)
            .map(|()| place)
            .map_err(|errno| BrokerError::System("descriptor", errno.into()))
    }

    /// Puts an address at the place of an earlier one that no interface has and no program uses, or at the
    /// end. Returns the place. The first address is never replaced.
    pub(super) fn put_address(&mut self, address: Address) -> Result<usize, BrokerError> {
        let is_free = |place: &usize| {
            self.addresses[*place].gid().is_none()
                && !self.clients.any(|client| client.share(*place).is_some())
        };
        let count = self.addresses.len();
        let place = (1..count).find(is_free).unwrap_or(count);
        if place >= ADDRESSES {
            return Err(BrokerError::Full(ADDRESSES));
        }
        watch(&self.poll, &address.listener, Source::Listener(place))
            .map_err(|errno| BrokerError::System("descriptor", errno.into()))?;
        match self.addresses.get_mut(place) {
            Some(gone) => *gone = address,
            None => self.addresses.push(address),
        }
        Ok(place)
    }

    /// Gives the broker all addresses of the network namespace from now on, if a program of its own user
    /// asks. A guest gets the addresses that the broker has.
    pub(super) fn have_every_address(&mut self, number: u32) {
        let guest = self.clients.get(number).is_none_or(|client| client.user.is_guest());
        if !self.every_address && !guest {
            self.every_address = true;
            self.fill_gids(&Interfaces::now());
        }
    }

    /// Adds the addresses that are new, if the broker has every address. An address of another broker or
    /// program is left out.
    pub(super) fn fill_gids(&mut self, interfaces: &Interfaces) {
        if !self.every_address {
            return;
        }
        for local in interfaces.addresses() {
            if self.addresses.iter().all(|address| address.local != local)
                && let Err(error) = self.add_address(local)
            {
                tracing::warn!("the device goes without {}: {error}", crate::name::ip(local));
            }
        }
    }

    fn steering(&self) -> SteeredBy {
        if self.options.alone { SteeredBy::Reader } else { self.options.steered }
    }

    /// Binds the first socket of an address, if it is not bound.
    pub(super) fn begin(&mut self, place: usize) -> Result<(), String> {
        if self.addresses[place].group.is_some() {
            return Ok(());
        }
        let steered = self.steering();
        if let Err(error) = self.addresses[place].begin(steered) {
            return Err(self.refusal(&error));
        }
        self.count_sockets(place);
        self.watch_from(place, 0).map_err(|errno| errno.to_string())
    }

    /// Binds the sockets of all ranges of an address, when the first program gets its share.
    pub(super) fn complete(&mut self, place: usize) -> Result<(), String> {
        self.begin(place)?;
        let Some(group) = &mut self.addresses[place].group else { return Ok(()) };
        let before = group.sockets().len();
        if let Err(error) = group.complete() {
            return Err(self.refusal(&BrokerError::of_port(error)));
        }
        self.count_sockets(place);
        self.watch_from(place, before).map_err(|errno| errno.to_string())
    }

    /// Counts the sockets of an address as descriptors of the broker's own user.
    fn count_sockets(&mut self, place: usize) {
        let address = &mut self.addresses[place];
        let sockets = address.group.as_ref().map_or(0, |group| group.sockets().len() as u64 + 1);
        address.claim = Some(self.users.user(self.uid).hold(Amounts::of(Resource::Descriptor, sockets)));
    }

    /// Returns the message about sockets that cannot be bound.
    fn refusal(&mut self, error: &BrokerError) -> String {
        match error {
            BrokerError::Limit(words) => self.lack(words),
            error => error.to_string(),
        }
    }

    /// Watches the sockets of an address from index `first` on.
    fn watch_from(&self, place: usize, first: usize) -> Result<(), rustix::io::Errno> {
        let sockets = self.addresses[place].group.iter().flat_map(|group| group.sockets());
        for (range, socket) in sockets.enumerate().skip(first) {
            watch(&self.poll, socket, Source::Socket(place, range as u8))?;
        }
        Ok(())
    }
}
