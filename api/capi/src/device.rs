//! C functions for contexts, protection domains, memory regions and completion queues.

use remora_verbs::{
    Access, CompletionKind, CompletionQueue, Context, CqOptions, Device, EMPTY, MemoryRegion, Mode,
    ProtectionDomain, Status, WorkCompletion,
};
use std::ffi::{c_char, c_int, c_void};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::errno::{Fault, number};
use crate::handle::{Handle, Kind, filled, give, look, string, take};

macro_rules! kind {
    ($type:ty, $word:literal, $name:literal) => {
        impl Kind for $type {
            const WORD: u64 = u64::from_be_bytes(*$word);
            const NAME: &'static str = $name;
        }
    };
}
pub(crate) use kind;

/// A completion queue that any thread may poll.
pub(crate) struct Cq(pub Mutex<CompletionQueue>);

kind!(Context, b"rmr.cont", "remora_context");
kind!(ProtectionDomain, b"rmr.doma", "remora_pd");
kind!(MemoryRegion, b"rmr.regi", "remora_mr");
kind!(Cq, b"rmr.cmpq", "remora_cq");

/// `remora_device_attr`: the attributes of the NIC that `remora_open` opens.
#[repr(C)]
pub(crate) struct DeviceAttr {
    pub port: u32,
    pub dedicated: u32,
    pub address: *const c_char,
    pub interface: *const c_char,
    pub capture: *const c_char,
}

/// `remora_wc`: one completion.
#[repr(C)]
pub(crate) struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
    pub qp_num: u32,
    pub outcome: u32,
    pub vendor_err: u32,
}

/// The maximum number of completions that one call returns.
const AT_ONCE: usize = 64;

fn device(attr: &DeviceAttr) -> Result<Device, Fault> {
    // SAFETY: the header requires each pointer to be null or a C string.
    let (address, interface, capture) =
        unsafe { (string(attr.address)?, string(attr.interface)?, string(attr.capture)?) };
    let own = |text: &str| {
        let address = text.parse::<IpAddr>().map_err(|_| Fault::invalid("not an IP address"));
        address.map(|address| address.to_canonical())
    };
    let mut device = match (attr.port, interface) {
        (0, None) => match address {
            Some(text) => match own(text)? {
                IpAddr::V4(address) => Device::shm().address(address),
                IpAddr::V6(_) => return Err(Fault::invalid("shm's own addresses are IPv4")),
            },
            None => Device::shm(),
        },
        (1, None) => Device::udp(address.unwrap_or("0.0.0.0:0"))?,
        (2, Some(interface)) => Device::xdp(interface, address.map(own).transpose()?),
        (2, None) => return Err(Fault::invalid("port xdp needs an interface")),
        _ => return Err(Fault::invalid("no such port, or an interface where none belongs")),
    };
    if let Some(file) = capture {
        device = device.capture(file);
    }
    match attr.dedicated {
        0 => Ok(device),
        1 => Ok(device.mode(Mode::Dedicated)),
        _ => Err(Fault::invalid("dedicated is 0 or 1")),
    }
}

/// Opens a NIC and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header. The same holds for every function of this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_open(
    attr: *const DeviceAttr,
    out: *mut *mut Handle<Context>,
) -> c_int {
    number((|| {
        filled(out)?;
        filled(attr.cast_mut())?;
        // SAFETY: the pointer is not null, and the caller meets the conditions of the header.
        unsafe { give(device(&*attr)?.open()?, out) }
    })())
}

macro_rules! end {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The caller meets the conditions of the header.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(handle: *mut Handle<$type>) -> c_int {
            // SAFETY: the caller meets the conditions of the header.
            number(unsafe { take(handle) }.map(drop))
        }
    };
}
pub(crate) use end;

end!(
    /// Frees the handle of a context.
    remora_close,
    Context
);
end!(
    /// Frees the handle of a protection domain.
    remora_dealloc_pd,
    ProtectionDomain
);
end!(
    /// Deregisters a memory region; its keys are no longer valid.
    remora_dereg_mr,
    MemoryRegion
);
end!(
    /// Frees the handle of a completion queue.
    remora_destroy_cq,
    Cq
);

