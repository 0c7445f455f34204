//! Functions for XRC domains.

use remora_abi::objects::IbvContext;
use remora_abi::receive::{IbvXrcd, IbvXrcdInitAttr, XRCD_INIT_ATTR};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handles::{self, Kind, Object};
use crate::{context, errno};

/// An XRC domain. Within this process, all domains opened with the same file are one.
#[repr(C)]
pub(crate) struct XrcdObject {
    verbs: IbvXrcd,
    pub number: u32,
    file: Option<File>,
}

impl Object for XrcdObject {
    type C = IbvXrcd;
    const KIND: Kind = Kind::Xrcd;
}

/// A file, identified by its device and inode.
type File = (u64, u64);

/// The domains of files: the NIC's number, and the number of open handles.
static DOMAINS: Mutex<BTreeMap<File, (u32, u32)>> = Mutex::new(BTreeMap::new());

fn domains() -> MutexGuard<'static, BTreeMap<File, (u32, u32)>> {
    DOMAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn file(descriptor: c_int) -> Result<Option<File>, c_int> {
    if descriptor == -1 {
        return Ok(None);
    }
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the system fills the structure.
    unsafe {
        if libc::fstat(descriptor, stat.as_mut_ptr()) != 0 {
            return Err(libc::EBADF);
        }
        let stat = stat.assume_init();
        Ok(Some((stat.st_dev, stat.st_ino)))
    }
}

/// Opens the XRC domain of a file, or a new one.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut IbvContext,
    attr: *mut IbvXrcdInitAttr,
) -> *mut IbvXrcd {
    errno::pointer((|| {
        let adapter = &context::look(context)?.nic.adapter;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.comp_mask & !XRCD_INIT_ATTR != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if attr.comp_mask != XRCD_INIT_ATTR || attr.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
            return Err(libc::EINVAL);
        }
        let file = file(attr.fd)?;
        let alloc = || adapter.alloc_xrc_domain().map_err(errno::of_create);
        let number = match file {
            None if attr.oflags & libc::O_CREAT == 0 => return Err(libc::EINVAL),
            None => alloc()?,
            Some(file) => {
                let mut domains = domains();
                match domains.get_mut(&file) {
                    Some(_) if attr.oflags & libc::O_EXCL != 0 => return Err(libc::EINVAL),
                    Some((number, users)) => {
                        *users += 1;
                        *number
                    }
                    None if attr.oflags & libc::O_CREAT == 0 => return Err(libc::EAGAIN),
                    None => {
                        let number = alloc()?;
                        domains.insert(file, (number, 1));
                        number
                    }
                }
            }
        };
        Ok(handles::give(Box::new(XrcdObject { verbs: IbvXrcd { context }, number, file })))
    })())
}

/// Closes an XRC domain. The last handle frees the domain: EBUSY while an object uses it.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut IbvXrcd) -> c_int {
    errno::number((|| {
        let object = handles::look::<XrcdObject>(xrcd)?;
        let adapter = &context::look(object.verbs.context)?.nic.adapter;
        let mut domains = domains();
        let others = object.file.and_then(|file| domains.get(&file)).map_or(0, |(_, users)| users - 1);
        if others == 0 && !adapter.is_child() {
            adapter.free_xrc_domain(object.number).map_err(errno::of_create)?;
        }
        if let Some(file) = object.file {
            match domains.get_mut(&file) {
                Some((_, users)) if others > 0 => *users = others,
                _ => drop(domains.remove(&file)),
            }
        }
        handles::take::<XrcdObject>(xrcd).map(drop)
    })())
}
