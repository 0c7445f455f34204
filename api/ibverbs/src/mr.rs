//! Memory regions: any memory of the program, which the NIC accesses as the program's own CPU does.

use remora_abi::objects::{IbvMr, IbvPd, IbvSge};
use remora_verbs::{Access, Key, page_fault};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use crate::handles::{self, Kind, Object};
use crate::lent_memory::{self, LentMemory};
use crate::pd;
use crate::{context, errno, mappings};

/// A memory region. `ibv_rereg_mr` may change its keys and address; the program does not call it during
/// other uses.
#[repr(C)]
pub(crate) struct MrObject {
    pub verbs: std::cell::UnsafeCell<IbvMr>,
    access: Mutex<u32>,
    /// Bytes that count as registered for the rules of faults.
    counted: u64,
    /// The pages, if the NIC belongs to a daemon.
    lent: Mutex<Option<LentMemory>>,
}

impl Object for MrObject {
    type C = IbvMr;
    const KIND: Kind = Kind::Mr;
}

impl MrObject {
    /// Returns whether `number` is this region's handle number.
    pub(crate) fn is_numbered(&self, number: u32) -> bool {
        // SAFETY: programs only read the field.
        unsafe { (*self.verbs.get()).handle == number }
    }
}

/// `IBV_ACCESS_FLUSH_GLOBAL` and `_PERSISTENT`, for FLUSH, which this NIC does not have. As in the kernel, a
/// region with these flags is refused, and a queue pair ignores them.
pub(crate) const FLUSH: u32 = 1 << 8 | 1 << 9;

/// Returns the rights of these access flags.
pub(crate) fn access(flags: u32) -> Result<Access, c_int> {
    if flags & FLUSH != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    // Bit 31 is used internally by Remora.
    if flags >> 31 != 0 {
        return Err(libc::EINVAL);
    }
    Access::from_bits(flags).ok_or(libc::EINVAL)
}

/// Returns whether pages under these rights are pinned for writing. The kernel then asks for a writable
/// mapping, and else for a readable one.
fn writes(access: Access) -> bool {
    let writing = [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::MW_BIND];
    writing.into_iter().any(|right| access.contains(right))
}

/// Checks memory that is to be registered. Returns its rights and its first address.
fn checked(start: *mut c_void, length: usize, iova: u64, flags: u32) -> Result<(Access, u64), c_int> {
    let access = access(flags)?;
    // On-demand pages may be mapped later.
    if !access.contains(Access::ON_DEMAND) {
        mappings::check(start, length, if writes(access) { mappings::WRITABLE } else { mappings::READABLE })?;
    }
    page_fault::reinstall();
    Ok((access, if access.contains(Access::ZERO_BASED) { 0 } else { iova }))
}

/// Hands a region over to the program.
pub(crate) fn give(
    pd: *mut IbvPd,
    key: Key,
    start: *mut c_void,
    length: usize,
    flags: u32,
) -> Result<*mut IbvMr, c_int> {
    give_with(pd, key, start, length, flags, RegionParts::default())
}

/// The parts of a region that not every region has.
#[derive(Default)]
struct RegionParts {
    counted: u64,
    lent: Option<LentMemory>,
}

fn give_with(
    pd: *mut IbvPd,
    key: Key,
    start: *mut c_void,
    length: usize,
    flags: u32,
    extras: RegionParts,
) -> Result<*mut IbvMr, c_int> {
    let context = pd::look(pd)?.verbs.context;
    let verbs =
        IbvMr { context, pd, addr: start, length, handle: key.get(), lkey: key.get(), rkey: key.get() };
    Ok(handles::give(Box::new(MrObject {
        verbs: verbs.into(),
        access: Mutex::new(flags),
        counted: extras.counted,
        lent: Mutex::new(extras.lent),
    })))
}

fn reg_mr(
    pd: *mut IbvPd,
    start: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
) -> Result<*mut IbvMr, c_int> {
    let object = pd::look(pd)?;
    let adapter = &context::look(object.verbs.context)?.nic.adapter;
    adapter.refuse_child().map_err(errno::of_create)?;
    if start.is_null() && length == usize::MAX {
        return reg_all(pd, iova, flags);
    }
    let (access, iova) = checked(start, length, iova, flags)?;
    let counted = length as u64;
    let faults = context::look(object.verbs.context)?.nic.faults.as_ref();
    faults.map_or(Ok(()), |faults| faults.register(counted))?;
    let registered = if adapter.is_lent() {
        let lent = lent_memory::register(adapter, object.pd, start as u64, length, iova, access);
        lent.map(|(key, lent)| (key, Some(lent)))
    } else {
        // SAFETY: by the manual pages, the program keeps the memory until it deregisters the region.
        let key = unsafe { adapter.register_raw(object.pd, start.cast(), length, iova, access) };
        key.map(|key| (key, None)).map_err(errno::of_create)
    };
    let (key, lent) = registered.inspect_err(|_| {
        if let Some(faults) = faults {
            faults.deregister(counted);
        }
    })?;
    give_with(pd, key, start, length, flags, RegionParts { counted, lent })
}

/// Registers the whole address space (implicit on-demand paging).
fn reg_all(pd: *mut IbvPd, iova: u64, flags: u32) -> Result<*mut IbvMr, c_int> {
    let object = pd::look(pd)?;
    let adapter = &context::look(object.verbs.context)?.nic.adapter;
    let access = access(flags)?;
    if !access.contains(Access::ON_DEMAND) || iova != 0 {
        return Err(if access.contains(Access::ON_DEMAND) { libc::EINVAL } else { libc::EFAULT });
    }
    // Most of these addresses are not mapped, so page faults must be handled.
    if !page_fault::is_installed() || adapter.is_lent() {
        return Err(libc::EOPNOTSUPP);
    }
    page_fault::reinstall();
    // SAFETY: page faults are handled.
    let key = unsafe { adapter.register_all(object.pd, access) };
    give(pd, key.map_err(errno::of_create)?, std::ptr::null_mut(), usize::MAX, flags)
}

