//! Conversion of work requests of `verbs.h` to those of the NIC, and of completions back.

use remora_abi::objects::{IbvAh, IbvRecvWr, IbvSendWr, IbvSge, IbvWc};
use remora_verbs::raw::{Cqe, Destination, MAX_INLINE, MAX_SGE, Qpn, SendQueue, Target};
use remora_verbs::{
    Binding, Flags, Key, NetworkType, Operation, Payload, ReceiveRequest, Remote, Service, Sge, WorkRequest,
};
use std::ffi::c_int;

use crate::ah::AhObject;
use crate::faults;
use crate::{errno, handles, mw};

/// The send flag `IBV_SEND_INLINE`.
pub(crate) const INLINE: u32 = 8;
/// `IBV_SEND_IP_CSUM`, an offload that this NIC does not have.
const IP_CSUM: u32 = 16;

/// A send work request without its data.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Work {
    pub id: u64,
    pub flags: Flags,
    pub operation: Operation,
    pub target: Target,
}

impl Work {
    /// Returns a BIND_MW request.
    pub(crate) fn bind(id: u64, flags: Flags, binding: Binding) -> Work {
        Work { id, flags, operation: Operation::BindWindow(binding), target: Target::Peer }
    }

    /// Returns the work request with this data.
    #[inline]
    pub(crate) fn with<'a>(&self, payload: Payload<'a>) -> WorkRequest<'a> {
        WorkRequest { id: self.id, operation: self.operation, payload, flags: self.flags }
    }
}

/// Converts `enum ibv_send_flags`.
#[inline]
pub(crate) fn flags(bits: u32) -> Flags {
    Flags { fence: bits & 1 != 0, signaled: bits & 2 != 0, solicited: bits & 4 != 0 }
}

/// Returns the destination of a datagram.
pub(crate) fn datagram(ah: *mut IbvAh, qpn: u32, qkey: u32) -> Result<Target, c_int> {
    // SAFETY: NULL, or a live handle; the data path checks no more.
    let handle = unsafe { handles::fast::<AhObject>(ah) }.ok_or(libc::EINVAL)?;
    Ok(Target::Datagram { handle: handle.raw.number(), to: Destination { qp: qpn_of(qpn), qkey } })
}

/// Returns the low 24 bits as a QP number.
pub(crate) fn qpn_of(number: u32) -> Qpn {
    Qpn::new(number & 0x00ff_ffff)
}

/// Converts a work request, without its data.
///
/// # Safety
/// The request is the program's, and the parts that its op-code uses are set.
unsafe fn work(service: Service, wr: &IbvSendWr) -> Result<Work, c_int> {
    let imm = || u32::from_be(wr.imm_data);
    // SAFETY: the op-code determines the part of the union that is set, and all parts are plain numbers.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = || Remote { addr: rdma.remote_addr, rkey: Key::new(rdma.rkey) };
    let word = || Remote { addr: atomic.remote_addr, rkey: Key::new(atomic.rkey) };
    let operation = match wr.opcode {
        0 => Operation::Write(remote()),
        1 => Operation::WriteImm(remote(), imm()),
        2 => Operation::Send,
        3 => Operation::SendImm(imm()),
        4 => Operation::Read(remote()),
        5 => Operation::CompareSwap { remote: word(), compare: atomic.compare_add, swap: atomic.swap },
        6 => Operation::FetchAdd { remote: word(), add: atomic.compare_add },
        7 => Operation::LocalInv(Key::new(wr.imm_data)),
        8 => Operation::BindWindow(mw::binding(wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info)?),
        9 => Operation::SendInv(Key::new(wr.imm_data)),
        // TSO, FLUSH, ATOMIC WRITE.
        10 | 14 | 15 => return Err(libc::EOPNOTSUPP),
        _ => return Err(libc::EINVAL),
    };
    if !carries(service, &operation) {
        return Err(libc::EINVAL);
    }
    let target = match service {
        Service::Ud => {
            // SAFETY: as above.
            let ud = unsafe { wr.wr.ud };
            datagram(ud.ah, ud.remote_qpn, ud.remote_qkey)?
        }
        Service::XrcInitiator => Target::Srq(qpn_of(wr.qp_type)),
        _ => Target::Peer,
    };
    if wr.send_flags & IP_CSUM != 0 {
        return Err(libc::EINVAL);
    }
    Ok(Work { id: wr.wr_id, flags: flags(wr.send_flags), operation, target })
}

