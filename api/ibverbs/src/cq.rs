//! Functions for completion queues.

mod cq_ex;
mod object;
mod polling;

use polling::Polling;
use remora_abi::completion::{IbvCqEx, IbvCqInitAttrEx, IbvModifyCqAttr};
use remora_abi::objects::{IbvCompChannel, IbvContext, IbvCq, IbvWc};
use remora_verbs::raw::{Channel, Cq, CqHook};
use remora_verbs::{Notify, Status};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::attributes::MAX_CQE;
use crate::channel::ChannelObject;
use crate::handles::{self, COND, MUTEX};
use crate::nic::{Subject, Watcher};
use crate::{context, errno, explain, pd, requests};
pub(crate) use object::CqObject;

/// The number of completion vectors: one thread serves all queues.
pub(crate) const VECTORS: c_int = 1;

/// The bits of `enum ibv_create_cq_wc_flags` that this NIC supports: length, immediate data, queue pairs,
/// slid, sl, path bits, and timestamps of both clocks.
const KNOWN_VALUES: u64 = 0xff | 1 << 11;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` and `_IGNORE_OVERRUN`.
const KNOWN_FLAGS: u32 = 3;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS` and `_PD`.
const FLAGS: u32 = 1;
const DOMAIN: u32 = 2;

/// The arguments of both ways to create a queue.
pub(crate) struct CqAttributes {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut IbvCompChannel,
    pub vector: u32,
    /// Bits of `enum ibv_create_cq_wc_flags`.
    pub wc_flags: u64,
}

/// Creates a completion queue.
pub(crate) fn create(context: *mut IbvContext, attributes: &CqAttributes) -> Result<*mut IbvCq, c_int> {
    let object = context::look(context)?;
    if !(1..=MAX_CQE).contains(&attributes.cqe) || attributes.vector >= VECTORS as u32 {
        return Err(libc::EINVAL);
    }
    let channel = handles::look_if_any::<ChannelObject>(attributes.channel)?;
    let timestamps = attributes.wc_flags & cq_ex::TIMESTAMP != 0;
    let raw = Cq::create(&object.nic.adapter, attributes.cqe, None, timestamps).map_err(errno::of_create)?;
    let verbs = IbvCqEx {
        context,
        channel: attributes.channel,
        cq_context: attributes.cq_context,
        handle: raw.number(),
        cqe: raw.depth() as c_int,
        mutex: MUTEX,
        cond: COND,
        comp_events_completed: 0,
        async_events_completed: 0,
        ..cq_ex::readers(attributes.wc_flags)
    };
    let mut made = Box::new(CqObject {
        verbs: verbs.into(),
        raw,
        channel: attributes.channel,
        reports: channel.map(|channel| Arc::clone(&channel.reports)),
        delivered: AtomicU32::new(0),
        watcher: Watcher::new(std::ptr::null_mut::<IbvCq>(), &object.events),
        polling: Polling::default(),
        faults: object.nic.faults.clone().filter(|faults| faults.changes_completions()),
    });
    let address = &raw mut *made;
    made.watcher = Watcher::new(address, &object.events);
    if let Some(channel) = channel {
        channel.count(true);
        let channel = Channel::Counted(Arc::clone(&channel.reports));
        made.raw.report(CqHook { channel, tag: address as u64 }).map_err(errno::of_create)?;
    }
    object.nic.watch(Subject::Cq(made.raw.number()), &made.watcher);
    Ok(handles::give(made))
}

/// Creates a completion queue for at least `cqe` completions.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut IbvContext,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut IbvCompChannel,
    vector: c_int,
) -> *mut IbvCq {
    errno::pointer((|| {
        let cqe = u32::try_from(cqe).map_err(|_| libc::EINVAL)?;
        let vector = u32::try_from(vector).map_err(|_| libc::EINVAL)?;
        create(context, &CqAttributes { cqe, cq_context, channel, vector, wc_flags: 0 })
    })())
}

