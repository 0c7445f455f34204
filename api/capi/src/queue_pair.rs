//! C functions for queue pairs, listeners and connection requests.

use remora_verbs::{
    Access, ConnectError, ConnectRequest, CreateError, Init, Listener, ProtectionDomain, QpOptions, QueuePair,
};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::device::{Cq, end, kind};
use crate::errno::{Fault, number};
use crate::handle::{Handle, Kind, bytes, filled, give, look, put, string, take};

/// The stages in the life of a queue pair.
pub(crate) enum Stage {
    Init(QueuePair<Init>),
    Ready(QueuePair),
    /// Connecting has failed and has consumed the queue pair.
    Gone,
}

/// A queue pair that any thread may post to.
pub(crate) struct Qp {
    pub stage: Mutex<Stage>,
    number: u32,
    pub max_inline: u32,
}

kind!(Qp, b"rmr.qpai", "remora_qp");
kind!(Listener, b"rmr.lstn", "remora_listener");

impl Kind for ConnectRequest {
    const WORD: u64 = u64::from_be_bytes(*b"rmr.rqst");
    const NAME: &'static str = "remora_request";
    // A request that waits for an answer belongs to no device, so a forked child may answer it with a queue
    // pair of its own.
    const INHERITED: bool = true;
}

const SIGNAL_ALL: u32 = 1;
const PRISM: u32 = 2;
const IRN: u32 = 4;
const STROM: u32 = 8;

/// `remora_qp_attr`: the attributes of the queue pair that `remora_create_qp` creates.
#[repr(C)]
pub(crate) struct QpAttr {
    pub max_send_wr: u32,
    pub max_send_sge: u32,
    pub max_inline: u32,
    pub path_mtu: u32,
    pub access: u32,
    pub flags: u32,
    pub connect_timeout_ms: u32,
    pub private_len: u32,
    pub private_data: *const c_void,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub max_recv_wr: u32,
}

end!(
    /// Destroys a queue pair.
    remora_destroy_qp,
    Qp
);
end!(
    /// Closes a listener, which then takes no further requests.
    remora_close_listener,
    Listener
);

/// Fills in the default attributes, including REMORA_QP_PRISM.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_qp_attr_default(out: *mut QpAttr) -> c_int {
    let usual = QpOptions::default();
    let attr = QpAttr {
        max_send_wr: usual.max_send_wr,
        max_send_sge: usual.max_send_sge,
        max_inline: usual.max_inline,
        path_mtu: usual.path_mtu,
        access: usual.access.bits(),
        flags: PRISM,
        connect_timeout_ms: usual.connect_timeout.as_millis() as u32,
        private_len: 0,
        private_data: std::ptr::null(),
        max_rd_atomic: usual.max_rd_atomic,
        max_dest_rd_atomic: usual.max_dest_rd_atomic,
        timeout: usual.timeout,
        retry_cnt: usual.retry_cnt,
        max_recv_wr: usual.max_recv_wr,
    };
    // SAFETY: the caller meets the conditions of the header.
    number(unsafe { put(out, attr) })
}

fn options(attr: &QpAttr) -> Result<QpOptions, Fault> {
    if attr.flags & !(SIGNAL_ALL | PRISM | IRN | STROM) != 0 {
        return Err(Fault::invalid("flags that are not known"));
    }
    // This check comes before the bytes are read, because a greater length may be wrong.
    if attr.private_len > 256 {
        return Err(ConnectError::PrivateTooLong(attr.private_len as usize).into());
    }
    let access = Access::from_bits(attr.access);
    Ok(QpOptions {
        max_send_wr: attr.max_send_wr,
        max_send_sge: attr.max_send_sge,
        max_recv_wr: attr.max_recv_wr,
        max_inline: attr.max_inline,
        path_mtu: attr.path_mtu,
        access: access.ok_or_else(|| Fault::invalid("a right that is not known"))?,
        signal_all: attr.flags & SIGNAL_ALL != 0,
        prism: attr.flags & PRISM != 0,
        irn: attr.flags & IRN != 0,
        strom: attr.flags & STROM != 0,
        connect_timeout: Duration::from_millis(attr.connect_timeout_ms.into()),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        // SAFETY: the header requires `private_len` bytes.
        private_data: unsafe { bytes(attr.private_data, attr.private_len as usize)? }.to_vec(),
        ..QpOptions::default()
    })
}