/// Returns whether a transport service has this operation.
pub(crate) fn carries(service: Service, operation: &Operation) -> bool {
    match service {
        Service::Rc | Service::XrcInitiator => true,
        Service::Uc => !matches!(
            operation,
            Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        ),
        Service::Ud => matches!(operation, Operation::Send | Operation::SendImm(_)),
        Service::XrcTarget => false,
    }
}

/// Converts the elements of a program's list.
///
/// # Safety
/// `list` has `count` elements.
unsafe fn elements(list: *const IbvSge, count: c_int, out: &mut [Sge; MAX_SGE]) -> Result<&[Sge], c_int> {
    let count = usize::try_from(count).map_err(|_| libc::EINVAL)?;
    if list.is_null() && count > 0 {
        return Err(libc::EINVAL);
    }
    let places = out.get_mut(..count).ok_or(libc::EINVAL)?;
    for (index, place) in places.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let sge = unsafe { *list.add(index) };
        *place = Sge { addr: sge.addr, len: sge.length, lkey: Key::new(sge.lkey) };
    }
    Ok(places)
}

/// A list element of length 0.
const NO_BYTES: Sge = Sge { addr: 0, len: 0, lkey: Key::new(0) };

/// Copies the bytes of a list out of the program's memory.
///
/// # Safety
/// The bytes belong to the program.
unsafe fn gather<'a>(list: &[Sge], out: &'a mut [u8; MAX_INLINE]) -> Result<&'a [u8], c_int> {
    let mut filled = 0;
    for sge in list {
        let place = out.get_mut(filled..filled + sge.len as usize).ok_or(libc::EINVAL)?;
        // SAFETY: the caller's promise; both have the same length.
        unsafe { std::ptr::copy_nonoverlapping(sge.addr as *const u8, place.as_mut_ptr(), place.len()) };
        filled += place.len();
    }
    Ok(&out[..filled])
}

/// Pushes a work request of the program to a send queue.
///
/// # Safety
/// The request, its list and its inline bytes are the program's.
pub(crate) unsafe fn push(queue: &mut SendQueue, service: Service, wr: &IbvSendWr) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let work = unsafe { work(service, wr)? };
    let mut places = [NO_BYTES; MAX_SGE];
    // SAFETY: as above.
    let list = unsafe { elements(wr.sg_list, wr.num_sge, &mut places)? };
    let pushed = if wr.send_flags & INLINE != 0 && !list.is_empty() {
        let mut bytes = [0; MAX_INLINE];
        // SAFETY: as above.
        let bytes = unsafe { gather(list, &mut bytes)? };
        queue.push_to(&work.with(Payload::Inline(bytes)), &work.target)
    } else {
        queue.push_to(&work.with(Payload::Sges(list)), &work.target)
    };
    pushed.map_err(errno::of_queue)?;
    if wr.opcode == 8 {
        mw::posted(wr.bind_mw.mw, wr.bind_mw.rkey);
    }
    Ok(())
}

/// Returns the kind of a work request, for the rules of faults.
pub(crate) fn kind(wr: &IbvSendWr) -> faults::WorkKind {
    match wr.opcode {
        0 | 1 => faults::WorkKind::Write,
        4 => faults::WorkKind::Read,
        5 | 6 => faults::WorkKind::Atomic,
        7 | 8 => faults::WorkKind::Memory,
        _ => faults::WorkKind::Send,
    }
}