/// Creates a queue that is polled value by value.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut IbvContext,
    attr: *mut IbvCqInitAttrEx,
) -> *mut IbvCqEx {
    errno::pointer((|| {
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        let unknown = attr.comp_mask & !(FLAGS | DOMAIN) != 0
            || attr.comp_mask & FLAGS != 0 && attr.flags & !KNOWN_FLAGS != 0;
        if unknown || attr.wc_flags & !KNOWN_VALUES != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if attr.comp_mask & DOMAIN != 0 && pd::look(attr.parent_domain)?.parent_of.is_none() {
            return Err(libc::EINVAL);
        }
        let attributes = CqAttributes {
            cqe: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: attr.comp_vector,
            wc_flags: attr.wc_flags,
        };
        create(context, &attributes).map(|cq| cq.cast::<IbvCqEx>())
    })())
}

/// Gives a completion queue a capacity of at least `cqe` completions.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut IbvCq, cqe: c_int) -> c_int {
    errno::number((|| {
        let object = handles::look::<CqObject>(cq)?;
        let cqe = u32::try_from(cqe).ok().filter(|cqe| (1..=MAX_CQE).contains(cqe)).ok_or(libc::EINVAL)?;
        object.raw.resize(cqe).map_err(errno::of_create)?;
        // SAFETY: programs only read the field.
        unsafe { (*object.verbs.get()).cqe = object.raw.depth() as c_int };
        Ok(())
    })())
}

/// Destroys a completion queue. EBUSY while a queue pair completes to it. Waits until all events that were
/// read are acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut IbvCq) -> c_int {
    errno::number((|| {
        let object = handles::look::<CqObject>(cq)?;
        // SAFETY: the field never changes.
        let nic = &context::look(unsafe { (*object.verbs.get()).context })?.nic;
        object.raw.destroy().map_err(errno::of_create)?;
        nic.forget(Subject::Cq(object.raw.number()), &object.watcher);
        if let Some(reports) = &object.reports {
            reports.withdraw(|report| *report == cq as u64);
        }
        if !nic.adapter.is_child() {
            object.completions_acknowledged().wait(|| object.delivered.load(Ordering::Acquire));
            object.events_acknowledged().wait(|| object.watcher.delivered());
        }
        if let Some(channel) = handles::look_if_any::<ChannelObject>(object.channel)? {
            channel.count(false);
        }
        handles::take::<CqObject>(cq).map(drop)
    })())
}

/// Takes up to `count` completions. Returns their number, or a negative errno.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut IbvCq, count: c_int, out: *mut IbvWc) -> c_int {
    // SAFETY: NULL, or a live handle.
    let Some(object) = (unsafe { handles::fast::<CqObject>(cq) }) else { return -libc::EINVAL };
    let mut taken = 0;
    let mut failed = false;
    let polled = object.raw.poll(count.max(0) as usize, |cqe| {
        failed |= cqe.completion.status != Status::Success;
        // SAFETY: `out` has `count` entries, and no more are written.
        unsafe { out.add(taken).write(requests::completion(cqe)) };
        taken += 1;
    });
    if let Some(faults) = &object.faults {
        // SAFETY: the entries were written above.
        let written = unsafe { std::slice::from_raw_parts_mut(out, taken) };
        written.iter_mut().for_each(|wc| failed |= faults.change(wc));
    }
    if failed && explain::is_wanted() {
        let context = object.context();
        for place in 0..taken {
            // SAFETY: the entries were written above.
            explain::completion(context, unsafe { &*out.add(place) });
        }
    }
    match polled {
        Ok(taken) => taken as c_int,
        Err(error) => -errno::of_poll(error),
    }
}

/// Requests one completion event on the queue's channel.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut IbvCq, solicited_only: c_int) -> c_int {
    // SAFETY: NULL, or a live handle.
    let Some(object) = (unsafe { handles::fast::<CqObject>(cq) }) else { return libc::EINVAL };
    let notify = if solicited_only == 0 { Notify::Any } else { Notify::Solicited };
    object.raw.arm(notify).map_or_else(errno::of_poll, |()| 0)
}

/// Event moderation, which this NIC does not have.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut IbvCq, _attr: *mut IbvModifyCqAttr) -> c_int {
    errno::number(handles::look::<CqObject>(cq).and(Err(libc::EOPNOTSUPP)))
}
