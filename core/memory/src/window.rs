//! Memory windows: a part of a region under a key of its own, bound and unbound by work requests (IBTA vol. 1
//! §10.6.7).
//!
//! | | type 1 | type 2B |
//! |---|---|---|
//! | serves | every queue pair of its domain | the one queue pair that bound it |
//! | bound again | also while it is bound | only after it was invalidated |
//! | unbound by | a binding of no bytes, the end of the window | LOCAL_INV, SEND_INV, the end of the window |
//!
//! A window's key keeps its upper 24 bits for life. The lower eight are the program's, which gives another
//! value with each binding (`ibv_inc_rkey`). So an old key opens nothing. Windows are for peers: as a local
//! key a window's opens nothing. A region with windows bound to it cannot be deregistered.

use crate::entry::{Piece, View};
use crate::table::{Control, Table};
use crate::{Access, AccessError, Error, Key, Pd};
use std::fmt;
use std::sync::atomic::Ordering;

/// A queue pair, as the owner of windows of type 2B: a number that no other queue pair of the table's NIC
/// has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Owner(pub(crate) u64);

impl Owner {
    /// No queue pair: the owner in local accesses.
    pub const NOBODY: Owner = Owner(0);

    /// Queue pair `number` of engine `engine`.
    #[inline]
    pub const fn new(engine: u16, number: u32) -> Owner {
        Owner(1 << 48 | (engine as u64) << 32 | number as u64)
    }
}

/// The type of a window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Serves a domain (`IBV_MW_TYPE_1`).
    Type1,
    /// Serves a queue pair (`IBV_MW_TYPE_2`, in the form that IBTA calls 2B).
    Type2B,
}

/// The arguments of a `BIND_MW`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The window's present key.
    pub window: Key,
    /// The key that it shall have: another one of the same window.
    pub key: Key,
    /// The region's key.
    pub region: Key,
    /// First byte, in the region's addresses.
    pub va: u64,
    /// Bytes; 0 unbinds a window of type 1.
    pub len: u64,
    /// Rights of peers, and [`Access::ZERO_BASED`].
    pub access: Access,
}

/// Why a window could not be bound. The work request ends with "memory window bind error".
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BindError {
    /// No window has this key now.
    UnknownWindow,
    /// The window or the region belongs to another domain than the queue pair (IBTA C10-72).
    WrongPd,
    /// A window of type 2B that is bound must be invalidated first (IBTA o10-37.2.30).
    Bound,
    /// The new key is another window's, or, for type 2B, the present one.
    Key,
    /// A window of type 2B is bound to at least one byte (IBTA o10-37.2.40).
    Empty,
    /// Rights that no window has; or ZERO_BASED, for type 1 (IBTA o10-36.2.2).
    Access,
    /// No live region has this key, or it is a null region.
    UnknownRegion,
    /// The region was registered without `MW_BIND`, or zero-based (IBTA C10-73).
    NotBindable,
    /// The binding gives peers a right to write that the region's owner lacks (IBTA C10-74).
    MissingRight,
    /// Not all bytes lie in one range of the region (IBTA C10-75).
    OutOfBounds,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BindError::UnknownWindow => "no window has this key",
            BindError::WrongPd => "window, region and queue pair are not of one protection domain",
            BindError::Bound => "a bound window of type 2 must be invalidated first",
            BindError::Key => "the new key is the present one, or another window's",
            BindError::Empty => "a window of type 2 must show at least one byte",
            BindError::Access => "rights that this window cannot have",
            BindError::UnknownRegion => "no region has this key",
            BindError::NotBindable => "the region was registered without MW_BIND, or zero-based",
            BindError::MissingRight => "peers would write where the region's owner may not",
            BindError::OutOfBounds => "the window leaves the region",
        })
    }
}

impl std::error::Error for BindError {}

/// Rights that a window may have.
const GRANTABLE: u32 =
    Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0 | Access::REMOTE_ATOMIC.0 | Access::ZERO_BASED.0;

/// A window, as control operations see it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Window {
    issued: crate::key::Issued,
    pd: Pd,
    kind: WindowType,
    /// Its key now, bound or not.
    key: Key,
    /// The region it is bound to, and the queue pair that it serves.
    bound: Option<(Key, Owner)>,
    dying: bool,
}

impl Table {
    /// A new window, bound to nothing. Its key is the one that the first binding must name.
    ///
    /// # Errors
    /// `Unknown` domain, `Full`.
    pub fn alloc_window(&self, pd: Pd, kind: WindowType) -> Result<Key, Error> {
        let mut control = self.control();
        if control.windows.len() >= control.config.max_windows {
            return Err(Error::Full);
        }
        control.domain(pd)?;
        let issued = control.keyring.take().ok_or(Error::Full)?;
        control.domain(pd)?.users += 1;
        let key = issued.key;
        self.entry(key).show(&View::nothing(pd.0));
        let window = Window { issued, pd, kind, key, bound: None, dying: false };
        control.windows.insert(key.index(), window);
        Ok(key)
    }

    /// Ends a window, bound or not; any of its keys names it. When this returns no engine uses it any more.
    ///
    /// # Errors
    /// `Unknown`; `InsidePass` if the calling thread is inside a pass of an engine of this table.
    pub fn free_window(&self, key: Key) -> Result<(), Error> {
        if self.passes().is_inside() {
            return Err(Error::InsidePass);
        }
        {
            let mut control = self.control();
            let window = control.windows.get_mut(&key.index()).filter(|window| !window.dying);
            window.ok_or(Error::Unknown)?.dying = true;
            self.unbind(&mut control, key.index());
        }
        self.passes().quiesce();
        self.entry(key).clear();
        let mut control = self.control();
        if let Some(window) = control.windows.remove(&key.index()) {
            control.domain(window.pd)?.users -= 1;
            control.keyring.give_back(window.issued);
        }
        Ok(())
    }

