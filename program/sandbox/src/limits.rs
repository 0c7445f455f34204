//! The limits of a lane and their enforcement.

use wasmtime::{OperatorCost, ResourceLimiter};

/// The limits of a lane.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Total size of memory and table in bytes. This much address space is reserved, or less if the module
    /// declares a smaller memory.
    pub memory: usize,
    /// Maximum work of a step: approximately the number of instructions, plus the bytes and table elements
    /// that single instructions move or set. A step of a native kernel does about as much work as copying 4
    /// KiB.
    pub fuel: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 16 << 20, fuel: 1 << 18 }
    }
}

/// Size of a WebAssembly page in bytes.
pub(crate) const PAGE: u64 = 64 << 10;
/// Bytes charged for an element of a table: a pointer, and the same amount for the copy while the table
/// grows.
pub(crate) const ELEMENT: usize = 16;
/// Maximum number of elements of a table, in addition to the limit in bytes, because growing a table moves
/// its elements without using fuel.
pub(crate) const ELEMENTS: usize = 64 << 10;

/// The memory charged to an instance. Growth beyond the limit makes `memory.grow` and `table.grow` fail in
/// the kernel.
pub(crate) struct Charged {
    most: usize,
    memory: usize,
    table: usize,
    /// Size of the memory before its last growth, in bytes.
    before: usize,
}

impl Charged {
    pub(crate) fn new(limits: &Limits) -> Charged {
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

    /// Takes back the charge, because the operating system had no memory.
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

/// Returns the fuel costs of instructions: one per instruction, and one per byte or element that an
/// instruction moves or sets. Growing memory or a table costs some hundreds, because it calls the operating
/// system.
pub(crate) fn costs() -> OperatorCost {
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
        // More than the module declares.
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
