//! Extended completion queues (`ibv_cq_ex`), of which programs read each value by a function.

use remora_abi::completion::{IbvCqEx, IbvPollCqAttr, IbvWcTmInfo};
use remora_abi::objects::{IbvCq, IbvWc};
use remora_verbs::Status;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::object::CqObject;
use crate::handles::{self, COND, MUTEX};
use crate::{errno, explain, requests};

/// The bit `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`.
pub(crate) const TIMESTAMP: u64 = 1 << 7;

/// Returns a queue's structure with the functions by which programs read values.
pub(crate) fn readers(wc_flags: u64) -> IbvCqEx {
    let null = std::ptr::null_mut();
    let reads = |bit: u32| wc_flags & 1 << bit != 0;
    IbvCqEx {
        context: std::ptr::null_mut(),
        channel: std::ptr::null_mut(),
        cq_context: null,
        handle: 0,
        cqe: 0,
        mutex: MUTEX,
        cond: COND,
        comp_events_completed: 0,
        async_events_completed: 0,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: reads(7).then_some(read_completion_ts),
        read_cvlan: None,
        read_flow_tag: None,
        read_tm_info: None::<unsafe extern "C" fn(*mut IbvCqEx, *mut IbvWcTmInfo)>,
        read_completion_wallclock_ns: reads(11).then_some(read_completion_wallclock_ns),
    }
}

/// Returns the queue of a handle.
///
/// # Safety
/// The handle is NULL or a live one.
unsafe fn object<'a>(cq: *mut IbvCqEx) -> Option<&'a CqObject> {
    // SAFETY: the caller's promise.
    unsafe { handles::fast::<CqObject>(cq.cast::<IbvCq>()) }
}

/// Takes the next completion. Returns 0, ENOENT if there is none, or another errno.
///
/// # Safety
/// The calling thread is between start and end.
unsafe fn take(object: &CqObject) -> c_int {
    let mut next = None;
    if let Err(error) = object.raw.poll(1, |cqe| next = Some(*cqe)) {
        return errno::of_poll(error);
    }
    let Some(cqe) = next else { return libc::ENOENT };
    let mut status = cqe.completion.status as c_int;
    if let Some(faults) = &object.faults {
        let mut wc = requests::completion(&cqe);
        faults.change(&mut wc);
        status = wc.status;
        object.polling.vendor_err.store(wc.vendor_err, Ordering::Relaxed);
    }
    // SAFETY: the caller's promise. No other thread accesses these fields.
    unsafe {
        let verbs = object.verbs.get();
        (*verbs).status = status;
        (*verbs).wr_id = cqe.completion.id;
        *object.polling.present.get() = Some(cqe);
    }
    if status != Status::Success as c_int && explain::is_wanted() {
        explain::completion(object.context(), &IbvWc { status, ..requests::completion(&cqe) });
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut IbvCqEx, attr: *mut IbvPollCqAttr) -> c_int {
    // SAFETY: NULL or a live handle; the attributes are the program's.
    let (object, attr) = unsafe { (object(cq), attr.as_ref()) };
    let (Some(object), None | Some(IbvPollCqAttr { comp_mask: 0 })) = (object, attr) else {
        return libc::EINVAL;
    };
    object.polling.begin();
    // SAFETY: between start and end.
    let taken = unsafe { take(object) };
    if taken != 0 {
        object.polling.end();
    }
    taken
}

unsafe extern "C" fn next_poll(cq: *mut IbvCqEx) -> c_int {
    // SAFETY: NULL or a live handle, between start and end.
    unsafe { object(cq).map_or(libc::EINVAL, |object| take(object)) }
}

unsafe extern "C" fn end_poll(cq: *mut IbvCqEx) {
    // SAFETY: NULL or a live handle.
    if let Some(object) = unsafe { object(cq) } {
        object.polling.end();
    }
}

/// Defines functions that read one value of the present completion.
macro_rules! reads {
    ($($name:ident: $type:ty = |$present:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut IbvCqEx) -> $type {
            // SAFETY: a live handle, between start and end.
            let $present = unsafe { object(cq).and_then(|object| object.polling.present()) };
            $present.map_or(0, |$present| $value)
        })*
    };
}

reads! {
    read_opcode: c_int = |present| c_int::from(present.completion.kind as u8);
    read_byte_len: u32 = |present| present.completion.byte_len;
    read_imm_data: u32 = |present| requests::imm_data(present);
    read_qp_num: u32 = |present| present.completion.qp_num;
    read_src_qp: u32 = |present| present.completion.src_qp;
    read_wc_flags: u32 = |present| requests::wc_flags(present);
    read_slid: u32 = |_present| 0;
    read_sl: u8 = |present| requests::packet_type(present);
    read_dlid_path_bits: u8 = |_present| 0;
    read_completion_ts: u64 = |present| present.timestamp;
    read_completion_wallclock_ns: u64 = |_present| wallclock();
}

unsafe extern "C" fn read_vendor_err(cq: *mut IbvCqEx) -> u32 {
    // SAFETY: a live handle, between start and end.
    unsafe { object(cq) }.map_or(0, |object| object.polling.vendor_err.load(Ordering::Relaxed))
}

fn wallclock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
