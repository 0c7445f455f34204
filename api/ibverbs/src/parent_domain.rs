//! Parent domains, which stand for a protection domain.

use remora_abi::memory::IbvParentDomainInitAttr;
use remora_abi::objects::{IbvContext, IbvPd};
use std::sync::atomic::Ordering;

use crate::pd::{self, Parent};
use crate::td::TdObject;
use crate::{context, errno, handles};

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS` and `_PD_CONTEXT`, which are accepted; the allocators are not
/// called.
const KNOWN: u32 = 3;

/// Allocates a parent domain.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut IbvContext,
    attr: *mut IbvParentDomainInitAttr,
) -> *mut IbvPd {
    errno::pointer((|| {
        let adapter = &context::look(context)?.nic.adapter;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.comp_mask & !KNOWN != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let below = pd::look(attr.pd)?;
        if below.parent_of.is_some() {
            return Err(libc::EINVAL);
        }
        let td = handles::look_if_any::<TdObject>(attr.td)?;
        adapter.refuse_child().map_err(errno::of_create)?;
        below.children.fetch_add(1, Ordering::AcqRel);
        if let Some(td) = td {
            td.users.fetch_add(1, Ordering::AcqRel);
        }
        Ok(pd::give(context, below.pd, Some(Parent { pd: attr.pd, td: attr.td })))
    })())
}
