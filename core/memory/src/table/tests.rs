//! Registration, checks and deregistration, one case at a time. `model` holds the random ones.
use crate::*;
use std::sync::Arc;

pub(crate) const ALL: Access = Access::from_bits(0xf).unwrap();

/// A table, an engine of it, and a domain.
pub(crate) struct Bench {
    pub table: Arc<Table>,
    pub engine: Biased<()>,
    pub pd: Pd,
}

impl Bench {
    pub(crate) fn new(config: Config) -> Bench {
        let table = Arc::new(Table::new(config).unwrap());
        let pd = table.alloc_pd().unwrap();
        Bench { engine: Biased::new(&table, ()), pd, table }
    }

    pub(crate) fn small() -> Bench {
        Bench::new(Config::small())
    }

    pub(crate) fn probe(&self, key: Key, va: u64, len: usize, access: Access) -> Result<(), AccessError> {
        self.probe_as(self.pd, key, va, len, access)
    }

    pub(crate) fn probe_as(
        &self,
        pd: Pd,
        key: Key,
        va: u64,
        len: usize,
        access: Access,
    ) -> Result<(), AccessError> {
        let mut pass = self.engine.enter();
        let (_, mem) = pass.parts();
        mem.probe(pd, key, va, len, access)
    }

    /// Runs `body` on the span inside a pass.
    pub(crate) fn with<R>(&self, key: Key, va: u64, len: usize, body: impl FnOnce(Span<'_>) -> R) -> R {
        let mut pass = self.engine.enter();
        let (_, mem) = pass.parts();
        body(mem.check(self.pd, key, va, len, ALL).unwrap())
    }
}

fn block(len: usize) -> Bytes {
    Bytes::heap(len).unwrap()
}

#[test]
fn a_region_is_readable_and_writable_through_its_key() {
    let bench = Bench::small();
    let bytes = block(4096);
    let key = bench.table.register(bench.pd, &[Range::at(&bytes, 0x1000)], ALL).unwrap();
    assert_eq!(bench.with(key, 0x1010, 5, |span| span.write(b"hello")), 5);
    let mut seen = [0; 7];
    bytes.read(15, &mut seen).unwrap();
    assert_eq!(&seen, b"\0hello\0");
    let mut seen = [0; 3];
    assert_eq!(bench.with(key, 0x1012, 3, |span| span.read(&mut seen)), 3);
    assert_eq!(&seen, b"llo");
    bench.table.deregister(key).unwrap();
    assert_eq!(bench.probe(key, 0x1010, 5, Access::REMOTE_WRITE), Err(AccessError::UnknownKey));
    assert_eq!(bench.table.deregister(key), Err(Error::Unknown));
}

#[test]
fn whole_blocks_are_named_by_their_own_address() {
    let bench = Bench::small();
    let bytes = block(128);
    let key = bench.table.register(bench.pd, &[Range::whole(&bytes)], ALL).unwrap();
    assert_eq!(bench.probe(key, bytes.address() + 127, 1, ALL), Ok(()));
    assert_eq!(bench.probe(key, bytes.address() + 128, 1, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(key, bytes.address() - 1, 1, ALL), Err(AccessError::OutOfBounds));
}

#[test]
fn a_span_never_leaves_the_part_that_was_checked() {
    let bench = Bench::small();
    let bytes = block(64);
    let key = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    bench.with(key, 16, 16, |span| {
        assert_eq!(span.write(&[1; 64]), 16);
        assert_eq!(span.write_at(9, &[2; 8]), Err(AccessError::OutOfBounds));
        assert_eq!(span.write_at(usize::MAX, &[2; 8]), Err(AccessError::OutOfBounds));
        assert_eq!(span.part(16, 0).map(|part| part.len()), Ok(0));
        assert_eq!(span.part(15, 1).unwrap().copy_from(&span), 1);
    });
    let mut seen = [9; 64];
    bytes.read(0, &mut seen).unwrap();
    assert!(seen.iter().enumerate().all(|(at, byte)| *byte == u8::from((16..32).contains(&at))));
}

#[test]
fn accesses_at_the_ends_of_a_region() {
    let bench = Bench::small();
    let bytes = block(100);
    let range = Range { bytes, offset: 10, len: 80, iova: 5000 };
    let key = bench.table.register(bench.pd, &[range], ALL).unwrap();
    let probe = |va: u64, len: usize| bench.probe(key, va, len, Access::NONE);
    assert_eq!(probe(5000, 80), Ok(()));
    assert_eq!(probe(5079, 1), Ok(()));
    assert_eq!(probe(5000, 81), Err(AccessError::OutOfBounds));
    assert_eq!(probe(5079, 2), Err(AccessError::OutOfBounds));
    assert_eq!(probe(5080, 1), Err(AccessError::OutOfBounds));
    assert_eq!(probe(4999, 1), Err(AccessError::OutOfBounds));
    assert_eq!(probe(4999, 2), Err(AccessError::OutOfBounds));
    assert_eq!(probe(5000, usize::MAX), Err(AccessError::OutOfBounds));
}

#[test]
fn addresses_that_overflow_are_out_of_bounds() {
    let bench = Bench::small();
    let bytes = block(64);
    let low = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    // Ends exactly where addresses end.
    let high = bench.table.register(bench.pd, &[Range::at(&bytes, u64::MAX - 63)], ALL).unwrap();
    assert_eq!(bench.probe(high, u64::MAX - 63, 64, ALL), Ok(()));
    assert_eq!(bench.probe(high, u64::MAX, 1, ALL), Ok(()));
    assert_eq!(bench.probe(high, u64::MAX, 2, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(high, 0, 1, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(low, u64::MAX, 1, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(low, u64::MAX, 2, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(low, u64::MAX - 8, usize::MAX, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(low, 1, usize::MAX, ALL), Err(AccessError::OutOfBounds));
    let wraps = bench.table.register(bench.pd, &[Range::at(&bytes, u64::MAX - 62)], ALL);
    assert_eq!(wraps, Err(Error::Invalid));
}

#[test]
fn an_access_of_no_bytes_succeeds_whatever_the_key() {
    let bench = Bench::small();
    let other = bench.table.alloc_pd().unwrap();
    let key = bench.table.register(bench.pd, &[Range::at(&block(64), 0)], Access::NONE).unwrap();
    for (pd, key, va) in
        [(bench.pd, key, 0), (other, key, 0), (bench.pd, Key::new(0), 0), (bench.pd, key, u64::MAX)]
    {
        assert_eq!(bench.probe_as(pd, key, va, 0, ALL), Ok(()));
    }
    let mut pass = bench.engine.enter();
    let (_, mem) = pass.parts();
    let span = mem.check(bench.pd, Key::new(0), 0, 0, ALL).unwrap();
    assert_eq!((span.len(), span.write(b"x"), span.read(&mut [0])), (0, 0, 0));
    assert_eq!(span.fetch_add64(1), Err(AccessError::OutOfBounds));
}

#[test]
fn each_right_is_needed_for_what_it_allows() {
    let bench = Bench::new(Config::small());
    let bytes = block(64);
    let rights = [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    for bits in 0..16 {
        let given = Access::from_bits(bits).unwrap();
        let Ok(key) = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], given) else {
            assert!(
                bits & 1 == 0 && bits & 0b1010 != 0,
                "only remote changes without local write are refused"
            );
            continue;
        };
        assert_eq!(bench.probe(key, 0, 64, Access::NONE), Ok(()), "reading a local buffer needs no right");
        for needed in rights {
            let expected = if given.contains(needed) { Ok(()) } else { Err(AccessError::MissingRight) };
            assert_eq!(bench.probe(key, 0, 64, needed), expected, "{given:?} for {needed:?}");
        }
    }
}

#[test]
fn access_flags_are_numbered_as_verbs_numbers_them() {
    let flags = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::ZERO_BASED;
    assert_eq!(flags.bits(), 0b10_0101);
    assert_eq!(format!("{flags:?} {:?}", Access::NONE), "local_write|remote_read|zero_based none");
    assert_eq!(Access::from_bits(1 << 20), Some(Access::RELAXED_ORDERING));
    assert_eq!(
        Access::from_bits(1 | 1 << 25),
        Some(Access::LOCAL_WRITE),
        "optional bits are ignored, not refused"
    );
    assert_eq!(Access::from_bits(1 << 15), None);
}

#[test]
fn the_first_fault_is_the_one_reported() {
    let bench = Bench::small();
    let other = bench.table.alloc_pd().unwrap();
    let key = bench.table.register(bench.pd, &[Range::at(&block(64), 0)], Access::NONE).unwrap();
    let unknown = Key::new(key.get() ^ 0x8000_0000);
    assert_eq!(bench.probe_as(other, unknown, 99, 1, ALL), Err(AccessError::UnknownKey));
    assert_eq!(bench.probe_as(other, key, 99, 1, ALL), Err(AccessError::WrongPd));
    assert_eq!(bench.probe(key, 99, 1, ALL), Err(AccessError::MissingRight));
    assert_eq!(bench.probe(key, 99, 1, Access::NONE), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(Key::new(0), 0, 1, Access::NONE), Err(AccessError::UnknownKey));
}

#[test]
fn a_domain_in_use_cannot_be_freed() {
    let bench = Bench::small();
    let key = bench.table.register(bench.pd, &[Range::at(&block(64), 0)], ALL).unwrap();
    assert_eq!(bench.table.free_pd(bench.pd), Err(Error::Busy));
    bench.table.deregister(key).unwrap();
    bench.table.retain_pd(bench.pd).unwrap();
    assert_eq!(bench.table.free_pd(bench.pd), Err(Error::Busy));
    bench.table.release_pd(bench.pd).unwrap();
    assert_eq!(bench.table.release_pd(bench.pd), Err(Error::Unknown), "the domain was released before");
    bench.table.free_pd(bench.pd).unwrap();
    assert_eq!(bench.table.free_pd(bench.pd), Err(Error::Unknown));
    assert_eq!(bench.table.retain_pd(bench.pd), Err(Error::Unknown));
    let again = bench.table.register(bench.pd, &[Range::at(&block(64), 0)], ALL);
    assert_eq!(again, Err(Error::Unknown), "a freed domain takes no region");
}

#[test]
fn a_freed_domain_does_not_come_back_under_its_old_number() {
    let bench = Bench::new(Config { max_pds: 1, ..Config::small() });
    assert_eq!(bench.table.alloc_pd(), Err(Error::Full));
    bench.table.free_pd(bench.pd).unwrap();
    let next = bench.table.alloc_pd().unwrap();
    assert_ne!(next, bench.pd);
    let key = bench.table.register(next, &[Range::at(&block(64), 0)], ALL).unwrap();
    assert_eq!(bench.probe(key, 0, 1, ALL), Err(AccessError::WrongPd));
    assert_eq!(bench.probe_as(next, key, 0, 1, ALL), Ok(()));
}

#[test]
fn a_full_table_refuses_and_recovers() {
    let bench =
        Bench::new(Config { max_regions: 3, max_pds: 2, max_ranges: 5, on_nic_bytes: 0, ..Config::small() });
    let bytes = block(64);
    let range = |iova| Range::at(&bytes, iova);
    let register = |ranges: &[Range]| bench.table.register(bench.pd, ranges, ALL);
    let first = register(&[range(0)]).unwrap();
    register(&[range(0), range(64), range(128)]).unwrap();
    assert_eq!(register(&[range(0), range(64)]), Err(Error::Full), "ranges: 4 of 5 are taken");
    register(&[range(0)]).unwrap();
    assert_eq!(bench.table.regions(), 3);
    bench.table.deregister(first).unwrap();
    let again = register(&[range(0)]).unwrap();
    assert_eq!(register(&[range(0)]), Err(Error::Full), "regions and ranges");
    bench.table.deregister(again).unwrap();
    assert_eq!(register(&[range(0), range(64)]), Err(Error::Full));
    bench.table.alloc_pd().unwrap();
    assert_eq!(bench.table.alloc_pd(), Err(Error::Full), "domains");
    assert_eq!(bench.table.on_nic(1).err(), Some(Error::Full), "there is no memory on this NIC");
}

#[test]
fn limits_beyond_the_numbering_are_refused() {
    let refused = |config| Table::new(config).err();
    assert_eq!(refused(Config { max_regions: (1 << 24) + 1, ..Config::small() }), Some(Error::Invalid));
    assert_eq!(refused(Config { max_pds: 1 << 20, ..Config::small() }), Some(Error::Invalid));
}

#[test]
fn ranges_that_no_region_may_have_are_refused() {
    let bench = Bench::small();
    let bytes = block(64);
    let refused =
        |ranges: &[Range]| assert_eq!(bench.table.register(bench.pd, ranges, ALL), Err(Error::Invalid));
    let range = |offset, len, iova| Range { bytes: bytes.clone(), offset, len, iova };
    refused(&[]);
    refused(&[range(0, 0, 0)]);
    refused(&[range(0, 0, 0), range(0, 32, 9)]);
    refused(&[range(0, 65, 0)]);
    refused(&[range(64, 1, 0)]);
    refused(&[range(usize::MAX, 2, 0)]);
    refused(&[range(1, usize::MAX, 0)]);
    refused(&[range(0, 32, 0), range(32, 32, 31)]);
    refused(&[range(32, 32, 31), range(0, 32, 0)]);
    refused(&[range(0, 32, 5), range(0, 32, 5)]);
    assert_eq!(bench.table.regions(), 0);
}

#[test]
fn one_key_may_name_several_ranges() {
    let bench = Bench::small();
    let table = block(64);
    let buffers = block(256);
    let range = |bytes: &Bytes, offset, len, iova| Range { bytes: bytes.clone(), offset, len, iova };
    // Given in no order: a gap after the first, none between the others.
    let ranges = [range(&buffers, 128, 128, 2128), range(&table, 0, 64, 1000), range(&buffers, 0, 128, 2000)];
    let key = bench.table.register(bench.pd, &ranges, ALL).unwrap();
    bench.with(key, 1000, 64, |span| span.write(&[1; 64]));
    bench.with(key, 2000, 128, |span| span.write(&[2; 128]));
    bench.with(key, 2255, 1, |span| span.write(&[3]));
    let mut seen = [0; 256];
    buffers.read(0, &mut seen).unwrap();
    assert_eq!((seen[0], seen[127], seen[128], seen[255]), (2, 2, 0, 3));
    for (va, len) in
        [(999, 1), (1063, 2), (1064, 1), (1999, 1), (1999, 2), (2127, 2), (2256, 1), (0, 1), (u64::MAX, 1)]
    {
        assert_eq!(bench.probe(key, va, len, ALL), Err(AccessError::OutOfBounds), "{len} at {va}");
    }
    assert_eq!(bench.probe(key, 2128, 128, ALL), Ok(()));
    let other = bench.table.alloc_pd().unwrap();
    assert_eq!(bench.probe_as(other, key, 2000, 1, ALL), Err(AccessError::WrongPd));
    assert_eq!(bench.probe(key, 2000, 1, Access::MW_BIND), Err(AccessError::MissingRight));
    bench.table.deregister(key).unwrap();
    assert_eq!(bench.probe(key, 2000, 1, ALL), Err(AccessError::UnknownKey));
}

#[test]
fn zero_based_addresses_count_from_zero() {
    let bench = Bench::small();
    let bytes = block(128);
    let key = bench.table.register(bench.pd, &[Range::whole(&bytes)], ALL | Access::ZERO_BASED).unwrap();
    assert_eq!(bench.probe(key, 0, 128, ALL), Ok(()));
    assert_eq!(bench.probe(key, bytes.address(), 1, ALL), Err(AccessError::OutOfBounds));
    let range = |offset, iova| Range { bytes: bytes.clone(), offset, len: 64, iova };
    let pair = [range(64, 900), range(0, 500)];
    let key = bench.table.register(bench.pd, &pair, ALL | Access::ZERO_BASED).unwrap();
    bench.with(key, 0, 64, |span| span.write(&[1; 64]));
    bench.with(key, 400, 64, |span| span.write(&[2; 64]));
    let mut seen = [0; 128];
    bytes.read(0, &mut seen).unwrap();
    assert_eq!((seen[63], seen[64]), (1, 2));
    assert_eq!(bench.probe(key, 64, 1, ALL), Err(AccessError::OutOfBounds));
}

#[test]
fn a_stale_key_stays_dead_when_its_place_is_taken_again() {
    let bench = Bench::new(Config { max_regions: 1, ..Config::small() });
    let bytes = block(64);
    let mut stale = Vec::new();
    // Sixteen places at least: after twenty turns each was taken again.
    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
        let key = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL).unwrap();
        assert!(stale.iter().all(|old: &Key| *old != key), "a key came back");
        assert_ne!(key.get(), 0);
        assert_eq!(bench.probe(key, 0, 1, ALL), Ok(()));
        for old in stale.iter().rev().take(40) {
            assert_eq!(bench.probe(*old, 0, 1, ALL), Err(AccessError::UnknownKey));
            assert_eq!(bench.table.deregister(*old), Err(Error::Unknown));
        }
        bench.table.deregister(key).unwrap();
        stale.push(key);
    }
}

#[test]
fn deregistering_inside_a_pass_is_refused() {
    let bench = Bench::small();
    let key = bench.table.register(bench.pd, &[Range::whole(&block(64))], ALL).unwrap();
    let second = Biased::new(&bench.table, ());
    for engine in [&bench.engine, &second] {
        let pass = engine.enter();
        assert_eq!(bench.table.deregister(key), Err(Error::InsidePass));
        drop(pass);
    }
    // A pass of another table's engine is no obstacle.
    let elsewhere = Bench::small();
    let pass = elsewhere.engine.enter();
    bench.table.deregister(key).unwrap();
    drop(pass);
}

#[test]
fn a_deregistration_waits_for_the_pass_that_may_hold_a_span() {
    let bench = Bench::small();
    let bytes = block(64);
    let key = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    let returned = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut pass = bench.engine.enter();
        let (_, mem) = pass.parts();
        let span = mem.check(bench.pd, key, 0, 64, ALL).unwrap();
        scope.spawn(|| {
            bench.table.deregister(key).unwrap();
            returned.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        // The key dies first; then the other thread must be waiting for us.
        while mem.probe(bench.pd, key, 0, 1, ALL).is_ok() {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        assert!(!returned.load(std::sync::atomic::Ordering::SeqCst));
        assert_ne!(span.write(&[1; 64]), 0);
        assert_eq!(bench.table.deregister(key), Err(Error::InsidePass));
    });
    assert!(returned.into_inner());
}

#[test]
fn a_region_keeps_its_memory_until_it_is_deregistered() {
    let bench = Bench::small();
    let bytes = block(64);
    let key = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    drop(bytes);
    assert_eq!(bench.with(key, 0, 64, |span| span.write(&[1; 64])), 64);
    assert_eq!(bench.with(key, 63, 1, |span| span.read(&mut [0])), 1);
}

#[test]
fn only_regions_with_the_right_can_be_invalidated() {
    let bench = Bench::small();
    let other = bench.table.alloc_pd().unwrap();
    let bytes = block(64);
    let plain = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    let open = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL | Access::INVALIDATE).unwrap();
    {
        let mut pass = bench.engine.enter();
        let (_, mem) = pass.parts();
        let span = mem.check(bench.pd, open, 0, 64, ALL).unwrap();
        assert_eq!(mem.invalidate(bench.pd, Owner::NOBODY, plain), Err(AccessError::MissingRight));
        assert_eq!(mem.invalidate(other, Owner::NOBODY, open), Err(AccessError::WrongPd));
        assert_eq!(mem.invalidate(bench.pd, Owner::NOBODY, Key::new(0)), Err(AccessError::UnknownKey));
        assert_eq!(mem.invalidate(bench.pd, Owner::NOBODY, open), Ok(()));
        assert_eq!(mem.invalidate(bench.pd, Owner::NOBODY, open), Err(AccessError::UnknownKey));
        assert_eq!(mem.probe(bench.pd, open, 0, 1, ALL), Err(AccessError::UnknownKey));
        assert_eq!(span.write(&[1; 64]), 64, "the span of this pass is still good");
    }
    assert_eq!(bench.table.regions(), 2, "an invalidated region keeps its place");
    bench.table.deregister(open).unwrap();
    assert_eq!(bench.probe(plain, 0, 1, ALL), Ok(()));
}

#[test]
fn memory_on_the_nic_is_registered_like_any_other() {
    let bench = Bench::small();
    let on_nic = bench.table.on_nic(100).unwrap();
    assert_eq!(on_nic.len(), 100);
    let key = bench.table.register(bench.pd, &[Range::at(&on_nic, 0)], ALL).unwrap();
    let host = bench.table.register(bench.pd, &[Range::at(&block(64), 0)], ALL).unwrap();
    let mut pass = bench.engine.enter();
    let (_, mem) = pass.parts();
    let span = mem.check(bench.pd, key, 90, 10, ALL).unwrap();
    assert_eq!(span.write(b"0123456789"), 10);
    assert!(mem.is_on_nic(&span));
    assert!(!mem.is_on_nic(&mem.check(bench.pd, host, 0, 1, ALL).unwrap()));
    assert_eq!(mem.probe(bench.pd, key, 0, 101, ALL), Err(AccessError::OutOfBounds));
    let mut seen = [0; 4];
    on_nic.read(96, &mut seen).unwrap();
    assert_eq!(&seen, b"6789");
}

#[test]
fn memory_on_the_nic_is_lent_and_given_back() {
    let bench = Bench::small();
    let take = |len| bench.table.on_nic(len);
    let parts: Vec<Bytes> = (0..4).map(|_| take(256).unwrap()).collect();
    assert_eq!(take(1).err(), Some(Error::Full));
    assert_eq!(take(0).err(), Some(Error::Invalid));
    parts[2].write(0, &[9; 256]).unwrap();
    let [a, b, c, d] = <[Bytes; 4]>::try_from(parts).unwrap();
    drop(c);
    assert_eq!(take(257).err(), Some(Error::Full));
    drop(a);
    drop(b);
    let joined = take(768).unwrap();
    let mut seen = [1; 768];
    joined.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 768], "new memory is zero");
    // It outlives the table.
    drop(bench);
    joined.write(767, &[1]).unwrap();
    d.write(255, &[1]).unwrap();
}

#[test]
fn a_hundred_thousand_regions_over_the_callers_own_memory() {
    let count = if cfg!(miri) { 30 } else { 100_000 };
    let bench = Bench::new(Config { max_regions: count, max_ranges: count, ..Config::small() });
    let own: Vec<std::sync::atomic::AtomicU64> =
        (0..count as u64).map(std::sync::atomic::AtomicU64::new).collect();
    let register = |at: usize| {
        let word = std::ptr::from_ref(&own[at]).cast_mut().cast::<u8>();
        // SAFETY: the vector outlives the table, and only atomics touch its words.
        unsafe { bench.table.register_raw(bench.pd, word, 8, 0, ALL) }
    };
    let keys: Vec<Key> = (0..count).map(|at| register(at).unwrap()).collect();
    assert_eq!(register(0), Err(Error::Full));
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(bench.with(*key, 0, 8, |span| span.fetch_add64(1)), Ok(at as u64));
    }
    assert!(
        own.iter()
            .enumerate()
            .all(|(at, word)| word.load(std::sync::atomic::Ordering::Relaxed) == at as u64 + 1)
    );
    let mut distinct: Vec<u32> = keys.iter().map(|key| key.get()).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), count);
    for key in keys {
        bench.table.deregister(key).unwrap();
    }
    assert_eq!(bench.table.regions(), 0);
}

