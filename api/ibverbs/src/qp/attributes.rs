//! Changing and querying the attributes of queue pairs.

use remora_abi::objects::IbvQp;
use remora_abi::queue_pair::{IbvQpAttr, IbvQpInitAttr, IbvQpRateLimitAttr, attr_mask as mask};
use remora_verbs::{CreateError, Modify, PathMigration, Psn, Service, State};
use std::ffi::c_int;
use std::sync::PoisonError;

use super::object::QpObject;
use crate::context::ContextObject;
use crate::{ah, context, errno, explain, gid, handles, mr, port, requests};

/// Returns the part of a mask that applies to a service. Programs give both sides of XRC the attributes of
/// RC.
fn masked(service: Service, asked: c_int) -> c_int {
    const RESPONDER: c_int = mask::MIN_RNR_TIMER | mask::MAX_DEST_RD_ATOMIC;
    const REQUESTER: c_int = mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
    match service {
        Service::XrcInitiator => asked & !RESPONDER,
        Service::XrcTarget => asked & !REQUESTER,
        _ => asked,
    }
}

/// Explains a refusal by the attribute's name.
fn named<T>(attribute: &str, result: Result<T, c_int>) -> Result<T, c_int> {
    explain::named("ibv_modify_qp", attribute, result)
}

/// The attributes that a mask may name.
const KNOWN: c_int = ((mask::DEST_QPN << 1) - 1) | mask::RATE_LIMIT;

/// Returns the largest path MTU in bytes of the address that the queue pair is to send from.
fn path_mtu_of(view: &ContextObject, attr: &IbvQpAttr, asked: c_int) -> u32 {
    let adapter = &view.nic.adapter;
    let named = asked & mask::AV != 0;
    let source = named.then(|| gid::source(view, attr.ah_attr.grh.sgid_index.into()).ok()).flatten();
    source.map_or(adapter.facts().path_mtu, |number| adapter.path_mtu_from(number))
}

/// Returns the change that an attribute mask requests.
fn change(view: &ContextObject, attr: &IbvQpAttr, asked: c_int) -> Result<Modify, c_int> {
    let has = |bit: c_int| asked & bit != 0;
    let state = |number: c_int| u8::try_from(number).ok().and_then(State::from_number).ok_or(libc::EINVAL);
    // The queue sizes cannot change, and there is no alternate path.
    if asked & !KNOWN != 0 || has(mask::CAP) {
        return named("the mask", Err(libc::EINVAL));
    }
    let path_mtu = match has(mask::PATH_MTU) {
        true => {
            let most = path_mtu_of(view, attr, asked);
            let fits = port::mtu_bytes(attr.path_mtu).filter(|mtu| *mtu <= most).ok_or(libc::EINVAL);
            Some(named("path_mtu", fits)?)
        }
        false => None,
    };
    let migration = match (has(mask::PATH_MIG_STATE), attr.path_mig_state) {
        (false, _) => None,
        (true, 0) => Some(PathMigration::Migrated),
        (true, 1) => Some(PathMigration::Rearm),
        (true, 2) => Some(PathMigration::Armed),
        (true, _) => return named("path_mig_state", Err(libc::EINVAL)),
    };
    Ok(Modify {
        state: has(mask::STATE).then(|| named("qp_state", state(attr.qp_state))).transpose()?,
        current: has(mask::CUR_STATE).then(|| named("cur_qp_state", state(attr.cur_qp_state))).transpose()?,
        sqd_event: has(mask::EN_SQD_ASYNC_NOTIFY).then_some(attr.en_sqd_async_notify != 0),
        access: has(mask::ACCESS_FLAGS)
            .then(|| named("qp_access_flags", mr::access(attr.qp_access_flags & !mr::FLUSH)))
            .transpose()?,
        pkey_index: has(mask::PKEY_INDEX).then_some(attr.pkey_index),
        port: has(mask::PORT).then_some(attr.port_num),
        qkey: has(mask::QKEY).then_some(attr.qkey),
        address: has(mask::AV).then(|| named("ah_attr", ah::resolve(view, &attr.ah_attr))).transpose()?,
        path_mtu,
        timeout: has(mask::TIMEOUT).then_some(attr.timeout),
        retry_cnt: has(mask::RETRY_CNT).then_some(attr.retry_cnt),
        rnr_retry: has(mask::RNR_RETRY).then_some(attr.rnr_retry),
        rq_psn: has(mask::RQ_PSN).then_some(Psn::new(attr.rq_psn & 0x00ff_ffff)),
        max_rd_atomic: has(mask::MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        alternate: has(mask::ALT_PATH)
            .then(|| named("alt_ah_attr", ah::resolve(view, &attr.alt_ah_attr)))
            .transpose()?,
        min_rnr_timer: has(mask::MIN_RNR_TIMER).then_some(attr.min_rnr_timer),
        sq_psn: has(mask::SQ_PSN).then_some(Psn::new(attr.sq_psn & 0x00ff_ffff)),
        max_dest_rd_atomic: has(mask::MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic),
        path_migration: migration,
        dest_qp: has(mask::DEST_QPN).then_some(requests::qpn_of(attr.dest_qp_num)),
        // The verbs count in kilobits per second.
        rate_limit: has(mask::RATE_LIMIT).then_some(u64::from(attr.rate_limit) * 1000),
        ..Modify::default()
    })
}

/// Changes the state and the attributes that `mask` names, all of them or none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut IbvQp, attr: *mut IbvQpAttr, mask: c_int) -> c_int {
    errno::number((|| {
        let object = handles::look::<QpObject>(qp)?;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        // SAFETY: the field never changes.
        let view = context::look(unsafe { (*object.verbs.get()).qp_base.context })?;
        let change = change(view, attr, masked(object.raw.service(), mask))?;
        if change.state == Some(State::Reset) {
            explain::waited(&view.nic, object.raw.number().get());
        }
        object.raw.modify(&change).map_err(|error| {
            if let CreateError::Unreachable(words) = &error {
                // A link is missing that is demanded or that the neighbour may use.
                eprintln!("remora: {words}");
            }
            let name = format!("queue pair {:#x}", object.raw.number().get());
            explain::refused("ibv_modify_qp", &name, &error);
            errno::of_create(error)
        })?;
        if let Some(faults) = &object.faults {
            if change.state == Some(State::Reset) {
                faults.reset();
            }
            if let Some(address) = &change.address {
                faults.set_peer(Some(address.route.destination));
            }
        }
        if change.address.is_some() {
            let path_mtu = change.path_mtu.unwrap_or(0);
            let source_gid =
                gid::at(view, attr.ah_attr.grh.sgid_index.into()).unwrap_or(attr.ah_attr.grh.dgid);
            let peer =
                explain::RemoteQp::new(&source_gid, &attr.ah_attr.grh.dgid, attr.dest_qp_num, path_mtu);
            explain::peer(object.raw.number().get(), peer);
            *object.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(attr.ah_attr);
        }
        if let Some(state) = change.state {
            // SAFETY: programs only read the field.
            unsafe { (*object.verbs.get()).qp_base.state = state as c_int };
        }
        Ok(())
    })())
}

