//! Moving a queue pair through its states, with the attributes that both sides of a connection have agreed
//! on.

use remora_abi::cma::{RdmaCmId, UDP_QKEY};
use remora_abi::objects::IbvQp;
use remora_abi::queue_pair::{IbvAhAttr, IbvGlobalRoute, IbvQpAttr, attr_mask as mask, qp_state};
use remora_broker::{ConnectedService, QpAttributes};
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use crate::cm_device::PORT;
use crate::id::{HOPS, IdObject};
use crate::{address, errno, ibverbs, id};

/// `IBV_ACCESS_REMOTE_WRITE`, `_READ` and `_ATOMIC`.
const ACCESS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
/// The RNR timer code: a peer that got receiver-not-ready retries after 0.64 ms. Linux uses 0, which means
/// 655 ms, and gives programs no way to set it.
const MIN_RNR_TIMER: u8 = 12;

/// Attributes of a queue pair, and the mask of those that are set.
pub(crate) type Attributes = (IbvQpAttr, c_int);

/// Returns the address vector of an id's peer.
pub(crate) fn address_vector(id: &IdObject) -> IbvAhAttr {
    let dgid = id.shown().route.addr.addr.dgid;
    let state = id.state();
    let traffic_class = state.options.tos;
    let grh =
        IbvGlobalRoute { dgid, flow_label: 0, sgid_index: state.gid_index, hop_limit: HOPS, traffic_class };
    IbvAhAttr { grh, is_global: 1, port_num: PORT, ..ibverbs::zeroed() }
}

fn of_datagrams(state: c_int) -> Result<Attributes, c_int> {
    let attr = IbvQpAttr { qp_state: state, qkey: UDP_QKEY, port_num: PORT, ..ibverbs::zeroed() };
    let more = match state {
        qp_state::INIT => mask::PKEY_INDEX | mask::PORT | mask::QKEY,
        qp_state::RTR => 0,
        qp_state::RTS => mask::SQ_PSN,
        _ => return Err(libc::EINVAL),
    };
    Ok((attr, mask::STATE | more))
}

fn ready_to_receive(id: &IdObject, agreed: &QpAttributes) -> Attributes {
    let QpAttributes { gids, flow_label, hop_limit, traffic_class, sl, .. } = *agreed;
    let dgid = address::gid(SocketAddr::new(IpAddr::from(gids.remote), 0));
    let grh = IbvGlobalRoute { dgid, flow_label, sgid_index: id.state().gid_index, hop_limit, traffic_class };
    let attr = IbvQpAttr {
        ah_attr: IbvAhAttr { grh, sl, is_global: 1, port_num: PORT, ..ibverbs::zeroed() },
        path_mtu: agreed.path_mtu.into(),
        dest_qp_num: agreed.remote_qpn.get(),
        // The broker learns the PSN only when the id accepts.
        rq_psn: id.state().starting_psn.get(),
        max_dest_rd_atomic: agreed.responder_resources.min(id.manager.max_responder_resources),
        min_rnr_timer: MIN_RNR_TIMER,
        ..ibverbs::zeroed()
    };
    let both = mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
    let reliable = agreed.service != ConnectedService::Uc;
    (attr, if reliable { both | mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER } else { both })
}

fn ready_to_send(id: &IdObject, agreed: &QpAttributes) -> Attributes {
    let attr = IbvQpAttr {
        sq_psn: agreed.sq_psn.get(),
        timeout: id.state().options.ack_timeout.unwrap_or(agreed.timeout),
        retry_cnt: agreed.retry_count,
        rnr_retry: agreed.rnr_retry_count,
        max_rd_atomic: agreed.initiator_depth.min(id.manager.max_initiator_depth),
        ..ibverbs::zeroed()
    };
    let reliable = mask::TIMEOUT | mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
    (attr, if agreed.service == ConnectedService::Uc { mask::SQ_PSN } else { mask::SQ_PSN | reliable })
}

/// Returns the attributes by which the id's queue pair reaches a state.
pub(crate) fn attributes(id: &IdObject, state: c_int) -> Result<Attributes, c_int> {
    if id.shown().verbs.is_null() {
        return Err(libc::EINVAL);
    }
    if id.is_datagrams() {
        return of_datagrams(state);
    }
    let agreed = || id.manager.client.qp_attributes(id.number).map_err(|error| errno::of_io(&error));
    let (attr, more) = match state {
        qp_state::INIT => {
            let attr = IbvQpAttr { qp_access_flags: ACCESS, port_num: PORT, ..ibverbs::zeroed() };
            (attr, mask::ACCESS_FLAGS | mask::PKEY_INDEX | mask::PORT)
        }
        qp_state::RTR => ready_to_receive(id, &agreed()?),
        qp_state::RTS => ready_to_send(id, &agreed()?),
        _ => return Err(libc::EINVAL),
    };
    Ok((IbvQpAttr { qp_state: state, ..attr }, mask::STATE | more))
}

fn modify(qp: *mut IbvQp, (mut attr, mask): Attributes) -> Result<(), c_int> {
    // SAFETY: a queue pair of the id or the caller.
    ibverbs::done(unsafe { ibverbs::ibv_modify_qp(qp, &mut attr, mask) })
}

/// Moves a queue pair of a connection to INIT, where receives may be posted.
pub(crate) fn to_init(id: &IdObject, qp: *mut IbvQp) -> Result<(), c_int> {
    modify(qp, attributes(id, qp_state::INIT)?)
}

/// Moves a queue pair of datagrams to RTS.
pub(crate) fn begin_datagrams(id: &IdObject, qp: *mut IbvQp) -> Result<(), c_int> {
    let states = [qp_state::INIT, qp_state::RTR, qp_state::RTS];
    states.into_iter().try_for_each(|state| modify(qp, attributes(id, state)?))
}

/// Moves the id's queue pair to RTS. `depths` replaces the agreed numbers of READs and atomics, from the
/// peer and to it.
pub(crate) fn connect(id: &IdObject, depths: Option<[u8; 2]>) -> Result<(), c_int> {
    let qp = id.shown().qp;
    let (mut attr, mask) = attributes(id, qp_state::RTR)?;
    attr.max_dest_rd_atomic = depths.map_or(attr.max_dest_rd_atomic, |depths| depths[0]);
    modify(qp, (attr, mask))?;
    let (mut attr, mask) = attributes(id, qp_state::RTS)?;
    attr.max_rd_atomic = depths.map_or(attr.max_rd_atomic, |depths| depths[1]);
    modify(qp, (attr, mask))
}

/// Moves the id's queue pair, if it has one, to the error state, where posted work is flushed.
pub(crate) fn fail(id: &IdObject) {
    let qp = id.shown().qp;
    if !qp.is_null() && !id.is_datagrams() {
        let attr = IbvQpAttr { qp_state: qp_state::ERR, ..ibverbs::zeroed() };
        let _ = modify(qp, (attr, mask::STATE));
    }
}

/// Returns the attributes by which a queue pair reaches the state that `attr` names.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut RdmaCmId,
    attr: *mut IbvQpAttr,
    out_mask: *mut c_int,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's.
        let (attr, out_mask) = unsafe { (attr.as_mut(), out_mask.as_mut()) };
        let attr = attr.ok_or(libc::EINVAL)?;
        let out_mask = out_mask.ok_or(libc::EINVAL)?;
        (*attr, *out_mask) = attributes(&id, attr.qp_state)?;
        Ok(())
    })())
}
