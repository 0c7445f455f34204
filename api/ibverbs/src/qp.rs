//! Queue pairs, which are created in RESET and moved by `ibv_modify_qp`.

mod attributes;
mod builder;
mod object;
mod qp_ex;

pub(crate) use attributes::modify_qp_rate_limit;
use builder::Builder;

use remora_abi::objects::{IbvContext, IbvPd, IbvQp};
use remora_abi::queue_pair::{
    IbvQpCap, IbvQpEx, IbvQpInitAttr, IbvQpInitAttrEx, QPT_DRIVER, QPT_RAW_PACKET, QPT_RC, QPT_UC, QPT_UD,
    QPT_XRC_RECV, QPT_XRC_SEND, init_attr,
};
use remora_verbs::raw::{Qp, QpAttributes};
use remora_verbs::{Service, State};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use crate::attributes::{INLINE, MAX_QP_WR, SGES};
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::handles::{self, COND, MUTEX};
use crate::nic::{Subject, Watcher};
use crate::srq::SrqObject;
use crate::xrc::XrcdObject;
use crate::{context, errno, explain, pd};
pub(crate) use object::QpObject;

/// The capacity of a queue pair without queues.
const NO_QUEUES: IbvQpCap =
    IbvQpCap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };

fn service(qp_type: c_int) -> Result<Service, c_int> {
    match qp_type {
        QPT_RC => Ok(Service::Rc),
        QPT_UC => Ok(Service::Uc),
        QPT_UD => Ok(Service::Ud),
        QPT_XRC_SEND => Ok(Service::XrcInitiator),
        QPT_XRC_RECV => Ok(Service::XrcTarget),
        QPT_RAW_PACKET | QPT_DRIVER => Err(libc::EOPNOTSUPP),
        _ => Err(libc::EINVAL),
    }
}

/// The least number of inline bytes of a queue pair, which fit into one slot.
const LEAST_INLINE: u32 = 64;

/// Checks that sizes are within the limits. Sizes of the receive queue count only if there is one.
fn check(cap: &IbvQpCap, receives: bool) -> Result<(), c_int> {
    let send = cap.max_send_wr <= MAX_QP_WR && cap.max_send_sge <= SGES && cap.max_inline_data <= INLINE;
    let receive = !receives || cap.max_recv_wr <= MAX_QP_WR && cap.max_recv_sge <= SGES;
    if send && receive {
        return Ok(());
    }
    let why = format!("at most {MAX_QP_WR} requests, {SGES} entries of a list, and {INLINE} bytes inline");
    explain::refused("ibv_create_qp", "cap", &why);
    Err(libc::EINVAL)
}

/// Creates a queue pair in the NIC.
fn make(view: &ContextObject, attr: &IbvQpInitAttrEx, service: Service) -> Result<Arc<Qp>, c_int> {
    let adapter = &view.nic.adapter;
    if service == Service::XrcTarget {
        let domain = handles::look::<XrcdObject>(attr.xrcd)?.number;
        return Qp::create_xrc_target(adapter, domain).map_err(errno::of_create);
    }
    check(&attr.cap, service != Service::XrcInitiator && attr.srq.is_null())?;
    let pd = pd::look(attr.pd)?.pd;
    let send_cq = handles::look::<CqObject>(attr.send_cq)?;
    let receive_cq = match service {
        Service::XrcInitiator => send_cq,
        _ => handles::look::<CqObject>(attr.recv_cq)?,
    };
    let srq = match service {
        Service::XrcInitiator => None,
        _ => handles::look_if_any::<SrqObject>(attr.srq)?,
    };
    let IbvQpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = attr.cap;
    let attributes = QpAttributes {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline: max_inline_data,
        signal_all: attr.sq_sig_all != 0,
    };
    let srq = srq.map(|srq| &*srq.raw);
    Qp::create(adapter, service, pd, &send_cq.raw, &receive_cq.raw, srq, &attributes)
        .map_err(errno::of_create)
}