/// Registers memory under its own addresses.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut IbvPd,
    start: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut IbvMr {
    errno::pointer(reg_mr(pd, start, length, start as u64, flags as u32))
}

/// Registers memory whose first byte has the address `iova` in work requests.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut IbvPd,
    start: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_int,
) -> *mut IbvMr {
    errno::pointer(reg_mr(pd, start, length, iova, flags as u32))
}

/// Like [`ibv_reg_mr_iova`], but optional access flags are allowed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut IbvPd,
    start: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> *mut IbvMr {
    errno::pointer(reg_mr(pd, start, length, iova, flags))
}

/// Deregisters a region. EBUSY while windows are bound to it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut IbvMr) -> c_int {
    errno::number((|| {
        let object = handles::look::<MrObject>(mr)?;
        // SAFETY: the program does not change a region.
        let verbs = unsafe { *object.verbs.get() };
        let adapter = &context::look(verbs.context)?.nic.adapter;
        if !adapter.is_child() {
            let lent = || object.lent.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ended = adapter.deregister_and(Key::new(verbs.lkey), || drop(lent()));
            ended.map_err(errno::of_create)?;
            if let Some(faults) = &context::look(verbs.context)?.nic.faults {
                faults.deregister(object.counted);
            }
        }
        handles::take::<MrObject>(mr).map(drop)
    })())
}

/// `IBV_REREG_MR_CHANGE_TRANSLATION`, `_PD` and `_ACCESS`.
const TRANSLATION: c_int = 1;
const DOMAIN: c_int = 2;
const ACCESS: c_int = 4;
/// `IBV_REREG_MR_ERR_INPUT`: the arguments are wrong, and nothing has changed.
const ERR_INPUT: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`: the device refused.
const ERR_CMD: c_int = -4;

/// Gives a region other memory, another domain or other rights. The region keeps its keys.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut IbvMr,
    flags: c_int,
    pd: *mut IbvPd,
    start: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let Ok(object) = handles::look::<MrObject>(mr) else {
        errno::set(libc::EINVAL);
        return ERR_INPUT;
    };
    // SAFETY: the program does not change a region, and does not call this during other uses.
    let verbs = unsafe { &mut *object.verbs.get() };
    let moves = flags & TRANSLATION != 0;
    let changes = flags & ACCESS != 0;
    let senseless = flags & !(TRANSLATION | DOMAIN | ACCESS) != 0 || flags == 0;
    if senseless || moves && (start.is_null() || length == 0) || flags & DOMAIN != 0 && pd.is_null() {
        errno::set(libc::EINVAL);
        return ERR_INPUT;
    }
    let done = (|| {
        let pd = if flags & DOMAIN != 0 { pd } else { verbs.pd };
        let (start, length) = if moves { (start, length) } else { (verbs.addr, verbs.length) };
        let mut kept = object.access.lock().unwrap_or_else(PoisonError::into_inner);
        let access = if changes { access as u32 } else { *kept };
        let adapter = &context::look(verbs.context)?.nic.adapter;
        adapter.refuse_child().map_err(errno::of_create)?;
        if adapter.is_lent() {
            return Err(libc::EOPNOTSUPP);
        }
        let domain = pd::look(pd)?.pd;
        let (rights, iova) = checked(start, length, start as u64, access)?;
        let key = Key::new(verbs.lkey);
        // SAFETY: as for a new region.
        unsafe { adapter.reregister_raw(key, domain, start.cast(), length, iova, rights) }
            .map_err(errno::of_create)?;
        (verbs.pd, verbs.addr, verbs.length, *kept) = (pd, start, length, access);
        Ok(())
    })();
    match done {
        Ok(()) => 0,
        Err(errno) => {
            errno::set(errno);
            ERR_CMD
        }
    }
}

/// Allocates a null region: reads return zeros, and writes are discarded.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut IbvPd) -> *mut IbvMr {
    errno::pointer((|| {
        let object = pd::look(pd)?;
        let adapter = &context::look(object.verbs.context)?.nic.adapter;
        adapter.refuse_child().map_err(errno::of_create)?;
        let key = adapter.register_null(object.pd).map_err(errno::of_create)?;
        give(pd, key, std::ptr::null_mut(), usize::MAX, 0)
    })())
}

/// The greatest advice, a variant of `IBV_ADVISE_MR_ADVICE_PREFETCH`; and the flag that waits for its
/// completion.
const LAST_ADVICE: c_int = 2;
const FLUSH_ADVICE: u32 = 1;

/// Accepts advice on pages that will be used, after checking that the list names regions of the domain.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut IbvPd,
    advice: c_int,
    flags: u32,
    list: *mut IbvSge,
    count: u32,
) -> c_int {
    errno::number((|| {
        let object = pd::look(pd)?;
        let known = (0..=LAST_ADVICE).contains(&advice) && flags & !FLUSH_ADVICE == 0;
        if !known || list.is_null() || count == 0 {
            return Err(if known { libc::EINVAL } else { libc::EOPNOTSUPP });
        }
        let adapter = &context::look(object.verbs.context)?.nic.adapter;
        adapter.refuse_child().map_err(errno::of_create)?;
        for index in 0..count as usize {
            // SAFETY: the program's list has `count` elements.
            let sge = unsafe { *list.add(index) };
            let key = Key::new(sge.lkey);
            adapter.check_bytes(object.pd, key, sge.addr, sge.length).map_err(|_| libc::EFAULT)?;
        }
        Ok(())
    })())
}
