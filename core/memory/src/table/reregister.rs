//! Changes of a region that keep its key (`ibv_rereg_mr`).

use super::{Table, TableChange, lay_out};
use crate::entry::Piece;
use crate::{Access, Error, Key, Pd};
use std::sync::atomic::Ordering;

impl Table {
    /// Changes the memory, the domain and the rights of a region, which keeps its key. During the call the
    /// key is dead. When the call returns, no engine accesses the old memory any more.
    ///
    /// # Errors
    /// The errors of [`register_raw`](Table::register_raw) and [`deregister`](Table::deregister), and
    /// `Invalid` for `len` 0. After an error nothing has changed.
    ///
    /// # Safety
    /// The conditions of [`register_raw`](Table::register_raw).
    pub unsafe fn reregister_raw(
        &self,
        key: Key,
        pd: Pd,
        start: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<(), Error> {
        if self.passes().is_inside() {
            return Err(Error::InsidePass);
        }
        if start.is_null() || len == 0 || (start as usize).checked_add(len).is_none() {
            return Err(Error::Invalid);
        }
        let mut pieces = vec![Piece { iova, len: len as u64, start }];
        lay_out(&mut pieces, access)?;
        let entry = self.entry(key);
        {
            let mut control = self.control();
            control.domain(pd)?;
            let held = control.held.get_mut(&key.0).filter(|held| !held.dying).ok_or(Error::Unknown)?;
            if entry.windows.load(Ordering::Relaxed) > 0 {
                return Err(Error::Busy);
            }
            held.dying = true;
            let before = std::mem::replace(&mut held.pd, pd);
            // Both domains are in use until the passes in progress have ended.
            control.domain(pd)?.users += 1;
            entry.kill(key.0);
            control.report(|| TableChange::Ended { key });
            drop(control);
            self.passes().quiesce();
            let mut control = self.control();
            control.domain(before)?.users -= 1;
            let held = control.held.get_mut(&key.0).ok_or(Error::Unknown)?;
            held.dying = false;
            (held.pieces, held._bytes) = (pieces, Vec::new());
            entry.clear();
            entry.publish(key.0, pd.0, access.0, &held.pieces);
            control.report_region(key, access);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::Bench;
    use crate::{AccessError, Bytes};

    #[test]
    fn a_region_keeps_its_key_when_memory_domain_or_rights_change() {
        let bench = Bench::small();
        let table = &bench.table;
        let [one, two] = [(); 2].map(|()| Bytes::heap(64).unwrap());
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // SAFETY: both blocks live until the end, and are read only by copying.
        let key = unsafe { table.register_raw(bench.pd, one.as_ptr(), 64, 7, rights).unwrap() };
        let other = table.alloc_pd().unwrap();
        // SAFETY: as above.
        unsafe { table.reregister_raw(key, other, two.as_ptr(), 64, 7, Access::LOCAL_WRITE).unwrap() };
        {
            let mut pass = bench.engine.enter();
            let (_, mem) = pass.parts();
            let refused = mem.check(bench.pd, key, 7, 1, Access::NONE).unwrap_err();
            assert_eq!(refused, AccessError::WrongPd);
            let refused = mem.check(other, key, 7, 1, Access::REMOTE_WRITE).unwrap_err();
            assert_eq!(refused, AccessError::MissingRight);
            assert_ne!(mem.check(other, key, 7, 1, Access::LOCAL_WRITE).unwrap().write(b"x"), 0);
        }
        let mut there = [0; 1];
        two.read(0, &mut there).unwrap();
        assert_eq!(&there, b"x");
        table.free_pd(bench.pd).unwrap();
        assert_eq!(table.free_pd(other), Err(Error::Busy));
        table.deregister(key).unwrap();
        table.free_pd(other).unwrap();
    }

    #[test]
    fn what_cannot_be_changed_stays_as_it_was() {
        let bench = Bench::small();
        let table = &bench.table;
        let bytes = Bytes::heap(64).unwrap();
        let gone = table.alloc_pd().unwrap();
        table.free_pd(gone).unwrap();
        // SAFETY: the block lives until the end, and is read only by copying.
        unsafe {
            let key = table.register_raw(bench.pd, bytes.as_ptr(), 64, 0, Access::LOCAL_WRITE).unwrap();
            let change = |pd, len, access| table.reregister_raw(key, pd, bytes.as_ptr(), len, 0, access);
            assert_eq!(change(bench.pd, 0, Access::NONE), Err(Error::Invalid));
            assert_eq!(change(bench.pd, 64, Access::REMOTE_WRITE), Err(Error::Invalid));
            assert_eq!(change(gone, 64, Access::NONE), Err(Error::Unknown));
            let mut pass = bench.engine.enter();
            assert!(pass.parts().1.check(bench.pd, key, 0, 64, Access::LOCAL_WRITE).is_ok());
            assert_eq!(change(bench.pd, 64, Access::NONE), Err(Error::InsidePass));
            drop(pass);
            table.deregister(key).unwrap();
            let dead = table.reregister_raw(key, bench.pd, bytes.as_ptr(), 64, 0, Access::NONE);
            assert_eq!(dead, Err(Error::Unknown));
        }
    }
}
