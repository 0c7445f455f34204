//! Changes of the table by the host: the observer is called with each, and another table repeats it.

use super::change::{Addresses, TableChange, TableObserver};
use super::{Control, Held, Table, lay_out};
use crate::entry::{Piece, View};
use crate::key::Issued;
use crate::window::Window;
use crate::{Access, Bytes, Error, Key, Pd};
use std::sync::atomic::Ordering;

impl Control {
    /// Calls the observer, if there is one, with a change.
    pub(crate) fn report(&self, change: impl FnOnce() -> TableChange) {
        if let Some(observer) = &self.observer {
            observer(&change());
        }
    }

    /// Counts a user of a domain, if this table knows the domain: a repeated change may name any.
    fn use_domain(&mut self, pd: Pd) {
        if let Ok(domain) = self.domain(pd) {
            domain.users += 1;
        }
    }

    /// Reports the registration of a region that is held.
    pub(super) fn report_region(&self, key: Key, access: Access) {
        let Some(held) = self.held.get(&key.0) else { return };
        let ranges = |pieces: &[Piece]| {
            let addresses =
                |piece: &Piece| Addresses { iova: piece.iova, len: piece.len, start: piece.start as u64 };
            pieces.iter().map(addresses).collect()
        };
        self.report(|| TableChange::Registered { key, pd: held.pd, ranges: ranges(&held.pieces), access });
    }
}

impl Table {
    /// Sets the function that is called with every change of the table from now on.
    pub fn observe(&self, observer: TableObserver) {
        self.control().observer = Some(observer);
    }

    /// Repeats a change of another table that had as many places, with the same keys. A region gets zeroed
    /// memory of its own. For tables all of whose changes are repeated ones.
    ///
    /// # Errors
    /// `Invalid` if the change does not fit the table, such as a key that is in use; `Unknown` or `Busy` as
    /// of the function that made the change; `Full` or `Os` if there is no memory.
    pub fn repeat(&self, change: &TableChange) -> Result<(), Error> {
        match change {
            TableChange::Registered { key, pd, ranges, access } => {
                let bytes = |range: &Addresses| {
                    let len = usize::try_from(range.len).map_err(|_| Error::Full)?;
                    Bytes::zeros(len.max(1))
                };
                let bytes = ranges.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
                let piece = |(range, bytes): (&Addresses, &Bytes)| Piece {
                    iova: range.iova,
                    len: range.len,
                    start: bytes.as_ptr(),
                };
                let mut pieces: Vec<Piece> = ranges.iter().zip(&bytes).map(piece).collect();
                lay_out(&mut pieces, *access)?;
                let mut control = self.control();
                self.place(&mut control, *key, *pd, pieces, bytes)?;
                let pieces = control.held.get(&key.0).map_or(&[][..], |held| &held.pieces);
                self.entry(*key).publish(key.0, pd.0, access.0, pieces);
                Ok(())
            }
            TableChange::NullRegistered { key, pd } => {
                let mut control = self.control();
                let block = control.null_block()?;
                let start = block.as_ptr();
                self.place(&mut control, *key, *pd, Vec::new(), vec![block])?;
                self.entry(*key).publish_null(key.0, pd.0, Access::LOCAL_WRITE.0, start);
                Ok(())
            }
            TableChange::Ended { key } => self.deregister(*key),
            TableChange::WindowAllocated { key, pd, kind } => {
                let mut control = self.control();
                self.require_free(*key)?;
                if control.windows.contains_key(&key.index()) {
                    return Err(Error::Invalid);
                }
                control.use_domain(*pd);
                self.entry(*key).show(&View::nothing(pd.0));
                let issued = Issued::repeated(*key);
                let window = Window {
                    issued,
                    pd: *pd,
                    kind: *kind,
                    key: *key,
                    was_bound: false,
                    bound: None,
                    dying: false,
                };
                control.windows.insert(key.index(), window);
                Ok(())
            }
            TableChange::WindowFreed { key } => self.free_window(*key),
            TableChange::OwnerUnbound { owner } => {
                self.unbind_owner(*owner);
                Ok(())
            }
            TableChange::RegionUnbound { key } => {
                self.unbind_region(*key);
                Ok(())
            }
        }
    }

