//! How packets get to the far ends of queue pairs.

use remora_wire::Qpn;

/// How packets get to the far end of a queue pair.
#[derive(Copy, Clone, Debug, Default)]
pub struct FarEnd {
    /// By which switches choose among equal paths, or the path itself.
    pub hash: u32,
    /// `hash` is a path.
    pub is_path: bool,
    /// `hash` is the number of a key.
    pub is_key: bool,
    /// All bytes of its frames are kept.
    pub whole: bool,
}

/// By host and queue pair: how packets get there.
pub struct FarEnds {
    hosts: Vec<Vec<FarEnd>>,
    mask: u32,
}

impl FarEnds {
    /// For hosts with so many queue pairs each.
    pub fn new(hosts: usize, max_qps: u32) -> FarEnds {
        FarEnds { hosts: vec![Vec::new(); hosts], mask: max_qps.next_power_of_two() - 1 }
    }

    #[inline]
    pub fn get(&self, host: u32, number: Qpn) -> FarEnd {
        let index = (number.get() & self.mask) as usize;
        self.hosts[host as usize].get(index).copied().unwrap_or_default()
    }

    pub fn set(&mut self, host: u32, number: Qpn, far: FarEnd) {
        let index = (number.get() & self.mask) as usize;
        let own = &mut self.hosts[host as usize];
        if own.len() <= index {
            own.resize(index + 1, FarEnd::default());
        }
        own[index] = far;
    }
}
