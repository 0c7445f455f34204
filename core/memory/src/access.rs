//! Rights, protection domains, and the errors of accesses and of control operations.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A protection domain of one [`Table`](crate::Table). Never zero.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pd(pub(crate) u32);

impl Pd {
    /// No domain: no key opens anything for it. (Its lower 20 bits are no domain's; 0 stands in the entries
    /// of windows.)
    pub const NONE: Pd = Pd(1 << 20);

    /// The number, as `ibv_pd.handle` shows it.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Access rights of a region, or those that one access needs. Bits are numbered as in `enum
/// ibv_access_flags`.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub struct Access(pub(crate) u32);

impl Access {
    /// No right: enough for the NIC to read a local buffer.
    pub const NONE: Access = Access(0);
    /// The NIC may write into it on behalf of this program (receive buffers, results of READs and atomics).
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may RDMA WRITE.
    pub const REMOTE_WRITE: Access = Access(1 << 1);
    /// Peers may RDMA READ.
    pub const REMOTE_READ: Access = Access(1 << 2);
    /// Peers may execute atomics.
    pub const REMOTE_ATOMIC: Access = Access(1 << 3);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Access = Access(1 << 4);
    /// Addresses of the region count from 0 instead of from the buffer's virtual address.
    pub const ZERO_BASED: Access = Access(1 << 5);
    /// Pages may be absent. Every region here works with absent pages, so the bit changes nothing.
    pub const ON_DEMAND: Access = Access(1 << 6);
    /// The buffer lies in huge pages. Accepted, without effect.
    pub const HUGETLB: Access = Access(1 << 7);
    /// Accesses may be reordered. Accepted, without effect.
    pub const RELAXED_ORDERING: Access = Access(1 << 20);
    /// Remora's own: LOCAL_INV and SEND_INV may invalidate the key. Verbs gives this right only to windows of
    /// type 2 and to fast-registered regions, never to the regions of `ibv_reg_mr`.
    pub const INVALIDATE: Access = Access(1 << 31);

    /// `IBV_ACCESS_OPTIONAL_RANGE`: bits that a device is free to ignore.
    const OPTIONAL: u32 = 0x3ff0_0000;
    const KNOWN: u32 = 0xff | 1 << 31;

    /// The rights as `ibv_access_flags` has them, and Remora's own in bit 31.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// From `ibv_access_flags`; optional bits that mean nothing here are dropped. None: a bit that no device
    /// may ignore.
    pub const fn from_bits(bits: u32) -> Option<Access> {
        if bits & !(Access::KNOWN | Access::OPTIONAL) != 0 {
            return None;
        }
        Some(Access(bits & (Access::KNOWN | Access::RELAXED_ORDERING.0)))
    }

    /// Are all rights of `other` among these?
    pub const fn contains(self, other: Access) -> bool {
        other.0 & !self.0 == 0
    }

    /// May a region have these rights? A peer must not write where the owner may not (`ibv_reg_mr` answers
    /// EINVAL).
    pub(crate) const fn registrable(self) -> bool {
        let remote_change = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
        self.0 & remote_change == 0 || self.contains(Access::LOCAL_WRITE)
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Access) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Access, &str); 10] = [
            (Access::LOCAL_WRITE, "local_write"),
            (Access::REMOTE_WRITE, "remote_write"),
            (Access::REMOTE_READ, "remote_read"),
            (Access::REMOTE_ATOMIC, "remote_atomic"),
            (Access::MW_BIND, "mw_bind"),
            (Access::ZERO_BASED, "zero_based"),
            (Access::ON_DEMAND, "on_demand"),
            (Access::HUGETLB, "hugetlb"),
            (Access::RELAXED_ORDERING, "relaxed_ordering"),
            (Access::INVALIDATE, "invalidate"),
        ];
        let mut between = "";
        for (_, name) in NAMES.iter().filter(|(bit, _)| self.contains(*bit)) {
            write!(f, "{between}{name}")?;
            between = "|";
        }
        if between.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// Why an access was refused. A remote one becomes the NAK "remote access error" (IBTA 9.7.5.2), a local one
/// `IBV_WC_LOC_PROT_ERR`. The variants are for counters and for people.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AccessError {
    /// No live region has this key.
    UnknownKey,
    /// The region belongs to another protection domain.
    WrongPd,
    /// The window is another queue pair's.
    WrongOwner,
    /// The region lacks a right that the access needs.
    MissingRight,
    /// Some byte of the access lies outside the region.
    OutOfBounds,
    /// An atomic's address is not a multiple of its width.
    Misaligned,
    /// A page is gone, or its mapping lacks a right ([`page_fault`](crate::page_fault)). Part of the access
    /// may be done.
    PageFault,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessError::UnknownKey => "no live region has this key",
            AccessError::WrongPd => "the region belongs to another protection domain",
            AccessError::WrongOwner => "the window is bound to another queue pair",
            AccessError::MissingRight => "the region lacks a right that the access needs",
            AccessError::OutOfBounds => "the access leaves the region",
            AccessError::Misaligned => "the address is not a multiple of the atomic's width",
            AccessError::PageFault => {
                "a page of the region is gone, or its mapping does not allow the access"
            }
        })
    }
}

impl std::error::Error for AccessError {}

/// Why a control operation failed. The comment names the errno that verbs reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Arguments that no table accepts (EINVAL).
    Invalid,
    /// The table holds as many regions, ranges or domains as it was configured for, or on-NIC memory is used
    /// up (ENOMEM).
    Full,
    /// The protection domain is still used, or windows are bound to the region (EBUSY).
    Busy,
    /// No such key or domain (EINVAL).
    Unknown,
    /// The calling thread is inside a pass of an engine of this table: waiting for the pass would never end
    /// (EDEADLK).
    InsidePass,
    /// The operating system refused; its errno.
    Os(i32),
}

/// ENOMEM, which has this number on every Unix.
pub(crate) const ENOMEM: i32 = 12;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid => f.write_str(
                "this cannot be registered: a region has at least one byte, its ranges lie in their memory and do not \
                 overlap, and peers may write only where the owner may (EINVAL)",
            ),
            Error::Full => f.write_str("the table is full: its configuration limits regions, ranges, domains and on-NIC memory (ENOMEM)"),
            Error::Busy => {
                f.write_str("still in use: a domain by regions or queue pairs, a region by memory windows (EBUSY)")
            }
            Error::Unknown => f.write_str("no such key or protection domain (EINVAL)"),
            Error::InsidePass => f.write_str("called from inside a pass of an engine, which it would wait for (EDEADLK)"),
            Error::Os(ENOMEM) => f.write_str(
                "the system has no memory for it, or a limit is reached: ask for less, or raise `ulimit -v`, `ulimit -l` if \
                 the program locks its pages, or what the container may use (ENOMEM)",
            ),
            Error::Os(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl std::error::Error for Error {}
