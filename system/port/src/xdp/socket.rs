//! An AF_XDP socket: its set-up, and the two system calls that wake the kernel.

use super::last_errno;
use super::options::OpenError;
use super::ring::{Consumer, Producer, RingMemory};
use super::umem::Umem;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{RecvFlags, SendFlags};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// The mapped memory of a ring, unmapped when dropped.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    len: usize,
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value; the ring that points into it is dropped with the same
        // socket.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Numbers of entries of a socket's rings, each a power of two.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub receive: u32,
    /// 0 if the socket does not send.
    pub send: u32,
}

/// An AF_XDP socket with the memory of its rings.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// Memory of the rings; dropped after the socket, when the kernel no longer uses it.
    maps: Vec<Map>,
}

/// The rings of a socket. They point into memory of the socket, and must not outlive it.
#[derive(Debug)]
pub(super) struct Rings {
    pub fill: Producer<u64>,
    pub completion: Consumer<u64>,
    pub receive: Consumer<libc::xdp_desc>,
    /// `None` if the socket does not send.
    pub send: Option<Producer<libc::xdp_desc>>,
}

// SAFETY: the pointers lead to mappings that belong to one socket, which one thread uses at a time. The
// kernel's end follows the protocol of the rings on every thread.
unsafe impl Send for Socket {}
// SAFETY: as above.
unsafe impl Send for Rings {}

/// The kernel's counters of a socket (`struct xdp_statistics`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Frames dropped for another reason than a full receive ring.
    pub dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// Frames among `dropped` for which no chunk was free, because earlier frames had not been taken.
    pub fill_ring_empty: u64,
    /// Invalid descriptors in our rings.
    pub invalid: u64,
}