    /// The key that a window has now, by any key that it ever had.
    pub fn window_key(&self, key: Key) -> Option<Key> {
        self.control().windows.get(&key.index()).map(|window| window.key)
    }

    /// Windows at this moment.
    pub fn windows(&self) -> usize {
        self.control().windows.len()
    }

    pub(crate) fn bind(&self, pd: Pd, owner: Owner, binding: &Binding) -> Result<(), BindError> {
        let mut control = self.control();
        let index = binding.window.index();
        let window = control.windows.get(&index).filter(|window| window.key == binding.window);
        let window = *window.filter(|window| !window.dying).ok_or(BindError::UnknownWindow)?;
        permitted(&window, pd, binding)?;
        let owner = if window.kind == WindowType::Type2B { owner } else { Owner::NOBODY };
        let mut view = View::nothing(window.pd.0);
        if binding.len > 0 {
            let piece = self.part(pd, binding)?;
            let zero_based = binding.access.contains(Access::ZERO_BASED);
            let iova = if zero_based { 0 } else { binding.va };
            let piece = Piece { iova, ..piece };
            view = View { key: binding.key.0, owner: owner.0, access: binding.access.0, piece, ..view };
        }
        self.unbind(&mut control, index);
        if binding.len > 0 {
            self.entry(binding.region).windows.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(window) = control.windows.get_mut(&index) {
            window.key = binding.key;
            window.bound = (binding.len > 0).then_some((binding.region, owner));
        }
        self.entry(binding.key).show(&view);
        Ok(())
    }

    /// The part of a region that a window shall show. Control's mutex is held: the region cannot die
    /// meanwhile.
    fn part(&self, pd: Pd, binding: &Binding) -> Result<Piece, BindError> {
        let entry = self.entry(binding.region);
        if binding.region.0 == 0 || entry.key.load(Ordering::Acquire) != binding.region.0 {
            return Err(BindError::UnknownRegion);
        }
        let access = Access(entry.access.load(Ordering::Relaxed));
        // A window has no domain here, and so is no region.
        if entry.pd.load(Ordering::Relaxed) != pd.0 {
            return Err(BindError::WrongPd);
        }
        if !access.contains(Access::MW_BIND) || access.contains(Access::ZERO_BASED) {
            return Err(BindError::NotBindable);
        }
        let changes = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
        if binding.access.0 & changes != 0 && !access.contains(Access::LOCAL_WRITE) {
            return Err(BindError::MissingRight);
        }
        let Binding { va, len, .. } = *binding;
        // SAFETY: the key is alive, and only the holder of the mutex ends it for good.
        let start = unsafe { entry.place(va, len) }.ok_or(BindError::OutOfBounds)?;
        Ok(Piece { iova: va, len, start })
    }

    pub(crate) fn invalidate_window(&self, pd: Pd, owner: Owner, key: Key) -> Result<(), AccessError> {
        let mut control = self.control();
        let window = control.windows.get(&key.index()).filter(|window| window.key == key);
        let window = *window.ok_or(AccessError::UnknownKey)?;
        let Some((_, bound_by)) = window.bound else { return Err(AccessError::UnknownKey) };
        if window.pd != pd {
            return Err(AccessError::WrongPd);
        }
        if window.kind == WindowType::Type1 {
            return Err(AccessError::MissingRight);
        }
        if bound_by != owner {
            return Err(AccessError::WrongOwner);
        }
        self.unbind(&mut control, key.index());
        Ok(())
    }

    /// Takes off the windows that a queue pair, which is gone, has bound for itself.
    pub fn unbind_owner(&self, owner: Owner) {
        self.unbind_if(&mut self.control(), |bound| bound.1 == owner);
    }

    /// Takes all windows off a region.
    pub(crate) fn unbind_region(&self, region: Key) {
        self.unbind_if(&mut self.control(), |bound| bound.0 == region);
    }

    fn unbind_if(&self, control: &mut Control, chosen: impl Fn((Key, Owner)) -> bool) {
        let mut from = 0;
        let next = |control: &Control, from: u32| {
            let mut rest = control.windows.range(from..);
            rest.find(|(_, window)| window.bound.is_some_and(&chosen)).map(|(index, _)| *index)
        };
        while let Some(index) = next(control, from) {
            self.unbind(control, index);
            from = index + 1;
        }
    }

    fn unbind(&self, control: &mut Control, index: u32) {
        let Some(window) = control.windows.get_mut(&index) else { return };
        if let Some((region, _)) = window.bound.take() {
            self.entry(region).windows.fetch_sub(1, Ordering::Relaxed);
            self.entry(window.key).show(&View::nothing(window.pd.0));
        }
    }
}

/// The checks that need no look at the region (IBTA vol. 1 §10.6.7.2).
fn permitted(window: &Window, pd: Pd, binding: &Binding) -> Result<(), BindError> {
    let two = window.kind == WindowType::Type2B;
    if window.pd != pd {
        return Err(BindError::WrongPd);
    }
    if two && window.bound.is_some() {
        return Err(BindError::Bound);
    }
    if binding.key.index() != window.key.index() || two && binding.key == window.key {
        return Err(BindError::Key);
    }
    if two && binding.len == 0 {
        return Err(BindError::Empty);
    }
    let based = !two && binding.access.contains(Access::ZERO_BASED);
    if binding.access.0 & !GRANTABLE != 0 || based { Err(BindError::Access) } else { Ok(()) }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
