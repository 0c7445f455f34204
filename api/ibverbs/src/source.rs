//! The addresses that queue pairs send from, by index of the GID table. The NIC gets its share of a further
//! address when an address vector first names it.

use remora_broker::GidEntry;
use remora_broker::client::Range;
use remora_verbs::OpenError;
use remora_verbs::raw::ChannelAdapter;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::errno;

/// The addresses of which this process's NIC has a share. The number of an address never changes.
pub(crate) struct Sources {
    adapter: Arc<ChannelAdapter>,
    /// The QPN range; `None` for port `xdp`, which has one address.
    range: Option<Range>,
    /// The addresses by number. The first is the NIC's own.
    shares: Mutex<Vec<SocketAddr>>,
}

impl Sources {
    /// Creates the table for a NIC with a share of one address, which may get more shares for this range.
    pub(crate) fn new(adapter: &Arc<ChannelAdapter>, range: Option<Range>) -> Sources {
        let own = match &range {
            Some(range) => range.endpoint().local(),
            None => GidEntry { ip: adapter.facts().endpoint.address.into(), interface: 0 }.address(),
        };
        Sources { adapter: Arc::clone(adapter), range, shares: Mutex::new(vec![own]) }
    }

    /// Returns whether the broker of the addresses is gone, and with it the NIC's place on the network.
    pub(crate) fn are_lost(&self) -> bool {
        self.range.as_ref().is_some_and(Range::is_over)
    }

    /// Returns the NIC's number of this address, after borrowing a share if it has none.
    pub(crate) fn number(&self, entry: GidEntry) -> Result<u8, c_int> {
        let address = entry.address();
        // Locked during the whole call, so that two threads get one share.
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shares.iter().position(|known| *known == address) {
            return Ok(known as u8);
        }
        self.take(address, &mut shares).map_err(|error| {
            eprintln!("remora: {error}");
            errno::of_open(&error)
        })
    }

    /// Borrows a share of an address that the program's user has chosen.
    pub(crate) fn add(&self, address: SocketAddr) -> Result<u8, OpenError> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        self.take(address, &mut shares)
    }

    fn take(&self, address: SocketAddr, shares: &mut Vec<SocketAddr>) -> Result<u8, OpenError> {
        let words = |error: &dyn std::fmt::Display| OpenError::Port(error.to_string());
        let none = || words(&"the device has one address");
        let range = self.range.as_ref().filter(|_| !self.adapter.is_child()).ok_or_else(none)?;
        let share = range.further(address).map_err(|error| words(&error))?;
        let number = self.adapter.add_address(&share).map_err(|error| words(&error))?;
        debug_assert_eq!(usize::from(number), shares.len(), "shares are numbered in the order of arrival");
        shares.push(address);
        Ok(number)
    }
}