/// Creates a queue pair that has yet to be connected, and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_create_qp(
    pd: *const Handle<ProtectionDomain>,
    cq: *const Handle<Cq>,
    attr: *const QpAttr,
    out: *mut *mut Handle<Qp>,
) -> c_int {
    number((|| {
        filled(out)?;
        filled(attr.cast_mut())?;
        // SAFETY: the caller meets the conditions of the header.
        let (pd, cq, options) = unsafe { (look(pd)?, look(cq)?, options(&*attr)?) };
        let cq = cq.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = pd.create_qp(&cq, &cq, &options).map_err(|error: CreateError| Fault::from(error))?;
        let number = pair.number();
        let max_inline = options.max_inline;
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(Qp { stage: Mutex::new(Stage::Init(pair)), number, max_inline }, out) }
    })())
}

/// Returns the number of a queue pair, or 0 for an invalid handle.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_qp_num(qp: *const Handle<Qp>) -> u32 {
    // SAFETY: the caller meets the conditions of the header.
    unsafe { look(qp) }.map_or(0, |qp| qp.number)
}

impl Qp {
    /// Takes the queue pair out of the INIT stage and connects it with `connect`.
    fn connect(
        &self,
        connect: impl FnOnce(QueuePair<Init>) -> Result<QueuePair, Fault>,
    ) -> Result<(), Fault> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Init(pair) => *stage = Stage::Ready(connect(pair)?),
            other => {
                *stage = other;
                return Err(Fault::new(libc::EISCONN, "it was connected before: a queue pair connects once"));
            }
        }
        Ok(())
    }
}

/// Connects a queue pair to the listener at `address`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_connect(qp: *const Handle<Qp>, address: *const c_char) -> c_int {
    number((|| {
        // SAFETY: the caller meets the conditions of the header.
        let (qp, address) = unsafe { (look(qp)?, string(address)?) };
        let address = address.ok_or_else(|| Fault::invalid("no address"))?;
        qp.connect(|pair| Ok(pair.connect(address)?))
    })())
}

/// Connects two queue pairs of this process.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_connect_pair(
    first: *const Handle<Qp>,
    second: *const Handle<Qp>,
) -> c_int {
    number((|| {
        // SAFETY: the caller meets the conditions of the header.
        let (first, second) = unsafe { (look(first)?, look(second)?) };
        if std::ptr::eq(first, second) {
            return Err(Fault::invalid("a queue pair cannot be its own peer"));
        }
        let busy = |_| Fault::new(libc::EBUSY, "another thread uses it");
        let mut one = first.stage.try_lock().map_err(busy)?;
        let busy = |_| Fault::new(libc::EBUSY, "another thread uses it");
        let mut two = second.stage.try_lock().map_err(busy)?;
        if !matches!((&*one, &*two), (Stage::Init(_), Stage::Init(_))) {
            return Err(Fault::new(libc::EISCONN, "one was connected before: a queue pair connects once"));
        }
        let taken = (std::mem::replace(&mut *one, Stage::Gone), std::mem::replace(&mut *two, Stage::Gone));
        if let (Stage::Init(a), Stage::Init(b)) = taken {
            let (a, b) = QueuePair::connect_pair(a, b)?;
            (*one, *two) = (Stage::Ready(a), Stage::Ready(b));
        }
        Ok(())
    })())
}