/// Allocates a protection domain and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_alloc_pd(
    context: *const Handle<Context>,
    out: *mut *mut Handle<ProtectionDomain>,
) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number((|| unsafe { give(look(context)?.alloc_pd()?, filled(out)?) })())
}

/// Registers `length` bytes of the program's memory at `start`, and writes the region's handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_reg_mr(
    pd: *const Handle<ProtectionDomain>,
    start: *mut c_void,
    length: usize,
    access: u32,
    out: *mut *mut Handle<MemoryRegion>,
) -> c_int {
    number((|| {
        filled(out)?;
        let access = Access::from_bits(access).ok_or_else(|| Fault::invalid("a right that is not known"))?;
        // SAFETY: the header requires memory that outlives the region.
        unsafe { give(look(pd)?.register_raw(start.cast(), length, access)?, out) }
    })())
}

/// Returns the local key of a region, or 0 for an invalid handle.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_lkey(mr: *const Handle<MemoryRegion>) -> u32 {
    // SAFETY: the caller meets the conditions of the header.
    unsafe { look(mr) }.map_or(0, |region| region.lkey().get())
}

/// Returns the remote key of a region, or 0 for an invalid handle.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rkey(mr: *const Handle<MemoryRegion>) -> u32 {
    // SAFETY: the caller meets the conditions of the header.
    unsafe { look(mr) }.map_or(0, |region| region.rkey().get())
}

/// Creates a completion queue for at least `depth` completions and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_create_cq(
    context: *const Handle<Context>,
    depth: u32,
    out: *mut *mut Handle<Cq>,
) -> c_int {
    number((|| {
        filled(out)?;
        let options = CqOptions { depth, ..CqOptions::default() };
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(Cq(Mutex::new(look(context)?.create_cq_with(&options)?)), out) }
    })())
}

fn emit_wc(wc: &WorkCompletion) -> Wc {
    let good = wc.status == Status::Success;
    Wc {
        wr_id: wc.id,
        status: wc.status as u32,
        opcode: if wc.kind == CompletionKind::Nop { u32::MAX } else { wc.kind as u32 },
        byte_len: wc.byte_len,
        qp_num: wc.qp_num,
        outcome: if good { wc.outcome as u32 } else { 0 },
        vendor_err: 0,
    }
}

/// Takes up to `count` completions; with a timeout, waits for the first. Returns their number.
///
/// # Safety
/// `out` points to `count` elements, and the caller meets the conditions of the header.
unsafe fn completions(
    cq: *const Handle<Cq>,
    count: c_int,
    out: *mut Wc,
    timeout: Option<Duration>,
) -> Result<c_int, Fault> {
    let wanted = usize::try_from(count).map_err(|_| Fault::invalid("a negative number of completions"))?;
    filled(out)?;
    // SAFETY: the caller meets the conditions of the header.
    let cq = unsafe { look(cq)? };
    let mut cq = cq.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut some = [EMPTY; AT_ONCE];
    let some = &mut some[..wanted.min(AT_ONCE)];
    let taken = match timeout {
        None => cq.poll(some)?,
        Some(timeout) => cq.wait(some, timeout)?,
    };
    for (index, wc) in some[..taken].iter().enumerate() {
        // SAFETY: `taken` is at most `count`.
        unsafe { out.add(index).write(emit_wc(wc)) };
    }
    Ok(taken as c_int)
}

/// Returns the number, or the negative errno of a failure whose text it stores for `remora_error`.
pub(crate) fn count_or_errno(taken: Result<c_int, Fault>) -> c_int {
    taken.unwrap_or_else(|fault| -number(Err(fault)))
}

/// Takes completions without waiting. Returns their number, or a negative errno.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_poll_cq(cq: *const Handle<Cq>, count: c_int, out: *mut Wc) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    count_or_errno(unsafe { completions(cq, count, out, None) })
}

/// Polls until there is a completion or `timeout_ms` milliseconds have passed. Returns the number of
/// completions, or a negative errno.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_wait_cq(
    cq: *const Handle<Cq>,
    count: c_int,
    out: *mut Wc,
    timeout_ms: u32,
) -> c_int {
    let timeout = Duration::from_millis(timeout_ms.into());
    // SAFETY: the caller meets the conditions of the header.
    count_or_errno(unsafe { completions(cq, count, out, Some(timeout)) })
}
