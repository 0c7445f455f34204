//! Changes of the port: interfaces that go down and come up, addresses that are added and removed. The
//! broker reports them to programs and shows them in the trees of paths.

use remora_host::packet::PacketSocket;
use remora_host::users::Resource;
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use super::addresses::Address;
use super::programs::{Client, PortSubscription};
use super::state::State;
use crate::PortState;
use crate::interface::Interfaces;
use crate::message::Reply;

/// Size of the socket's buffer in bytes: some twenty changes, as the kernel counts packets.
const UNREAD: usize = 8 << 10;

impl State {
    /// Gives a program the socket for events of the port, and sends the port's present state.
    pub(super) fn open_port_events(&mut self, number: u32) -> Result<(), String> {
        let claim = self.claim(number, Resource::Descriptor, 1)?;
        let refused =
            |error: io::Error| format!("the broker gives no socket for events of the port: {error}");
        let client = self.clients.get(number).ok_or("the connection is gone")?;
        if client.range.is_none() || client.port_events.is_some() {
            return Err("events of the port belong to a program with a QPN range, which asks once".to_owned());
        }
        let state = self.port_state(client);
        let (ours, theirs) = PacketSocket::pair().map_err(refused)?;
        ours.wait_for_nothing().map_err(refused)?;
        sockopt::set_socket_send_buffer_size(&ours, UNREAD).map_err(|errno| refused(errno.into()))?;
        ours.send(&Reply::Port(state.clone()).emit(), &[]).map_err(refused)?;
        if let Some(client) = self.clients.get_mut(number) {
            client.port_events = Some(PortSubscription { socket: ours, state });
            client.claims.push(claim);
        }
        self.send(number, &Reply::PortEvents, &[theirs.as_fd()]);
        Ok(())
    }

    /// Reads the kernel's notices, looks the interfaces up, and notifies the programs whose port has changed.
    pub(super) fn look_at_interfaces(&mut self) {
        if let Some(notices) = &self.notices {
            notices.take();
        }
        let interfaces = Interfaces::now();
        for address in &mut self.addresses {
            address.look(&interfaces);
        }
        self.fill_gids(&interfaces);
        for number in self.clients.numbers() {
            self.tell_of_port(number);
        }
        self.show_port();
    }

    /// The port's state as a program sees it.
    fn port_state(&self, client: &Client) -> PortState {
        if client.every_address {
            return self.whole_port();
        }
        state_of(client.shares.iter().map(|share| self.addresses.get(share.address)))
    }

    /// The state of the port with all addresses of the broker.
    pub(super) fn whole_port(&self) -> PortState {
        state_of(self.addresses.iter().map(Some))
    }

    /// Notifies a program if its port has changed.
    pub(super) fn tell_of_port(&mut self, number: u32) {
        let Some(client) = self.clients.get(number) else { return };
        let state = self.port_state(client);
        let Some(events) = client.port_events.as_ref().filter(|events| events.state != state) else { return };
        let sent = events.socket.send(&Reply::Port(state.clone()).emit(), &[]).is_ok();
        let Some(client) = self.clients.get_mut(number) else { return };
        if sent {
            if let Some(events) = &mut client.port_events {
                events.state = state;
            }
        } else {
            // The program reads nothing, or has closed its end. It keeps its range and gets no more events.
            client.port_events = None;
            self.tally.dropped += 1;
        }
    }

    /// The state of the port with these addresses, or with all addresses of the broker if the list is empty.
    pub(super) fn port_with(&self, addresses: &[SocketAddr]) -> PortState {
        if addresses.is_empty() {
            return self.whole_port();
        }
        let find = |local: &SocketAddr| self.addresses.iter().find(|address| address.local == *local);
        state_of(addresses.iter().map(find))
    }

    /// Shows the port's present state in the trees of paths.
    pub(super) fn show_port(&self) {
        for shown in &self.trees {
            if let Err(error) = shown.tree.show(&self.port_with(&shown.addresses), &Interfaces::now()) {
                tracing::warn!("the device's paths show the port as it was: {error}");
            }
        }
    }
}

/// The state of the port with these addresses. `None` stands for an address that the broker no longer has.
fn state_of<'a>(addresses: impl Iterator<Item = Option<&'a Address>>) -> PortState {
    let addresses: Vec<_> = addresses.collect();
    PortState {
        active: addresses.first().copied().flatten().is_some_and(|address| address.runs),
        gids: addresses.iter().map(|address| address.and_then(Address::gid)).collect(),
    }
}
