//! Random operations against a plain model of a table's promises.
use super::tests::Bench;
use crate::*;

const BLOCK: usize = 256;
const BLOCKS: usize = 3;

/// A region as the model sees it.
struct Region {
    key: Key,
    pd: usize,
    access: Access,
    /// (first address, block, offset, length)
    ranges: Vec<(u64, usize, usize, usize)>,
    valid: bool,
}

struct Model {
    bench: Bench,
    random: u64,
    pds: Vec<Pd>,
    blocks: Vec<Bytes>,
    bytes: Vec<[u8; BLOCK]>,
    live: Vec<Region>,
    dead: Vec<Key>,
    /// Number of times that each outcome occurred; the test requires every outcome at least once.
    met: std::collections::BTreeMap<&'static str, u32>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let bench = Bench::new(Config {
            max_regions: 6,
            max_pds: 3,
            max_ranges: 12,
            on_nic_bytes: 512,
            key_seed: seed,
            ..Config::small()
        });
        let pds = vec![bench.pd, bench.table.alloc_pd().unwrap(), bench.table.alloc_pd().unwrap()];
        let mut blocks: Vec<Bytes> = (1..BLOCKS).map(|_| Bytes::heap(BLOCK).unwrap()).collect();
        blocks.push(bench.table.on_nic(BLOCK).unwrap());
        let bytes = vec![[0; BLOCK]; BLOCKS];
        Model { bench, random: seed, pds, blocks, bytes, live: vec![], dead: vec![], met: Default::default() }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) as usize) % bound
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    fn access(&mut self) -> Access {
        let mut access = Access::from_bits(self.below(16) as u32).unwrap();
        if self.below(3) == 0 {
            access |= Access::INVALIDATE;
        }
        access
    }

    fn register(&mut self) {
        let pd = self.below(3);
        let access = self.access();
        let high = self.below(5) == 0;
        let mut next = if high { u64::MAX - 600 } else { self.below(1000) as u64 };
        let mut ranges = Vec::new();
        for _ in 0..1 + self.below(3) {
            let block = self.below(BLOCKS);
            let offset = self.below(BLOCK);
            let len = 1 + self.below(BLOCK - offset);
            next += self.below(3) as u64 * 8;
            ranges.push((next, block, offset, len));
            next = next.saturating_add(len as u64);
        }
        let wraps = ranges.iter().any(|(iova, _, _, len)| iova.checked_add(*len as u64 - 1).is_none());
        let overlaps = ranges.windows(2).any(|pair| pair[1].0 - pair[0].0 < pair[0].3 as u64);
        let given: Vec<Range> = ranges
            .iter()
            .rev()
            .map(|&(iova, block, offset, len)| Range { bytes: self.blocks[block].clone(), offset, len, iova })
            .collect();
        let result = self.bench.table.register(self.pds[pd], &given, access);
        let held: usize = self.live.iter().map(|region| region.ranges.len()).sum();
        let forbidden = access.bits() & 1 == 0 && access.bits() & 0b1010 != 0;
        match result {
            Ok(key) => {
                assert!(
                    !wraps && !overlaps && !forbidden && self.live.len() < 6 && held + ranges.len() <= 12
                );
                assert!(!self.dead.contains(&key) && self.live.iter().all(|region| region.key != key));
                self.live.push(Region { key, pd, access, ranges, valid: true });
                self.meet("registered");
            }
            Err(Error::Invalid) => {
                assert!(wraps || overlaps || forbidden);
                self.meet("invalid");
            }
            Err(Error::Full) => {
                assert!(self.live.len() == 6 || held + ranges.len() > 12);
                self.meet("full");
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn deregister(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.below(self.live.len());
        let region = self.live.swap_remove(at);
        self.bench.table.deregister(region.key).unwrap();
        self.dead.push(region.key);
        self.meet("deregistered");
    }

    fn invalidate(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.below(self.live.len());
        let pd = self.below(3);
        let region = &mut self.live[at];
        let expected = if !region.valid {
            Err(AccessError::UnknownKey)
        } else if region.pd != pd {
            Err(AccessError::WrongPd)
        } else if !region.access.contains(Access::INVALIDATE) {
            Err(AccessError::MissingRight)
        } else {
            region.valid = false;
            Ok(())
        };
        let mut pass = self.bench.engine.enter();
        let (_, mem) = pass.parts();
        assert_eq!(mem.invalidate(self.pds[pd], Owner::NOBODY, region.key), expected);
    }

    /// Returns the (block, offset) of the access according to the model.
    fn expected(
        &self,
        pd: usize,
        key: Key,
        va: u64,
        len: usize,
        access: Access,
    ) -> Result<(usize, usize), AccessError> {
        let region = self
            .live
            .iter()
            .find(|region| region.key == key && region.valid)
            .ok_or(AccessError::UnknownKey)?;
        if region.pd != pd {
            return Err(AccessError::WrongPd);
        }
        if access.bits() & !region.access.bits() != 0 {
            return Err(AccessError::MissingRight);
        }
        let inside = |&&(iova, _, _, size): &&(u64, usize, usize, usize)| {
            va >= iova && u128::from(va) + len as u128 <= u128::from(iova) + size as u128
        };
        let (iova, block, offset, _) = region.ranges.iter().find(inside).ok_or(AccessError::OutOfBounds)?;
        Ok((*block, offset + (va - iova) as usize))
    }

    fn some_key(&mut self) -> (Key, usize, u64) {
        let kind = self.below(20);
        if kind == 0 && !self.dead.is_empty() {
            let at = self.below(self.dead.len());
            return (self.dead[at], self.below(3), 0);
        }
        if kind == 1 || self.live.is_empty() {
            return (Key::new(self.below(1 << 31) as u32), self.below(3), 0);
        }
        let at = self.below(self.live.len());
        let pd = if kind == 2 { self.below(3) } else { self.live[at].pd };
        let piece = self.below(self.live[at].ranges.len());
        let (iova, _, _, size) = self.live[at].ranges[piece];
        let inside = self.below(size) as u64;
        (self.live[at].key, pd, iova.wrapping_add(inside).wrapping_sub(u64::from(kind == 3)))
    }

    /// Makes one access; its result and the bytes that it moves must agree with the model.
    fn touch(&mut self) {
        let (key, pd, va) = self.some_key();
        let len = match self.below(12) {
            0 => usize::MAX - self.below(3),
            1 => self.below(600) + 1,
            _ => self.below(24) + 1,
        };
        let access = Access::from_bits([0, 1, 2, 4, 8, 3][self.below(6)]).unwrap();
        let fill = self.below(256) as u8;
        let expected = self.expected(pd, key, va, len, access);
        let mut pass = self.bench.engine.enter();
        let (_, mem) = pass.parts();
        let outcome = match (mem.check(self.pds[pd], key, va, len, access), expected) {
            (Ok(span), Ok((block, at))) => {
                assert_eq!(span.len(), len);
                let mut seen = vec![0; len];
                assert_eq!(span.read(&mut seen), len);
                assert_eq!(seen, self.bytes[block][at..at + len]);
                assert_eq!(span.write(&vec![fill; len]), len);
                self.bytes[block][at..at + len].fill(fill);
                "allowed"
            }
            (Err(got), Err(wanted)) => {
                assert_eq!(got, wanted, "{key:?} {va:#x} {len}");
                match got {
                    AccessError::UnknownKey => "unknown key",
                    AccessError::WrongPd => "wrong domain",
                    AccessError::WrongOwner => "wrong owner",
                    AccessError::MissingRight => "missing right",
                    AccessError::OutOfBounds => "out of bounds",
                    AccessError::Misaligned => "misaligned",
                    AccessError::PageFault => "page fault",
                }
            }
            (got, wanted) => {
                panic!("{key:?} {va:#x} {len} {access:?}: {got:?}, but the model says {wanted:?}")
            }
        };
        drop(pass);
        self.meet(outcome);
    }

    fn check_all_bytes(&self) {
        for (block, expected) in self.blocks.iter().zip(&self.bytes) {
            let mut seen = [0; BLOCK];
            block.read(0, &mut seen).unwrap();
            assert_eq!(&seen, expected);
        }
    }
}

#[test]
fn random_operations_agree_with_a_plain_model() {
    let (seeds, steps) = if cfg!(miri) { (1, 300) } else { (200, 4000) };
    let mut met = std::collections::BTreeMap::new();
    for seed in 1..=seeds {
        let mut model = Model::new(seed);
        for _ in 0..steps {
            match model.below(40) {
                0..4 => model.register(),
                4..7 => model.deregister(),
                7 => model.invalidate(),
                _ => model.touch(),
            }
        }
        model.check_all_bytes();
        model.met.iter().for_each(|(what, times)| *met.entry(*what).or_insert(0) += times);
    }
    let wanted = [
        "allowed",
        "unknown key",
        "wrong domain",
        "missing right",
        "out of bounds",
        "registered",
        "deregistered",
    ];
    for what in wanted.iter().chain(["invalid", "full"].iter().filter(|_| !cfg!(miri))) {
        assert!(met.get(what).is_some_and(|times| *times > 0), "{what} never occurred: {met:?}");
    }
}
