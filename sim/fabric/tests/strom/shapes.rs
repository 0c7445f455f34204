//! The traversal kernel over lists, trees, skip lists and graphs, compared with a plain map.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use remora_fault::Random;
use remora_nic::kernel::{Predicate, Shape, Status, Traversal, Walk};

use crate::bench::{Answer, Bench, OPCODE, every_seed};

/// Offset of the values, of 16 bytes each.
const VALUES: usize = 1 << 18;

/// An element under construction: words of 4 bytes.
#[derive(Clone)]
struct Element([u8; 64]);

impl Element {
    fn put(&mut self, position: usize, number: u64) {
        self.0[4 * position..4 * position + 8].copy_from_slice(&number.to_le_bytes());
    }
}

fn element() -> Element {
    Element([0; 64])
}

fn at(bench: &Bench, number: usize) -> u64 {
    bench.there.remote(64 * number).addr
}

fn place(bench: &Bench, number: usize, element: &Element) {
    bench.there.store(64 * number, &element.0);
}

/// Stores the value of a key and returns its address.
fn value(bench: &Bench, key: u64) -> u64 {
    let offset = VALUES + 16 * key as usize;
    bench.there.store(offset, &bytes(key));
    bench.there.remote(offset).addr
}

fn bytes(key: u64) -> Vec<u8> {
    [key.to_le_bytes(), (!key).to_le_bytes()].concat()
}

/// Requests these keys together, and checks that exactly those for which `has` holds are found. Counts both.
fn ask(bench: &mut Bench, walk: &Walk, keys: &[u64], has: impl Fn(u64) -> bool) -> [u64; 2] {
    for (tag, key) in keys.iter().enumerate() {
        bench.rpc(OPCODE, tag as u32, &Walk { key: *key, ..*walk }.emit());
    }
    let answers = bench.run();
    let mut counts = [0; 2];
    for (tag, key) in keys.iter().enumerate() {
        let wanted = match has(*key) {
            true => Answer { status: Status::DONE, bytes: bytes(*key) },
            false => Answer { status: Status::MISS, bytes: Vec::new() },
        };
        assert_eq!(answers.get(&(tag as u32)), Some(&wanted), "key {key}");
        counts[usize::from(!has(*key))] += 1;
    }
    counts
}

/// Returns the walk of the paper's list: key at word 0, next at word 2, value at word 4.
pub(crate) fn list(address: u64) -> Walk {
    Walk {
        address,
        value_size: 16,
        key_mask: 1,
        predicate: Predicate::Equal,
        key: 0,
        value_position: 4,
        relative: false,
        next: Some(2),
        element: 24,
        most: 1000,
        shape: Shape::List,
    }
}

/// Returns different keys below 64, and eight keys to request.
fn keys(random: &mut Random) -> (Vec<u64>, Vec<u64>) {
    let mut keys: Vec<u64> = (0..64).collect();
    for index in 0..keys.len() {
        keys.swap(index, random.below(64) as usize);
    }
    keys.truncate(1 + random.below(40) as usize);
    (keys, (0..8).map(|_| random.below(64)).collect())
}

#[test]
fn the_lists_of_the_paper() {
    every_seed::<2, Traversal>(|bench, random| {
        let (keys, asked) = keys(random);
        for (number, key) in keys.iter().enumerate() {
            let mut node = element();
            node.put(0, *key);
            node.put(2, if number + 1 < keys.len() { at(bench, number + 1) } else { 0 });
            node.put(4, value(bench, *key));
            place(bench, number, &node);
        }
        let walk = list(at(bench, 0));
        ask(bench, &walk, &asked, |key| keys.contains(&key))
    });
}

/// Three keys with their values beside them, and a link to the next slot.
#[test]
fn hash_tables_with_several_keys_an_element_and_positions_beside_the_key() {
    every_seed::<2, Traversal>(|bench, random| {
        let (keys, asked) = keys(random);
        let count = keys.chunks(3).len();
        for (number, three) in keys.chunks(3).enumerate() {
            let mut slot = element();
            for bucket in 0..3 {
                let key = three.get(bucket).copied();
                slot.put(4 * bucket, key.unwrap_or(u64::MAX));
                slot.put(4 * bucket + 2, key.map_or(0, |key| value(bench, key)));
            }
            slot.put(12, if number + 1 < count { at(bench, number + 1) } else { 0 });
            place(bench, number, &slot);
        }
        let chained = Walk {
            key_mask: 1 | 1 << 4 | 1 << 8,
            relative: true,
            value_position: 2,
            next: Some(12),
            element: 64,
            ..list(at(bench, 0))
        };
        let answers = ask(bench, &chained, &asked, |key| keys.contains(&key));
        let alone = Walk { next: None, ..chained };
        ask(bench, &alone, &asked, |key| keys[..keys.len().min(3)].contains(&key));
        answers
    });
}

