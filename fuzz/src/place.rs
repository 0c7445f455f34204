//! Addresses and keys of a hostile peer or program: often right, often a little wrong.

use arbitrary::Arbitrary;
use remora_memory::Key;

use crate::estate::{Estate, FRAME, Name};

/// Greatest distance from a region's first byte: a little more than the length of most regions.
const NEAR: i64 = 1100;

/// A key and an address.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub enum Place {
    /// In or near a region.
    Near {
        /// Number of the region.
        plot: u8,
        /// Offset from its first byte.
        offset: i16,
    },
    /// The access ends where a region or the window ends, or a byte before or behind.
    End {
        /// Number of the region.
        plot: u8,
        /// How many bytes behind.
        over: u8,
    },
    /// The right address with another region's key.
    Mixed {
        /// Number of the region whose key is used.
        key: u8,
        /// Number of the region whose address is used.
        plot: u8,
    },
    /// Through the window.
    Window(i16),
    /// In the open region.
    Open(u8),
    /// By a key that was never given.
    Bent {
        /// Number of the region whose key is changed.
        plot: u8,
        /// Bits turned in it.
        bits: u32,
    },
    /// Any key and address.
    Any {
        /// The remote key.
        key: u32,
        /// The remote address.
        address: u64,
    },
}

impl Place {
    /// The key and the address of `len` bytes, in a node's memory whose window has the key `window`.
    pub fn of(self, estate: &Estate, window: Key, len: u64) -> (Key, u64) {
        match self {
            Place::Near { plot, offset } => {
                let plot = estate.any(plot);
                (plot.key, plot.address.wrapping_add_signed(i64::from(offset) % NEAR))
            }
            Place::End { plot, over } => {
                let framed = estate.plot(Name::Framed);
                let (key, end) = match plot {
                    ..0x40 => (window, framed.address + FRAME.end as u64),
                    _ => (estate.any(plot).key, estate.any(plot).address + estate.any(plot).len()),
                };
                (key, end.wrapping_sub(len).wrapping_add(u64::from(over % 3)).wrapping_sub(1))
            }
            Place::Mixed { key, plot } => (estate.any(key).key, estate.any(plot).address),
            Place::Window(offset) => {
                let frame = estate.plot(Name::Framed).address + FRAME.start as u64;
                (window, frame.wrapping_add_signed(i64::from(offset) % (FRAME.len() as i64 + 8)))
            }
            Place::Open(offset) => {
                let open = estate.open(8 * usize::from(offset));
                (open.rkey, open.addr)
            }
            Place::Bent { plot, bits } => {
                let plot = estate.any(plot);
                (Key::new(plot.key.get() ^ bits), plot.address)
            }
            Place::Any { key, address } => (Key::new(key), address),
        }
    }
}
