//! A journal of every store to this thread's regions (address and word), for tests that stop a server
//! between any two stores.

use std::cell::RefCell;

thread_local! {
    static STORES: RefCell<Option<Vec<(u64, u64)>>> = const { RefCell::new(None) };
}

/// Returns the stores that `change` makes, in order.
pub(crate) fn of(change: impl FnOnce()) -> Vec<(u64, u64)> {
    STORES.set(Some(Vec::new()));
    change();
    STORES.take().unwrap_or_default()
}

/// Returns the number of stores in the open journal.
pub(crate) fn len() -> usize {
    STORES.with_borrow(|stores| stores.as_ref().map_or(0, Vec::len))
}

pub(crate) fn is_open() -> bool {
    STORES.with_borrow(Option::is_some)
}

pub(crate) fn note(addr: u64, word: u64) {
    STORES.with_borrow_mut(|stores| stores.iter_mut().for_each(|stores| stores.push((addr, word))));
}
