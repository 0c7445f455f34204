//! C functions for 1RMA: regions, their keys, and grants. `portal.rs` has the client's transfers.

pub(crate) mod portal;

use remora_verbs::rma::{
    Client, Grant, RegionKey, Rights, Rma, RmaError, RmaOptions, RmaRegion, Settings, SubmitError, TRANSFERS,
};
use remora_verbs::{Access, Address, Context, CreateError, ProtectionDomain};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{end, kind};
use crate::errno::{Fault, number};
use crate::handle::{Handle, Kind, bytes, filled, give, look, put, take};

/// A region whose key any thread may change.
pub(crate) struct Region(Mutex<RmaRegion>);

kind!(Rma, b"rmr.1rma", "remora_rma");
kind!(Region, b"rmr.rreg", "remora_rma_region");

/// `remora_rma_attr`: the limits and timeouts of 1RMA.
#[repr(C)]
pub(crate) struct RmaAttr {
    pub regions: u32,
    pub keys: u32,
    pub slots: u32,
    pub served: u32,
    pub window: u32,
    pub dispatch_timeout_us: u32,
    pub timeout_us: u32,
}

/// `remora_rma_identity`: the identity of a client, from which servers derive its keys.
#[repr(C)]
pub(crate) struct Identity {
    pub address: [u8; 16],
    pub pid: u32,
    pub incarnation: u32,
}

/// `remora_rma_grant`: the place of a region and a client's keys for it.
#[repr(C)]
pub(crate) struct GrantBytes {
    pub bytes: [u8; Grant::LEN],
}

end!(
    /// Frees the handle of a device's 1RMA.
    remora_close_rma,
    Rma
);
end!(
    /// Destroys a region and deregisters its memory.
    remora_rma_dereg_mr,
    Region
);

/// Fills in the default attributes.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_attr_default(out: *mut RmaAttr) -> c_int {
    let RmaOptions { settings, regions, keys, .. } = RmaOptions::default();
    let attr = RmaAttr {
        regions,
        keys: keys as u32,
        slots: settings.slots.into(),
        served: settings.served.into(),
        window: settings.window,
        dispatch_timeout_us: (settings.dispatch_timeout / 1000) as u32,
        timeout_us: (settings.timeout / 1000) as u32,
    };
    // SAFETY: the caller meets the conditions of the header.
    number(unsafe { put(out, attr) })
}

/// The maximum number of entries of a table.
const TABLE: u32 = 1 << 20;
/// The maximum number of operations at a time.
const OPERATIONS: u32 = i16::MAX as u32;
/// The maximum size of the window.
const WINDOW: u32 = 1 << 30;
/// The maximum timeout in microseconds. Solicitations carry it in nanoseconds with 32 bits.
const TIMEOUT: u32 = 4_000_000;

fn options(attr: &RmaAttr) -> Result<RmaOptions, Fault> {
    let within = |name: &str, value: u32, least: u32, most: u32| {
        let fits = (least..=most).contains(&value);
        let refused = || Fault::invalid(format_args!("{name} is {value}: choose {least} to {most}"));
        if fits { Ok(value) } else { Err(refused()) }
    };
    let nanoseconds = |name, value| within(name, value, 1, TIMEOUT).map(|value| u64::from(value) * 1000);
    let usual = RmaOptions::default();
    let settings = Settings {
        slots: within("slots", attr.slots, 1, OPERATIONS)? as u16,
        served: within("served", attr.served, 1, OPERATIONS)? as u16,
        window: within("window", attr.window, 4096, WINDOW)?,
        dispatch_timeout: nanoseconds("dispatch_timeout_us", attr.dispatch_timeout_us)?,
        timeout: nanoseconds("timeout_us", attr.timeout_us)?,
        ..usual.settings
    };
    let regions = within("regions", attr.regions, 1, TABLE)?;
    let keys = within("keys", attr.keys, 2, TABLE)? as usize;
    Ok(RmaOptions { settings, regions, keys, ..usual })
}

/// Opens 1RMA on a device and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_open_rma(
    context: *const Handle<Context>,
    attr: *const RmaAttr,
    out: *mut *mut Handle<Rma>,
) -> c_int {
    number((|| {
        filled(out)?;
        filled(attr.cast_mut())?;
        // SAFETY: the pointer is not null, and the caller meets the conditions of the header.
        unsafe { give(look(context)?.open_rma(&options(&*attr)?)?, out) }
    })())
}

/// Reads a region key of 16 bytes. Returns `None` for null.
///
/// # Safety
/// The caller meets the conditions of the header.
unsafe fn key(start: *const c_void) -> Result<Option<RegionKey>, Fault> {
    if start.is_null() {
        return Ok(None);
    }
    // SAFETY: the header requires 16 bytes.
    let given = unsafe { bytes(start, 16)? }.first_chunk();
    let key = given.and_then(|bytes| RegionKey::new(*bytes));
    key.map(Some).ok_or_else(|| Fault::invalid("16 zeros are no key: give NULL for a random one"))
}

