//! Allocation, binding, invalidation and freeing of a table's memory windows.

use super::{Control, Table, TableChange};
use crate::entry::{Piece, View};
use crate::window::{BindError, Binding, Owner, Window, WindowType};
use crate::{Access, AccessError, Error, Key, Pd};
use std::sync::atomic::Ordering;

/// Rights that a window may have.
const GRANTABLE: u32 =
    Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0 | Access::REMOTE_ATOMIC.0 | Access::ZERO_BASED.0;

impl Table {
    /// Allocates a window, which is not bound yet. The upper 24 bits of its key identify it until it is
    /// freed.
    ///
    /// # Errors
    /// `Unknown` protection domain; `Full` table.
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
        let window = Window { issued, pd, kind, key, was_bound: false, bound: None, dying: false };
        control.windows.insert(key.index(), window);
        control.report(|| TableChange::WindowAllocated { key, pd, kind });
        Ok(key)
    }

    /// Frees a window, bound or not, by any of its keys. When this returns, no engine uses the window any
    /// more.
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
            control.report(|| TableChange::WindowFreed { key });
        }
        self.passes().quiesce();
        self.entry(key).clear();
        let mut control = self.control();
        if let Some(window) = control.windows.remove(&key.index()) {
            // A window of a repeated change may belong to a domain that this table does not know.
            if let Ok(domain) = control.domain(window.pd) {
                domain.users -= 1;
            }
            control.keyring.give_back(window.issued);
        }
        Ok(())
    }

    /// Returns the present key of a window, given any key that the window ever had. `None` if there is no
    /// such window.
    pub fn window_key(&self, key: Key) -> Option<Key> {
        self.control().windows.get(&key.index()).map(|window| window.key)
    }

    /// Returns the number of windows.
    pub fn windows(&self) -> usize {
        self.control().windows.len()
    }

    pub(crate) fn bind(&self, pd: Pd, owner: Owner, binding: &Binding) -> Result<(), BindError> {
        let mut control = self.control();
        let index = binding.window.index();
        let window = control.windows.get(&index).filter(|window| !window.dying);
        let window = *window.ok_or(BindError::UnknownWindow)?;
        let key = window.key.with_own_bits_of(binding.key);
        permitted(&window, pd, key, binding)?;
        let owner = if window.kind == WindowType::Type2B { owner } else { Owner::NOBODY };
        let mut view = View::nothing(window.pd.0);
        if binding.len > 0 {
            let piece = self.part(pd, binding)?;
            let zero_based = binding.access.contains(Access::ZERO_BASED);
            let iova = if zero_based { 0 } else { binding.va };
            let piece = Piece { iova, ..piece };
            view = View { key: key.0, owner: owner.0, access: binding.access.0, piece, ..view };
        }
        self.unbind(&mut control, index);
        if binding.len > 0 {
            self.entry(binding.region).windows.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(window) = control.windows.get_mut(&index) {
            window.key = key;
            window.was_bound = true;
            window.bound = (binding.len > 0).then_some((binding.region, owner));
        }
        self.entry(key).show(&view);
        Ok(())
    }

    /// Returns the part of a region that a binding selects. The caller holds the mutex of `Control`, so the
    /// region cannot be deregistered meanwhile.
    fn part(&self, pd: Pd, binding: &Binding) -> Result<Piece, BindError> {
        let entry = self.entry(binding.region);
        if binding.region.0 == 0 || entry.key.load(Ordering::Acquire) != binding.region.0 {
            return Err(BindError::UnknownRegion);
        }
        let access = Access(entry.access.load(Ordering::Relaxed));
        // The entry of a window has no domain, so this also refuses a window as the region.
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
        // SAFETY: the key is alive, and a region is deregistered only under the mutex.
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

    /// Unbinds all windows of type 2 that a queue pair, which no longer exists, has bound.
    pub fn unbind_owner(&self, owner: Owner) {
        let mut control = self.control();
        control.report(|| TableChange::OwnerUnbound { owner });
        self.unbind_if(&mut control, |bound| bound.1 == owner);
    }

    /// Unbinds all windows of a region.
    pub(crate) fn unbind_region(&self, region: Key) {
        let mut control = self.control();
        control.report(|| TableChange::RegionUnbound { key: region });
        self.unbind_if(&mut control, |bound| bound.0 == region);
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

/// Makes the checks of a binding that do not depend on the region (IBTA vol. 1 §10.6.7.2).
fn permitted(window: &Window, pd: Pd, key: Key, binding: &Binding) -> Result<(), BindError> {
    let two = window.kind == WindowType::Type2B;
    if window.pd != pd {
        return Err(BindError::WrongPd);
    }
    if two && window.bound.is_some() {
        return Err(BindError::Bound);
    }
    if two && window.was_bound && key == window.key {
        return Err(BindError::Key);
    }
    if two && binding.len == 0 {
        return Err(BindError::Empty);
    }
    let based = !two && binding.access.contains(Access::ZERO_BASED);
    if binding.access.0 & !GRANTABLE != 0 || based { Err(BindError::Access) } else { Ok(()) }
}
