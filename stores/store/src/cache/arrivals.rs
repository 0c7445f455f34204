//! Values that are being received, stored in pieces until they are complete.
//!
//! A client that announces a value takes no memory for it; a client that sends a part takes memory for that
//! part. All incomplete values have a bounded share of the memory. When all pieces are in use, the value
//! that has waited longest for its next byte is dropped.

use super::lru::{Lru, NONE};

/// Bytes of a piece.
const PIECE: usize = 4096;

/// An incomplete value. It must be passed to [`Arrivals::end`].
pub(crate) struct Arrival {
    slot: u32,
    generation: u32,
}

#[derive(Copy, Clone)]
struct Slot {
    /// Generation of the value that has the slot now, so that a stale [`Arrival`] is recognised.
    generation: u32,
    first: u32,
    last: u32,
    len: usize,
}

/// The value was dropped to free memory, or no piece is left for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoPiece;

/// All incomplete values.
pub(crate) struct Arrivals {
    bytes: Box<[u8]>,
    /// The successor of each piece, in a value or in the list of free pieces.
    next: Vec<u32>,
    free: u32,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    /// The values in order of their latest bytes.
    order: Lru,
    pieces: u32,
}

impl Arrivals {
    /// Returns a table of pieces with `bytes` bytes in total.
    pub(crate) fn new(bytes: usize) -> Arrivals {
        let pieces = u32::try_from(bytes / PIECE).unwrap_or(NONE - 1);
        Arrivals {
            bytes: vec![0; pieces as usize * PIECE].into_boxed_slice(),
            next: Vec::with_capacity(pieces as usize),
            free: NONE,
            slots: Vec::with_capacity(pieces as usize),
            free_slots: Vec::with_capacity(pieces as usize),
            order: Lru::new(pieces),
            pieces,
        }
    }

    /// Appends bytes to a value.
    ///
    /// # Errors
    /// `NoPiece`: the value was dropped, and its [`Arrival`] is invalid.
    pub(crate) fn append(&mut self, arrival: &mut Option<Arrival>, mut data: &[u8]) -> Result<(), NoPiece> {
        if arrival.is_none() {
            let piece = self.take(None)?;
            *arrival = Some(self.begin(piece));
        }
        let Some(slot) = arrival.as_ref().and_then(|arrival| self.slot(arrival)) else { return Err(NoPiece) };
        self.order.touch(slot);
        while !data.is_empty() {
            let Slot { last, len, .. } = self.slots[slot as usize];
            let used = len % PIECE;
            let last = if used == 0 && len > 0 { self.grow(slot, last)? } else { last };
            let fits = data.len().min(PIECE - used);
            let offset = last as usize * PIECE + used;
            self.bytes[offset..offset + fits].copy_from_slice(&data[..fits]);
            self.slots[slot as usize].len += fits;
            data = &data[fits..];
        }
        Ok(())
    }

    /// Returns the received bytes, piece by piece; none if the value was dropped.
    pub(crate) fn pieces(&self, arrival: &Arrival) -> impl Iterator<Item = &[u8]> {
        let slot = self.slot(arrival).map(|slot| self.slots[slot as usize]);
        let (mut piece, mut left) = slot.map_or((NONE, 0), |slot| (slot.first, slot.len));
        std::iter::from_fn(move || {
            let len = left.min(PIECE);
            let offset = piece as usize * PIECE;
            (len > 0).then(|| {
                left -= len;
                piece = self.next[piece as usize];
                &self.bytes[offset..offset + len]
            })
        })
    }

    /// Returns true if all `len` bytes of the value are present.
    pub(crate) fn is_whole(&self, arrival: &Arrival, len: usize) -> bool {
        self.slot(arrival).is_some_and(|slot| self.slots[slot as usize].len == len)
    }

    /// Frees the pieces of a value.
    pub(crate) fn end(&mut self, arrival: Arrival) {
        if let Some(slot) = self.slot(&arrival) {
            self.release(slot);
        }
    }

