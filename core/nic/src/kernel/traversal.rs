//! The traversal kernel (StRoM paper, §6.2 and Table 2): follows pointers from element to element until a
//! key matches, then returns the value.
//!
//! Positions count words of 4 bytes; an element has at most 64 bytes and a key 8. A [`Shape`] extends the
//! single next-pointer of Table 2.

use remora_wire::strom::Status;

use super::filter::Predicate;
use super::number::{long, word};
use super::{Kernel, Progress, Streams, What};

/// Maximum size of an element in bytes.
const ELEMENT: usize = 64;
/// Elements of a graph that are remembered.
const REMEMBERED: usize = 256;
/// Bytes of the parameters of Table 2, and with a shape.
const TABLE_2: usize = 32;
const EXTENDED: usize = 40;

/// The location of an element's successors.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// An element has a single next-pointer (Table 2), as in a list or in the overflow list of a hash table.
    #[default]
    List,
    /// Consecutive pointers from the next-pointer's position on. Pointer k is followed if k of the element's
    /// keys are less than the searched key. A binary tree has one key and two pointers, a node of a B-tree
    /// has more. The word at `count` limits the number of keys; without it, all keys in the mask count.
    Ordered {
        /// Position of the number of keys.
        count: Option<u8>,
    },
    /// A skip list: pointers to the next element of each level, the lowest first. A level is left when its
    /// next element's key is greater than the searched key.
    Skip {
        /// Levels of the element that the walk begins at.
        levels: u8,
    },
    /// A graph: all pointers are followed, breadth first, and each element is visited once. At most 256
    /// elements are remembered.
    Graph {
        /// Pointers of an element; those that are 0 lead nowhere.
        edges: u8,
    },
}

/// Parameters of a walk, little-endian.
///
/// ```text
///  0 address (8)        8 value's size (4)   12 key mask (2)   14 predicate
/// 15 bit 0: the value's position is relative to the key's; bit 1: there is a next-pointer   16 key (8)
/// 24 value's position   25 next's position   26 element's size in bytes   27 0   28 elements at most (4)
/// 32 shape: 0 list, 1 ordered, 2 skip list, 3 graph   33 levels or edges
/// 34 position of the count, ff: none   35 0 (5)
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Address of the first element (remoteAddress).
    pub address: u64,
    /// Size of the value in bytes.
    pub value_size: u32,
    /// A bit for each position at which a key stands.
    pub key_mask: u16,
    /// Comparison of the element's key with the searched key: *less* means that the element's key is less.
    pub predicate: Predicate,
    /// The key to find.
    pub key: u64,
    /// Position of the value's address.
    pub value_position: u8,
    /// True if `value_position` is relative to the matching key.
    pub relative: bool,
    /// Position of the next element's address, if there is one.
    pub next: Option<u8>,
    /// Size of an element in bytes.
    pub element: u8,
    /// Maximum number of elements to visit.
    pub most: u32,
    /// Structure that determines the successors.
    pub shape: Shape,
}

impl Walk {
    /// Returns the encoded parameters.
    pub fn emit(&self) -> [u8; EXTENDED] {
        let mut bytes = [0; EXTENDED];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.value_size.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.key_mask.to_le_bytes());
        bytes[14] = self.predicate as u8;
        bytes[15] = u8::from(self.relative) | u8::from(self.next.is_some()) << 1;
        bytes[16..24].copy_from_slice(&self.key.to_le_bytes());
        (bytes[24], bytes[25], bytes[26]) = (self.value_position, self.next.unwrap_or(0), self.element);
        bytes[28..32].copy_from_slice(&self.most.to_le_bytes());
        (bytes[32], bytes[33], bytes[34]) = match self.shape {
            Shape::List => (0, 0, 0),
            Shape::Ordered { count } => (1, 0, count.unwrap_or(0xff)),
            Shape::Skip { levels } => (2, levels, 0),
            Shape::Graph { edges } => (3, edges, 0),
        };
        bytes
    }

    /// From parameters, with a shape or without.
    pub fn parse(bytes: &[u8]) -> Option<Walk> {
        let shape = match (bytes.len(), bytes.get(TABLE_2)) {
            (TABLE_2, _) | (EXTENDED, Some(0)) => Shape::List,
            (EXTENDED, Some(1)) => Shape::Ordered { count: (bytes[34] != 0xff).then_some(bytes[34]) },
            (EXTENDED, Some(2)) => Shape::Skip { levels: bytes[33] },
            (EXTENDED, Some(3)) => Shape::Graph { edges: bytes[33] },
            _ => return None,
        };
        let walk = Walk {
            address: long(bytes, 0)?,
            value_size: word(bytes, 8)?,
            key_mask: word(bytes, 12)? as u16,
            predicate: Predicate::of(bytes[14])?,
            key: long(bytes, 16)?,
            value_position: bytes[24],
            relative: bytes[15] & 1 != 0,
            next: (bytes[15] & 2 != 0).then_some(bytes[25]),
            element: bytes[26],
            most: word(bytes, 28)?,
            shape,
        };
        let fits = bytes[15] < 4 && (1..=ELEMENT as u8).contains(&walk.element);
        fits.then_some(walk)
    }

    /// The positions of keys, in order.
    fn keys(&self, element: &[u8]) -> impl Iterator<Item = (u8, u64)> {
        let entry = |position: u8| long(element, 4 * usize::from(position)).map(|key| (position, key));
        (0..16).filter(|position| self.key_mask & 1 << position != 0).filter_map(entry)
    }

    /// Keys of an element that count.
    fn count(&self, element: &[u8]) -> usize {
        match self.shape {
            Shape::Ordered { count: Some(position) } => {
                word(element, 4 * usize::from(position)).map_or(0, |count| count as usize)
            }
            _ => usize::MAX,
        }
    }

    /// Address of the value, if a key of the element fits.
    fn value(&self, element: &[u8]) -> Option<u64> {
        let mut keys = self.keys(element).take(self.count(element));
        let (position, _) = keys.find(|(_, key)| self.predicate.holds(*key, self.key))?;
        let base = if self.relative { usize::from(position) } else { 0 };
        long(element, 4 * (base + usize::from(self.value_position)))
    }

    /// The pointer with this number, of those from the next-pointer's position on; none if it is 0.
    fn pointer(&self, element: &[u8], number: usize) -> Option<u64> {
        let offset = 4 * (usize::from(self.next?) + 2 * number);
        long(element, offset).filter(|address| *address != 0)
    }
}

