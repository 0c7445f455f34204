//! Shared receive queues of ids.

use remora_abi::cma::RdmaCmId;
use remora_abi::objects::IbvPd;
use remora_abi::queue_pair::{QPT_XRC_RECV, QPT_XRC_SEND};
use remora_abi::receive::{IbvSrqInitAttr, IbvSrqInitAttrEx, SRQT_BASIC, SRQT_XRC, srq_init_attr};
use std::ffi::c_int;

use crate::id::IdObject;
use crate::{errno, ibverbs, id, qp};

fn create(id: &IdObject, attr: &mut IbvSrqInitAttrEx) -> Result<(), c_int> {
    let shown = id.shown();
    if shown.verbs.is_null() || !shown.srq.is_null() {
        return Err(libc::EINVAL);
    }
    if attr.comp_mask & srq_init_attr::TYPE == 0 {
        return Err(libc::EINVAL);
    }
    if attr.comp_mask & srq_init_attr::PD == 0 || attr.pd.is_null() {
        attr.pd = if shown.pd.is_null() { id.manager.default_pd()? } else { shown.pd };
        attr.comp_mask |= srq_init_attr::PD;
    }
    if attr.srq_type == SRQT_XRC {
        if attr.comp_mask & srq_init_attr::XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = id.manager.default_xrcd()?;
        }
        if attr.comp_mask & srq_init_attr::CQ == 0 || attr.cq.is_null() {
            if shown.recv_cq.is_null() {
                qp::create_cqs(id, 0, attr.attr.max_wr)?;
            }
            attr.cq = id.shown().recv_cq;
        }
        attr.comp_mask |= srq_init_attr::XRCD | srq_init_attr::CQ;
    }
    // SAFETY: an open device.
    let srq = unsafe { ibverbs::create_srq(shown.verbs, attr) }.inspect_err(|_| qp::destroy_cqs(id))?;
    id.show(|id| {
        if id.pd.is_null() {
            id.pd = attr.pd;
        }
        id.srq = srq;
    });
    Ok(())
}

/// Creates the id's shared receive queue.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_srq_ex(id: *mut RdmaCmId, attr: *mut IbvSrqInitAttrEx) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's attributes.
        create(&id, unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?)
    })())
}

/// Creates the queue from the attributes of `ibv_create_srq`. An id of XRC gets an XRC queue.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut RdmaCmId,
    pd: *mut IbvPd,
    attr: *mut IbvSrqInitAttr,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?;
        let is_xrc = matches!(id.shown().qp_type, QPT_XRC_SEND | QPT_XRC_RECV);
        let mut full = IbvSrqInitAttrEx {
            srq_context: attr.srq_context,
            attr: attr.attr,
            comp_mask: srq_init_attr::TYPE | srq_init_attr::PD,
            srq_type: if is_xrc { SRQT_XRC } else { SRQT_BASIC },
            pd,
            ..ibverbs::zeroed()
        };
        create(&id, &mut full)?;
        attr.attr = full.attr;
        Ok(())
    })())
}

/// Destroys the id's shared receive queue.
pub(crate) fn destroy(id: &IdObject) {
    let srq = id.shown().srq;
    if !srq.is_null() {
        // SAFETY: the id's own queue.
        unsafe { ibverbs::ibv_destroy_srq(srq) };
        id.show(|id| id.srq = std::ptr::null_mut());
        if id.shown().qp.is_null() {
            qp::destroy_cqs(id);
        }
    }
}

/// Destroys the id's shared receive queue.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut RdmaCmId) {
    if let Ok(id) = id::IDS.look(id) {
        destroy(&id);
    }
}