/// Returns the extensions agreed on with the peer, as REMORA_QP_* flags.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_agreed(qp: *const Handle<Qp>) -> u32 {
    // SAFETY: the caller meets the conditions of the header.
    let Ok(qp) = (unsafe { look(qp) }) else { return 0 };
    match &*qp.stage.lock().unwrap_or_else(PoisonError::into_inner) {
        Stage::Ready(pair) => pair.agreement().map_or(0, |agreed| {
            let when = |there: bool, flag: u32| if there { flag } else { 0 };
            when(agreed.prism, PRISM) | when(agreed.irn.is_some(), IRN) | when(agreed.strom, STROM)
        }),
        _ => 0,
    }
}

/// Copies up to `capacity` bytes of `data` to `out`. Returns the length of all of `data`.
///
/// # Safety
/// `capacity` bytes may be written to `out`, unless it is null.
unsafe fn copy(data: &[u8], out: *mut c_void, capacity: usize) -> Result<c_int, Fault> {
    if capacity > 0 {
        let out = filled(out.cast::<u8>())?;
        // SAFETY: `capacity` bytes may be written by the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), out, data.len().min(capacity)) };
    }
    Ok(data.len() as c_int)
}

fn len_or_errno(len: Result<c_int, Fault>) -> c_int {
    len.unwrap_or_else(|fault| -number(Err(fault)))
}

/// Copies the peer's private data to `out`. Returns its length, or a negative errno.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_peer_data(
    qp: *const Handle<Qp>,
    out: *mut c_void,
    capacity: usize,
) -> c_int {
    len_or_errno((|| {
        // SAFETY: the caller meets the conditions of the header.
        let qp = unsafe { look(qp)? };
        match &*qp.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            // SAFETY: the caller meets the conditions of the header.
            Stage::Ready(pair) => unsafe { copy(pair.peer_private_data(), out, capacity) },
            _ => Err(Fault::new(libc::ENOTCONN, "it is not connected")),
        }
    })())
}

/// Listens at a TCP address and writes the listener's handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_listen(
    address: *const c_char,
    out: *mut *mut Handle<Listener>,
) -> c_int {
    number((|| {
        filled(out)?;
        // SAFETY: the caller meets the conditions of the header.
        let address = unsafe { string(address)? }.ok_or_else(|| Fault::invalid("no address"))?;
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(Listener::bind(address)?, out) }
    })())
}

/// Returns the TCP port of a listener, or 0 for an invalid handle.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_listener_port(listener: *const Handle<Listener>) -> u16 {
    // SAFETY: the caller meets the conditions of the header.
    unsafe { look(listener) }.map_or(0, |listener| listener.address().port())
}

/// Waits for a connection request and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_get_request(
    listener: *const Handle<Listener>,
    timeout_ms: u32,
    out: *mut *mut Handle<ConnectRequest>,
) -> c_int {
    number((|| {
        filled(out)?;
        let timeout = Duration::from_millis(timeout_ms.into());
        // SAFETY: the caller meets the conditions of the header.
        let request = unsafe { look(listener)? }.accept(Some(timeout))?;
        let request = request.ok_or_else(|| Fault::new(libc::ETIMEDOUT, "nobody came"))?;
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(request, out) }
    })())
}

/// Copies the private data of a request to `out`. Returns its length, or a negative errno.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_request_data(
    request: *const Handle<ConnectRequest>,
    out: *mut c_void,
    capacity: usize,
) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    len_or_errno(unsafe { look(request).and_then(|request| copy(request.private_data(), out, capacity)) })
}

/// Accepts a request with a queue pair, and destroys the request.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_accept(
    request: *mut Handle<ConnectRequest>,
    qp: *const Handle<Qp>,
) -> c_int {
    number((|| {
        // SAFETY: the caller meets the conditions of the header.
        let (qp, request) = unsafe { (look(qp)?, take(request)?) };
        qp.connect(|pair| Ok(request.accept(pair)?))
    })())
}

/// Refuses a request with a text, and destroys the request.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_reject(
    request: *mut Handle<ConnectRequest>,
    words: *const c_char,
) -> c_int {
    number((|| {
        // SAFETY: the caller meets the conditions of the header.
        let (words, request) = unsafe { (string(words)?, take(request)?) };
        request.reject(words.unwrap_or("no"));
        Ok(())
    })())
}
