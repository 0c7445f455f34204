//! Limits for each user. All programs share the places of a broker. A guest, that is a program of another
//! user than the broker's, gets a place only while at least as many places stay free as its user has,
//! including the new one. One user thus gets at most half of the places, and the next one half of the rest.
//! The broker's own user is limited only by the number of places. A place is given back when its connection
//! ends.
//! has them.

use remora_port::user;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeSet;

use super::cm_agent::{CHANNELS, IDS};
use super::places::{CONNECTIONS, Place, TREES};
use super::programs::Client;
use super::state::State;
use crate::PROGRAMS;

/// Descriptors of a connection: its socket, and its process's pidfd.
const OF_CONNECTION: usize = 2;
/// Descriptors of a share of an address: the channel and the page.
const OF_SHARE: usize = 2;
/// Descriptors of a broker that belong to no program: its epoll instance, signals, notices, and the standard
/// ones.
const OWN: usize = 16;

/// Use of the places of one kind.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Usage {
    /// Places of the user that asks for one more.
    own: usize,
    /// Places of all users.
    all: usize,
    total: usize,
}

impl Usage {
    /// Returns whether the user may take one more place.
    fn allows(self) -> bool {
        self.own < self.total.saturating_sub(self.all)
    }
}

/// The number of descriptors of a connection, without its event channels.
fn descriptors(client: &Client) -> usize {
    let sockets = usize::from(client.introductions.is_some()) + usize::from(client.port_events.is_some());
    OF_CONNECTION + OF_SHARE * client.shares.len() + sockets
}

impl State {
    /// Checks that a program may take one more place.
    ///
    /// # Errors
    /// A line with the user's places and the remedy, if the program is a guest whose user has its share.
    pub(super) fn allow(&self, number: u32, place: Place) -> Result<(), String> {
        match self.clients.get(number) {
            Some(client) if client.guest => self.allow_user(client.uid, place),
            _ => Ok(()),
        }
    }

    /// Like [`allow`](State::allow), for a guest of user `uid`.
    pub(super) fn allow_user(&self, uid: u32, place: Place) -> Result<(), String> {
        let usage = self.usage(uid, place);
        if usage.allows() {
            return Ok(());
        }
        let Usage { own, total, .. } = usage;
        let name = match place {
            Place::Connection => "connections to the broker",
            Place::Range => "QPN ranges",
            Place::Id => "ids of rdma_cm",
            Place::EventChannel => "event channels of rdma_cm",
            Place::Tree => "trees of device paths",
            Place::Descriptor => "descriptors of the broker",
        };
        Err(format!(
            "{} has {own} of {total} {name}, and the rest is kept for other users: end a program of that user (`remora broker \
             list` shows what each user has)",
            user::name(uid)
        ))
    }

    fn usage(&self, uid: u32, place: Place) -> Usage {
        let (own, all, total) = match place {
            Place::Connection => (self.clients.of_user(uid).count(), self.clients.len(), CONNECTIONS),
            Place::Range => {
                let own = self.clients.of_user(uid).filter(|(_, client)| client.range.is_some()).count();
                (own, self.clients.programs() + self.withheld(), PROGRAMS)
            }
            Place::Id => (self.agent.ids_of_user(uid), self.agent.ids(), IDS),
            Place::EventChannel => (self.channels_of(uid), self.agent.channels(), CHANNELS),
            Place::Tree => {
                let lists = self.clients.of_user(uid).filter_map(|(_, client)| client.reads.as_ref());
                (lists.collect::<BTreeSet<_>>().len(), self.read_trees(), TREES)
            }
            Place::Descriptor => {
                let own: usize = self.clients.of_user(uid).map(|(_, client)| descriptors(client)).sum();
                (own + self.channels_of(uid), self.descriptors(), self.max_descriptors())
            }
        };
        Usage { own, all, total }
    }

    /// The number of event channels of a user.
    pub(super) fn channels_of(&self, uid: u32) -> usize {
        let clients = self.clients.of_user(uid).filter(|(_, client)| client.connects);
        clients.map(|(number, _)| self.agent.channels_of(number)).sum()
    }

    /// The number of trees of paths that programs read.
    fn read_trees(&self) -> usize {
        let read = |addresses| self.clients.any(|client| client.reads.as_ref() == Some(addresses));
        self.trees.iter().filter(|shown| read(&shown.addresses)).count()
    }

    fn descriptors(&self) -> usize {
        let users = self.clients.users();
        let of_user = |uid| self.clients.of_user(uid).map(|(_, client)| descriptors(client)).sum::<usize>();
        let sockets = self
            .addresses
            .iter()
            .map(|address| 1 + address.group.as_ref().map_or(0, |group| group.sockets().len() + 1));
        OWN + self.agent.channels() + users.into_iter().map(of_user).sum::<usize>() + sockets.sum::<usize>()
    }

    fn max_descriptors(&self) -> usize {
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places that each of `users` users gets if one after the other takes as many as it may.
    fn taken(total: usize, users: usize) -> Vec<usize> {
        let mut all = 0;
        let mut take = || {
            let mut own = 0;
            while (Usage { own, all, total }).allows() {
                own += 1;
                all += 1;
            }
            own
        };
        (0..users).map(|_| take()).collect()
    }

    #[test]
    fn a_user_gets_half_of_what_is_free_and_each_newcomer_half_of_the_rest() {
        assert_eq!(taken(127, 8), [64, 32, 16, 8, 4, 2, 1, 0]);
        assert_eq!(taken(16_384, 3), [8192, 4096, 2048]);
        assert_eq!(taken(0, 2), [0, 0]);
        assert!(!Usage { own: 0, all: 9, total: 8 }.allows(), "more places are in use than exist");
    }
}
