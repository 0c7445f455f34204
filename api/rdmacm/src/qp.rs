//! Queue pairs of ids, and the completion queues of ids that provide none.

use remora_abi::cma::RdmaCmId;
use remora_abi::objects::{IbvCompChannel, IbvContext, IbvCq, IbvPd};
use remora_abi::queue_pair::{IbvQpInitAttr, IbvQpInitAttrEx, QPT_XRC_RECV, init_attr};
use std::ffi::{c_int, c_void};

use crate::id::IdObject;
use crate::{errno, ibverbs, id, qp_state};

/// Creates a completion queue with a channel of its own.
fn create_cq(
    context: *mut IbvContext,
    id: *mut RdmaCmId,
    size: u32,
) -> Result<(*mut IbvCompChannel, *mut IbvCq), c_int> {
    let size = c_int::try_from(size).map_err(|_| libc::EINVAL)?;
    // SAFETY: an open device. The channel is destroyed if the queue cannot be created.
    unsafe {
        let channel = ibverbs::made(ibverbs::ibv_create_comp_channel(context))?;
        let cq = ibverbs::ibv_create_cq(context, size, id.cast::<c_void>(), channel, 0);
        let cq = ibverbs::made(cq).inspect_err(|_| {
            ibverbs::ibv_destroy_comp_channel(channel);
        })?;
        Ok((channel, cq))
    }
}

/// Creates the completion queues that neither the program nor the id has. A size of 0 creates none.
pub(crate) fn create_cqs(id: &IdObject, send: u32, receive: u32) -> Result<(), c_int> {
    let context = id.shown().verbs;
    if receive > 0 {
        let (channel, cq) = create_cq(context, id.handle(), receive)?;
        id.show(|id| (id.recv_cq_channel, id.recv_cq) = (channel, cq));
        id.state().made_cqs = true;
    }
    if send > 0 {
        let made = create_cq(context, id.handle(), send);
        let (channel, cq) = made.inspect_err(|_| destroy_cqs(id))?;
        id.show(|id| (id.send_cq_channel, id.send_cq) = (channel, cq));
        id.state().made_cqs = true;
    }
    Ok(())
}

/// Destroys the completion queues that the id has created.
pub(crate) fn destroy_cqs(id: &IdObject) {
    let shown = id.shown();
    let is_shared = shown.qp_type == QPT_XRC_RECV && !shown.srq.is_null();
    if is_shared || !std::mem::take(&mut id.state().made_cqs) {
        return;
    }
    // SAFETY: the id has created them.
    unsafe {
        if !shown.recv_cq.is_null() {
            ibverbs::ibv_destroy_cq(shown.recv_cq);
        }
        if !shown.send_cq.is_null() && shown.send_cq != shown.recv_cq {
            ibverbs::ibv_destroy_cq(shown.send_cq);
        }
        for channel in [shown.recv_cq_channel, shown.send_cq_channel] {
            if !channel.is_null() {
                ibverbs::ibv_destroy_comp_channel(channel);
            }
        }
    }
    id.show(|id| {
        (id.recv_cq, id.send_cq) = (std::ptr::null_mut(), std::ptr::null_mut());
        (id.recv_cq_channel, id.send_cq_channel) = (std::ptr::null_mut(), std::ptr::null_mut());
    });
}

