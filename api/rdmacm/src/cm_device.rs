//! The state that all ids of a process share: the open device, and the connection to the communication
//! manager.

use remora_abi::device::{IbvDeviceAttr, IbvGidEntry, IbvPortAttr};
use remora_abi::objects::{IbvContext, IbvPd};
use remora_abi::receive::IbvXrcd;
use remora_broker::client::{ClientError, CmClient, Options, Start};
use remora_memory::ForkMark;
use remora_wire::Address;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ibverbs;

/// The number of the device's port.
pub(crate) const PORT: u8 = 1;
/// Entries of the GID table that are read.
const GIDS: usize = 64;

/// Attempts to open the device and the connection to its broker, and the pause between two attempts. They
/// cover the time in which a killed broker disappears.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// A GID of the device's port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub index: u8,
    /// The address, whose UDP port is not used.
    pub address: SocketAddr,
}

/// The state that all ids share.
#[derive(Debug)]
pub(crate) struct CmDevice {
    fork: ForkMark,
    /// The device, which stays open for the life of the process, unless it fails.
    pub context: *mut IbvContext,
    pub client: CmClient,
    /// Maximum number of the peer's READs and atomics that a queue pair holds.
    pub max_responder_resources: u8,
    /// Maximum number of outstanding READs and atomics of a queue pair.
    pub max_initiator_depth: u8,
    defaults: Mutex<Defaults>,
}

/// Objects for programs that provide none, created when the first program needs them.
#[derive(Debug)]
struct Defaults {
    pd: *mut IbvPd,
    xrcd: *mut IbvXrcd,
}

// SAFETY: the pointers are objects of libibverbs, which any thread may use.
unsafe impl Send for CmDevice {}
// SAFETY: as above; mutable fields are behind locks.
unsafe impl Sync for CmDevice {}

static MANAGER: Mutex<Option<Arc<CmDevice>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the shared state of this process, opened on the first call. A forked child opens its own.
pub(crate) fn shared() -> Result<Arc<CmDevice>, c_int> {
    let mut place = locked(&MANAGER);
    if let Some(manager) = place.as_ref().filter(|manager| !manager.is_foreign()) {
        if !manager.client.is_over() {
            return Ok(Arc::clone(manager));
        }
        // The device has failed. Its context is closed with its last id and channel, and a new device can be
        // opened.
        *place = None;
    }
    let manager = Arc::new(CmDevice::open()?);
    // The state inherited by fork belongs to the parent and must not be dropped.
    std::mem::forget(place.replace(Arc::clone(&manager)));
    Ok(manager)
}

/// Opens the first device, which makes the broker of its address run.
fn open_device() -> Result<*mut IbvContext, c_int> {
    // SAFETY: the list ends with NULL, and is freed once.
    unsafe {
        let list = ibverbs::made(ibverbs::ibv_get_device_list(std::ptr::null_mut()))?;
        let first = *list;
        let opened =
            if first.is_null() { Err(libc::ENODEV) } else { ibverbs::made(ibverbs::ibv_open_device(first)) };
        ibverbs::ibv_free_device_list(list);
        opened
    }
}

/// Closes a device that no object uses. An open device would keep its addresses.
fn close(context: *mut IbvContext) {
    // SAFETY: an open device, which is not used afterwards.
    let closed = unsafe { ibverbs::ibv_close_device(context) };
    debug_assert_eq!(closed, 0, "a device without objects can be closed");
}

