//! Addresses and keys that a rude peer or program makes up: often right, often a little wrong.

use arbitrary::Arbitrary;
use memory::Key;

use crate::estate::{Estate, FRAME, Name};

/// A key and an address.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub enum Place {
    /// In or near a plot.
    Near {
        /// Which one.
        plot: u8,
        /// From its first byte.
        offset: i16,
    },
    /// By the right address and another plot's key.
    Mixed {
        /// Whose key.
        key: u8,
        /// Whose address.
        plot: u8,
    },
    /// Through the window.
    Window(i16),
    /// In the open plot.
    Open(u8),
    /// By a key that was never given.
    Bent {
        /// Whose key.
        plot: u8,
        /// Bits turned in it.
        bits: u32,
    },
    /// Anywhere.
    Any {
        /// The key.
        key: u32,
        /// The address.
        address: u64,
    },
}

impl Place {
    /// The key and the address, in an estate whose window has the key `window`.
    pub fn of(self, estate: &Estate, window: Key) -> (Key, u64) {
        match self {
            Place::Near { plot, offset } => {
                let plot = estate.any(plot);
                (plot.key, plot.address.wrapping_add_signed(i64::from(offset)))
            }
            Place::Mixed { key, plot } => (estate.any(key).key, estate.any(plot).address),
            Place::Window(offset) => {
                let frame = estate.plot(Name::Framed).address + FRAME.start as u64;
                (window, frame.wrapping_add_signed(i64::from(offset)))
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
