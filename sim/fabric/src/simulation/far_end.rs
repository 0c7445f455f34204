//! The attributes of the packets to each queue pair.

use remora_wire::Qpn;

/// The attributes that packets to a queue pair get in the network.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct FarEnd {
    /// Hash by which switches choose among equal paths, path, or index of a key.
    pub hash: u32,
    /// True if `hash` is a path.
    pub is_path: bool,
    /// True if `hash` is the index of a key.
    pub is_key: bool,
    /// True if all bytes of the frames are stored.
    pub whole: bool,
}

/// The attributes by host and queue pair.
pub(crate) struct FarEnds {
    hosts: Vec<Vec<FarEnd>>,
    mask: u32,
}

impl FarEnds {
    /// Returns an empty table for hosts with `max_qps` queue pairs each.
    pub(crate) fn new(hosts: usize, max_qps: u32) -> FarEnds {
        FarEnds { hosts: vec![Vec::new(); hosts], mask: max_qps.next_power_of_two() - 1 }
    }

    #[inline]
    pub(crate) fn get(&self, host: u32, number: Qpn) -> FarEnd {
        let index = (number.get() & self.mask) as usize;
        self.hosts[host as usize].get(index).copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, host: u32, number: Qpn, far: FarEnd) {
        let index = (number.get() & self.mask) as usize;
        let own = &mut self.hosts[host as usize];
        if own.len() <= index {
            own.resize(index + 1, FarEnd::default());
        }
        own[index] = far;
    }
}
