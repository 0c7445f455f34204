//! A receive queue of an interface, and the queue by which frames are sent: a socket with its memory and
//! rings.
//!
//! A chunk of memory is always in exactly one place. A chunk to receive into is in the fill ring, with the
//! kernel, in the receive ring, or in use by `take`. A chunk to send from is free, lent, in the send ring,
//! with the kernel, or in the completion ring. Each ring has an entry for every chunk that can get there.

use super::options::{OpenError, Options};
use super::socket::{KernelCounters, Rings, Sizes, Socket};
use super::umem::{HEADROOM, Umem};
use remora_wire::ethernet;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// The frame that a queue has lent.
#[derive(Copy, Clone, Debug)]
pub(super) struct LentFrame {
    /// Address of the frame's chunk.
    chunk: u64,
    /// Length in bytes, with the Ethernet header.
    pub(super) len: u32,
}

/// A bound queue. Public so that a benchmark can measure the lower bound of [`super::XdpPort`]'s cost with
/// the same rings.
#[derive(Debug)]
pub struct Queue {
    // Dropped before the socket, because the rings point into the socket's memory.
    rings: Rings,
    socket: Socket,
    /// Dropped after the socket, because the kernel uses the memory as long as the socket lives.
    umem: Umem,
    number: u32,
    zero_copy: bool,
    /// Chunks that are not used for sending at this moment.
    free: Vec<u64>,
    /// The frame that was lent and not committed yet.
    lent: Option<LentFrame>,
    /// True if the kernel has not taken all published frames.
    unsent: bool,
    refused: u64,
    senseless: u64,
}

/// The result of a flush.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The kernel has taken all frames, or will take them without a call.
    All,
    /// Some frames are still in the ring; a later flush sends them.
    Some,
    /// The kernel refuses because the interface is down or gone. The frames stay in the ring.
    Refused(Errno),
}

/// Number of consecutive calls that took no frame, after which a flush gives up for now.
const FRUITLESS: u32 = 4;

impl Queue {
    /// Opens queue `number` of the interface with this index. Only a queue that `sends` has chunks for
    /// frames to send. Returns `Ok(None)` if the interface has no such queue.
    pub(super) fn open(
        index: u32,
        interface: &str,
        number: u32,
        chunk: usize,
        sends: bool,
        options: &Options,
    ) -> Result<Option<Queue>, OpenError> {
        let sizes =
            Sizes { receive: options.receive_frames, send: if sends { options.send_frames } else { 0 } };
        let count = (sizes.receive + sizes.send) as usize;
        let umem = Umem::map(count, chunk).map_err(OpenError::Memory)?;
        let (socket, mut rings) = Socket::new(&umem, sizes)?;
        for chunk in 0..sizes.receive as usize {
            rings.fill.put(umem.address(chunk));
        }
        rings.fill.publish();
        match bind(&socket, index, number, options.zero_copy) {
            Ok(()) => {}
            Err(Errno::INVAL) if number > 0 => return Ok(None),
            Err(errno) => return Err(refusal(errno, interface, number)),
        }
        // In reverse, so that the lowest addresses are used first.
        let free = (sizes.receive as usize..count).rev().map(|chunk| umem.address(chunk)).collect();
        let zero_copy = socket.is_zero_copy();
        let lent = None;
        let unsent = false;
        Ok(Some(Queue {
            rings,
            socket,
            umem,
            number,
            zero_copy,
            free,
            lent,
            unsent,
            refused: 0,
            senseless: 0,
        }))
    }

    /// Returns the number of the queue on its interface.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether the driver uses our memory without copies.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Returns the largest frame in bytes, with the Ethernet header, that can be received.
    pub fn longest_received(&self) -> usize {
        self.umem.chunk() - HEADROOM
    }

    /// Returns the kernel's counters of this queue.
    pub fn kernel_counters(&self) -> KernelCounters {
        self.socket.counters()
    }

    /// Returns the number of frames that the kernel dropped on sending because the interface's own queue
    /// was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of received descriptors that lie outside every chunk; a correct kernel sends
    /// none.
    pub fn senseless(&self) -> u64 {
        self.senseless
    }

    /// Passes at most `budget` received frames to `take`, each from its Ethernet header on. Returns the
    /// number of frames and of their bytes.
    #[inline(always)]
    pub fn receive(&mut self, budget: usize, take: &mut impl FnMut(&[u8])) -> (usize, usize) {
        let Queue { rings, umem, senseless, .. } = self;
        let mut frames = 0;
        let mut bytes = 0;
        let mut taken = false;
        while frames < budget {
            let Some(described) = rings.receive.take() else { break };
            taken = true;
            match umem.frame(described.addr, described.len as usize) {
                Some(frame) => {
                    frames += 1;
                    bytes += frame.len();
                    take(frame);
                    // The ring has as many entries as there are chunks, so it is never full.
                    rings.fill.put(umem.chunk_of(described.addr));
                }
                None => *senseless += 1,
            }
        }
        if taken {
            rings.fill.publish();
            rings.receive.give_back();
        }
        if rings.fill.needs_wakeup() {
            self.socket.kick_receive();
        }
        (frames, bytes)
    }

