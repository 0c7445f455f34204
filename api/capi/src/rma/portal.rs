//! C functions for portals: they start transfers and report the end of transfers.

use remora_verbs::rma::{Class, Kind as Operation, Portal, Rma};
use remora_verbs::{PollError, ProtectionDomain};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{GrantBytes, Identity, Region, TRANSFERS, grant, region};
use crate::device::{count_or_errno, end, kind};
use crate::errno::{Fault, number};
use crate::handle::{Handle, Kind, filled, give, look, put, take};

/// A portal, which any thread may use.
pub(crate) struct SharedPortal(Mutex<Inner>);

struct Inner {
    portal: Portal,
    /// The program's identifier of each transfer in progress, by the portal's identifier.
    ids: HashMap<u64, u64>,
}

kind!(SharedPortal, b"rmr.rprt", "remora_rma_portal");

/// `remora_rma_wr`: a transfer that `remora_rma_post` starts.
#[repr(C)]
pub(crate) struct RmaWr {
    pub wr_id: u64,
    pub local: *const Handle<Region>,
    pub local_offset: u64,
    pub grant: *const GrantBytes,
    pub remote_offset: u64,
    pub length: u64,
    pub opcode: u32,
    pub bulk: u32,
    pub timeout_ms: u32,
}

/// `remora_rma_wc`: the result of a transfer that has ended.
#[repr(C)]
pub(crate) struct RmaWc {
    pub wr_id: u64,
    pub status: u32,
    pub reserved: u32,
}

end!(
    /// Destroys a portal.
    remora_rma_destroy_portal,
    SharedPortal
);

/// The maximum number of command slots of a portal. Its completion queue needs two completions for each.
const SLOTS: u32 = 1 << 14;

/// Creates a portal and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_create_portal(
    rma: *const Handle<Rma>,
    pd: *const Handle<ProtectionDomain>,
    slots: u32,
    out: *mut *mut Handle<SharedPortal>,
) -> c_int {
    number((|| {
        filled(out)?;
        if !(1..=SLOTS).contains(&slots) {
            return Err(Fault::invalid(format_args!("{slots} slots: choose 1 to {SLOTS}")));
        }
        // SAFETY: the caller meets the conditions of the header.
        let (rma, pd) = unsafe { (look(rma)?, look(pd)?) };
        let portal = rma.create_portal(pd, slots as u16)?;
        let ids = HashMap::with_capacity(TRANSFERS as usize);
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(SharedPortal(Mutex::new(Inner { portal, ids })), out) }
    })())
}

/// Locks the portal of a handle.
///
/// # Safety
/// The conditions of [`look`].
unsafe fn portal<'a>(handle: *const Handle<SharedPortal>) -> Result<MutexGuard<'a, Inner>, Fault> {
    // SAFETY: the handle meets the conditions of `look` by the caller's promise.
    Ok(unsafe { look(handle)? }.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Writes the client's identity, from which servers derive its keys, to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_identity(
    handle: *const Handle<SharedPortal>,
    out: *mut Identity,
) -> c_int {
    number((|| {
        // SAFETY: the caller meets the conditions of the header.
        let own = unsafe { portal(handle)? }.portal.identity();
        let identity = Identity { address: own.address.0, pid: own.pid, incarnation: own.incarnation };
        // SAFETY: the caller meets the conditions of the header.
        unsafe { put(out, identity) }
    })())
}

fn operation(wr: &RmaWr) -> Result<Operation, Fault> {
    match wr.opcode {
        0 => Ok(Operation::Read),
        1 => Ok(Operation::Write),
        2 if wr.length == 16 && wr.remote_offset == 0 => Ok(Operation::Rekey),
        2 => Err(Fault::invalid("a rekey has length 16 and remote_offset 0")),
        _ => Err(Fault::invalid("an opcode that is not known")),
    }
}

/// Starts a transfer.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_post(
    handle: *const Handle<SharedPortal>,
    wr: *const RmaWr,
) -> c_int {
    number((|| {
        filled(wr.cast_mut())?;
        // SAFETY: the pointer is not null, and the caller meets the conditions of the header.
        let (mut inner, wr) = unsafe { (portal(handle)?, &*wr) };
        let operation = operation(wr)?;
        let class = match wr.bulk {
            0 => Class::Latency,
            1 => Class::Bulk,
            _ => return Err(Fault::invalid("bulk is 0 or 1")),
        };
        let timeout = (wr.timeout_ms > 0).then(|| Duration::from_millis(wr.timeout_ms.into()));
        // SAFETY: the caller meets the conditions of the header.
        let (local, grant) = unsafe { (region(wr.local)?, grant(wr.grant)?) };
        let local_offset = wr.local_offset;
        let remote_offset = wr.remote_offset;
        let len = wr.length;
        let id = inner.portal.submit(
            operation,
            class,
            &local,
            local_offset,
            &grant,
            remote_offset,
            len,
            timeout,
        )?;
        inner.ids.insert(id, wr.wr_id);
        Ok(())
    })())
}

