//! Windows: each rule of binding.
use crate::table::tests::{ALL, Bench};
use crate::*;

const A: Owner = Owner::new(0, 17);
const B: Owner = Owner::new(1, 17);
const REMOTE: Access = Access::from_bits(0xe).unwrap();

fn bindable() -> Access {
    ALL | Access::MW_BIND
}

struct Windows {
    bench: Bench,
    bytes: Bytes,
    region: Key,
}

impl Windows {
    fn new() -> Windows {
        let bench = Bench::new(Config { max_windows: 4, ..Config::small() });
        let bytes = Bytes::heap(256).unwrap();
        let region = bench.table.register(bench.pd, &[Range::at(&bytes, 0x1000)], bindable()).unwrap();
        Windows { bench, bytes, region }
    }

    fn window(&self, kind: WindowType) -> Key {
        self.bench.table.alloc_window(self.bench.pd, kind).unwrap()
    }

    /// The whole region through the next key of `window`.
    fn whole(&self, window: Key) -> Binding {
        let va = 0x1000;
        let len = 256;
        let access = REMOTE;
        Binding { window, key: window.next(), region: self.region, va, len, access }
    }

    fn bind(&self, owner: Owner, binding: &Binding) -> Result<(), BindError> {
        let mut pass = self.bench.engine.enter();
        let (_, mem) = pass.parts();
        mem.bind(self.bench.pd, owner, binding)
    }

    fn probe(&self, owner: Owner, key: Key, va: u64, len: usize, access: Access) -> Result<(), AccessError> {
        let mut pass = self.bench.engine.enter();
        let (_, mem) = pass.parts();
        mem.probe_for(self.bench.pd, owner, key, va, len, access)
    }

    fn invalidate(&self, owner: Owner, key: Key) -> Result<(), AccessError> {
        let mut pass = self.bench.engine.enter();
        let (_, mem) = pass.parts();
        mem.invalidate(self.bench.pd, owner, key)
    }
}

