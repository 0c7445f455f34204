//! The limits of a lane, and their enforcement.

use wasmtime::{OperatorCost, ResourceLimiter};

/// The limits of a lane.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of its memory and its table together. So many addresses are reserved for it, or fewer if the
    /// module declares a smaller memory.
    pub memory: usize,
    /// Work of a step. It counts about as many instructions, bytes that one instruction moves or sets, and
    /// elements of a table. A step of a native kernel does about the work of copying 4 KiB.
    pub fuel: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 16 << 20, fuel: 1 << 18 }
    }
}

/// Bytes of a page of WebAssembly.
pub const PAGE: u64 = 64 << 10;
/// Bytes that an element of a table is charged with: a pointer, and as much again that is kept ready while a
/// table grows.
pub const ELEMENT: usize = 16;
/// Elements of a table, beside the limit on bytes: one is moved when it grows, and that takes no fuel.
pub const ELEMENTS: usize = 64 << 10;

/// What an instance has. Growth beyond the limit is refused to the kernel, as `memory.grow` and `table.grow`
/// refuse it.
pub struct Charged {
    most: usize,
    memory: usize,
    table: usize,
    /// Bytes of its memory before it grew last.
    before: usize,
}

impl Charged {
    pub fn new(limits: &Limits) -> Charged {
        Charged { most: limits.memory, memory: 0, table: 0, before: 0 }
    }

    fn fits(&self, memory: usize, table: usize, within: Option<usize>, desired: usize) -> bool {
        let together = memory.checked_add(table).is_some_and(|bytes| bytes <= self.most);
        together && within.is_none_or(|most| desired <= most)
    }
}

impl ResourceLimiter for Charged {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        most: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = self.fits(desired, self.table, most, desired);
        if fits {
            (self.before, self.memory) = (current, desired);
        }
        Ok(fits)
    }

    /// The operating system has no memory left.
    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory = self.before;
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, most: Option<usize>) -> wasmtime::Result<bool> {
        let bytes = desired.saturating_mul(ELEMENT);
        let fits = desired <= ELEMENTS && self.fits(self.memory, bytes, most, desired);
        if fits {
            self.table = bytes;
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }
}

/// What instructions cost of a step's fuel: one each, and one for each byte and element that one of them
/// moves or sets. Growing asks the operating system, which takes as long as some hundreds of others.
pub fn costs() -> OperatorCost {
    let mut costs = OperatorCost::new();
    (costs.MemoryGrow, costs.TableGrow) = (u8::MAX, u8::MAX);
    costs.variable.memory_grow_per_page = u8::MAX;
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_table_are_charged_together_and_what_was_not_given_is_not_charged() {
        let page = PAGE as usize;
        let mut charged = Charged::new(&Limits { memory: 4 * page, ..Limits::default() });
        let elements = 2 * page / ELEMENT;
        assert!(charged.memory_growing(0, 2 * page, None).unwrap());
        assert!(charged.table_growing(0, elements, None).unwrap());
        assert!(!charged.table_growing(elements, elements + 1, None).unwrap());
        assert!(!charged.memory_growing(2 * page, 3 * page, None).unwrap());
        assert!(!charged.memory_growing(2 * page, usize::MAX, None).unwrap());
        assert!(!charged.table_growing(elements, usize::MAX, None).unwrap());
        // Beyond what the module declares.
        let mut charged = Charged::new(&Limits { memory: 4 * page, ..Limits::default() });
        assert!(!charged.memory_growing(0, 2 * page, Some(page)).unwrap());
        assert!(charged.table_growing(0, 2 * elements, None).unwrap());
        assert!(!charged.memory_growing(0, page, None).unwrap());
        // The operating system had no memory.
        let mut charged = Charged::new(&Limits { memory: 4 * page, ..Limits::default() });
        assert!(charged.memory_growing(0, 4 * page, None).unwrap());
        charged.memory_grow_failed(wasmtime::Error::msg("none")).unwrap();
        assert!(charged.table_growing(0, 2 * elements, None).unwrap());
    }
}
