//! Shared receive queues.

use remora_abi::objects::{IbvContext, IbvPd, IbvSrq};
use remora_abi::receive::{
    IbvSrqAttr, IbvSrqInitAttr, IbvSrqInitAttrEx, SRQT_BASIC, SRQT_XRC, srq_init_attr,
};
use remora_verbs::ReceiveCaps;
use remora_verbs::raw::{Cq, Srq};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use crate::attributes::{MAX_SRQ_WR, SGES};
use crate::cq::CqObject;
use crate::handles::{self, Acknowledged, COND, Kind, MUTEX, Object};
use crate::nic::{Subject, Watcher};
use crate::xrc::XrcdObject;
use crate::{context, errno, pd};

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SrqObject {
    verbs: UnsafeCell<IbvSrq>,
    pub raw: Arc<Srq>,
    watcher: Watcher,
    is_xrc: bool,
}

impl Object for SrqObject {
    type C = IbvSrq;
    const KIND: Kind = Kind::Srq;
}

impl SrqObject {
    /// The count of acknowledged asynchronous events.
    pub(crate) fn events_acknowledged(&self) -> Acknowledged {
        let verbs = self.verbs.get();
        // SAFETY: parts of this object.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*verbs).mutex,
                cond: &raw mut (*verbs).cond,
                count: &raw mut (*verbs).events_completed,
            }
        }
    }
}

/// Creates a shared receive queue; for XRC with its domain and completion queue. `attr` receives the actual
/// size.
fn create(
    pd: *mut IbvPd,
    srq_context: *mut std::ffi::c_void,
    attr: &mut IbvSrqAttr,
    xrc: Option<(u32, &Cq)>,
) -> Result<*mut IbvSrq, c_int> {
    let domain = pd::look(pd)?;
    let context = domain.verbs.context;
    let view = context::look(context)?;
    if !(1..=MAX_SRQ_WR).contains(&attr.max_wr) || attr.max_sge > SGES {
        return Err(libc::EINVAL);
    }
    let caps = ReceiveCaps { max_wr: attr.max_wr, max_sge: attr.max_sge.max(1) };
    let is_xrc = xrc.is_some();
    let raw = Srq::create(&view.nic.adapter, domain.pd, caps, xrc).map_err(errno::of_create)?;
    attr.max_wr = raw.query().map_err(errno::of_create)?.max_wr;
    attr.max_sge = caps.max_sge;
    let verbs = IbvSrq {
        context,
        srq_context,
        pd,
        handle: raw.number().get(),
        mutex: MUTEX,
        cond: COND,
        events_completed: 0,
    };
    let watcher = Watcher::new(std::ptr::null_mut::<IbvSrq>(), &view.events);
    let mut made = Box::new(SrqObject { verbs: verbs.into(), raw, watcher, is_xrc });
    made.watcher = Watcher::new(&raw mut *made, &view.events);
    view.nic.watch(Subject::Srq(made.raw.number().get()), &made.watcher);
    Ok(handles::give(made))
}

/// Creates a shared receive queue.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(pd: *mut IbvPd, attr: *mut IbvSrqInitAttr) -> *mut IbvSrq {
    errno::pointer((|| {
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?;
        create(pd, attr.srq_context, &mut attr.attr, None)
    })())
}

/// Creates a shared receive queue, basic or for XRC.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut IbvContext,
    attr: *mut IbvSrqInitAttrEx,
) -> *mut IbvSrq {
    errno::pointer((|| {
        context::look(context)?;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?;
        let has = |bit: u32| attr.comp_mask & bit != 0;
        if attr.comp_mask & !srq_init_attr::KNOWN != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let kind = if has(srq_init_attr::TYPE) { attr.srq_type } else { SRQT_BASIC };
        if !has(srq_init_attr::PD) {
            return Err(libc::EINVAL);
        }
        match kind {
            SRQT_BASIC => create(attr.pd, attr.srq_context, &mut attr.attr, None),
            SRQT_XRC if has(srq_init_attr::XRCD) && has(srq_init_attr::CQ) => {
                let domain = handles::look::<XrcdObject>(attr.xrcd)?.number;
                let cq = handles::look::<CqObject>(attr.cq)?;
                create(attr.pd, attr.srq_context, &mut attr.attr, Some((domain, &cq.raw)))
            }
            SRQT_XRC => Err(libc::EINVAL),
            _ => Err(libc::EOPNOTSUPP),
        }
    })())
}

/// `IBV_SRQ_MAX_WR` and `IBV_SRQ_LIMIT`.
const MAX_WR: c_int = 1;
const LIMIT: c_int = 2;

/// Changes the queue's size, or arms its limit.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut IbvSrq,
    attr: *mut IbvSrqAttr,
    mask: c_int,
) -> c_int {
    errno::number((|| {
        let object = handles::look::<SrqObject>(srq)?;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if mask & !(MAX_WR | LIMIT) != 0 || mask & MAX_WR != 0 && attr.max_wr > MAX_SRQ_WR {
            return Err(libc::EINVAL);
        }
        if mask & MAX_WR != 0 {
            object.raw.resize(attr.max_wr).map_err(errno::of_create)?;
        }
        if mask & LIMIT != 0 {
            object.raw.arm(attr.srq_limit).map_err(errno::of_create)?;
        }
        Ok(())
    })())
}

/// Queries the queue's size and limit.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut IbvSrq, attr: *mut IbvSrqAttr) -> c_int {
    errno::number((|| {
        let object = handles::look::<SrqObject>(srq)?;
        let facts = object.raw.query().map_err(errno::of_create)?;
        let max_sge = object.raw.max_sge();
        // SAFETY: NULL, or the program's structure.
        *unsafe { attr.as_mut() }.ok_or(libc::EINVAL)? =
            IbvSrqAttr { max_wr: facts.max_wr, max_sge, srq_limit: facts.limit };
        Ok(())
    })())
}

/// Destroys a shared receive queue. EBUSY while a queue pair uses it. Waits until all events that were read
/// are acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut IbvSrq) -> c_int {
    errno::number((|| {
        let object = handles::look::<SrqObject>(srq)?;
        // SAFETY: the field never changes.
        let nic = &context::look(unsafe { (*object.verbs.get()).context })?.nic;
        object.raw.destroy().map_err(errno::of_create)?;
        nic.forget(Subject::Srq(object.raw.number().get()), &object.watcher);
        if !nic.adapter.is_child() {
            object.events_acknowledged().wait(|| object.watcher.delivered());
        }
        handles::take::<SrqObject>(srq).map(drop)
    })())
}

/// Queries the number by which XRC initiators name the queue.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut IbvSrq, out: *mut u32) -> c_int {
    errno::number((|| {
        let object = handles::look::<SrqObject>(srq)?;
        if !object.is_xrc {
            return Err(libc::EINVAL);
        }
        // SAFETY: NULL, or the program's variable.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = object.raw.number().get();
        Ok(())
    })())
}
