//! Multicast groups of ids. On RoCE, joining a group only attaches a queue pair.

use remora_abi::cma::{RdmaCmEvent, RdmaCmId, RdmaCmJoinMcAttrEx, RdmaUdParam, UDP_QKEY, event_type};
use remora_abi::device::IbvGid;
use remora_abi::queue_pair::{IbvAhAttr, IbvGlobalRoute};
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cm_device::PORT;
use crate::event::{EventDetail, NewEvent};
use crate::id::{HOPS, IdObject, IdState, Phase};
use crate::membership::Membership;
use crate::{address, errno, ibverbs, id, post};

/// The queue pair number that addresses all members of a group.
const GROUP_QPN: u32 = 0x00ff_ffff;
/// The required attributes of `rdma_join_multicast_ex`: address and flags.
const NEEDED: u32 = 1 << 0 | 1 << 1;

/// Returns the GID of a group. RoCE v2 represents IPv4 groups as mapped addresses.
fn mgid(group: SocketAddr) -> IbvGid {
    address::gid(group)
}

fn join(id: &IdObject, group: SocketAddr, context: *mut c_void, sends_only: bool) -> Result<(), c_int> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut state = id.state();
    let is_ready = !matches!(state.phase, Phase::Idle | Phase::Listening) && !id.shown().verbs.is_null();
    if !id.is_datagrams() || !is_ready || !group.ip().to_canonical().is_multicast() {
        return Err(libc::EINVAL);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let context = context as usize;
    let outstanding = Arc::default();
    state.groups.push(Membership { number, group, context, sends_only, is_attached: false, outstanding });
    post::post(id, event_type::MULTICAST_JOIN, 0, number).inspect_err(|_| {
        state.groups.pop();
    })
}

/// Returns the address vector of a group.
fn address_vector(state: &IdState, dgid: IbvGid) -> IbvAhAttr {
    let IdState { gid_index, options, .. } = state;
    let grh = IbvGlobalRoute {
        dgid,
        flow_label: 0,
        sgid_index: *gid_index,
        hop_limit: HOPS,
        traffic_class: options.tos,
    };
    IbvAhAttr { grh, is_global: 1, port_num: PORT, ..ibverbs::zeroed() }
}

/// Returns the event that a group was joined, after attaching the id's queue pair. `None` if the id has left
/// the group since.
pub(crate) fn joined(id: &Arc<IdObject>, number: u64) -> Option<*mut RdmaCmEvent> {
    let mut state = id.state();
    let index = state.groups.iter().position(|membership| membership.number == number)?;
    let Membership { group, context, sends_only, .. } = state.groups[index];
    let gid = mgid(group);
    let qp = id.shown().qp;
    let attached = if qp.is_null() || sends_only {
        Ok(())
    } else {
        // SAFETY: the id's own queue pair.
        let attached = ibverbs::done(unsafe { ibverbs::ibv_attach_mcast(qp, &gid, 0) });
        state.groups[index].is_attached = attached.is_ok();
        attached
    };
    let ud = RdmaUdParam {
        private_data: context as *const c_void,
        private_data_len: 0,
        ah_attr: address_vector(&state, gid),
        qp_num: GROUP_QPN,
        qkey: UDP_QKEY,
    };
    let (event, status) = match attached {
        Ok(()) => (event_type::MULTICAST_JOIN, 0),
        Err(errno) => (event_type::MULTICAST_ERROR, -errno),
    };
    let outstanding = Arc::clone(&state.groups[index].outstanding);
    drop(state);
    // Leaving the group waits for this event. Destroying the id does not.
    outstanding.deliver();
    id.outstanding.acknowledge();
    let new_event = NewEvent { event, status, detail: EventDetail::Datagrams(ud), private_data: Vec::new() };
    Some(new_event.give(id, None, &outstanding))
}

fn detach(id: &IdObject, membership: &Membership) -> Result<(), c_int> {
    let qp = id.shown().qp;
    if qp.is_null() || !membership.is_attached {
        return Ok(());
    }
    // SAFETY: the id's own queue pair.
    ibverbs::done(unsafe { ibverbs::ibv_detach_mcast(qp, &mgid(membership.group), 0) })
}

fn leave(id: &IdObject, group: SocketAddr) -> Result<(), c_int> {
    let mut state = id.state();
    let is_it = |membership: &Membership| membership.group.ip() == group.ip();
    let index = state.groups.iter().position(is_it).ok_or(libc::EADDRNOTAVAIL)?;
    let membership = state.groups.remove(index);
    drop(state);
    detach(id, &membership)?;
    membership.outstanding.wait();
    Ok(())
}

/// Leaves all groups of an id that is destroyed.
pub(crate) fn leave_all(id: &IdObject) {
    let groups = std::mem::take(&mut id.state().groups);
    for membership in &groups {
        // Fails if the queue pair was destroyed before.
        let _ = detach(id, membership);
    }
}

/// Joins a group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut RdmaCmId,
    group: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| join(&id, address::parse(group)?, context, false)))
}

/// Joins a group, optionally only for sending.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut RdmaCmId,
    attr: *mut RdmaCmJoinMcAttrEx,
    context: *mut c_void,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.comp_mask != NEEDED || attr.join_flags > 1 {
            return Err(libc::EINVAL);
        }
        join(&id, address::parse(attr.addr)?, context, attr.join_flags == 1)
    })())
}

/// Leaves a group. Returns when the event of joining it is acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_leave_multicast(id: *mut RdmaCmId, group: *mut libc::sockaddr) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| leave(&id, address::parse(group)?)))
}
