//! Ids, which are created by programs or by a peer's request.

use remora_abi::cma::RdmaCmId;
use remora_abi::device::IbvGid;
use remora_abi::objects::IbvPd;
use remora_abi::queue_pair::{IbvQpInitAttr, QPT_UD};
use remora_abi::sa::IbvSaPathRec;
use remora_wire::Psn;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::addrinfo::Found;
use crate::channel::ChannelObject;
use crate::cm_device::{CmDevice, Gid, PORT};
use crate::id_options::IdOptions;
use crate::live::Live;
use crate::membership::Membership;
use crate::outstanding::Outstanding;
use crate::{address, ibverbs};

/// The hop limit of packets.
pub(crate) const HOPS: u8 = 64;
/// The default partition, with full membership.
const PKEY: u16 = 0xffff;
/// The code of the packet lifetime, 0.27 s, as the communication manager uses it.
const PACKET_LIFE_TIME: u8 = 16;

/// The progress of an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Bound,
    Listening,
    /// The kernel resolves the destination's hardware address.
    Resolving,
    AddressResolved,
    RouteResolved,
    /// The id was created by a peer's request.
    Requested,
    /// The id has requested or accepted a connection, which may have ended since.
    Connecting,
}

/// An id (`rdma_cm_id`).
#[repr(C)]
pub(crate) struct IdObject {
    verbs: UnsafeCell<RdmaCmId>,
    path: UnsafeCell<IbvSaPathRec>,
    pub manager: Arc<CmDevice>,
    /// The id's number at the broker.
    pub number: u64,
    pub outstanding: Arc<Outstanding>,
    state: Mutex<IdState>,
}

/// The mutable state of an id, besides the structure that programs see.
pub(crate) struct IdState {
    pub phase: Phase,
    pub channel: Arc<ChannelObject>,
    /// True if the channel is hidden: calls then wait for their events.
    pub is_sync: bool,
    pub options: IdOptions,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    pub gid_index: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    /// The PSN of the first packet that the peer sends.
    pub starting_psn: Psn,
    /// For a listener of `rdma_create_ep`: the queue pair of each request.
    pub endpoint: Option<Endpoint>,
    pub groups: Vec<Membership>,
    /// The result of `rdma_resolve_addrinfo`.
    pub addrinfo: Option<Found>,
    /// True if the id has created its completion queues itself.
    pub made_cqs: bool,
    /// True if the program was told that the device is gone.
    pub is_bereft: bool,
}

/// The attributes of the queue pairs for a listener's requests.
#[derive(Copy, Clone)]
pub(crate) struct Endpoint {
    pub pd: *mut IbvPd,
    pub attr: IbvQpInitAttr,
}

// SAFETY: the structure that programs see is changed only by the calls that the manual pages name, one at a
// time. Everything else is behind locks, and the pointers are objects of libibverbs, which any thread may
// use.
unsafe impl Send for IdObject {}
// SAFETY: as above.
unsafe impl Sync for IdObject {}
// SAFETY: as above.
unsafe impl Send for IdState {}

impl std::fmt::Debug for IdObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "id {}", self.number)
    }
}

/// Returns a random PSN, so that packets of an earlier connection do not match this one.
fn random_psn() -> Psn {
    Psn::new(RandomState::new().hash_one(0) as u32 & 0x00ff_ffff)
}

/// The ids that programs have.
pub(crate) static IDS: Live<IdObject> = Live::new();

/// The parameters of a new id.
pub(crate) struct Made {
    pub number: u64,
    pub channel: Arc<ChannelObject>,
    pub is_sync: bool,
    pub context: *mut c_void,
    pub ps: c_int,
    pub qp_type: c_int,
}

