//! Address handles: where datagrams can go (IBTA vol. 1 §10.2.2). Each send work request of an unreliable
//! datagram queue pair names one.

use remora_memory::Pd;
use remora_wire::frame::Peer;
use std::collections::VecDeque;

use crate::attributes::AddressVector;
use crate::config::NicError;
use crate::path::AddressPath;

/// Handles are numbered by place and generation; this many bits are the place.
const PLACE_BITS: u32 = 20;

/// An address handle: its number, which is never 0, its domain and the way.
pub(crate) struct AddressHandle {
    number: u32,
    pub pd: Pd,
    pub address_path: AddressPath,
    /// The way of datagrams for which the port has a nearer peer. None: it had none yet.
    nearer: Option<Box<AddressPath>>,
}

impl AddressHandle {
    /// The way by way of `peer`, which the port has named for the next datagram.
    pub(crate) fn path_by(&mut self, peer: Peer) -> &mut AddressPath {
        if peer == self.address_path.peer {
            return &mut self.address_path;
        }
        let AddressPath { route, class, .. } = self.address_path;
        let address = AddressVector { class, ..AddressVector::new(peer, route) };
        // All nearer peers have this handle's address, so the headers are the same for each.
        let nearer = self.nearer.get_or_insert_with(|| Box::new(AddressPath::new(&address)));
        nearer.peer = peer;
        nearer
    }
}

/// The address handles of an engine.
pub(crate) struct AddressHandles {
    places: Vec<Option<Box<AddressHandle>>>,
    /// Places that were used and are free, with their next generation.
    freed: VecDeque<(u32, u32)>,
    max: usize,
}

impl AddressHandles {
    pub(crate) fn new(max: u32) -> Self {
        AddressHandles { places: Vec::new(), freed: VecDeque::new(), max: max.min(1 << PLACE_BITS) as usize }
    }

    /// The handle of this number.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut AddressHandle> {
        let place = number as usize & ((1 << PLACE_BITS) - 1);
        let handle = self.places.get_mut(place)?.as_deref_mut()?;
        (u64::from(handle.number) == number).then_some(handle)
    }

    pub(crate) fn create(&mut self, pd: Pd, address: &AddressVector) -> Result<u32, NicError> {
        // Never-used places first: a number that has gone stale stays so for long.
        let (place, generation) = if self.places.len() < self.max {
            self.places.push(None);
            (self.places.len() as u32 - 1, 1)
        } else {
            self.freed.pop_front().ok_or(NicError::Full)?
        };
        let number = generation << PLACE_BITS | place;
        self.places[place as usize] = Some(Box::new(AddressHandle {
            number,
            pd,
            address_path: AddressPath::new(address),
            nearer: None,
        }));
        Ok(number)
    }

    pub(crate) fn destroy(&mut self, number: u32) -> Result<(), NicError> {
        self.get_mut(u64::from(number)).ok_or(NicError::Unknown)?;
        let place = number & ((1 << PLACE_BITS) - 1);
        self.places[place as usize] = None;
        let generation = (number >> PLACE_BITS) % ((1 << (32 - PLACE_BITS)) - 1) + 1;
        self.freed.push_back((place, generation));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::frame::{Endpoint, Route};

    #[test]
    fn numbers_are_bounded_never_zero_and_not_used_again_soon() {
        let mut handles = AddressHandles::new(3);
        let route = Route::new(Endpoint::default(), Endpoint::default());
        let address = AddressVector::new(Peer(0), route);
        let all: Vec<u32> = (0..3).map(|_| handles.create(Pd::NONE, &address).unwrap()).collect();
        assert_eq!(handles.create(Pd::NONE, &address), Err(NicError::Full));
        let mut seen = all.clone();
        for turn in 0..10_000 {
            let old = seen[seen.len() - 3];
            handles.destroy(old).unwrap();
            assert_eq!(handles.destroy(old), Err(NicError::Unknown));
            let new = handles.create(Pd::NONE, &address).unwrap();
            assert!(
                new != 0 && !seen[seen.len().saturating_sub(4000)..].contains(&new),
                "turn {turn}: {new:#x}"
            );
            assert!(handles.get_mut(u64::from(old)).is_none() && handles.get_mut(u64::from(new)).is_some());
            seen.push(new);
        }
        assert!(handles.get_mut(0).is_none() && handles.get_mut(u64::MAX).is_none());
        assert!(handles.get_mut(u64::from(*seen.last().unwrap()) | 1 << 32).is_none());
    }
}