fn rights(bits: u32) -> Result<Rights, Fault> {
    let all = Rights::READ | Rights::WRITE | Rights::REKEY;
    let rights = u8::try_from(bits).map(Rights).ok().filter(|rights| all.contains(*rights));
    rights.ok_or_else(|| Fault::invalid("a right that is not known"))
}

/// Registers `length` bytes of the program's memory at `start`, and writes the region's handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_reg_mr(
    rma: *const Handle<Rma>,
    pd: *const Handle<ProtectionDomain>,
    start: *mut c_void,
    length: usize,
    bits: u32,
    region_key: *const c_void,
    out: *mut *mut Handle<Region>,
) -> c_int {
    number((|| {
        filled(out)?;
        let rights = rights(bits)?;
        // SAFETY: the caller meets the conditions of the header.
        let (rma, pd, key) = unsafe { (look(rma)?, look(pd)?, key(region_key)?) };
        let start = filled(start.cast::<u8>())?;
        // SAFETY: the header requires memory that stays mapped until the region is destroyed.
        let memory = unsafe { pd.register_raw(start, length, Access::LOCAL_WRITE)? };
        let region = rma.expose(memory, rights, key).map_err(|error| match error {
            CreateError::TooMany(..) => Fault::new(libc::ENOMEM, error),
            other => other.into(),
        })?;
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(Region(Mutex::new(region)), out) }
    })())
}

/// Locks the region of a handle.
///
/// # Safety
/// The conditions of [`look`].
unsafe fn region<'a>(handle: *const Handle<Region>) -> Result<MutexGuard<'a, RmaRegion>, Fault> {
    // SAFETY: the handle meets the conditions of `look` by the caller's promise.
    Ok(unsafe { look(handle)? }.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Writes the RegionId of a region to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_region_id(handle: *const Handle<Region>, out: *mut u32) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number((|| unsafe { put(out, region(handle)?.id()) })())
}

/// Gives a region a new key; null selects a random key.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_set_key(
    handle: *const Handle<Region>,
    region_key: *const c_void,
) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number((|| unsafe { Ok(region(handle)?.rekey(key(region_key)?)?) })())
}

/// Derives a client's keys for a region and writes the grant to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_grant(
    handle: *const Handle<Region>,
    client: *const Identity,
    bits: u32,
    region_key: *const c_void,
    out: *mut GrantBytes,
) -> c_int {
    number((|| {
        filled(out)?;
        filled(client.cast_mut())?;
        let rights = rights(bits)?;
        // SAFETY: the pointer is not null, and the caller meets the conditions of the header.
        let (region, key, identity) = unsafe { (region(handle)?, key(region_key)?, &*client) };
        let client = Client {
            address: Address(identity.address),
            pid: identity.pid,
            incarnation: identity.incarnation,
        };
        let grant = match &key {
            Some(key) => region.grant_under(&client, key),
            None => region.grant(&client),
        };
        // SAFETY: the caller meets the conditions of the header.
        unsafe { put(out, GrantBytes { bytes: grant.restricted(rights).to_bytes() }) }
    })())
}

/// Decodes a grant.
///
/// # Safety
/// The caller meets the conditions of the header.
unsafe fn grant(given: *const GrantBytes) -> Result<Grant, Fault> {
    let given = filled(given.cast_mut())?;
    // SAFETY: the pointer is not null, and the caller meets the conditions of the header.
    let grant = Grant::from_bytes(unsafe { &(*given).bytes }).filter(|grant| grant.server.address.is_host());
    grant.ok_or_else(|| Fault::invalid("a grant without the address of a server"))
}

/// Writes the length in bytes of the granted region to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_grant_length(given: *const GrantBytes, out: *mut u64) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number((|| unsafe { put(out, grant(given)?.len) })())
}

/// Finds a route to the server of a grant.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_rma_reach(rma: *const Handle<Rma>, given: *const GrantBytes) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number((|| unsafe { Ok(look(rma)?.reach(grant(given)?.server)?) })())
}

/// The maximum number of transfers in progress in a portal that the header states.
const _: () = assert!(TRANSFERS == 1024);

impl From<RmaError> for Fault {
    fn from(error: RmaError) -> Fault {
        match error {
            RmaError::Refused(SubmitError::Full) => Fault::new(libc::ENOMEM, error),
            RmaError::Nic(error) => error.into(),
            RmaError::Failed(_) => Fault::new(libc::EIO, error),
            _ => Fault::invalid(error),
        }
    }
}
