//! The other shards of a store, as each shard knows them: their runs and addresses. Clients write this table
//! before their first transaction.
//!
//! The number of its run reveals a shard that restarted without its memory. The addresses are for shards that
//! must talk to each other.

use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use crate::Registered;

/// Bytes of an entry: run, address (16), port (2), and zeros.
const ENTRY: usize = 32;
/// Bytes of an entry after the run.
const PLACE: usize = ENTRY - 8;

/// A shard, as another shard knows it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Number of the shard's run, as the first client reported it.
    pub run: u64,
    /// The address to which clients connect.
    pub address: SocketAddr,
}

impl Member {
    /// Returns the bytes of an address in the table.
    pub fn place(address: SocketAddr) -> [u8; PLACE] {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut out = [0; PLACE];
        out[..16].copy_from_slice(&ip.octets());
        out[16..18].copy_from_slice(&address.port().to_le_bytes());
        out
    }
}

/// The table of the other shards, in a shard's memory.
#[derive(Clone, Debug)]
pub struct Incarnations {
    memory: Registered,
    offset: usize,
    shards: u32,
}

impl Incarnations {
    /// Returns the bytes of the table.
    pub const fn len(shards: u32) -> usize {
        shards as usize * ENTRY
    }

    /// Returns the table at an offset, a multiple of 8, of memory that is zero there. Returns `None` if the
    /// table does not fit.
    pub fn new(memory: Registered, offset: usize, shards: u32) -> Option<Incarnations> {
        let fits = offset.is_multiple_of(8) && offset + Incarnations::len(shards) <= memory.bytes.len();
        fits.then_some(Incarnations { memory, offset, shards })
    }

    /// Returns the address of the table.
    pub fn address(&self) -> u64 {
        self.memory.addr + self.offset as u64
    }

    /// Returns the address of a shard's run in the table at this address. The run is 0 until a client has
    /// stored it by a compare-and-swap.
    pub fn run_at(incarnations: u64, shard: u32) -> u64 {
        incarnations + u64::from(shard) * ENTRY as u64
    }

    /// Returns the address of a shard's [`place`](Member::place).
    pub fn place_at(incarnations: u64, shard: u32) -> u64 {
        Incarnations::run_at(incarnations, shard) + 8
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// Returns a shard, or `None` if no client has reported it yet.
    pub fn member(&self, shard: u32) -> Option<Member> {
        let offset = self.offset + shard as usize * ENTRY;
        let run = self.memory.bytes.word(offset)?.load(Ordering::Acquire);
        let mut place = [0; PLACE];
        self.memory.read(offset + 8, &mut place);
        let port = u16::from_le_bytes([place[16], place[17]]);
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&place[..16]).ok()?);
        (run != 0 && port != 0).then_some(Member { run, address: SocketAddr::new(ip.to_canonical(), port) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_memory::{Bytes, Key};

    #[test]
    fn a_shard_is_known_when_its_run_and_its_place_are_there() {
        let bytes = Bytes::heap(8 + Incarnations::len(3)).unwrap();
        let memory = Registered { addr: bytes.address(), bytes, key: Key::new(1) };
        assert!(
            Incarnations::new(memory.clone(), 9, 3).is_none()
                && Incarnations::new(memory.clone(), 16, 3).is_none()
        );
        let incarnations = Incarnations::new(memory.clone(), 8, 3).unwrap();
        for address in ["10.0.0.1:7491", "[fd00::7]:1"] {
            let address = address.parse().unwrap();
            let offset = |addr: u64| (addr - memory.addr) as usize;
            memory.write(offset(Incarnations::run_at(incarnations.address(), 1)), &0u64.to_le_bytes());
            memory.write(offset(Incarnations::place_at(incarnations.address(), 1)), &Member::place(address));
            assert_eq!(incarnations.member(1), None, "no run");
            memory.write(offset(Incarnations::run_at(incarnations.address(), 1)), &99u64.to_le_bytes());
            assert_eq!(incarnations.member(1), Some(Member { run: 99, address }));
            assert_eq!((incarnations.member(0), incarnations.member(2)), (None, None));
        }
    }
}
