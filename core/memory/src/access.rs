//! Access rights, protection domains, and the errors of accesses and of control operations.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A protection domain of one [`Table`](crate::Table). The number is never zero.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pd(pub(crate) u32);

impl Pd {
    /// A protection domain that owns no region: every check against it fails. (Bit 20 is set, so no
    /// allocated domain and no entry of a window, whose domain field is 0, equals it.)
    pub const NONE: Pd = Pd(1 << 20);

    /// Returns the domain with this number, for a program that has the number from another process. The NIC
    /// checks nothing here, so the owner of the NIC checks whose domain it is.
    pub const fn of_number(number: u32) -> Pd {
        Pd(number)
    }

    /// Returns the number of the domain, which is shown as `ibv_pd.handle`.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Access rights: those that a region grants, or those that one access needs. Bits are numbered as in `enum
/// ibv_access_flags`.
#[derive(Copy, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Access(pub(crate) u32);

impl TryFrom<u32> for Access {
    type Error = &'static str;

    fn try_from(bits: u32) -> Result<Access, &'static str> {
        Access::from_bits(bits).ok_or("unknown access rights")
    }
}

impl From<Access> for u32 {
    fn from(access: Access) -> u32 {
        access.0
    }
}

impl Access {
    /// No right. The NIC may still read the region as a local source buffer.
    pub const NONE: Access = Access(0);
    /// The NIC may write to the region on behalf of the region's own program (receive buffers, results of
    /// READs and atomics).
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may write to the region by RDMA WRITE.
    pub const REMOTE_WRITE: Access = Access(1 << 1);
    /// Peers may read the region by RDMA READ.
    pub const REMOTE_READ: Access = Access(1 << 2);
    /// Peers may execute atomic operations on the region.
    pub const REMOTE_ATOMIC: Access = Access(1 << 3);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Access = Access(1 << 4);
    /// Addresses of the region count from 0 instead of from the buffer's virtual address.
    pub const ZERO_BASED: Access = Access(1 << 5);
    /// Pages of the region may be absent. Regions of this implementation always tolerate absent pages, so
    /// the bit changes nothing.
    pub const ON_DEMAND: Access = Access(1 << 6);
    /// The buffer lies in huge pages. Accepted, without effect.
    pub const HUGETLB: Access = Access(1 << 7);
    /// Accesses may be reordered. Accepted, without effect.
    pub const RELAXED_ORDERING: Access = Access(1 << 20);
    /// LOCAL_INV and SEND_INV may invalidate the key. This bit is Remora's own. Verbs sets it only for
    /// windows of type 2 and for fast-registered regions, never for the regions of `ibv_reg_mr`.
    pub const INVALIDATE: Access = Access(1 << 31);

    /// Bits that a device is free to ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
    const OPTIONAL: u32 = 0x3ff0_0000;
    const KNOWN: u32 = 0xff | 1 << 31;

    /// Returns the rights as `ibv_access_flags`, with [`INVALIDATE`](Access::INVALIDATE) in bit 31.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Converts `ibv_access_flags`. Optional bits without a meaning here are dropped. Returns `None` if an
    /// unknown bit is set that a device must not ignore.
    pub const fn from_bits(bits: u32) -> Option<Access> {
        if bits & !(Access::KNOWN | Access::OPTIONAL) != 0 {
            return None;
        }
        Some(Access(bits & (Access::KNOWN | Access::RELAXED_ORDERING.0)))
    }

    /// Returns whether all rights of `other` are among these.
    pub const fn contains(self, other: Access) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns whether a region may have these rights: remote writes and atomics require `LOCAL_WRITE`
    /// (`ibv_reg_mr` fails with EINVAL otherwise).
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

/// The reason why an access was refused. A refused remote access is answered with the NAK "remote access
/// error" (IBTA 9.7.5.2); a refused local one completes with `IBV_WC_LOC_PROT_ERR`. The variants only serve
/// counters and messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AccessError {
    /// No live region or window has this key.
    UnknownKey,
    /// The region or window belongs to another protection domain.
    WrongPd,
    /// The window is bound to another queue pair.
    WrongOwner,
    /// The region lacks a right that the access needs.
    MissingRight,
    /// Some byte of the access lies outside the region.
    OutOfBounds,
    /// An atomic's address is not a multiple of its width.
    Misaligned,
    /// A page is absent, or its mapping does not allow the access ([`page_fault`](crate::page_fault)). Part
    /// of the bytes may have been copied.
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

/// The reason why a control operation failed. Each variant names the errno that verbs reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Error {
    /// The arguments are invalid (EINVAL).
    Invalid,
    /// The table already holds the configured number of regions, ranges or domains, or on-NIC memory is
    /// used up (ENOMEM).
    Full,
    /// The protection domain is still in use, or windows are bound to the region (EBUSY).
    Busy,
    /// No such key or protection domain (EINVAL).
    Unknown,
    /// The calling thread is inside a pass of an engine of this table, and the operation would wait for
    /// that pass forever (EDEADLK).
    InsidePass,
    /// The operating system refused, with this errno.
    Os(i32),
}

/// The number of ENOMEM, which is the same on every Unix.
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