/// Fills in the attributes that the program leaves to the id.
fn complete(id: &IdObject, attr: &mut IbvQpInitAttrEx) -> Result<(), c_int> {
    let shown = id.shown();
    if shown.verbs.is_null() || !shown.qp.is_null() {
        return Err(libc::EINVAL);
    }
    if attr.comp_mask & init_attr::PD == 0 || attr.pd.is_null() {
        attr.pd = if shown.pd.is_null() { id.manager.default_pd()? } else { shown.pd };
        attr.comp_mask |= init_attr::PD;
    // SAFETY: the program's domain.
    } else if unsafe { (*attr.pd).context } != shown.verbs {
        return Err(libc::EINVAL);
    }
    let differs = |own: *mut IbvCq, given: *mut IbvCq| !own.is_null() && !given.is_null() && own != given;
    if differs(shown.recv_cq, attr.recv_cq) || differs(shown.send_cq, attr.send_cq) {
        return Err(libc::EINVAL);
    }
    if shown.qp_type == QPT_XRC_RECV && (attr.comp_mask & init_attr::XRCD == 0 || attr.xrcd.is_null()) {
        attr.xrcd = id.manager.default_xrcd()?;
        attr.comp_mask |= init_attr::XRCD;
    }
    let size =
        |own: *mut IbvCq, given: *mut IbvCq, size| if own.is_null() && given.is_null() { size } else { 0 };
    let send = size(shown.send_cq, attr.send_cq, attr.cap.max_send_wr);
    create_cqs(id, send, size(shown.recv_cq, attr.recv_cq, attr.cap.max_recv_wr))?;
    let shown = id.shown();
    if attr.send_cq.is_null() {
        attr.send_cq = shown.send_cq;
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = shown.recv_cq;
    }
    // One completion queue serves both directions if the other is missing.
    if attr.send_cq.is_null() {
        attr.send_cq = attr.recv_cq;
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = attr.send_cq;
    }
    if attr.srq.is_null() {
        attr.srq = shown.srq;
    }
    Ok(())
}

/// Creates the id's queue pair and moves it to INIT, or to RTS for datagrams.
pub(crate) fn create(id: &IdObject, attr: &mut IbvQpInitAttrEx) -> Result<(), c_int> {
    complete(id, attr)?;
    // SAFETY: an open device.
    let qp = unsafe { ibverbs::create_qp(id.shown().verbs, attr) }.inspect_err(|_| destroy_cqs(id))?;
    let begun = if id.is_datagrams() { qp_state::begin_datagrams(id, qp) } else { qp_state::to_init(id, qp) };
    if let Err(errno) = begun {
        // SAFETY: created above, and not known to the program.
        unsafe { ibverbs::ibv_destroy_qp(qp) };
        destroy_cqs(id);
        return Err(errno);
    }
    id.show(|id| (id.pd, id.qp) = (attr.pd, qp));
    Ok(())
}

/// Creates the queue pair from the attributes of `ibv_create_qp`, which receive the actual sizes.
pub(crate) fn create_plain(id: &IdObject, pd: *mut IbvPd, attr: &mut IbvQpInitAttr) -> Result<(), c_int> {
    let IbvQpInitAttr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } = *attr;
    let mut full = IbvQpInitAttrEx {
        qp_context,
        send_cq,
        recv_cq,
        srq,
        cap,
        qp_type,
        sq_sig_all,
        comp_mask: if pd.is_null() { 0 } else { init_attr::PD },
        pd,
        ..ibverbs::zeroed()
    };
    create(id, &mut full)?;
    *attr =
        IbvQpInitAttr { send_cq: full.send_cq, recv_cq: full.recv_cq, srq: full.srq, cap: full.cap, ..*attr };
    Ok(())
}

/// Makes the id's queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp_ex(id: *mut RdmaCmId, attr: *mut IbvQpInitAttrEx) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's attributes.
        create(&id, unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?)
    })())
}

/// Makes the id's queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut RdmaCmId,
    pd: *mut IbvPd,
    attr: *mut IbvQpInitAttr,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's attributes.
        create_plain(&id, pd, unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?)
    })())
}

/// Destroys the id's queue pair, and the completion queues that were created for it.
pub(crate) fn destroy(id: &IdObject) {
    let qp = id.shown().qp;
    if !qp.is_null() {
        // SAFETY: the id's own queue pair.
        unsafe { ibverbs::ibv_destroy_qp(qp) };
        id.show(|id| id.qp = std::ptr::null_mut());
        destroy_cqs(id);
    }
}

/// Destroys the id's queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut RdmaCmId) {
    if let Ok(id) = id::IDS.look(id) {
        destroy(&id);
    }
}
