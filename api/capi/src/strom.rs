//! C functions for StRoM: requests to the kernels of a peer's NIC, and deployment of kernels.

use remora_verbs::kernel::{Kernel, Shipped, crc64};
use remora_verbs::{
    AnswerBuffers, AnswerError, KernelHandle, KernelOptions, Key, MemoryRegion, PostError, ProtectionDomain,
    QueuePair, Sge,
};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::device::{Cq, end, kind};
use crate::errno::{Fault, number};
use crate::handle::{Handle, Kind, bytes, filled, give, look, put, take};
use crate::queue_pair::{Qp, Stage};

/// Buffers for answers that any thread may use.
pub(crate) struct SharedAnswers(Mutex<AnswerBuffers>);

kind!(SharedAnswers, b"rmr.answ", "remora_answers");
kind!(KernelHandle, b"rmr.kern", "remora_kernel");

/// `remora_answer`: the answer to a request.
#[repr(C)]
pub(crate) struct CAnswer {
    pub tag: u32,
    pub status: u32,
    pub length: u32,
}

end!(
    /// Destroys answer buffers.
    remora_destroy_answers,
    SharedAnswers
);
end!(
    /// Removes a deployed kernel.
    remora_remove_kernel,
    KernelHandle
);

/// The maximum number of lanes of a kernel.
const LANES: u32 = 1024;

/// Creates `count` answer buffers of `size` bytes each and writes their handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_create_answers(
    pd: *const Handle<ProtectionDomain>,
    count: u32,
    size: u32,
    out: *mut *mut Handle<SharedAnswers>,
) -> c_int {
    number((|| {
        filled(out)?;
        // SAFETY: the caller meets the conditions of the header.
        let answers = unsafe { look(pd)? }.create_answers(count, size)?;
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(SharedAnswers(Mutex::new(answers)), out) }
    })())
}

/// Posts a request on a queue pair whose peer agreed on StRoM, and writes the request's tag to `tag`.
///
/// # Safety
/// The caller meets the conditions of the header.
unsafe fn ask(
    qp: *const Handle<Qp>,
    answers: *const Handle<SharedAnswers>,
    tag: *mut u32,
    post: impl FnOnce(&mut AnswerBuffers, &mut QueuePair) -> Result<u32, PostError>,
) -> Result<(), Fault> {
    filled(tag)?;
    // SAFETY: the caller meets the conditions of the header.
    let (qp, answers) = unsafe { (look(qp)?, look(answers)?) };
    let mut stage = qp.stage.lock().unwrap_or_else(PoisonError::into_inner);
    let Stage::Ready(pair) = &mut *stage else {
        return Err(Fault::new(libc::ENOTCONN, "it is not connected"));
    };
    if !pair.agreement().is_some_and(|agreed| agreed.strom) {
        return Err(Fault::new(libc::EOPNOTSUPP, "the peer did not agree on StRoM"));
    }
    let asked = post(&mut answers.0.lock().unwrap_or_else(PoisonError::into_inner), pair)?;
    // SAFETY: the caller meets the conditions of the header.
    unsafe { put(tag, asked) }
}

/// Sends a request to a kernel of the peer's NIC (`postRpc` in the paper).
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_post_rpc(
    op: u64,
    qp: *const Handle<Qp>,
    answers: *const Handle<SharedAnswers>,
    parameters: *const c_void,
    size: u32,
    tag: *mut u32,
) -> c_int {
    number((|| {
        // SAFETY: the header requires `size` bytes.
        let params = unsafe { bytes(parameters, size as usize)? };
        // SAFETY: the caller meets the conditions of the header.
        unsafe { ask(qp, answers, tag, |answers, pair| answers.ask(pair, op, params)) }
    })())
}

/// Sends a request with bytes of local memory to a kernel of the peer's NIC (`postRpcWrite` in the paper).
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_post_rpc_write(
    op: u64,
    qp: *const Handle<Qp>,
    answers: *const Handle<SharedAnswers>,
    origin: *const c_void,
    size: u32,
    lkey: u32,
    tag: *mut u32,
) -> c_int {
    let local = [Sge { addr: origin as u64, len: size, lkey: Key::new(lkey) }];
    // SAFETY: the caller meets the conditions of the header; the NIC checks the local key.
    number(unsafe { ask(qp, answers, tag, |answers, pair| answers.give(pair, op, &local)) })
}

/// Polls until the answer to a request has arrived or `timeout_ms` milliseconds have passed.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_wait_answer(
    answers: *const Handle<SharedAnswers>,
    cq: *const Handle<Cq>,
    tag: u32,
    timeout_ms: u32,
    out: *mut CAnswer,
    buffer: *mut c_void,
    capacity: usize,
) -> c_int {
    number((|| {
        filled(out)?;
        // SAFETY: the caller meets the conditions of the header.
        let (answers, cq) = unsafe { (look(answers)?, look(cq)?) };
        let mut cq = cq.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answers = answers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = Duration::from_millis(timeout_ms.into());
        let answer = answers.wait(&mut cq, tag, timeout).map_err(|error| match error {
            AnswerError::Poll(error) => Fault::from(error),
            AnswerError::Ended(_) => Fault::new(libc::EIO, error),
        })?;
        let len = capacity.min(answer.len as usize);
        if len > 0 {
            let buffer = filled(buffer.cast::<u8>())?;
            // SAFETY: the pointer is not null, and the header requires `capacity` bytes.
            let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, len) };
            answers.read(&answer, buffer).map_err(Fault::invalid)?;
        }
        let result = CAnswer { tag, status: answer.status.0.into(), length: answer.len };
        // SAFETY: the caller meets the conditions of the header.
        unsafe { put(out, result) }
    })())
}

fn lanes(kernel: u32, count: u32) -> Result<Vec<Box<dyn Kernel>>, Fault> {
    let shipped = Shipped::of(kernel).ok_or_else(|| Fault::invalid("no such kernel"))?;
    match (1..=LANES).contains(&count) {
        true => Ok(shipped.lanes(count as usize)),
        false => Err(Fault::invalid("a kernel has 1 to 1024 lanes")),
    }
}

/// Deploys a kernel of this library and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_deploy_kernel(
    pd: *const Handle<ProtectionDomain>,
    kernel: u32,
    op: u64,
    mr: *const Handle<MemoryRegion>,
    count: u32,
    longest: u32,
    out: *mut *mut Handle<KernelHandle>,
) -> c_int {
    number((|| {
        filled(out)?;
        // SAFETY: the caller meets the conditions of the header.
        let (pd, mr) = unsafe { (look(pd)?, look(mr)?) };
        let options = KernelOptions { opcode: Some(op), grants: &[mr], longest, ..KernelOptions::default() };
        let handle = pd.deploy_kernel(lanes(kernel, count)?, &options)?;
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(handle, out) }
    })())
}

/// Computes the CRC-64/NVME of a block of bytes.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_crc64(start: *const c_void, len: usize) -> u64 {
    // SAFETY: the header requires `len` bytes.
    unsafe { bytes(start, len) }.map_or(0, crc64)
}
