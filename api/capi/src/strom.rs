//! StRoM: requests to kernels, and kernels.

use remora_verbs::kernel::{Kernel, Shipped, crc64};
use remora_verbs::{
    AnswerError, Answers, KernelHandle, KernelOptions, Key, MemoryRegion, PostError, ProtectionDomain,
    QueuePair, Sge,
};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::device::{Cq, end, kind};
use crate::errno::{Fault, number};
use crate::handle::{Handle, Kind, bytes, filled, give, look, put, take};
use crate::queue_pair::{Qp, Stage};

/// Rooms that any thread may ask with.
pub struct Rooms(Mutex<Answers>);

kind!(Rooms, b"rmr.answ", "remora_answers");
kind!(KernelHandle, b"rmr.kern", "remora_kernel");

/// `remora_answer`.
#[repr(C)]
pub struct CAnswer {
    pub tag: u32,
    pub status: u32,
    pub length: u32,
}

end!(
    /// Lets go of rooms.
    remora_destroy_answers,
    Rooms
);
end!(
    /// Removes a kernel.
    remora_remove_kernel,
    KernelHandle
);

/// Lanes of a kernel at most.
const LANES: u32 = 1024;

/// Rooms for answers.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remora_create_answers(
    pd: *const Handle<ProtectionDomain>,
    count: u32,
    room: u32,
    out: *mut *mut Handle<Rooms>,
) -> c_int {
    number((|| {
        filled(out)?;
        // SAFETY: as the header says.
        let answers = unsafe { look(pd)? }.create_answers(count, room)?;
        // SAFETY: as the header says.
        unsafe { give(Rooms(Mutex::new(answers)), out) }
    })())
}

/// Makes a request on a queue pair that agreed on StRoM; its tag.
///
/// # Safety
/// As the header says.
unsafe fn ask(
    qp: *const Handle<Qp>,
    rooms: *const Handle<Rooms>,
    tag: *mut u32,
    post: impl FnOnce(&mut Answers, &mut QueuePair) -> Result<u32, PostError>,
) -> Result<(), Fault> {
    filled(tag)?;
    // SAFETY: as the header says.
    let (qp, rooms) = unsafe { (look(qp)?, look(rooms)?) };
    let mut stage = qp.stage.lock().unwrap_or_else(PoisonError::into_inner);
    let Stage::Ready(pair) = &mut *stage else {
        return Err(Fault::new(libc::ENOTCONN, "it is not connected"));
    };
    if !pair.agreement().is_some_and(|agreed| agreed.strom) {
        return Err(Fault::new(libc::EOPNOTSUPP, "the peer did not agree on StRoM"));
    }
    let asked = post(&mut rooms.0.lock().unwrap_or_else(PoisonError::into_inner), pair)?;
    // SAFETY: as the header says.
    unsafe { put(tag, asked) }
}

/// Asks a kernel.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remora_post_rpc(
    op: u64,
    qp: *const Handle<Qp>,
    rooms: *const Handle<Rooms>,
    parameters: *const c_void,
    size: u32,
    tag: *mut u32,
) -> c_int {
    number((|| {
        // SAFETY: the header asks for so many bytes.
        let params = unsafe { bytes(parameters, size as usize)? };
        // SAFETY: as the header says.
        unsafe { ask(qp, rooms, tag, |answers, pair| answers.ask(pair, op, params)) }
    })())
}

/// Gives a kernel bytes.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remora_post_rpc_write(
    op: u64,
    qp: *const Handle<Qp>,
    rooms: *const Handle<Rooms>,
    origin: *const c_void,
    size: u32,
    lkey: u32,
    tag: *mut u32,
) -> c_int {
    let local = [Sge { addr: origin as u64, len: size, lkey: Key::new(lkey) }];
    // SAFETY: as the header says; the NIC checks the key.
    number(unsafe { ask(qp, rooms, tag, |answers, pair| answers.give(pair, op, &local)) })
}

/// Waits for an answer.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remora_wait_answer(
    rooms: *const Handle<Rooms>,
    cq: *const Handle<Cq>,
    tag: u32,
    timeout_ms: u32,
    out: *mut CAnswer,
    into: *mut c_void,
    room: usize,
) -> c_int {
    number((|| {
        filled(out)?;
        // SAFETY: as the header says.
        let (rooms, cq) = unsafe { (look(rooms)?, look(cq)?) };
        let mut cq = cq.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answers = rooms.0.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = Duration::from_millis(timeout_ms.into());
        let answer = answers.wait(&mut cq, tag, timeout).map_err(|error| match error {
            AnswerError::Poll(error) => Fault::from(error),
            AnswerError::Ended(_) => Fault::new(libc::EIO, error),
        })?;
        let len = room.min(answer.len as usize);
        if len > 0 {
            let into = filled(into.cast::<u8>())?;
            // SAFETY: not null, and the header asks for `room` bytes.
            let into = unsafe { std::slice::from_raw_parts_mut(into, len) };
            answers.read(&answer, into).map_err(Fault::invalid)?;
        }
        let told = CAnswer { tag, status: answer.status.0.into(), length: answer.len };
        // SAFETY: as the header says.
        unsafe { put(out, told) }
    })())
}

fn lanes(kernel: u32, count: u32) -> Result<Vec<Box<dyn Kernel>>, Fault> {
    let shipped = Shipped::of(kernel).ok_or_else(|| Fault::invalid("no such kernel"))?;
    match (1..=LANES).contains(&count) {
        true => Ok(shipped.lanes(count as usize)),
        false => Err(Fault::invalid("a kernel has 1 to 1024 lanes")),
    }
}

/// Deploys a kernel.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remora_deploy_kernel(
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
        // SAFETY: as the header says.
        let (pd, mr) = unsafe { (look(pd)?, look(mr)?) };
        let options = KernelOptions { opcode: Some(op), grants: &[mr], longest, ..KernelOptions::default() };
        let handle = pd.deploy_kernel(lanes(kernel, count)?, &options)?;
        // SAFETY: as the header says.
        unsafe { give(handle, out) }
    })())
}

/// The check value of an object.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remora_crc64(start: *const c_void, len: usize) -> u64 {
    // SAFETY: the header asks for so many bytes.
    unsafe { bytes(start, len) }.map_or(0, crc64)
}
