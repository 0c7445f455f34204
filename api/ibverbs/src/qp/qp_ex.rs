//! Posting by `ibv_wr_*` functions: requests are collected between start and complete, and posted together.

use remora_abi::objects::{IbvAh, IbvMw, IbvMwBindInfo, IbvQp, IbvSge};
use remora_abi::queue_pair::IbvQpEx;
use remora_abi::work::IbvDataBuf;
use remora_verbs::raw::{MAX_INLINE, MAX_SGE, Qpn, Target};
use remora_verbs::{Key, Operation, Payload, Remote, Service, Sge};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::builder::{Request, Requests};
use super::object::QpObject;
use crate::requests;
use crate::{errno, faults, handles, mw};

/// Checks `enum ibv_qp_create_send_ops_flags`: the service must have each operation.
pub(crate) fn check(service: Service, operations: u64) -> Result<(), c_int> {
    const WRITES: u64 = 0b11;
    const SENDS: u64 = 0b1100;
    const FETCHES: u64 = 0b111_0000;
    const LOCAL: u64 = 0b11_1000_0000;
    let offered = match service {
        Service::Rc | Service::XrcInitiator => WRITES | SENDS | FETCHES | LOCAL,
        Service::Uc => WRITES | SENDS | LOCAL,
        Service::Ud => SENDS,
        Service::XrcTarget => 0,
    };
    if operations & !offered == 0 { Ok(()) } else { Err(libc::EOPNOTSUPP) }
}

/// Returns the collected requests of a queue pair.
///
/// # Safety
/// The handle is live, and between start and complete.
unsafe fn requests<'a>(qp: *mut IbvQpEx) -> Option<&'a mut Requests> {
    // SAFETY: the caller's promise: one thread holds the requests.
    unsafe { object(qp).map(|object| &mut *object.builder.requests.get()) }
}

/// Returns the queue pair of a handle.
///
/// # Safety
/// NULL, or a live handle.
unsafe fn object<'a>(qp: *mut IbvQpEx) -> Option<&'a QpObject> {
    // SAFETY: the caller's promise.
    unsafe { handles::fast::<QpObject>(qp.cast::<IbvQp>()) }
}

/// Begins a request with this operation.
///
/// # Safety
/// The handle is live, and between start and complete.
unsafe fn add(qp: *mut IbvQpEx, operation: Operation) {
    // SAFETY: the caller's promise. The program has set id and flags before.
    unsafe {
        let id = (*qp).wr_id;
        let bits = (*qp).wr_flags;
        if let Some(requests) = requests(qp) {
            requests.add(id, bits, operation);
        }
    }
}

fn remote(addr: u64, rkey: u32) -> Remote {
    Remote { addr, rkey: Key::new(rkey) }
}

/// Defines functions that begin a request.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) => $operation:expr;)*) => {
        $(unsafe extern "C" fn $name(qp: *mut IbvQpEx, $($argument: $type),*) {
            // SAFETY: the program started this queue pair.
            unsafe { add(qp, $operation) };
        })*
    };
}

operations! {
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) =>
        Operation::CompareSwap { remote: remote(addr, rkey), compare, swap };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) =>
        Operation::FetchAdd { remote: remote(addr, rkey), add };
    wr_local_inv(rkey: u32) => Operation::LocalInv(Key::new(rkey));
    wr_rdma_read(rkey: u32, addr: u64) => Operation::Read(remote(addr, rkey));
    wr_rdma_write(rkey: u32, addr: u64) => Operation::Write(remote(addr, rkey));
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) =>
        Operation::WriteImm(remote(addr, rkey), u32::from_be(imm));
    wr_send() => Operation::Send;
    wr_send_imm(imm: u32) => Operation::SendImm(u32::from_be(imm));
    wr_send_inv(rkey: u32) => Operation::SendInv(Key::new(rkey));
}

unsafe extern "C" fn wr_bind_mw(qp: *mut IbvQpEx, window: *mut IbvMw, rkey: u32, info: *const IbvMwBindInfo) {
    // SAFETY: the program started this queue pair; `info` is NULL or the program's.
    unsafe {
        let bound = info.as_ref().ok_or(libc::EINVAL).and_then(|info| mw::binding(window, rkey, info));
        match bound {
            Ok(binding) => {
                add(qp, Operation::BindWindow(binding));
                if let Some(requests) = requests(qp) {
                    requests.last(|request| request.window = Some((window, rkey)));
                }
            }
            Err(errno) => fail(qp, errno),
        }
    }
}

unsafe extern "C" fn wr_send_tso(qp: *mut IbvQpEx, _header: *mut c_void, _length: u16, _mss: u16) {
    // SAFETY: the program started this queue pair.
    unsafe { fail(qp, libc::EOPNOTSUPP) };
}

unsafe extern "C" fn wr_atomic_write(qp: *mut IbvQpEx, _rkey: u32, _addr: u64, _value: *const c_void) {
    // SAFETY: the program started this queue pair.
    unsafe { fail(qp, libc::EOPNOTSUPP) };
}

