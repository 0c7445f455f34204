//! What all ids of a process share: the open device, and the connection to the communication manager.

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

/// The device's one port.
pub const PORT: u8 = 1;
/// Entries of the GID table that are looked at.
const GIDS: usize = 64;

/// Attempts to open a device and its broker, and the pause between two: a broker that is killed is gone by
/// then.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// A GID of the device's port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    pub index: u8,
    /// Its address; the UDP port means nothing.
    pub address: SocketAddr,
}

/// What all ids share.
#[derive(Debug)]
pub struct CmDevice {
    fork: ForkMark,
    /// The device, which stays open for the life of the process, unless it fails.
    pub context: *mut IbvContext,
    pub client: CmClient,
    /// READs and atomics from the peer that a queue pair holds at most.
    pub max_responder_resources: u8,
    /// READs and atomics that a queue pair has outstanding at most.
    pub max_initiator_depth: u8,
    defaults: Mutex<Defaults>,
}

/// Objects of programs that bring none, made when the first one needs them.
#[derive(Debug)]
struct Defaults {
    pd: *mut IbvPd,
    xrcd: *mut IbvXrcd,
}

// SAFETY: the pointers are libibverbs' objects, which any thread may use.
unsafe impl Send for CmDevice {}
// SAFETY: as above; what changes is behind locks.
unsafe impl Sync for CmDevice {}

static MANAGER: Mutex<Option<Arc<CmDevice>>> = Mutex::new(None);

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The manager of this process, opened at the first call. A forked child opens one of its own.
pub fn shared() -> Result<Arc<CmDevice>, c_int> {
    let mut place = locked(&MANAGER);
    if let Some(manager) = place.as_ref().filter(|manager| !manager.is_foreign()) {
        if !manager.client.is_over() {
            return Ok(Arc::clone(manager));
        }
        // The device has failed. Once its last id and channel have ended, so has its context, and there may
        // be another one.
        *place = None;
    }
    let manager = Arc::new(CmDevice::open()?);
    // What was inherited is the parent's: it is left to the exit.
    std::mem::forget(place.replace(Arc::clone(&manager)));
    Ok(manager)
}

/// Opens the first device. The broker of its address runs then.
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

/// Closes a device of which nobody else knows: what is open keeps its addresses.
fn close(context: *mut IbvContext) {
    // SAFETY: an open device, which is not used again.
    let closed = unsafe { ibverbs::ibv_close_device(context) };
    debug_assert_eq!(closed, 0, "it has no objects");
}

impl CmDevice {
    /// A broker that was killed hangs up its connections one after the other: for a moment there may be a
    /// device that has no broker any more.
    fn open() -> Result<CmDevice, c_int> {
        // The device has a broker already, or is its own.
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

    /// Is it the parent's, which this process only inherited?
    pub fn is_foreign(&self) -> bool {
        self.fork.is_child()
    }

    /// The GIDs of the port.
    pub fn gids(&self) -> Vec<Gid> {
        gids(self.context)
    }

    /// The code of the port's path MTU.
    pub fn path_mtu(&self) -> u8 {
        let mut attr: IbvPortAttr = ibverbs::zeroed();
        // SAFETY: an open device.
        let asked = ibverbs::done(unsafe { ibverbs::ibv_query_port(self.context, PORT, &mut attr) });
        if asked.is_ok() && (1..=5).contains(&attr.active_mtu) { attr.active_mtu as u8 } else { 3 }
    }

    /// The protection domain of ids that bring none.
    pub fn default_pd(&self) -> Result<*mut IbvPd, c_int> {
        let mut defaults = locked(&self.defaults);
        if defaults.pd.is_null() {
            // SAFETY: an open device.
            defaults.pd = ibverbs::made(unsafe { ibverbs::ibv_alloc_pd(self.context) })?;
        }
        Ok(defaults.pd)
    }

    /// The XRC domain of ids that bring none.
    pub fn default_xrcd(&self) -> Result<*mut IbvXrcd, c_int> {
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
        // SAFETY: made here, and nobody's any more: ids and channels keep this value.
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
    // SAFETY: an open device, and as many entries as are said.
    let count = unsafe { ibverbs::_ibv_query_gid_table(context, entries.as_mut_ptr(), GIDS, 0, size) };
    let filled = &entries[..usize::try_from(count).unwrap_or(0).min(GIDS)];
    let of_port = filled.iter().filter(|entry| entry.port_num == u32::from(PORT) && entry.gid_index < 256);
    of_port.map(|entry| Gid { index: entry.gid_index as u8, address: socket_address(entry) }).collect()
}

/// The address that a GID is. A link-local one needs its interface.
fn socket_address(entry: &IbvGidEntry) -> SocketAddr {
    match IpAddr::from(Address(entry.gid.raw)) {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, 0, 0, entry.ndev_ifindex).into()
        }
        ip => SocketAddr::new(ip, 0),
    }
}