    /// Returns the number of bytes in use.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        let mut free = self.pieces as usize - self.next.len();
        let mut piece = self.free;
        while piece != NONE {
            (free, piece) = (free + 1, self.next[piece as usize]);
        }
        (self.pieces as usize - free) * PIECE
    }

    fn slot(&self, arrival: &Arrival) -> Option<u32> {
        (self.slots[arrival.slot as usize].generation == arrival.generation).then_some(arrival.slot)
    }

    fn begin(&mut self, piece: u32) -> Arrival {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, first: NONE, last: NONE, len: 0 });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        (place.first, place.last, place.len) = (piece, piece, 0);
        self.order.push(slot);
        Arrival { slot, generation: self.slots[slot as usize].generation }
    }

    fn grow(&mut self, slot: u32, last: u32) -> Result<u32, NoPiece> {
        let piece = self.take(Some(slot))?;
        self.next[last as usize] = piece;
        self.slots[slot as usize].last = piece;
        Ok(piece)
    }

    /// Takes a piece for the value of a slot. If none is free, another value is dropped.
    fn take(&mut self, slot: Option<u32>) -> Result<u32, NoPiece> {
        if self.free == NONE && self.next.len() < self.pieces as usize {
            self.next.push(NONE);
            return Ok(self.next.len() as u32 - 1);
        }
        if self.free == NONE {
            let waiting = self.order.oldest().ok_or(NoPiece)?;
            self.release(waiting);
            if Some(waiting) == slot {
                return Err(NoPiece);
            }
        }
        let piece = self.free;
        self.free = std::mem::replace(&mut self.next[piece as usize], NONE);
        Ok(piece)
    }

    fn release(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        self.next[place.last as usize] = std::mem::replace(&mut self.free, place.first);
        self.order.remove(slot);
        self.free_slots.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(arrivals: &Arrivals, arrival: &Arrival) -> Vec<u8> {
        arrivals.pieces(arrival).flatten().copied().collect()
    }

    #[test]
    fn what_comes_in_any_cuts_is_what_lies_there() {
        let mut arrivals = Arrivals::new(8 * PIECE);
        let bytes: Vec<u8> = (0..3 * PIECE + 7).map(|n| (n % 251) as u8).collect();
        for cut in [1, 7, PIECE - 1, PIECE, PIECE + 1, bytes.len()] {
            let mut arrival = None;
            bytes.chunks(cut).for_each(|piece| arrivals.append(&mut arrival, piece).expect("space"));
            let arrival = arrival.expect("begun");
            assert_eq!(whole(&arrivals, &arrival), bytes);
            assert_eq!(arrivals.taken(), 4 * PIECE);
            arrivals.end(arrival);
            assert_eq!(arrivals.taken(), 0);
        }
    }

    #[test]
    fn the_one_that_waited_for_longest_gives_way() {
        let mut arrivals = Arrivals::new(4 * PIECE);
        let mut first = None;
        let mut second = None;
        let mut third = None;
        arrivals.append(&mut first, &[1; PIECE]).expect("space");
        arrivals.append(&mut second, &[2; 2 * PIECE]).expect("space");
        arrivals.append(&mut first, &[1; 1]).expect("the last piece");
        arrivals.append(&mut third, &[3; 2 * PIECE]).expect("the second gives way");
        assert_eq!(arrivals.append(&mut second, &[2]), Err(NoPiece));
        assert_eq!(whole(&arrivals, second.as_ref().expect("begun")), b"");
        assert_eq!(whole(&arrivals, first.as_ref().expect("begun")).len(), PIECE + 1);
        // A dropped value must not free its pieces twice.
        arrivals.end(second.expect("begun"));
        assert_eq!(arrivals.taken(), 4 * PIECE);
        arrivals.end(first.expect("begun"));
        arrivals.end(third.expect("begun"));
        assert_eq!(arrivals.taken(), 0);
    }

    #[test]
    fn one_that_is_longer_than_all_pieces_is_refused() {
        let mut arrivals = Arrivals::new(2 * PIECE);
        let mut arrival = None;
        assert_eq!(arrivals.append(&mut arrival, &[1; 2 * PIECE + 1]), Err(NoPiece));
        assert_eq!(arrivals.taken(), 0);
        assert_eq!(arrivals.append(&mut None, &[1; 2 * PIECE]), Ok(()));
    }
}