/// A tree built by insertion: key at word 0, value at word 2, children at words 4 and 6.
#[test]
fn binary_trees() {
    every_seed::<2, Traversal>(|bench, random| {
        let (keys, asked) = keys(random);
        let mut nodes: Vec<(u64, [usize; 2])> = Vec::new();
        for key in &keys {
            let mut current = 0;
            let new = nodes.len();
            nodes.push((*key, [0; 2]));
            loop {
                if new == 0 {
                    break;
                }
                let side = usize::from(*key > nodes[current].0);
                match nodes[current].1[side] {
                    0 => {
                        nodes[current].1[side] = new;
                        break;
                    }
                    next => current = next,
                }
            }
        }
        for (number, (key, children)) in nodes.iter().enumerate() {
            let mut node = element();
            node.put(0, *key);
            node.put(2, value(bench, *key));
            for (side, child) in children.iter().enumerate() {
                node.put(4 + 2 * side, if *child == 0 { 0 } else { at(bench, *child) });
            }
            place(bench, number, &node);
        }
        let shape = Shape::Ordered { count: None };
        let walk = Walk { value_position: 2, next: Some(4), element: 32, shape, ..list(at(bench, 0)) };
        ask(bench, &walk, &asked, |key| keys.contains(&key))
    });
}

/// Two levels of nodes with up to three keys: keys at words 0, 2, 4, children from word 6 on, their number at
/// word 14. Leaves have values instead, 6 words after their keys.
#[test]
fn nodes_of_a_tree_with_several_keys() {
    every_seed::<2, Traversal>(|bench, random| {
        let (mut keys, asked) = keys(random);
        keys.truncate(12);
        keys.sort_unstable();
        let leaves: Vec<&[u64]> = keys.chunks(3).collect();
        let node = |keys: &[u64], behind: &dyn Fn(usize) -> u64, count: usize| {
            let mut node = element();
            for (number, key) in keys.iter().enumerate() {
                node.put(2 * number, *key);
            }
            (0..count).for_each(|number| node.put(6 + 2 * number, behind(number)));
            node.0[56..60].copy_from_slice(&(keys.len() as u32).to_le_bytes());
            node
        };
        // The root's keys are the greatest ones of all leaves but the last. It has no values, so it must not
        // end the walk.
        let parts: Vec<u64> = leaves[..leaves.len() - 1].iter().map(|leaf| leaf[leaf.len() - 1]).collect();
        let root = node(&parts, &|number| at(bench, number + 1), leaves.len());
        for (number, leaf) in leaves.iter().enumerate() {
            let values = |number: usize| value(bench, leaf[number]);
            place(bench, number + 1, &node(leaf, &values, leaf.len()));
        }
        place(bench, 0, &root);
        let shape = Shape::Ordered { count: Some(14) };
        let whole = Walk {
            key_mask: 0b10101,
            relative: true,
            value_position: 6,
            next: Some(6),
            element: 64,
            shape,
            ..list(at(bench, 0))
        };
        // A key that is also in the root would match there.
        let in_leaves: Vec<u64> = asked.iter().copied().filter(|key| !parts.contains(key)).collect();
        // Leaves have values where the root has children: a walk ends at leaves by the limit on elements.
        for (tag, key) in in_leaves.iter().enumerate() {
            bench.rpc(OPCODE, tag as u32, &Walk { key: *key, most: 2, ..whole }.emit());
        }
        let answers = bench.run();
        let mut counts = [0; 2];
        for (tag, key) in in_leaves.iter().enumerate() {
            let answer = &answers[&(tag as u32)];
            if keys.contains(key) {
                assert_eq!(answer, &Answer { status: Status::DONE, bytes: bytes(*key) });
                counts[0] += 1;
            } else {
                assert!(matches!(answer.status, Status::MISS | Status::TOO_LONG), "{answer:?}");
                counts[1] += 1;
            }
        }
        counts
    });
}