/// Records a fault of the program.
///
/// # Safety
/// The handle is live, and between start and complete.
unsafe fn fail(qp: *mut IbvQpEx, errno: c_int) {
    // SAFETY: the caller's promise.
    if let Some(requests) = unsafe { requests(qp) } {
        requests.fail(errno);
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut IbvQpEx, ah: *mut IbvAh, qpn: u32, qkey: u32) {
    // SAFETY: the program started this queue pair.
    let Some(requests) = (unsafe { requests(qp) }) else { return };
    match requests::datagram(ah, qpn, qkey) {
        Ok(target) => requests.last(|request| request.work.target = target),
        Err(errno) => requests.fail(errno),
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut IbvQpEx, number: u32) {
    // SAFETY: the program started this queue pair.
    if let Some(requests) = unsafe { requests(qp) } {
        let number: Qpn = requests::qpn_of(number);
        requests.last(|request| request.work.target = Target::Srq(number));
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut IbvQpEx, addr: *mut c_void, length: usize) {
    // SAFETY: the program started this queue pair, and the bytes are the program's.
    unsafe { wr_set_inline_data_list(qp, 1, &IbvDataBuf { addr, length }) };
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut IbvQpEx, count: usize, list: *const IbvDataBuf) {
    // SAFETY: the program started this queue pair.
    let Some(requests) = (unsafe { requests(qp) }) else { return };
    let start = requests.bytes.len();
    for index in 0..count {
        // SAFETY: the program's list and bytes.
        let IbvDataBuf { addr, length } = unsafe { *list.add(index) };
        if requests.bytes.len() - start + length > MAX_INLINE {
            return requests.fail(libc::EINVAL);
        }
        if length > 0 {
            // SAFETY: as above.
            requests.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(addr.cast(), length) });
        }
    }
    let end = requests.bytes.len();
    requests.last(|request| (request.inline, request.start, request.end) = (true, start, end));
}

unsafe extern "C" fn wr_set_sge(qp: *mut IbvQpEx, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the program started this queue pair.
    unsafe { wr_set_sge_list(qp, 1, &IbvSge { addr, length, lkey }) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut IbvQpEx, count: usize, list: *const IbvSge) {
    // SAFETY: the program started this queue pair.
    let Some(requests) = (unsafe { requests(qp) }) else { return };
    if count > MAX_SGE {
        return requests.fail(libc::EINVAL);
    }
    let start = requests.sges.len();
    for index in 0..count {
        // SAFETY: the program's list.
        let sge = unsafe { *list.add(index) };
        requests.sges.push(Sge { addr: sge.addr, len: sge.length, lkey: Key::new(sge.lkey) });
    }
    let end = requests.sges.len();
    requests.last(|request| (request.inline, request.start, request.end) = (false, start, end));
}

unsafe extern "C" fn wr_start(qp: *mut IbvQpEx) {
    // SAFETY: NULL, or a live handle. The thread that sets `busy` holds the requests.
    unsafe {
        let Some(object) = object(qp) else { return };
        while object.builder.busy.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        (*object.builder.requests.get()).clear();
    }
}

unsafe extern "C" fn wr_abort(qp: *mut IbvQpEx) {
    // SAFETY: the program started this queue pair.
    if let Some(object) = unsafe { object(qp) } {
        object.builder.busy.store(false, Ordering::Release);
    }
}

/// Posts all collected requests, or none of them.
unsafe extern "C" fn wr_complete(qp: *mut IbvQpEx) -> c_int {
    // SAFETY: the program started this queue pair.
    let (Some(object), Some(requests)) = (unsafe { (object(qp), requests(qp)) }) else {
        return libc::EINVAL;
    };
    let done = post(object, requests);
    object.builder.busy.store(false, Ordering::Release);
    done.map_or_else(|errno| errno, |()| 0)
}

fn post(object: &QpObject, requests: &Requests) -> Result<(), c_int> {
    if let Some(errno) = requests.fault {
        return Err(errno);
    }
    if let Some(faults) = &object.faults {
        requests.all.iter().try_for_each(|request| faults.post(faults::work(&request.work.operation)))?;
    }
    let service = object.raw.service();
    if requests.all.iter().any(|request| !requests::carries(service, &request.work.operation)) {
        return Err(libc::EINVAL);
    }
    let posted = object.raw.post_send(|queue| {
        for Request { work, inline, start, end, .. } in &requests.all {
            let payload = match inline {
                true => Payload::Inline(&requests.bytes[*start..*end]),
                false => Payload::Sges(&requests.sges[*start..*end]),
            };
            queue.push_to(&work.with(payload), &work.target).inspect_err(|_| queue.take_back())?;
        }
        Ok(())
    });
    posted.map_err(errno::of_post)?.map_err(errno::of_queue)?;
    for (window, rkey) in requests.all.iter().filter_map(|request| request.window) {
        mw::posted(window, rkey);
    }
    Ok(())
}

/// Returns a queue pair's structure with all of its functions.
pub(crate) fn functions(qp_base: IbvQp) -> IbvQpEx {
    IbvQpEx {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: Some(wr_atomic_fetch_add),
        wr_bind_mw: Some(wr_bind_mw),
        wr_local_inv: Some(wr_local_inv),
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        wr_rdma_write_imm: Some(wr_rdma_write_imm),
        wr_send: Some(wr_send),
        wr_send_imm: Some(wr_send_imm),
        wr_send_inv: Some(wr_send_inv),
        wr_send_tso: Some(wr_send_tso),
        wr_set_ud_addr: Some(wr_set_ud_addr),
        wr_set_xrc_srqn: Some(wr_set_xrc_srqn),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        wr_atomic_write: Some(wr_atomic_write),
    }
}
