//! Limits of each user. All programs share the places of a broker: half of them are divided evenly among the
//! broker's own user and the guests' users that it admits, and the other half goes to the first that ask.

use remora_host::users::{Bound, Resource};

use super::cm_agent::{CHANNELS, IDS};
use crate::PROGRAMS;

/// Connections of one user: programs, each with one more for the communication manager, and connections that
/// only query.
const CONNECTIONS: u64 = 2 * PROGRAMS as u64 + 33;
/// Connections of one user that have not sent a first message.
const GREETINGS: u64 = 64;
/// Maximum number of trees of a broker.
pub(super) const TREES: usize = 16;
/// Descriptors of a connection: its socket, and its process's pidfd.
pub(super) const OF_CONNECTION: u64 = 2;
/// Descriptors of a share of an address: the channel and the page.
pub(super) const OF_SHARE: u64 = 2;
/// Descriptors of a broker that belong to no program: its epoll instances, signals, notices, and the standard
/// ones.
const OWN: u64 = 16;

/// The limits of the users of a broker.
pub(super) fn bounds() -> Vec<Bound> {
    let remedy = "end a program of that user (`remora broker list` shows what each user has)";
    let bound = |kind, noun| Bound::new(kind, noun, remedy);
    vec![
        bound(Resource::Greeting, "connections without a first message").of_a_user(GREETINGS),
        bound(Resource::Connection, "connections to the broker").of_a_user(CONNECTIONS),
        bound(Resource::Range, "QPN ranges").places(PROGRAMS as u64),
        bound(Resource::CmId, "ids of rdma_cm").places(IDS as u64),
        bound(Resource::EventChannel, "event channels of rdma_cm").places(CHANNELS as u64),
        bound(Resource::Tree, "trees of device paths").places(TREES as u64),
        Bound::of_descriptors(remedy, OWN),
    ]
}
