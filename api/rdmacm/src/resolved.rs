//! Asynchronous resolution of names and services (`rdma_resolve_addrinfo`).

use remora_abi::cma::{RAI_DNS, RAI_SA, RdmaAddrinfo, RdmaCmId, event_type};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use crate::addrinfo::{self, Found};
use crate::id::IdObject;
use crate::{address, background, errno, ibverbs, id, post, sync};

/// A question for the resolver, which outlives the call.
struct Question {
    node: Option<CString>,
    service: Option<CString>,
    hints: RdmaAddrinfo,
    /// The addresses to which the hints point.
    ends: Box<[libc::sockaddr_storage; 2]>,
}

// SAFETY: its pointers lead to its own storage.
unsafe impl Send for Question {}

/// Copies a C string. Returns `None` for NULL.
///
/// # Safety
/// NULL, or a C string.
unsafe fn copied(text: *const c_char) -> Option<CString> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

impl Question {
    fn new(node: Option<CString>, service: Option<CString>, mut hints: RdmaAddrinfo) -> Question {
        let mut ends = Box::new([ibverbs::zeroed(); 2]);
        let [source, destination] = &mut *ends;
        for (pointer, len, place) in [
            (&mut hints.ai_src_addr, &mut hints.ai_src_len, source),
            (&mut hints.ai_dst_addr, &mut hints.ai_dst_len, destination),
        ] {
            match address::parse(*pointer) {
                Ok(address) if *len > 0 => {
                    *place = address::store(address);
                    *pointer = std::ptr::from_mut(place).cast();
                }
                _ => (*pointer, *len) = (std::ptr::null_mut(), 0),
            }
        }
        Question { node, service, hints, ends }
    }

    fn answer(&self) -> Result<Found, c_int> {
        debug_assert!(!self.ends.is_empty(), "the hints point to these addresses");
        let text = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        addrinfo::found(text(&self.node), text(&self.service), &self.hints)
    }
}

/// Stores the result, and notifies the program.
fn finish(id: &IdObject, answer: Result<Found, c_int>) {
    let (event, status) = match answer {
        Ok(addrinfo) => {
            id.state().addrinfo = Some(addrinfo);
            (event_type::ADDRINFO_RESOLVED, 0)
        }
        Err(number) => (event_type::ADDRINFO_ERROR, number),
    };
    // Fails for an id that was destroyed in the meantime.
    let _ = post::post(id, event, status, 0);
}

fn resolve(id: &Arc<IdObject>, question: Question) -> Result<(), c_int> {
    let flags = question.hints.ai_flags;
    match (flags & RAI_DNS != 0, flags & RAI_SA != 0) {
        (true, true) => return Err(libc::EINVAL),
        // A subnet administrator, which RoCE does not have.
        (false, true) => return Err(libc::EOPNOTSUPP),
        _ => {}
    }
    let asks = Arc::clone(id);
    background::start(move || finish(&asks, question.answer()))?;
    sync::complete(id)
}

/// Resolves a name and a service like `rdma_getaddrinfo`, and reports the end by an event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut RdmaCmId,
    node: *const c_char,
    service: *const c_char,
    hints: *const RdmaAddrinfo,
) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| {
        // SAFETY: NULL, or the program's.
        let (given, node, service) = unsafe { (hints.as_ref().copied(), copied(node), copied(service)) };
        if given.is_none() && node.is_none() && service.is_none() {
            return Err(libc::EINVAL);
        }
        resolve(&id, Question::new(node, service, given.unwrap_or_else(ibverbs::zeroed)))
    }))
}

/// Gives the program a copy of the result of `rdma_resolve_addrinfo`, which `rdma_freeaddrinfo` frees.
/// EINVAL if there is none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_query_addrinfo(id: *mut RdmaCmId, out: *mut *mut RdmaAddrinfo) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| {
        // SAFETY: NULL, or the program's variable.
        let out = unsafe { out.as_mut() }.ok_or(libc::EINVAL)?;
        let addrinfo = id.state().addrinfo.clone().ok_or(libc::EINVAL)?;
        *out = addrinfo::give(addrinfo);
        Ok(())
    }))
}
