//! Attributes of a new broker.

use remora_host::packet::FoundBy;
use remora_host::users::Bound;
use remora_port::udp::SteeredBy;
use std::time::Duration;

/// Neighbours to which a program may have links at a time. Each link costs the program four descriptors and
/// memory.
const NEIGHBOURS: usize = 64;

/// Attributes of a new broker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Users that may borrow ranges, in addition to the broker's own user and root.
    pub allow: Vec<u32>,
    /// True if the broker has all addresses of the network namespace from the start. Guests cannot add
    /// addresses.
    pub every_address: bool,
    /// True if a program started the broker because there was none. When such a broker lacks something that
    /// its process may not have, and no program uses it, it ends, so that the next program starts one.
    pub gives_way: bool,
    /// Time after the last program, or after the start, at which the broker ends. `None`: it never ends by
    /// itself.
    pub linger: Option<Duration>,
    /// Time limit for the first message on a new connection.
    pub patience: Duration,
    /// The distribution of frames to ranges. `Reader`: by the broker itself, as if the kernel could not
    /// steer.
    pub steered: SteeredBy,
    /// True if the broker serves this process alone, which reads the only socket.
    pub alone: bool,
    /// The way in which the end of a program is noticed.
    pub found: FoundBy,
    /// Neighbours to which a program may have links at a time, 0 to 126. Other neighbours are reached by UDP.
    pub neighbours: usize,
    /// Limits of users for what else the process lends.
    pub bounds: Vec<Bound>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            allow: Vec::new(),
            every_address: false,
            gives_way: false,
            linger: Some(Duration::from_secs(10)),
            patience: Duration::from_secs(3),
            steered: SteeredBy::Kernel,
            alone: false,
            found: FoundBy::Socket,
            neighbours: NEIGHBOURS,
            bounds: Vec::new(),
        }
    }
}