#[test]
fn a_window_shows_its_part_with_its_rights_and_no_more() {
    let windows = Windows::new();
    let window = windows.window(WindowType::Type1);
    let part = Binding { va: 0x1040, len: 64, access: Access::REMOTE_READ, ..windows.whole(window) };
    assert_eq!(windows.probe(A, window, 0x1040, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    windows.bind(A, &part).unwrap();
    let probe = |va, len, access| windows.probe(A, part.key, va, len, access);
    assert_eq!(probe(0x1040, 64, Access::REMOTE_READ), Ok(()));
    assert_eq!(probe(0x103f, 1, Access::REMOTE_READ), Err(AccessError::OutOfBounds));
    assert_eq!(probe(0x1040, 65, Access::REMOTE_READ), Err(AccessError::OutOfBounds));
    assert_eq!(probe(0x1080, 1, Access::REMOTE_READ), Err(AccessError::OutOfBounds));
    assert_eq!(probe(0x1040, 64, Access::REMOTE_WRITE), Err(AccessError::MissingRight));
    assert_eq!(windows.probe(A, window, 0x1040, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    windows.bytes.write(64, b"seen").unwrap();
    let mut pass = windows.bench.engine.enter();
    let (_, mem) = pass.parts();
    let mut seen = [0; 4];
    let pd = windows.bench.pd;
    assert_ne!(mem.check_for(pd, B, part.key, 0x1040, 4, Access::REMOTE_READ).unwrap().read(&mut seen), 0);
    assert_eq!(&seen, b"seen", "any queue pair of the domain may read it");
    let other = windows.bench.table.alloc_pd().unwrap();
    for pd in [other, Pd::NONE] {
        let probed = mem.probe_for(pd, A, part.key, 0x1040, 1, Access::REMOTE_READ);
        assert_eq!(probed, Err(AccessError::WrongPd));
    }
}

#[test]
fn a_window_is_no_local_memory() {
    let windows = Windows::new();
    let window = windows.window(WindowType::Type1);
    let whole = windows.whole(window);
    windows.bind(A, &whole).unwrap();
    for local in [Access::NONE, Access::LOCAL_WRITE] {
        assert_eq!(windows.probe(A, whole.key, 0x1000, 1, local), Err(AccessError::MissingRight));
    }
}

#[test]
fn a_window_of_type_2_serves_only_the_queue_pair_that_bound_it() {
    let windows = Windows::new();
    let window = windows.window(WindowType::Type2B);
    let whole = windows.whole(window);
    windows.bind(A, &whole).unwrap();
    assert_eq!(windows.probe(A, whole.key, 0x1000, 256, REMOTE), Ok(()));
    for other in [B, Owner::NOBODY, Owner::new(0, 18)] {
        let refused = Err(AccessError::WrongOwner);
        assert_eq!(windows.probe(other, whole.key, 0x1000, 1, Access::REMOTE_READ), refused);
        assert_eq!(windows.invalidate(other, whole.key), refused);
    }
    assert_eq!(windows.bind(A, &windows.whole(whole.key)), Err(BindError::Bound));
    windows.invalidate(A, whole.key).unwrap();
    assert_eq!(windows.probe(A, whole.key, 0x1000, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    assert_eq!(windows.invalidate(A, whole.key), Err(AccessError::UnknownKey));
    // Free again, for any queue pair, under another key.
    let stale = Binding { key: whole.key, ..windows.whole(whole.key) };
    assert_eq!(windows.bind(B, &stale), Err(BindError::Key));
    let again = windows.whole(whole.key);
    windows.bind(B, &again).unwrap();
    assert_eq!(windows.probe(B, again.key, 0x1000, 1, Access::REMOTE_READ), Ok(()));
    windows.bench.table.unbind_owner(B);
    assert_eq!(windows.probe(B, again.key, 0x1000, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
}

#[test]
fn a_window_of_type_1_is_bound_again_at_once_and_unbound_by_no_bytes() {
    let windows = Windows::new();
    let window = windows.window(WindowType::Type1);
    let first = windows.whole(window);
    windows.bind(A, &first).unwrap();
    assert_eq!(windows.invalidate(A, first.key), Err(AccessError::MissingRight));
    let second = Binding { va: 0x1080, len: 8, ..windows.whole(first.key) };
    windows.bind(B, &second).unwrap();
    assert_eq!(windows.probe(A, first.key, 0x1000, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    assert_eq!(windows.probe(A, second.key, 0x1080, 8, Access::REMOTE_READ), Ok(()));
    let nothing = Binding { len: 0, region: Key::new(0), ..windows.whole(second.key) };
    windows.bind(A, &nothing).unwrap();
    for key in [second.key, nothing.key] {
        assert_eq!(windows.probe(A, key, 0x1080, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    }
    assert_eq!(windows.bench.table.deregister(windows.region), Ok(()));
}

#[test]
fn each_wrong_binding_is_refused_and_changes_nothing() {
    let windows = Windows::new();
    let table = &windows.bench.table;
    let one = windows.window(WindowType::Type1);
    let two = windows.window(WindowType::Type2B);
    let other_pd = table.alloc_pd().unwrap();
    let range = [Range::at(&windows.bytes, 0x1000)];
    let key = |pd, access| table.register(pd, &range, access).unwrap();
    let pd = windows.bench.pd;
    let elsewhere = key(other_pd, bindable());
    let closed = key(pd, ALL);
    let (readable, based) =
        (key(pd, Access::REMOTE_READ | Access::MW_BIND), key(pd, bindable() | Access::ZERO_BASED));
    let null = table.register_null(pd).unwrap();
    let refused = |binding: Binding, expected| {
        for (window, kind) in [(one, 1), (two, 2)] {
            let key = if binding.key == one.next() { window.next() } else { binding.key };
            let window = if binding.window == one { window } else { binding.window };
            let binding = Binding { window, key, ..binding };
            assert_eq!(windows.bind(A, &binding), Err(expected), "type {kind}: {binding:?}");
        }
    };
    let whole = windows.whole(one);
    let beside = Key::new(one.get() ^ 0x8000_0000);
    refused(Binding { window: beside, ..whole }, BindError::UnknownWindow);
    refused(Binding { window: Key::new(0), ..whole }, BindError::UnknownWindow);
    refused(Binding { window: windows.region, ..whole }, BindError::UnknownWindow);
    refused(Binding { access: REMOTE | Access::LOCAL_WRITE, ..whole }, BindError::Access);
    refused(Binding { access: REMOTE | Access::MW_BIND, ..whole }, BindError::Access);
    refused(Binding { region: Key::new(0), ..whole }, BindError::UnknownRegion);
    refused(Binding { region: windows.region.next(), ..whole }, BindError::UnknownRegion);
    refused(Binding { region: elsewhere, ..whole }, BindError::WrongPd);
    refused(Binding { region: closed, ..whole }, BindError::NotBindable);
    refused(Binding { region: based, ..whole }, BindError::NotBindable);
    refused(Binding { region: null, ..whole }, BindError::NotBindable);
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        refused(Binding { region: readable, access, ..whole }, BindError::MissingRight);
    }
    for (va, len) in [(0xfff, 1), (0x1000, 257), (0x10ff, 2), (0x1100, 1), (u64::MAX, 2), (0x1000, u64::MAX)]
    {
        refused(Binding { va, len, ..whole }, BindError::OutOfBounds);
    }
    let pair = windows.whole(two);
    assert_eq!(windows.bind(A, &Binding { len: 0, ..pair }), Err(BindError::Empty));
    let based = Binding { access: REMOTE | Access::ZERO_BASED, ..whole };
    assert_eq!(windows.bind(A, &based), Err(BindError::Access), "type 1 has no zero-based windows");
    let mut pass = windows.bench.engine.enter();
    let (_, mem) = pass.parts();
    assert_eq!(mem.bind(other_pd, A, &whole), Err(BindError::WrongPd));
    drop(pass);
    assert_eq!(windows.probe(A, whole.key, 0x1000, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    table.deregister(windows.region).expect("nothing was bound");
}

#[test]
fn a_bind_gives_the_window_the_low_byte_alone_and_any_of_its_keys_names_it() {
    for kind in [WindowType::Type1, WindowType::Type2B] {
        let windows = Windows::new();
        let first = windows.window(kind);
        let opened = |low: u32| Key::new(first.get() & !0xff | low & 0xff);
        // 17 and 0xdead_beef are keys of no window; the first key is one that no peer has seen yet.
        for (chosen, named) in [(first.get(), first), (17, first), (0xdead_beef, first.next().next())] {
            let binding = Binding { window: named, key: Key::new(chosen), ..windows.whole(first) };
            windows.bind(A, &binding).unwrap();
            assert_eq!(windows.probe(A, opened(chosen), 0x1000, 256, REMOTE), Ok(()), "{chosen:#x}");
            assert_eq!(windows.bench.table.window_key(first), Some(opened(chosen)));
            if kind == WindowType::Type2B {
                windows.invalidate(A, opened(chosen)).unwrap();
                assert_eq!(windows.bind(A, &binding), Err(BindError::Key), "the key of the binding before");
            }
        }
        windows.bench.table.free_window(first).unwrap();
    }
}

#[test]
fn a_zero_based_window_counts_from_zero() {
    let windows = Windows::new();
    let window = windows.window(WindowType::Type2B);
    let access = REMOTE | Access::ZERO_BASED;
    let binding = Binding { va: 0x1010, len: 16, access, ..windows.whole(window) };
    windows.bind(A, &binding).unwrap();
    assert_eq!(windows.probe(A, binding.key, 0, 16, Access::REMOTE_WRITE), Ok(()));
    assert_eq!(windows.probe(A, binding.key, 0, 17, Access::REMOTE_WRITE), Err(AccessError::OutOfBounds));
    let mut pass = windows.bench.engine.enter();
    let (_, mem) = pass.parts();
    let pd = windows.bench.pd;
    assert_ne!(mem.check_for(pd, A, binding.key, 15, 1, Access::REMOTE_WRITE).unwrap().write(&[7]), 0);
    let mut seen = [0; 1];
    windows.bytes.read(0x1f, &mut seen).unwrap();
    assert_eq!(seen, [7]);
}

#[test]
fn a_region_with_windows_bound_cannot_be_deregistered_or_invalidated() {
    let windows = Windows::new();
    let table = &windows.bench.table;
    let open = bindable() | Access::INVALIDATE;
    let region = table.register(windows.bench.pd, &[Range::at(&windows.bytes, 0x1000)], open).unwrap();
    let one = windows.window(WindowType::Type1);
    let two = windows.window(WindowType::Type2B);
    let bind = |window| {
        let binding = Binding { region, ..windows.whole(window) };
        windows.bind(A, &binding).unwrap();
        binding.key
    };
    let first = bind(one);
    let second = bind(two);
    assert_eq!(table.deregister(region), Err(Error::Busy));
    assert_eq!(windows.invalidate(A, region), Err(AccessError::MissingRight));
    windows.invalidate(A, second).unwrap();
    assert_eq!(table.deregister(region), Err(Error::Busy), "one window is still bound");
    assert_eq!(windows.probe(A, region, 0x1000, 256, ALL), Ok(()), "and nothing was done");
    table.free_window(first).unwrap();
    assert_eq!(windows.invalidate(A, region), Ok(()));
    assert_eq!(table.deregister(region), Ok(()));
    assert_eq!(windows.bind(A, &Binding { region, ..windows.whole(second) }), Err(BindError::UnknownRegion));
}

#[test]
fn a_revoked_region_takes_its_windows_with_it() {
    let windows = Windows::new();
    let keys = [WindowType::Type1, WindowType::Type2B].map(|kind| windows.whole(windows.window(kind)));
    keys.iter().for_each(|whole| windows.bind(A, whole).unwrap());
    windows.bench.table.revoke(windows.region).unwrap();
    for whole in keys {
        assert_eq!(windows.probe(A, whole.key, 0x1000, 1, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    }
    assert_eq!(windows.bench.table.windows(), 2, "the windows live on, bound to nothing");
}

#[test]
fn a_full_table_of_windows_refuses_and_recovers() {
    let windows = Windows::new();
    let table = &windows.bench.table;
    let all: Vec<Key> = (0..4).map(|_| windows.window(WindowType::Type1)).collect();
    assert_eq!(table.alloc_window(windows.bench.pd, WindowType::Type2B), Err(Error::Full));
    assert_eq!(table.free_pd(windows.bench.pd), Err(Error::Busy));
    // Any key that the program derived from the window's key names it.
    table.free_window(all[1].next().next()).unwrap();
    assert_eq!(table.free_window(all[1]), Err(Error::Unknown));
    let again = table.alloc_window(windows.bench.pd, WindowType::Type2B).unwrap();
    assert!(all.iter().all(|old| old.index() != again.index()), "another place than the ones just left");
    assert_eq!(table.windows(), 4);
    let stranger = Table::new(Config { max_windows: 1, ..Config::small() }).unwrap();
    assert_eq!(stranger.alloc_window(Pd::NONE, WindowType::Type1), Err(Error::Unknown));
    let beyond = Table::new(Config { max_regions: 1 << 24, max_windows: 1, ..Config::small() });
    assert_eq!(beyond.err(), Some(Error::Invalid));
}

#[test]
fn freeing_a_window_inside_a_pass_is_refused() {
    let windows = Windows::new();
    let window = windows.window(WindowType::Type1);
    let pass = windows.bench.engine.enter();
    assert_eq!(windows.bench.table.free_window(window), Err(Error::InsidePass));
    assert_eq!(windows.bench.table.revoke(windows.region), Err(Error::InsidePass));
    drop(pass);
    windows.bench.table.free_window(window).unwrap();
}

/// A thread binds a window to the two halves of a region in turn; another thread accesses it through every
/// key. Every access that it gets lies within the half that belongs to the key.
#[test]
fn a_window_that_changes_is_never_seen_half_changed() {
    let windows = Windows::new();
    let window = windows.window(WindowType::Type1);
    let turns = if cfg!(miri) { 60 } else { 20_000 };
    let pd = windows.bench.pd;
    let base = windows.bytes.address();
    let key_of = |turn: u32| Key::new(window.get() & !0xff | turn & 0xff);
    let half = |key: Key| u64::from(key.get() & 1) * 128;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let engine = Biased::new(&windows.bench.table, ());
            let mut seen = 0u32;
            let mut turn = 0u32;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                turn = turn.wrapping_add(1);
                let key = key_of(turn);
                let mut pass = engine.enter();
                let (_, mem) = pass.parts();
                let at = 0x1000 + half(key);
                if let Ok(span) = mem.check_for(pd, A, key, at, 128, Access::REMOTE_READ) {
                    assert_eq!(span.as_ptr() as u64, base + half(key), "bytes of another binding");
                    seen += 1;
                }
                let wrong = mem.check_for(pd, A, key, 0x1000 + (128 - half(key)), 1, Access::REMOTE_READ);
                assert!(wrong.is_err(), "the other half");
            }
            seen
        });
        let mut current = window;
        for turn in 0..turns {
            let key = key_of(turn + 1);
            let va = 0x1000 + half(key);
            let len = 128;
            let binding = Binding { window: current, key, va, len, ..windows.whole(window) };
            windows.bind(A, &binding).unwrap();
            current = key;
            if turn % 64 == 0 {
                std::thread::yield_now();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        looker.join().unwrap();
    });
}