/// The traversal kernel.
pub struct Traversal {
    walk: Option<Walk>,
    /// Number of elements visited.
    seen: u32,
    /// Previous element of a skip list.
    before: [u8; ELEMENT],
    /// Current level of a skip list.
    level: usize,
    /// Elements of a graph that were found; the first `done` of them were visited.
    elements: Box<[u64]>,
    count: usize,
    done: usize,
}

impl Default for Traversal {
    fn default() -> Traversal {
        Traversal {
            walk: None,
            seen: 0,
            before: [0; ELEMENT],
            level: 0,
            elements: vec![0; REMEMBERED].into_boxed_slice(),
            count: 0,
            done: 0,
        }
    }
}

/// The next element of a walk.
enum Next {
    Element(u64),
    Nowhere,
    TooFar,
}

impl Traversal {
    fn begin(&mut self, walk: Walk) {
        (self.seen, self.count, self.done) = (0, 0, 0);
        self.level = match walk.shape {
            Shape::Skip { levels } => usize::from(levels),
            _ => 0,
        };
        self.before = [0; ELEMENT];
        self.walk = Some(walk);
        if let Shape::Graph { .. } = walk.shape {
            (self.elements[0], self.count, self.done) = (walk.address, 1, 1);
        }
    }

    /// Returns the next element after one that does not match.
    fn next(&mut self, walk: &Walk, element: &[u8]) -> Next {
        let step = |address: Option<u64>| address.map_or(Next::Nowhere, Next::Element);
        match walk.shape {
            Shape::List => step(walk.pointer(element, 0)),
            Shape::Ordered { .. } => {
                let keys = walk.keys(element).take(walk.count(element));
                step(walk.pointer(element, keys.filter(|(_, key)| *key < walk.key).count()))
            }
            Shape::Skip { .. } => step(self.down(walk, element)),
            Shape::Graph { edges } => {
                for edge in 0..usize::from(edges) {
                    let Some(address) = walk.pointer(element, edge) else { continue };
                    if self.elements[..self.count].contains(&address) {
                        continue;
                    }
                    let Some(buffer) = self.elements.get_mut(self.count) else { return Next::TooFar };
                    *buffer = address;
                    self.count += 1;
                }
                let next = (self.done < self.count).then(|| self.elements[self.done]);
                self.done += 1;
                step(next)
            }
        }
    }

    /// The next element of a skip list: of the same level if the walk has not gone too far, else of the level
    /// below.
    fn down(&mut self, walk: &Walk, element: &[u8]) -> Option<u64> {
        let overshot = self.seen > 1 && walk.keys(element).next().is_some_and(|(_, key)| key > walk.key);
        if !overshot {
            self.before[..element.len()].copy_from_slice(element);
            self.level = self.level.max(1);
            let next = walk.pointer(&self.before, self.level - 1);
            if next.is_some() {
                return next;
            }
        }
        while self.level > 1 {
            self.level -= 1;
            let next = walk.pointer(&self.before, self.level - 1);
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// An element has come.
    fn look(&mut self, walk: Walk, streams: &mut Streams<'_, '_>) {
        let mut element = [0; ELEMENT];
        let len = usize::from(walk.element);
        match streams.data() {
            Some(data) if data.len() == len => element[..len].copy_from_slice(data),
            _ => return,
        }
        let element = &element[..len];
        self.seen += 1;
        if let Some(value) = walk.value(element) {
            if streams.answer(Status::DONE, walk.value_size) {
                streams.read_to_wire(value, walk.value_size);
            }
            self.walk = None;
            return;
        }
        let ended = match self.next(&walk, element) {
            Next::Element(_) if self.seen >= walk.most => Status::TOO_LONG,
            Next::Element(address) => return streams.read(address, len as u32),
            Next::Nowhere => Status::MISS,
            Next::TooFar => Status::NO_ROOM,
        };
        streams.answer(ended, 0);
        self.walk = None;
    }
}

impl Kernel for Traversal {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if let Some(walk) = self.walk {
            self.look(walk, streams);
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        match (input.what, Walk::parse(input.bytes)) {
            (What::Params, Some(walk)) if walk.most > 0 => {
                self.begin(walk);
                streams.read(walk.address, u32::from(walk.element));
            }
            _ if input.last => {
                streams.answer(Status::BAD_PARAMS, 0);
            }
            _ => {}
        }
        Progress::Rests
    }

    fn reset(&mut self) {
        self.walk = None;
    }
}
