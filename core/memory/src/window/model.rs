//! Random windows against a plain model of their promises.
use crate::table::tests::Bench;
use crate::*;

const OWNERS: [Owner; 3] = [Owner::NOBODY, Owner::new(0, 17), Owner::new(1, 17)];
const MAX: usize = 4;
const LEN: u64 = 256;

struct Region {
    key: Key,
    first: u64,
    access: Access,
}

/// Region, who may use it, first address for peers, bytes, rights.
type Bound = (usize, Option<Owner>, u64, u64, Access);

struct Window {
    kind: WindowType,
    key: Key,
    bound: Option<Bound>,
}

struct Model {
    bench: Bench,
    random: u64,
    bytes: Bytes,
    regions: Vec<Region>,
    windows: Vec<Window>,
    /// Keys that were valid once. They must be refused, unless a later binding uses the same key.
    stale: Vec<Key>,
    met: std::collections::BTreeMap<&'static str, u32>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let bench = Bench::new(Config { max_windows: MAX, key_seed: seed, ..Config::small() });
        let bytes = Bytes::heap(LEN as usize).unwrap();
        let regions = Vec::new();
        let windows = Vec::new();
        let stale = vec![Key::new(0)];
        let mut model =
            Model { bench, random: seed, bytes, regions, windows, stale, met: Default::default() };
        let whole = Access::LOCAL_WRITE | Access::MW_BIND;
        for (first, access) in [(0x1000, whole), (0x9000, Access::MW_BIND), (0x5000, Access::LOCAL_WRITE)] {
            let key = model.register(first, access);
            model.regions.push(Region { key, first, access });
        }
        model
    }

    fn register(&self, first: u64, access: Access) -> Key {
        self.bench.table.register(self.bench.pd, &[Range::at(&self.bytes, first)], access).unwrap()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) as usize) % bound
    }

    fn met(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// Picks a queue pair, since only queue pairs bind and invalidate.
    fn owner(&mut self) -> Owner {
        OWNERS[1 + self.below(2)]
    }

    /// Picks a key, mostly of an existing window, and returns it with the window's index.
    fn pick(&mut self) -> (Key, Option<usize>) {
        if self.windows.is_empty() || self.below(5) == 0 {
            let which = self.below(self.stale.len());
            let stale = self.stale[which];
            return (stale, self.windows.iter().position(|window| window.key == stale));
        }
        let place = self.below(self.windows.len());
        (self.windows[place].key, Some(place))
    }

    fn allocate(&mut self) {
        let kind = [WindowType::Type1, WindowType::Type2B][self.below(2)];
        let made = self.bench.table.alloc_window(self.bench.pd, kind);
        assert_eq!(made.is_ok(), self.windows.len() < MAX);
        match made {
            Ok(key) => self.windows.push(Window { kind, key, bound: None }),
            Err(error) => assert_eq!(error, Error::Full),
        }
        self.met(if made.is_ok() { "made" } else { "full" });
    }

    fn bind(&mut self) {
        let (window, _) = self.pick();
        let owner = self.owner();
        // Mostly a region that windows can be bound to, and a range within its bounds.
        let region = [0, 0, 0, 1, 2][self.below(5)];
        let at = self.below(230) as u64;
        let len = self.below(80) as u64;
        let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_READ | Access::REMOTE_ATOMIC];
        let mut access = rights[self.below(3)];
        if self.below(4) == 0 {
            access |= Access::ZERO_BASED;
        }
        let Region { key: region_key, first, access: has } = self.regions[region];
        // A stale key names its window, too, by its upper 24 bits.
        let place = self.windows.iter().position(|named| named.key.index() == window.index());
        let va = first + at;
        let key = place.map_or(window, |place| self.windows[place].key).next();
        let binding = Binding { window, key, region: region_key, va, len, access };
        let two = place.is_some_and(|place| self.windows[place].kind == WindowType::Type2B);
        let writes = access.contains(Access::REMOTE_WRITE) || access.contains(Access::REMOTE_ATOMIC);
        let shows = has.contains(Access::MW_BIND)
            && (!writes || has.contains(Access::LOCAL_WRITE))
            && at + len <= LEN;
        let fine = place.is_some_and(|place| {
            let free = !two || self.windows[place].bound.is_none();
            free && (two || !access.contains(Access::ZERO_BASED)) && if len == 0 { !two } else { shows }
        });
        let mut pass = self.bench.engine.enter();
        let bound = pass.parts().1.bind(self.bench.pd, owner, &binding);
        drop(pass);
        assert_eq!(bound.is_ok(), fine, "{binding:?}: {bound:?}");
        self.met(if fine { "bound" } else { "not bound" });
        if let Some(window) = place.filter(|_| fine).map(|place| &mut self.windows[place]) {
            let from = if access.contains(Access::ZERO_BASED) { 0 } else { va };
            window.bound = (len > 0).then_some((region, two.then_some(owner), from, len, access));
            self.stale.push(std::mem::replace(&mut window.key, key));
        }
    }

    fn look(&mut self) {
        let (key, place) = self.pick();
        let owner = OWNERS[self.below(3)];
        let want = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC][self.below(3)];
        let bound = place.and_then(|place| self.windows[place].bound);
        let len = 1 + self.below(30);
        let from = bound.map_or(0x1000, |bound| bound.2);
        let va = (from + self.below(50) as u64).saturating_sub(self.below(10) as u64);
        let open = bound.is_some_and(|(_, of, first, bytes, access)| {
            let inside = va >= first && va + len as u64 <= first + bytes;
            of.is_none_or(|of| of == owner) && access.contains(want) && inside
        });
        let mut pass = self.bench.engine.enter();
        let seen = pass.parts().1.probe_for(self.bench.pd, owner, key, va, len, want);
        drop(pass);
        assert_eq!(seen.is_ok(), open, "{key:?} at {va:#x}, {len} bytes: {seen:?}");
        self.met(if open { "open" } else { "closed" });
    }

    fn invalidate(&mut self) {
        let (key, place) = self.pick();
        let owner = self.owner();
        let fine = place.is_some_and(|place| {
            let Window { kind, bound, .. } = self.windows[place];
            kind == WindowType::Type2B && bound.is_some_and(|bound| bound.1 == Some(owner))
        });
        let mut pass = self.bench.engine.enter();
        let done = pass.parts().1.invalidate(self.bench.pd, owner, key);
        drop(pass);
        assert_eq!(done.is_ok(), fine, "{key:?}: {done:?}");
        self.met(if fine { "invalidated" } else { "not invalidated" });
        if let Some(place) = place.filter(|_| fine) {
            self.windows[place].bound = None;
        }
    }

    fn free(&mut self) {
        if self.windows.is_empty() {
            return;
        }
        let place = self.below(self.windows.len());
        let window = self.windows.swap_remove(place);
        self.bench.table.free_window(window.key).unwrap();
        self.stale.push(window.key);
        self.met("freed");
    }

    fn forget_owner(&mut self) {
        let owner = self.owner();
        self.bench.table.unbind_owner(owner);
        for window in &mut self.windows {
            let of_it = window.bound.is_some_and(|bound| bound.1 == Some(owner));
            if of_it {
                window.bound = None;
            }
        }
        self.met("an owner went");
    }

    /// Deregisters a region (if no window is bound to it) or revokes it, and registers it under another key.
    fn end_region(&mut self) {
        let place = self.below(self.regions.len());
        let Region { key, first, access } = self.regions[place];
        let busy = self.windows.iter().any(|window| window.bound.is_some_and(|bound| bound.0 == place));
        let ended = self.bench.table.deregister(key);
        assert_eq!(ended.is_ok(), !busy, "{ended:?}");
        self.met(if busy { "busy" } else { "deregistered" });
        if busy && self.below(2) == 0 {
            return;
        }
        if busy {
            self.bench.table.revoke(key).unwrap();
            let of_it = |window: &&mut Window| window.bound.is_some_and(|bound| bound.0 == place);
            self.windows.iter_mut().filter(of_it).for_each(|window| window.bound = None);
        }
        self.regions[place].key = self.register(first, access);
    }
}

#[test]
fn random_windows_agree_with_a_plain_model() {
    let (seeds, steps) = if cfg!(miri) { (1, 160) } else { (40, 3000) };
    let mut met = std::collections::BTreeMap::new();
    for seed in 1..=seeds {
        let mut model = Model::new(seed);
        for _ in 0..steps {
            match model.below(40) {
                0..3 => model.allocate(),
                3..15 => model.bind(),
                15..20 => model.invalidate(),
                20..22 => model.free(),
                22 => model.forget_owner(),
                23 => model.end_region(),
                _ => model.look(),
            }
        }
        assert_eq!(model.bench.table.windows(), model.windows.len());
        model.met.iter().for_each(|(what, times)| *met.entry(*what).or_insert(0) += times);
    }
    for what in ["made", "bound", "not bound", "open", "closed", "invalidated", "not invalidated", "freed"] {
        assert!(met.contains_key(what), "{what} never occurred: {met:?}");
    }
    for what in ["full", "an owner went", "busy", "deregistered"] {
        assert!(cfg!(miri) || met.contains_key(what), "{what} never occurred: {met:?}");
    }
}
