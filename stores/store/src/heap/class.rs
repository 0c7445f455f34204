//! Size classes: contiguous buffers of one size, with a free list per class.

use serde::{Deserialize, Serialize};

/// Maximum number of classes of a heap.
pub const MAX_CLASSES: usize = 16;

/// A size class: `count` contiguous buffers of `size` bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Class>")]
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
        let index = self.all.partition_point(|class| u64::from(class.size) < len);
        (index < self.all.len()).then_some(index)
    }

    /// Returns the class whose buffer begins at an address, and the index of that buffer.
    pub fn find(&self, address: u64) -> Option<(usize, u32)> {
        let indices = self.all.iter().map(|class| class.index(address));
        indices.enumerate().find_map(|(class, index)| Some((class, index?)))
    }
}

impl TryFrom<Vec<Class>> for Classes {
    type Error = &'static str;

    fn try_from(all: Vec<Class>) -> Result<Classes, &'static str> {
        Classes::new(all).ok_or("no heap has these classes")
    }
}
