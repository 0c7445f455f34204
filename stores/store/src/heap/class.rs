//! Size classes: contiguous buffers of one size, with a free list per class.

use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// Maximum number of classes of a heap.
pub const MAX_CLASSES: usize = 16;

/// A size class: `count` contiguous buffers of `size` bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Number of the class's free list, which ALLOCATE names.
    pub list: u64,
    /// Address of the first buffer.
    pub base: u64,
    /// Bytes per buffer.
    pub size: u32,
    /// Number of buffers.
    pub count: u32,
}

impl Class {
    /// Bytes per class in a message.
    const LEN: usize = 24;

    /// Returns the address of the buffer with this index.
    pub fn address(&self, index: u32) -> u64 {
        self.base + u64::from(index) * u64::from(self.size)
    }

    /// Returns the index of the buffer that begins at an address, or `None` if no buffer of the class begins
    /// there.
    pub fn index(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.base)?;
        let index = offset / u64::from(self.size);
        (offset.is_multiple_of(u64::from(self.size)) && index < u64::from(self.count)).then_some(index as u32)
    }
}

/// The classes of a heap, smallest buffers first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    all: Vec<Class>,
}

impl Classes {
    /// Returns a heap of these classes. Returns `None` if there are no classes or more than [`MAX_CLASSES`],
    /// if a class has no buffers or buffers of zero bytes, or if two classes have the same size.
    pub fn new(mut all: Vec<Class>) -> Option<Classes> {
        all.sort_by_key(|class| class.size);
        let sound = all.iter().all(|class| class.size > 0 && class.count > 0);
        let apart = all.windows(2).all(|pair| pair[0].size < pair[1].size);
        (sound && apart && (1..=MAX_CLASSES).contains(&all.len())).then_some(Classes { all })
    }

    /// Returns the classes, smallest buffers first.
    pub fn all(&self) -> &[Class] {
        &self.all
    }

    /// Returns the index of the class with the smallest buffers that hold `len` bytes, or `None` if no class
    /// has buffers of that size.
    #[inline]
    pub fn for_len(&self, len: u64) -> Option<usize> {
        let at = self.all.partition_point(|class| u64::from(class.size) < len);
        (at < self.all.len()).then_some(at)
    }

    /// Returns the class whose buffer begins at an address, and the index of that buffer.
    pub fn find(&self, address: u64) -> Option<(usize, u32)> {
        let indices = self.all.iter().map(|class| class.index(address));
        indices.enumerate().find_map(|(at, index)| Some((at, index?)))
    }

    /// Returns the number of bytes that [`encode`](Classes::encode) appends.
    pub fn encoded_len(&self) -> usize {
        4 + self.all.len() * Class::LEN
    }

    /// Appends the classes to a message: their number, then each class.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.all.len() as u32).to_le_bytes());
        for class in &self.all {
            let mut bytes = [0; Class::LEN];
            set_u64(&mut bytes, 0, class.list);
            set_u64(&mut bytes, 8, class.base);
            set_u32(&mut bytes, 16, class.size);
            set_u32(&mut bytes, 20, class.count);
            out.extend_from_slice(&bytes);
        }
    }

    /// Reads the classes from the front of a message. Returns `None` if the bytes are no valid classes.
    pub fn decode(bytes: &[u8]) -> Option<Classes> {
        let count = u32_at(bytes.get(..4)?, 0) as usize;
        if count > MAX_CLASSES {
            return None;
        }
        let list = bytes.get(4..4 + count * Class::LEN)?.chunks_exact(Class::LEN);
        let all = list.map(|bytes| Class {
            list: u64_at(bytes, 0),
            base: u64_at(bytes, 8),
            size: u32_at(bytes, 16),
            count: u32_at(bytes, 20),
        });
        Classes::new(all.collect())
    }
}