impl Socket {
    /// Creates a socket over `umem`, with its rings; it is not bound yet.
    pub(super) fn new(umem: &Umem, sizes: Sizes) -> Result<(Socket, Rings), OpenError> {
        // SAFETY: a plain call without memory.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(match last_errno() {
                Errno::PERM | Errno::ACCESS => OpenError::NoRight("opening an AF_XDP socket"),
                Errno::AFNOSUPPORT => OpenError::NoKernelSupport("AF_XDP"),
                other => OpenError::Os("socket", other),
            });
        }
        // SAFETY: the kernel has just created this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut socket = Socket { fd, maps: Vec::with_capacity(4) };
        socket.register(umem)?;
        let failed = |option| move |errno| OpenError::Os(option, errno);
        socket.set(libc::XDP_UMEM_FILL_RING, &sizes.receive).map_err(failed("XDP_UMEM_FILL_RING"))?;
        let completions = sizes.send.max(1);
        socket
            .set(libc::XDP_UMEM_COMPLETION_RING, &completions)
            .map_err(failed("XDP_UMEM_COMPLETION_RING"))?;
        socket.set(libc::XDP_RX_RING, &sizes.receive).map_err(failed("XDP_RX_RING"))?;
        if sizes.send > 0 {
            socket.set(libc::XDP_TX_RING, &sizes.send).map_err(failed("XDP_TX_RING"))?;
        }
        let offsets: libc::xdp_mmap_offsets =
            socket.get(libc::XDP_MMAP_OFFSETS).map_err(failed("XDP_MMAP_OFFSETS"))?;
        let rings = socket.map(&offsets, sizes, completions).map_err(OpenError::Memory)?;
        Ok((socket, rings))
    }

    fn register(&self, umem: &Umem) -> Result<(), OpenError> {
        let region = libc::xdp_umem_reg {
            addr: umem.start().as_ptr() as u64,
            len: umem.len() as u64,
            chunk_size: umem.chunk() as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::XDP_UMEM_REG, &region).map_err(|errno| match errno {
            Errno::NOBUFS | Errno::NOMEM | Errno::PERM => OpenError::Memory(errno),
            other => OpenError::Os("XDP_UMEM_REG", other),
        })
    }

    fn map(
        &mut self,
        offsets: &libc::xdp_mmap_offsets,
        sizes: Sizes,
        completions: u32,
    ) -> Result<Rings, Errno> {
        let fill = self.words(&offsets.fr, sizes.receive, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let completion = self.words(&offsets.cr, completions, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let receive = self.words(&offsets.rx, sizes.receive, libc::XDP_PGOFF_RX_RING as u64)?;
        let send = match sizes.send {
            0 => None,
            size => Some(self.words(&offsets.tx, size, libc::XDP_PGOFF_TX_RING as u64)?),
        };
        // SAFETY: the words are mapped in `maps`, which lives as long as the socket. They are new, so the
        // indices are equal. The only other user is the kernel, in the role that the kind of each ring
        // gives it.
        unsafe {
            Ok(Rings {
                fill: Producer::new(fill),
                completion: Consumer::new(completion),
                receive: Consumer::new(receive),
                send: send.map(|words| Producer::new(words)),
            })
        }
    }

    /// Maps a ring.
    fn words<T>(
        &mut self,
        offsets: &libc::xdp_ring_offset,
        size: u32,
        page: u64,
    ) -> Result<RingMemory<T>, Errno> {
        let len = offsets.desc as usize + size as usize * size_of::<T>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping of the socket's ring disturbs nothing that exists.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, flags, &self.fd, page) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        self.maps.push(Map { start, len });
        // SAFETY: the kernel reports these offsets of its words, all within `len` and aligned for their
        // types.
        unsafe {
            Ok(RingMemory {
                producer: start.add(offsets.producer as usize).cast(),
                consumer: start.add(offsets.consumer as usize).cast(),
                flags: start.add(offsets.flags as usize).cast(),
                entries: start.add(offsets.desc as usize).cast(),
                size,
            })
        }
    }

    /// Binds the socket to one queue of an interface. From now on the kernel uses the rings.
    ///
    /// # Errors
    /// `INVAL` if there is no such queue, `BUSY` if another socket uses it, `NETDOWN`, and other errors of
    /// bind(2).
    pub(super) fn bind(&self, interface: u32, queue: u32, zero_copy: bool) -> Result<(), Errno> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            // Without the copy flag the kernel first asks the driver for zero copy.
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | if zero_copy { 0 } else { libc::XDP_COPY },
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes of `address`, which lives through the call.
        let status = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) };
        if status == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Returns whether the driver uses our memory without copies; valid for a bound socket only.
    pub(super) fn is_zero_copy(&self) -> bool {
        let options: Result<libc::xdp_options, Errno> = self.get(libc::XDP_OPTIONS);
        options.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Returns the kernel's counters of this socket; zeros if the kernel does not report them.
    pub(super) fn counters(&self) -> KernelCounters {
        let counted: Result<libc::xdp_statistics, Errno> = self.get(libc::XDP_STATISTICS);
        counted.map_or(KernelCounters::default(), |counted| KernelCounters {
            dropped: counted.rx_dropped,
            receive_ring_full: counted.rx_ring_full,
            fill_ring_empty: counted.rx_fill_ring_empty_descs,
            invalid: counted.rx_invalid_descs + counted.tx_invalid_descs,
        })
    }

    /// Makes the kernel send the published frames.
    ///
    /// # Errors
    /// `AGAIN`, `BUSY` or `NOBUFS` if not all frames were sent; others if the interface is down or gone.
    #[inline(always)]
    pub(super) fn kick_send(&self) -> Result<(), Errno> {
        // rustix inlines the system call, down to the instruction: see `udp.rs`, "Reason for
        // `inline(always)`".
        rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT).map(|_| ())
    }

    /// Makes the kernel check the fill ring.
    #[cold]
    pub(super) fn kick_receive(&self) {
        // A failure shows in that no frame arrives.
        let _ = rustix::net::recv(&self.fd, &mut [0u8; 0], RecvFlags::DONTWAIT);
    }

    fn set<T>(&self, name: libc::c_int, value: &T) -> Result<(), Errno> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: `value` lives through the call and `len` is its size.
        let status = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), libc::SOL_XDP, name, ptr::from_ref(value).cast(), len)
        };
        if status == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Reads an option that is a structure of numbers. Fields that an older kernel does not know are zero.
    fn get<T: Numbers>(&self, name: libc::c_int) -> Result<T, Errno> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `value` and how many to `len`; both live here.
        let status = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_XDP,
                name,
                value.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        // SAFETY: `Numbers` are valid whatever their bytes are, and all of them are initialised.
        if status == 0 { Ok(unsafe { value.assume_init() }) } else { Err(last_errno()) }
    }
}

/// A structure of plain numbers.
///
/// # Safety
/// All byte patterns are valid values.
unsafe trait Numbers {}
// SAFETY: unsigned integers only.
unsafe impl Numbers for libc::xdp_mmap_offsets {}
// SAFETY: unsigned integers only.
unsafe impl Numbers for libc::xdp_statistics {}
// SAFETY: unsigned integers only.
unsafe impl Numbers for libc::xdp_options {}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