/// Sets a rate limit. Other attributes of the call are not supported.
pub(crate) unsafe extern "C" fn modify_qp_rate_limit(qp: *mut IbvQp, attr: *mut IbvQpRateLimitAttr) -> c_int {
    errno::number((|| {
        let object = handles::look::<QpObject>(qp)?;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.comp_mask != 0 || attr.max_burst_sz != 0 || attr.typical_pkt_sz != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let change = Modify { rate_limit: Some(u64::from(attr.rate_limit) * 1000), ..Modify::default() };
        object.raw.modify(&change).map_err(errno::of_create)
    })())
}

/// Returns the attributes of a queue pair that were set so far.
fn describe(object: &QpObject) -> Result<IbvQpAttr, c_int> {
    let given = object.raw.query().ok_or(libc::EIO)?;
    // SAFETY: all fields are numbers, for which zero is a valid value.
    let empty: IbvQpAttr = unsafe { std::mem::zeroed() };
    let state = given.state.map_or(0, |state| state as c_int);
    let address = *object.address.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(IbvQpAttr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: given.path_mtu.map_or(0, port::mtu_code),
        path_mig_state: given.path_migration.map_or(0, |state| state as c_int),
        qkey: given.qkey.unwrap_or(0),
        rq_psn: given.rq_psn.map_or(0, Psn::get),
        sq_psn: given.sq_psn.map_or(0, Psn::get),
        dest_qp_num: given.dest_qp.map_or(0, |qp| qp.get()),
        qp_access_flags: given.access.map_or(0, |access| access.bits()),
        cap: object.cap,
        ah_attr: given.address.and(address).unwrap_or(empty.ah_attr),
        pkey_index: given.pkey_index.unwrap_or(0),
        max_rd_atomic: given.max_rd_atomic.unwrap_or(0),
        max_dest_rd_atomic: given.max_dest_rd_atomic.unwrap_or(0),
        min_rnr_timer: given.min_rnr_timer.unwrap_or(0),
        port_num: given.port.unwrap_or(0),
        timeout: given.timeout.unwrap_or(0),
        retry_cnt: given.retry_cnt.unwrap_or(0),
        rnr_retry: given.rnr_retry.unwrap_or(0),
        rate_limit: given.rate_limit.map_or(0, |bits| (bits / 1000) as u32),
        ..empty
    })
}

/// Queries the attributes of a queue pair, and those that it was created with.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut IbvQp,
    attr: *mut IbvQpAttr,
    _mask: c_int,
    init: *mut IbvQpInitAttr,
) -> c_int {
    errno::number((|| {
        let object = handles::look::<QpObject>(qp)?;
        let described = describe(object)?;
        // SAFETY: NULL, or the program's structures. The base is read as programs read it.
        unsafe {
            let base = &mut (*object.verbs.get()).qp_base;
            base.state = described.qp_state;
            *attr.as_mut().ok_or(libc::EINVAL)? = described;
            *init.as_mut().ok_or(libc::EINVAL)? = IbvQpInitAttr {
                qp_context: base.qp_context,
                send_cq: base.send_cq,
                recv_cq: base.recv_cq,
                srq: base.srq,
                cap: object.cap,
                qp_type: base.qp_type,
                sq_sig_all: object.signal_all.into(),
            };
        }
        Ok(())
    })())
}