/// Passes a receive work request of the program to `push`.
///
/// # Safety
/// The request and its list are the program's.
pub(crate) unsafe fn receive(
    wr: &IbvRecvWr,
    push: impl FnOnce(&ReceiveRequest<'_>) -> Result<(), remora_verbs::QueueError>,
) -> Result<(), c_int> {
    let mut places = [NO_BYTES; MAX_SGE];
    // SAFETY: the caller's promise.
    let sges = unsafe { elements(wr.sg_list, wr.num_sge, &mut places)? };
    push(&ReceiveRequest { id: wr.wr_id, sges }).map_err(errno::of_queue)
}

/// `IBV_WC_GRH`, `_WITH_IMM` and `_WITH_INV`.
const WITH_GRH: u32 = 1;
const WITH_IMM: u32 = 2;
const WITH_INV: u32 = 8;

/// Returns the flags of a completion.
pub(crate) fn wc_flags(cqe: &Cqe) -> u32 {
    let wc = &cqe.completion;
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    bit(wc.grh.is_some(), WITH_GRH)
        | bit(wc.imm.is_some(), WITH_IMM)
        | bit(wc.invalidated.is_some(), WITH_INV)
}

/// Returns the packet type of a datagram, which IBTA annex A17.4.5.1 requires, in mlx5's form for `sl`: 8
/// for UDP, plus 2 for IPv4 or 1 for IPv6. UCX needs it to find the destination address in the GRH.
pub(crate) fn packet_type(cqe: &Cqe) -> u8 {
    match cqe.completion.grh {
        None => 0,
        Some(NetworkType::Ipv6) => 0x9,
        Some(NetworkType::Ipv4) => 0xa,
    }
}

/// Returns the immediate data in network order, or the invalidated key.
pub(crate) fn imm_data(cqe: &Cqe) -> u32 {
    let wc = &cqe.completion;
    match (wc.imm, wc.invalidated) {
        (Some(imm), _) => imm.to_be(),
        (None, Some(key)) => key.get(),
        (None, None) => 0,
    }
}

/// Converts a completion to the form that programs read.
#[inline]
pub(crate) fn completion(cqe: &Cqe) -> IbvWc {
    let wc = &cqe.completion;
    IbvWc {
        wr_id: wc.id,
        status: wc.status as c_int,
        opcode: c_int::from(wc.kind as u8),
        vendor_err: 0,
        byte_len: wc.byte_len,
        imm_data: imm_data(cqe),
        qp_num: wc.qp_num,
        src_qp: wc.src_qp,
        wc_flags: wc_flags(cqe),
        pkey_index: 0,
        slid: 0,
        sl: packet_type(cqe),
        dlid_path_bits: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_verbs::{CompletionKind, Status, WorkCompletion, prism};

    /// Regression: UCX dropped each datagram over IPv4. It finds the destination's address in the GRH by
    /// `sl` of the completion, which holds the type of the packet on mlx5 and was 0 here.
    #[test]
    fn the_service_level_of_a_datagram_says_ipv4_or_ipv6() {
        for (grh, sl, with_grh) in
            [(None, 0, 0), (Some(NetworkType::Ipv6), 0x9, WITH_GRH), (Some(NetworkType::Ipv4), 0xa, WITH_GRH)]
        {
            let completion = WorkCompletion {
                id: 1,
                status: Status::Success,
                kind: CompletionKind::Receive,
                byte_len: 48,
                imm: None,
                invalidated: None,
                qp_num: 2,
                src_qp: 3,
                grh,
                outcome: prism::Verdict::Done,
            };
            let cqe = Cqe { completion, solicited: false, wqe_index: 0, timestamp: 0 };
            let wc = super::completion(&cqe);
            assert_eq!((wc.sl, wc.wc_flags, wc.src_qp), (sl, with_grh, 3));
        }
    }
}