    /// Keeps the parts of a region under a given key; its entry is still dead.
    fn place(
        &self,
        control: &mut Control,
        key: Key,
        pd: Pd,
        pieces: Vec<Piece>,
        bytes: Vec<Bytes>,
    ) -> Result<(), Error> {
        self.require_free(key)?;
        if control.held.contains_key(&key.0) || pieces.len() > control.config.max_ranges - control.ranges {
            return Err(Error::Invalid);
        }
        control.use_domain(pd);
        let ranges = pieces.len();
        control.ranges += ranges;
        let issued = Issued::repeated(key);
        control.held.insert(key.0, Held { issued, pd, ranges, dying: false, pieces, _bytes: bytes });
        Ok(())
    }

    /// Fails unless the entry of a key belongs to no region and no window.
    fn require_free(&self, key: Key) -> Result<(), Error> {
        let entry = self.entry(key);
        let free = entry.key.load(Ordering::Relaxed) == 0
            && entry.pieces.load(Ordering::Relaxed) == 0
            && entry.start.load(Ordering::Relaxed).is_null();
        let names_place = crate::key::location(key, self.entries.len()) != 0;
        if free && names_place { Ok(()) } else { Err(Error::Invalid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::Bench;
    use crate::{AccessError, Config, WindowType};
    use std::sync::{Arc, Mutex};

    /// Returns the changes that `make` causes.
    fn seen(bench: &Bench, make: impl FnOnce(&Table)) -> Vec<TableChange> {
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        bench.table.observe(Arc::new(move |change| seen.lock().unwrap().push(change.clone())));
        make(&bench.table);
        changes.lock().unwrap().clone()
    }

    #[test]
    fn a_table_that_repeats_the_changes_of_another_grants_the_same() {
        let limits = || Config { max_windows: 3, ..Config::small() };
        let bench = Bench::new(limits());
        let memory = Bytes::heap(64).unwrap();
        let mut keys = Vec::new();
        let changes = seen(&bench, |table| {
            let range = |iova| crate::Range::at(&memory, iova);
            let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            keys.push(table.register(bench.pd, &[range(1000)], rights).unwrap());
            keys.push(table.register(bench.pd, &[range(64), range(0)], Access::NONE).unwrap());
            keys.push(table.register(bench.pd, &[range(7)], Access::ZERO_BASED).unwrap());
            keys.push(table.register_null(bench.pd).unwrap());
            let gone = table.register(bench.pd, &[range(5)], Access::NONE).unwrap();
            table.deregister(gone).unwrap();
            keys.push(gone);
            let window = table.alloc_window(bench.pd, WindowType::Type1).unwrap();
            table.free_window(window).unwrap();
        });
        assert_eq!(changes.len(), 8);
        let other = Bench::new(Config { key_seed: 99, ..limits() });
        changes.iter().for_each(|change| other.table.repeat(change).unwrap());
        for key in keys {
            for (va, len) in [(1000, 64), (1000, 65), (0, 64), (0, 65), (64, 64), (7, 1), (1 << 40, 8)] {
                for access in [Access::NONE, Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ] {
                    let probe = |bench: &Bench| bench.probe(key, va, len, access);
                    assert_eq!(probe(&other), probe(&bench), "{key:?} {va} {len} {access:?}");
                }
            }
        }
        assert_eq!(other.table.regions(), bench.table.regions());
        assert_eq!(other.table.windows(), 0);
    }

    #[test]
    fn a_change_that_does_not_fit_is_refused() {
        let bench = Bench::small();
        let ranges = vec![Addresses { iova: 0, len: 64, start: 0 }];
        let key = Key(1 << 8 | 5);
        let region =
            |key| TableChange::Registered { key, pd: bench.pd, ranges: ranges.clone(), access: Access::NONE };
        bench.table.repeat(&region(key)).unwrap();
        assert_eq!(bench.table.repeat(&region(key)), Err(Error::Invalid), "the key is in use");
        assert_eq!(bench.table.repeat(&region(Key(1 << 8 | 6))), Err(Error::Invalid), "its place is in use");
        assert_eq!(bench.table.repeat(&region(Key(7))), Err(Error::Invalid), "place 0 stays empty");
        assert_eq!(bench.table.repeat(&TableChange::Ended { key: Key(3 << 8) }), Err(Error::Unknown));
        bench.table.repeat(&TableChange::Ended { key }).unwrap();
        assert_eq!(bench.probe(key, 0, 1, Access::NONE), Err(AccessError::UnknownKey));
        bench.table.repeat(&region(key)).unwrap();
    }
}