/// Key at word 0, value at word 2, pointers of four levels from word 4 on. The first element is a head
/// without a key.
#[test]
fn skip_lists() {
    every_seed::<2, Traversal>(|bench, random| {
        let (mut keys, asked) = keys(random);
        keys.sort_unstable();
        let levels: Vec<usize> =
            keys.iter().map(|_| 1 + (random.below(8) as u8).trailing_ones() as usize).collect();
        let next = |bench: &Bench, first: usize, level: usize| {
            let next = (first..keys.len()).find(|number| levels[*number] > level);
            next.map_or(0, |number| at(bench, number + 1))
        };
        let mut head = element();
        head.put(0, u64::MAX);
        (0..4).for_each(|level| head.put(4 + 2 * level, next(bench, 0, level)));
        place(bench, 0, &head);
        for (number, key) in keys.iter().enumerate() {
            let mut one = element();
            one.put(0, *key);
            one.put(2, value(bench, *key));
            (0..levels[number]).for_each(|level| one.put(4 + 2 * level, next(bench, number + 1, level)));
            place(bench, number + 1, &one);
        }
        let shape = Shape::Skip { levels: 4 };
        let walk = Walk { value_position: 2, next: Some(4), element: 64, shape, ..list(at(bench, 0)) };
        ask(bench, &walk, &asked, |key| keys.contains(&key))
    });
}

/// Key at word 0, value at word 2, four edges from word 4 on. Some edges have no target, and there are
/// cycles.
#[test]
fn graphs() {
    every_seed::<2, Traversal>(|bench, random| {
        let (keys, asked) = keys(random);
        let mut edges: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, key) in keys.iter().enumerate() {
            let mut node = element();
            node.put(0, *key);
            node.put(2, value(bench, *key));
            for edge in 0..4 {
                let neighbour = random.below(2 * keys.len() as u64) as usize;
                if neighbour < keys.len() {
                    edges.entry(number).or_default().push(neighbour);
                    node.put(4 + 2 * edge, at(bench, neighbour));
                }
            }
            place(bench, number, &node);
        }
        let mut reached = BTreeSet::from([0]);
        let mut line = VecDeque::from([0]);
        while let Some(number) = line.pop_front() {
            for neighbour in edges.get(&number).into_iter().flatten() {
                if reached.insert(*neighbour) {
                    line.push_back(*neighbour);
                }
            }
        }
        let shape = Shape::Graph { edges: 4 };
        let walk = Walk { value_position: 2, next: Some(4), element: 48, shape, ..list(at(bench, 0)) };
        let has =
            |key| keys.iter().position(|other| *other == key).is_some_and(|index| reached.contains(&index));
        ask(bench, &walk, &asked, has)
    });
}

#[test]
fn predicates_and_circles() {
    for mut bench in Bench::arms() {
        bench.deploy(vec![Box::new(Traversal::default())]);
        for number in 0..4 {
            let mut one = element();
            one.put(0, 10 * number as u64);
            one.put(2, at(&bench, (number + 1) % 4));
            one.put(4, value(&bench, 10 * number as u64));
            place(&bench, number, &one);
        }
        let walk = Walk { key: 15, ..list(at(&bench, 0)) };
        let answer = |key| Answer { status: Status::DONE, bytes: bytes(key) };
        let cases = [
            (Walk { predicate: Predicate::Less, ..walk }, answer(0)),
            (Walk { predicate: Predicate::Greater, ..walk }, answer(20)),
            (Walk { predicate: Predicate::NotEqual, key: 0, ..walk }, answer(10)),
            (walk, Answer { status: Status::TOO_LONG, bytes: Vec::new() }),
            (Walk { element: 65, ..walk }, Answer { status: Status::BAD_PARAMS, bytes: Vec::new() }),
        ];
        for (walk, wanted) in cases {
            bench.rpc(OPCODE, 1, &walk.emit());
            assert_eq!(bench.run()[&1], wanted, "{walk:?}");
        }
        // The parameters of Table 2 alone, without a shape.
        bench.rpc(OPCODE, 1, &Walk { key: 30, ..walk }.emit()[..32]);
        assert_eq!(bench.run()[&1], answer(30));
    }
}
