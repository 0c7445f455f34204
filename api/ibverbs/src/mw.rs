//! Memory windows of types 1 and 2B.

use remora_abi::objects::{IbvMw, IbvMwBindInfo, IbvPd};
use remora_verbs::{Access, Binding, Key, WindowType};
use std::cell::UnsafeCell;
use std::ffi::c_int;

use crate::handles::{self, Kind, Object};
use crate::mr::MrObject;
use crate::{context, errno, mr, pd};

/// `IBV_MW_TYPE_1` and `IBV_MW_TYPE_2`.
pub(crate) const TYPE_1: c_int = 1;
const TYPE_2: c_int = 2;

/// A memory window.
#[repr(C)]
pub(crate) struct MwObject {
    pub verbs: UnsafeCell<IbvMw>,
    /// The window's first key. Its upper 24 bits identify the window for its whole life, whatever becomes of
    /// its bindings.
    key: Key,
}

impl Object for MwObject {
    type C = IbvMw;
    const KIND: Kind = Kind::Mw;
}

/// Allocates a memory window.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut IbvPd, kind: c_int) -> *mut IbvMw {
    errno::pointer((|| {
        let object = pd::look(pd)?;
        let window = match kind {
            TYPE_1 => WindowType::Type1,
            TYPE_2 => WindowType::Type2B,
            _ => return Err(libc::EINVAL),
        };
        let adapter = &context::look(object.verbs.context)?.nic.adapter;
        adapter.refuse_child().map_err(errno::of_create)?;
        let key = adapter.alloc_window(object.pd, window).map_err(errno::of_create)?;
        let context = object.verbs.context;
        let rkey = key.get();
        let handle = key.get();
        let verbs = UnsafeCell::new(IbvMw { context, pd, rkey, handle, r#type: kind });
        Ok(handles::give(Box::new(MwObject { verbs, key })))
    })())
}

/// Deallocates a memory window, bound or not.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut IbvMw) -> c_int {
    errno::number((|| {
        let object = handles::look::<MwObject>(mw)?;
        // SAFETY: the program deallocates only an unused window.
        let context = unsafe { (*object.verbs.get()).context };
        let adapter = &context::look(context)?.nic.adapter;
        if !adapter.is_child() {
            adapter.free_window(object.key).map_err(errno::of_create)?;
        }
        handles::take::<MwObject>(mw).map(drop)
    })())
}

/// Returns the arguments of a BIND_MW of this window. Only the low byte of `next` is used, as on mlx5, irdma
/// and rxe: the upper 24 bits of the new key belong to the window.
pub(crate) fn binding(mw: *mut IbvMw, next: u32, info: &IbvMwBindInfo) -> Result<Binding, c_int> {
    let object = handles::look::<MwObject>(mw)?;
    let region = match handles::look_if_any::<MrObject>(info.mr)? {
        // SAFETY: the program does not change a region.
        Some(region) => unsafe { (*region.verbs.get()).lkey },
        None if info.length == 0 => 0,
        None => return Err(libc::EINVAL),
    };
    Ok(Binding {
        window: object.key,
        key: Key::new(next),
        region: Key::new(region),
        va: info.addr,
        len: info.length,
        access: rights(mr::access(info.mw_access_flags)?),
    })
}

/// Returns the rights that a window can give to peers. Programs also pass local rights, which are dropped.
fn rights(asked: Access) -> Access {
    let known = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC, Access::ZERO_BASED];
    known.into_iter().filter(|right| asked.contains(*right)).fold(Access::NONE, |all, right| all | right)
}

/// Sets `ibv_mw.rkey` to the key of a posted binding, as `ibv_alloc_mw(3)` describes. If the binding fails,
/// the window keeps its previous key in the NIC, and a later binding replaces both.
pub(crate) fn posted(mw: *mut IbvMw, next: u32) {
    if let Ok(object) = handles::look::<MwObject>(mw) {
        // SAFETY: programs do not use a window while they bind it.
        unsafe { (*object.verbs.get()).rkey = object.key.with_own_bits_of(Key::new(next)).get() };
    }
}