impl CmDevice {
    /// Opens the device and the connection to its broker, with several attempts: a killed broker closes its
    /// connections one after the other, so for a moment there may be a device without a broker.
    fn open() -> Result<CmDevice, c_int> {
        // The device has started its broker, or has the address alone.
        let options = Options { start: Start::Never, ..Options::from_environment() };
        for left in (0..TRIES).rev() {
            let context = open_device()?;
            let Some(first) = gids(context).first().copied() else {
                close(context);
                break;
            };
            let error = match CmClient::open(first.address, &options) {
                Ok(client) => return CmDevice::of(context, client).inspect_err(|_| close(context)),
                Err(error) => error,
            };
            close(context);
            if left == 0 || !matches!(error, ClientError::None(_)) {
                eprintln!("remora: {error}");
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Err(libc::ENODEV)
    }

    fn of(context: *mut IbvContext, client: CmClient) -> Result<CmDevice, c_int> {
        let mut attr: IbvDeviceAttr = ibverbs::zeroed();
        // SAFETY: an open device.
        ibverbs::done(unsafe { ibverbs::ibv_query_device(context, &mut attr) })?;
        let most = |number: c_int| number.clamp(0, 0xfe) as u8;
        Ok(CmDevice {
            fork: ForkMark::get(),
            context,
            client,
            max_responder_resources: most(attr.max_qp_rd_atom),
            max_initiator_depth: most(attr.max_qp_init_rd_atom),
            defaults: Mutex::new(Defaults { pd: std::ptr::null_mut(), xrcd: std::ptr::null_mut() }),
        })
    }

    /// Returns whether the state belongs to the parent process and was only inherited.
    pub(crate) fn is_foreign(&self) -> bool {
        self.fork.is_child()
    }

    /// The GIDs of the port.
    pub(crate) fn gids(&self) -> Vec<Gid> {
        gids(self.context)
    }

    /// The code of the port's path MTU.
    pub(crate) fn path_mtu(&self) -> u8 {
        let mut attr: IbvPortAttr = ibverbs::zeroed();
        // SAFETY: an open device.
        let asked = ibverbs::done(unsafe { ibverbs::ibv_query_port(self.context, PORT, &mut attr) });
        if asked.is_ok() && (1..=5).contains(&attr.active_mtu) { attr.active_mtu as u8 } else { 3 }
    }

    /// Returns the protection domain for ids that provide none.
    pub(crate) fn default_pd(&self) -> Result<*mut IbvPd, c_int> {
        let mut defaults = locked(&self.defaults);
        if defaults.pd.is_null() {
            // SAFETY: an open device.
            defaults.pd = ibverbs::made(unsafe { ibverbs::ibv_alloc_pd(self.context) })?;
        }
        Ok(defaults.pd)
    }

    /// Returns the XRC domain for ids that provide none.
    pub(crate) fn default_xrcd(&self) -> Result<*mut IbvXrcd, c_int> {
        let mut defaults = locked(&self.defaults);
        if defaults.xrcd.is_null() {
            // SAFETY: an open device.
            defaults.xrcd = unsafe { ibverbs::open_xrcd(self.context) }?;
        }
        Ok(defaults.xrcd)
    }
}

impl Drop for CmDevice {
    fn drop(&mut self) {
        if self.is_foreign() {
            return;
        }
        let defaults = self.defaults.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: created by this value, and no longer used: ids and channels keep this value alive.
        unsafe {
            if !defaults.xrcd.is_null() {
                let _ = ibverbs::close_xrcd(defaults.xrcd);
            }
            if !defaults.pd.is_null() {
                let _ = ibverbs::ibv_dealloc_pd(defaults.pd);
            }
            let _ = ibverbs::ibv_close_device(self.context);
        }
    }
}

fn gids(context: *mut IbvContext) -> Vec<Gid> {
    let empty: IbvGidEntry = ibverbs::zeroed();
    let mut entries = [empty; GIDS];
    let size = size_of::<IbvGidEntry>();
    // SAFETY: an open device, and as many entries as stated.
    let count = unsafe { ibverbs::_ibv_query_gid_table(context, entries.as_mut_ptr(), GIDS, 0, size) };
    let filled = &entries[..usize::try_from(count).unwrap_or(0).min(GIDS)];
    let of_port = filled.iter().filter(|entry| entry.port_num == u32::from(PORT) && entry.gid_index < 256);
    of_port.map(|entry| Gid { index: entry.gid_index as u8, address: socket_address(entry) }).collect()
}

/// Returns the address of a GID. A link-local address includes its interface.
fn socket_address(entry: &IbvGidEntry) -> SocketAddr {
    match IpAddr::from(Address(entry.gid.raw)) {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, 0, 0, entry.ndev_ifindex).into()
        }
        ip => SocketAddr::new(ip, 0),
    }
}