impl IdObject {
    /// Creates an id.
    pub(crate) fn new(made: Made) -> Arc<IdObject> {
        let Made { number, channel, is_sync, context, ps, qp_type } = made;
        let manager = Arc::clone(&channel.manager);
        let verbs = RdmaCmId { channel: channel.handle(), context, ps, qp_type, ..ibverbs::zeroed() };
        let state = IdState {
            phase: Phase::Idle,
            channel,
            is_sync,
            options: IdOptions::default(),
            local: None,
            remote: None,
            gid_index: 0,
            responder_resources: 0,
            initiator_depth: 0,
            starting_psn: random_psn(),
            endpoint: None,
            groups: Vec::new(),
            addrinfo: None,
            made_cqs: false,
            is_bereft: false,
        };
        Arc::new(IdObject {
            verbs: verbs.into(),
            path: UnsafeCell::new(ibverbs::zeroed()),
            manager,
            number,
            outstanding: Arc::default(),
            state: state.into(),
        })
    }

    /// The address by which programs refer to the id.
    pub(crate) fn handle(&self) -> *mut RdmaCmId {
        self.verbs.get()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, IdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the structure that programs see.
    pub(crate) fn shown(&self) -> RdmaCmId {
        // SAFETY: the object lives. By the manual pages, the program's threads take turns.
        unsafe { *self.verbs.get() }
    }

    /// Changes the structure that programs see.
    pub(crate) fn show(&self, change: impl FnOnce(&mut RdmaCmId)) {
        // SAFETY: as above.
        change(unsafe { &mut *self.verbs.get() });
    }

    pub(crate) fn is_datagrams(&self) -> bool {
        self.shown().qp_type == QPT_UD
    }

    /// Attaches the id to the device at this GID. An id without a protection domain gets the default one.
    pub(crate) fn at_device(&self, state: &mut IdState, gid: Gid) -> Result<(), c_int> {
        let pd = self.manager.default_pd()?;
        state.gid_index = gid.index;
        self.show(|id| {
            if id.pd.is_null() {
                id.pd = pd;
            }
            (id.verbs, id.port_num) = (self.manager.context, PORT);
            id.route.addr.addr.sgid = address::gid(gid.address);
            id.route.addr.addr.pkey = PKEY.to_be();
        });
        Ok(())
    }

    /// Sets the local address.
    pub(crate) fn set_local(&self, state: &mut IdState, address: SocketAddr) {
        state.local = Some(address);
        self.show(|id| id.route.addr.src_storage = address::store(address));
    }

    /// Sets the peer's address.
    pub(crate) fn set_remote(&self, state: &mut IdState, address: SocketAddr) {
        state.remote = Some(address);
        self.show(|id| {
            id.route.addr.dst_storage = address::store(address);
            id.route.addr.addr.dgid = address::gid(address);
        });
    }

    /// Sets the path to the peer in the form of a subnet manager's record.
    pub(crate) fn set_path(&self, traffic_class: u8) {
        let IbvGids { sgid, dgid } = self.gids();
        let path = IbvSaPathRec {
            dgid,
            sgid,
            hop_limit: HOPS,
            traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: PKEY.to_be(),
            // Selector 2 means "exactly".
            mtu_selector: 2,
            mtu: self.manager.path_mtu(),
            rate_selector: 2,
            packet_life_time_selector: 2,
            packet_life_time: PACKET_LIFE_TIME,
            ..ibverbs::zeroed()
        };
        // SAFETY: programs only read the structure.
        unsafe { *self.path.get() = path };
        self.show(|id| (id.route.path_rec, id.route.num_paths) = (self.path.get(), 1));
    }

    fn gids(&self) -> IbvGids {
        let addr = self.shown().route.addr.addr;
        IbvGids { sgid: addr.sgid, dgid: addr.dgid }
    }
}

/// The GIDs of both ends.
struct IbvGids {
    sgid: IbvGid,
    dgid: IbvGid,
}

/// Returns an id of the program. EINVAL for an id inherited from a parent process.
pub(crate) fn look(id: *const RdmaCmId) -> Result<Arc<IdObject>, c_int> {
    let object = IDS.look(id)?;
    if object.manager.is_foreign() { Err(libc::EINVAL) } else { Ok(object) }
}

/// Returns the port that the id is bound to in network order; 0 if there is none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut RdmaCmId) -> u16 {
    IDS.look(id).map_or(0, |id| address::port(&id.shown().route.addr.src_storage))
}

/// Returns the peer's port in network order; 0 if there is none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut RdmaCmId) -> u16 {
    IDS.look(id).map_or(0, |id| address::port(&id.shown().route.addr.dst_storage))
}