impl Inner {
    /// Writes the results of up to `count` ended transfers to `out` and returns their number.
    ///
    /// # Safety
    /// `out` points to `count` elements.
    unsafe fn take(&mut self, count: usize, out: *mut RmaWc) -> Result<usize, Fault> {
        for index in 0..count {
            let (id, status) = match self.portal.poll() {
                Ok(Some(ended)) => ended,
                // Results already written are not lost; the next call returns the error.
                Err(error) if index == 0 => return Err(error.into()),
                Ok(None) | Err(_) => return Ok(index),
            };
            let wr_id = self.ids.remove(&id).unwrap_or_default();
            // SAFETY: `index` is below `count`.
            unsafe { out.add(index).write(RmaWc { wr_id, status: status as u32, reserved: 0 }) };
        }
        Ok(count)
    }
}

/// The maximum number of results that one call returns.
const AT_ONCE: usize = 64;
/// The number of empty polls between two readings of the clock while waiting.
const LOOK_EVERY: u32 = 64;

/// Takes up to `count` results of ended transfers. With a timeout, polls until there is one.
///
/// # Safety
/// `out` points to `count` elements, and the caller meets the conditions of the header.
unsafe fn completions(
    handle: *const Handle<SharedPortal>,
    count: c_int,
    out: *mut RmaWc,
    timeout: Option<Duration>,
) -> Result<c_int, Fault> {
    let wanted = usize::try_from(count).map_err(|_| Fault::invalid("a negative number of completions"))?;
    filled(out)?;
    // SAFETY: the caller meets the conditions of the header.
    let mut inner = unsafe { portal(handle)? };
    let mut deadline = None;
    loop {
        for _ in 0..LOOK_EVERY {
            // SAFETY: `take` writes no more elements than the caller has.
            let taken = unsafe { inner.take(wanted.min(AT_ONCE), out)? };
            if taken > 0 || wanted == 0 || timeout.is_none() {
                return Ok(taken as c_int);
            }
        }
        let now = Instant::now();
        if timeout.is_some_and(|timeout| now > *deadline.get_or_insert(now + timeout)) {
            return Err(PollError::Timeout.into());
        }
        // The peer may need this processor core.
        std::thread::yield_now();
    }
}

/// Takes results of ended transfers without waiting. Returns their number, or a negative errno.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_poll(
    handle: *const Handle<SharedPortal>,
    count: c_int,
    out: *mut RmaWc,
) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    count_or_errno(unsafe { completions(handle, count, out, None) })
}

/// Polls until a transfer has ended or `timeout_ms` milliseconds have passed. Returns the number of results,
/// or a negative errno.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_wait(
    handle: *const Handle<SharedPortal>,
    count: c_int,
    out: *mut RmaWc,
    timeout_ms: u32,
) -> c_int {
    let timeout = Duration::from_millis(timeout_ms.into());
    // SAFETY: the caller meets the conditions of the header.
    count_or_errno(unsafe { completions(handle, count, out, Some(timeout)) })
}