/// Creates a queue pair for the program. `attr` receives the actual sizes.
fn create(context: *mut IbvContext, attr: &mut IbvQpInitAttrEx) -> Result<*mut IbvQp, c_int> {
    let view = context::look(context)?;
    let has = |bit: u32| attr.comp_mask & bit != 0;
    let service = service(attr.qp_type)?;
    if !has(if service == Service::XrcTarget { init_attr::XRCD } else { init_attr::PD }) {
        return Err(libc::EINVAL);
    }
    let unknown = attr.comp_mask
        & !(init_attr::PD | init_attr::XRCD | init_attr::CREATE_FLAGS | init_attr::SEND_OPS_FLAGS)
        != 0;
    if unknown || has(init_attr::CREATE_FLAGS) && attr.create_flags != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if has(init_attr::SEND_OPS_FLAGS) {
        qp_ex::check(service, attr.send_ops_flags)?;
    }
    // Programs that request no inline data use a few bytes all the same, since other providers have space for
    // them. The longest queues have none.
    if attr.cap.max_send_wr <= MAX_QP_WR / 2 {
        attr.cap.max_inline_data = attr.cap.max_inline_data.max(LEAST_INLINE);
    }
    let raw = make(view, attr, service)?;
    if service == Service::XrcTarget {
        attr.cap = NO_QUEUES;
    } else if service == Service::XrcInitiator || !attr.srq.is_null() {
        (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (0, 0);
    }
    let xrc_domain = match service {
        Service::XrcTarget => Some(handles::look::<XrcdObject>(attr.xrcd)?.number),
        _ => None,
    };
    Ok(give(context, view, raw, attr, xrc_domain))
}

/// Hands a queue pair over to the program.
fn give(
    context: *mut IbvContext,
    view: &ContextObject,
    raw: Arc<Qp>,
    attr: &IbvQpInitAttrEx,
    xrc_domain: Option<u32>,
) -> *mut IbvQp {
    let number = raw.number().get();
    let qp_base = IbvQp {
        context,
        qp_context: attr.qp_context,
        pd: attr.pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: number,
        qp_num: number,
        state: State::Reset as c_int,
        qp_type: attr.qp_type,
        mutex: MUTEX,
        cond: COND,
        events_completed: 0,
    };
    let faults = view.nic.faults.as_ref().map(|faults| faults.enter(&raw));
    let mut made = Box::new(QpObject {
        faults,
        verbs: qp_ex::functions(qp_base).into(),
        _newer: [None; 3],
        raw,
        is_ex: attr.comp_mask & init_attr::SEND_OPS_FLAGS != 0,
        xrc_domain,
        builder: Builder::default(),
        cap: attr.cap,
        signal_all: attr.sq_sig_all != 0,
        address: Mutex::new(None),
        watcher: Watcher::new(std::ptr::null_mut::<IbvQp>(), &view.events),
    });
    made.watcher = Watcher::new(&raw mut *made, &view.events);
    view.nic.watch(Subject::Qp(number), &made.watcher);
    handles::give(made)
}

/// Hands an existing target over to the program once more.
pub(crate) fn give_opened(
    context: *mut IbvContext,
    view: &ContextObject,
    raw: Arc<Qp>,
    qp_context: *mut c_void,
    domain: u32,
) -> *mut IbvQp {
    // SAFETY: all fields are numbers and pointers, for which zero is a valid value.
    let empty: IbvQpInitAttrEx = unsafe { std::mem::zeroed() };
    let attr = IbvQpInitAttrEx { qp_context, qp_type: QPT_XRC_RECV, ..empty };
    give(context, view, raw, &attr, Some(domain))
}

/// Creates a queue pair in a protection domain.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: *mut IbvPd, attr: *mut IbvQpInitAttr) -> *mut IbvQp {
    errno::pointer((|| {
        let context = pd::look(pd)?.verbs.context;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?;
        // SAFETY: all fields are numbers and pointers, for which zero is a valid value.
        let empty: IbvQpInitAttrEx = unsafe { std::mem::zeroed() };
        let mut extended = IbvQpInitAttrEx {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
            comp_mask: init_attr::PD,
            pd,
            ..empty
        };
        let made = create(context, &mut extended)?;
        attr.cap = extended.cap;
        Ok(made)
    })())
}

/// Creates a queue pair, also for XRC or for posting by `ibv_wr_*` functions.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut IbvContext,
    attr: *mut IbvQpInitAttrEx,
) -> *mut IbvQp {
    // SAFETY: NULL, or the program's attributes.
    errno::pointer(unsafe { attr.as_mut() }.ok_or(libc::EINVAL).and_then(|attr| create(context, attr)))
}

/// Destroys a queue pair. EBUSY while it is attached to a multicast group. Posted work is dropped. Waits
/// until all events that were read are acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut IbvQp) -> c_int {
    errno::number((|| {
        let object = handles::look::<QpObject>(qp)?;
        // SAFETY: the field never changes.
        let nic = &context::look(unsafe { (*object.verbs.get()).qp_base.context })?.nic;
        explain::waited(nic, object.raw.number().get());
        // Only the last handle of a target destroys it.
        if Arc::strong_count(&object.raw) == 1 {
            object.raw.destroy().map_err(errno::of_create)?;
            if let Some(faults) = &nic.faults {
                faults.leave(object.raw.number().get());
            }
        }
        nic.forget(Subject::Qp(object.raw.number().get()), &object.watcher);
        explain::forget(object.raw.number().get());
        if !nic.adapter.is_child() {
            object.events_acknowledged().wait(|| object.watcher.delivered());
        }
        handles::take::<QpObject>(qp).map(drop)
    })())
}

/// Returns the queue pair for posting by `ibv_wr_*` functions, or NULL if it was not created for that.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut IbvQp) -> *mut IbvQpEx {
    match handles::look::<QpObject>(qp) {
        Ok(object) if object.is_ex => qp.cast(),
        _ => std::ptr::null_mut(),
    }
}
