//! Addresses and keys of a hostile peer or program, often valid and often nearly valid.

use arbitrary::Arbitrary;
use remora_memory::Key;

use crate::node_memory::{FRAME, Name, NodeMemory};

/// The maximum distance from a region's first byte, a little more than the length of most regions.
const NEAR: i64 = 1100;

/// A key and an address.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub enum HostileAddress {
    /// An address in or near a region.
    Near {
        /// The number of the region.
        region: u8,
        /// The offset from its first byte.
        offset: i16,
    },
    /// An access that ends where a region or the window ends, or one byte before or after.
    End {
        /// The number of the region.
        region: u8,
        /// The number of bytes beyond the end.
        over: u8,
    },
    /// A valid address with the key of another region.
    Mixed {
        /// The number of the region whose key is used.
        key: u8,
        /// The number of the region whose address is used.
        region: u8,
    },
    /// An address with the key of the window.
    Window(i16),
    /// An address in the open region.
    Open(u8),
    /// A key that was never given.
    Bent {
        /// The number of the region whose key is changed.
        region: u8,
        /// The bits that are inverted in the key.
        bits: u32,
    },
    /// An arbitrary key and address.
    Any {
        /// The remote key.
        key: u32,
        /// The remote address.
        address: u64,
    },
}

/// An end of a region or of the window, and a distance beyond it.
#[derive(Copy, Clone, Debug)]
pub struct Edge {
    /// The number of the region; the highest numbers select the window.
    pub region: u8,
    /// The choice of the start or the end, and the distance beyond it.
    pub over: u8,
}

impl Edge {
    /// Returns the key and the address of `len` bytes that end or begin at the edge or beyond it.
    pub fn of(self, memory: &NodeMemory, window: Key, len: u64) -> (Key, u64) {
        let (key, start, end) = match self.region {
            0xe0.. => {
                let framed = memory.guarded(Name::Framed).address;
                (window, framed + FRAME.start as u64, framed + FRAME.end as u64)
            }
            number => {
                let region = memory.any(number);
                (region.key, region.address, region.address + region.len())
            }
        };
        let va = match self.over % 8 {
            0..3 => end.wrapping_sub(len),
            3 | 4 => end.wrapping_sub(len).wrapping_add(1),
            5 => end.wrapping_sub(len).wrapping_add(8),
            6 => start,
            _ => start.wrapping_sub(1),
        };
        (key, va)
    }
}

impl HostileAddress {
    /// Returns the key and the address for `len` bytes in a node's memory. `window` is the key of its window.
    pub fn of(self, memory: &NodeMemory, window: Key, len: u64) -> (Key, u64) {
        match self {
            HostileAddress::Near { region, offset } => {
                let region = memory.any(region);
                (region.key, region.address.wrapping_add_signed(i64::from(offset) % NEAR))
            }
            HostileAddress::End { region, over } => {
                let framed = memory.guarded(Name::Framed);
                let (key, end) = match region {
                    ..0x40 => (window, framed.address + FRAME.end as u64),
                    _ => (memory.any(region).key, memory.any(region).address + memory.any(region).len()),
                };
                (key, end.wrapping_sub(len).wrapping_add(u64::from(over % 3)).wrapping_sub(1))
            }
            HostileAddress::Mixed { key, region } => (memory.any(key).key, memory.any(region).address),
            HostileAddress::Window(offset) => {
                let frame = memory.guarded(Name::Framed).address + FRAME.start as u64;
                (window, frame.wrapping_add_signed(i64::from(offset) % (FRAME.len() as i64 + 8)))
            }
            HostileAddress::Open(offset) => {
                let open = memory.open(8 * usize::from(offset));
                (open.rkey, open.addr)
            }
            HostileAddress::Bent { region, bits } => {
                let region = memory.any(region);
                (Key::new(region.key.get() ^ bits), region.address)
            }
            HostileAddress::Any { key, address } => (Key::new(key), address),
        }
    }
}
