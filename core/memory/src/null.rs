//! The null region (`ibv_alloc_null_mr`): a write to it is discarded, a read from it returns zeros. It is
//! used in scatter/gather lists: to skip part of a received message, or to pad a sent one.

use crate::table::{Control, TableChange};
use crate::{Access, Bytes, Error, Key, Pd, Table};

/// Largest number of bytes that one access may touch: more than any packet has. The region itself is
/// unbounded.
pub(crate) const REACH: usize = 64 << 10;

/// Returns the offset of an access in the block behind all null regions. The block is `REACH` zeros, which
/// are never written, followed by `REACH` bytes for writes, which are never read.
pub(crate) fn at(len: usize, access: Access) -> Option<usize> {
    let writes = access.contains(Access::LOCAL_WRITE);
    (len <= REACH).then_some(if writes { REACH } else { 0 })
}

impl Table {
    /// Registers a null region: it accepts any local address and any length (up to 64 KiB in one access),
    /// and grants peers no right. [`deregister`](Table::deregister) ends it.
    ///
    /// # Errors
    /// `Unknown` protection domain; `Full` table.
    pub fn register_null(&self, pd: Pd) -> Result<Key, Error> {
        let mut control = self.control();
        let block = control.null_block()?;
        let start = block.at(0, 2 * REACH).map_err(|_| Error::Invalid)?;
        let key = control.hold(pd, Vec::new(), vec![block])?;
        self.entry(key).publish_null(key.0, pd.0, Access::LOCAL_WRITE.0, start);
        control.report(|| TableChange::NullRegistered { key, pd });
        Ok(key)
    }
}

impl Control {
    /// Returns the one block behind all null regions, which is allocated with the first of them.
    pub(crate) fn null_block(&mut self) -> Result<Bytes, Error> {
        if self.null.is_none() {
            self.null = Some(Bytes::heap(2 * REACH)?);
        }
        self.null.clone().ok_or(Error::Full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessError;
    use crate::table::tests::Bench;

    #[test]
    fn writes_are_gone_and_reads_are_zero_at_any_address() {
        let bench = Bench::small();
        let key = bench.table.register_null(bench.pd).unwrap();
        let mut pass = bench.engine.enter();
        let (_, mem) = pass.parts();
        // Miri takes a second for a few hundred bytes.
        const LEN: usize = if cfg!(miri) { 200 } else { 4096 };
        for va in [0, 1, 0x7fff_ffff_ffff, u64::MAX - 3, u64::MAX] {
            let write = mem.check(bench.pd, key, va, LEN, Access::LOCAL_WRITE).unwrap();
            assert_eq!(write.write(&[0xee; LEN]), LEN);
            let read = mem.check(bench.pd, key, va, LEN, Access::NONE).unwrap();
            let mut seen = [1; LEN];
            assert_eq!((read.read(&mut seen), seen), (LEN, [0; LEN]));
        }
        assert!(mem.probe(bench.pd, key, 0, REACH, Access::LOCAL_WRITE).is_ok());
        let beyond = mem.probe(bench.pd, key, 0, REACH + 1, Access::LOCAL_WRITE);
        assert_eq!(beyond, Err(AccessError::OutOfBounds));
        for right in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            assert_eq!(mem.probe(bench.pd, key, 0, 8, right), Err(AccessError::MissingRight));
        }
    }

    #[test]
    fn it_belongs_to_a_domain_and_takes_a_place_like_any_region() {
        let bench = Bench::new(crate::Config { max_regions: 1, ..crate::Config::small() });
        let other = bench.table.alloc_pd().unwrap();
        let key = bench.table.register_null(bench.pd).unwrap();
        assert_eq!(bench.table.register_null(bench.pd), Err(Error::Full));
        assert_eq!(bench.probe_as(other, key, 0, 8, Access::NONE), Err(AccessError::WrongPd));
        assert_eq!(bench.table.free_pd(bench.pd), Err(Error::Busy));
        bench.table.deregister(key).unwrap();
        assert_eq!(bench.probe(key, 0, 8, Access::NONE), Err(AccessError::UnknownKey));
        bench.table.free_pd(bench.pd).unwrap();
        assert_eq!(bench.table.register_null(bench.pd), Err(Error::Unknown));
    }
}