/// Regression: a region of no bytes was refused.
#[test]
fn a_region_of_no_bytes_is_registered_and_takes_no_access() {
    let bench = Bench::small();
    let bytes = block(64);
    // SAFETY: no byte is registered.
    let raw = unsafe { bench.table.register_raw(bench.pd, bytes.as_ptr(), 0, u64::MAX, ALL).unwrap() };
    let mut pass = bench.engine.enter();
    let (_, mem) = pass.parts();
    assert!(mem.check(bench.pd, raw, u64::MAX, 0, Access::REMOTE_READ).is_ok());
    for len in [1, 8, usize::MAX] {
        let refused = mem.check(bench.pd, raw, u64::MAX, len, Access::REMOTE_READ).unwrap_err();
        assert_eq!(refused, AccessError::OutOfBounds);
    }
    drop(pass);
    bench.table.deregister(raw).unwrap();
}

#[test]
fn raw_memory_that_cannot_be_is_refused() {
    let bench = Bench::small();
    let refused = |start: *mut u8, len| {
        // SAFETY: refused, so nothing is ever touched.
        assert_eq!(unsafe { bench.table.register_raw(bench.pd, start, len, 0, ALL) }, Err(Error::Invalid));
    };
    refused(std::ptr::null_mut(), 8);
    refused(std::ptr::without_provenance_mut(usize::MAX - 3), 8);
}