    /// Returns whether a frame has arrived that was not taken yet.
    pub fn has_received(&mut self) -> bool {
        self.rings.receive.available() > 0
    }

    /// Lends a buffer for a frame of `len` bytes with its Ethernet header. `None` if all chunks are in use,
    /// or no frame can have that length. An earlier lease that was not committed is discarded.
    #[inline(always)]
    pub fn lend(&mut self, len: usize) -> Option<&mut [u8]> {
        if len < ethernet::LEN || len > self.umem.chunk() {
            return None;
        }
        let chunk = match self.lent.take() {
            Some(lease) => lease.chunk,
            None => self.free_chunk()?,
        };
        self.lent = Some(LentFrame { chunk, len: len as u32 });
        self.umem.frame_mut(chunk, len)
    }

    /// Returns a chunk to send from. The chunk that came back last is preferred, because it is still in the
    /// cache.
    #[inline(always)]
    fn free_chunk(&mut self) -> Option<u64> {
        if let Some(address) = self.rings.completion.take() {
            self.rings.completion.give_back();
            return Some(self.umem.chunk_of(address));
        }
        self.free.pop()
    }

    /// Returns the bytes of the last lease until it is committed.
    #[inline(always)]
    pub fn lent(&mut self) -> Option<&mut [u8]> {
        let LentFrame { chunk, len } = self.lent?;
        self.umem.frame_mut(chunk, len as usize)
    }

    /// Commits the frame of the last lease: the next flush sends it. Returns false if nothing was lent.
    #[inline(always)]
    pub fn commit(&mut self) -> bool {
        let (Some(lease), Some(send)) = (self.lent.take(), &mut self.rings.send) else { return false };
        // The ring has as many entries as there are chunks, so it is never full.
        send.put(libc::xdp_desc { addr: lease.chunk, len: lease.len, options: 0 })
    }

    /// Removes the frame of the last lease instead of committing it. The caller reads it and then calls
    /// [`Queue::put_back`].
    #[inline(always)]
    pub(super) fn keep(&mut self) -> Option<LentFrame> {
        self.lent.take()
    }

    /// Returns the bytes of a frame that was kept.
    #[inline(always)]
    pub(super) fn kept(&self, lease: LentFrame) -> &[u8] {
        self.umem.frame(lease.chunk, lease.len as usize).unwrap_or(&[])
    }

    /// Frees the chunk of a frame that was kept.
    #[inline(always)]
    pub(super) fn put_back(&mut self, lease: LentFrame) {
        self.free.push(lease.chunk);
    }

    /// Sends the committed frames, as far as the kernel takes them.
    #[inline(always)]
    pub fn flush(&mut self) -> Flushed {
        let Some(send) = &mut self.rings.send else { return Flushed::All };
        if !send.publish() && !self.unsent {
            return Flushed::All;
        }
        self.unsent = true;
        let mut waiting = u32::MAX;
        let mut fruitless = 0;
        while send.needs_wakeup() {
            match self.socket.kick_send() {
                Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::BUSY) => self.refused += 1,
                Err(errno) => return Flushed::Refused(errno),
            }
            let left = send.waiting();
            if left == 0 {
                break;
            }
            // Each call takes at most 32 frames.
            fruitless = if left < waiting { 0 } else { fruitless + 1 };
            if fruitless == FRUITLESS {
                return Flushed::Some;
            }
            waiting = left;
        }
        self.unsent = false;
        Flushed::All
    }

    /// Returns whether there are frames that an earlier flush could not send.
    #[inline(always)]
    pub fn is_stuck(&self) -> bool {
        self.unsent
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Binds the socket, with retries: a kernel worker releases a queue only some time after its socket was
/// closed, so a program that restarts at once would find its own old socket there.
fn bind(socket: &Socket, interface: u32, queue: u32, zero_copy: bool) -> Result<(), Errno> {
    super::patiently(Errno::BUSY, || socket.bind(interface, queue, zero_copy))
}

/// Converts the error of a failed bind to a queue.
fn refusal(errno: Errno, interface: &str, queue: u32) -> OpenError {
    match errno {
        Errno::BUSY => OpenError::QueueTaken { interface: interface.to_owned(), queue },
        Errno::NETDOWN => OpenError::Down(interface.to_owned()),
        Errno::NODEV => OpenError::NoInterface(interface.to_owned()),
        Errno::PERM | Errno::ACCESS => OpenError::NoRight("binding an AF_XDP socket"),
        Errno::NOMEM | Errno::NOBUFS => OpenError::Memory(errno),
        other => OpenError::Os("binding the AF_XDP socket", other),
    }
}
