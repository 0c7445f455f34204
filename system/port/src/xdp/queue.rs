//! One receive queue of an interface, and the queue that frames leave by: a socket, its memory and its rings.
//!
//! A chunk of memory is always in exactly one place. A chunk to receive into is in the fill ring, with the
//! kernel, in the receive ring or in `take`'s hands. A chunk to send from is free, lent, in the send ring,
//! with the kernel or in the completion ring. Each ring has an entry for every chunk that can get there.

use super::options::{OpenError, Options};
use super::socket::{KernelCounters, Rings, Sizes, Socket};
use super::umem::{HEADROOM, Umem};
use remora_wire::ethernet;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// The frame that a queue has lent.
#[derive(Copy, Clone, Debug)]
pub(super) struct LentFrame {
    /// Address of its chunk.
    chunk: u64,
    /// Bytes with the Ethernet header.
    pub(super) len: u32,
}

/// A bound queue. It is public so that a benchmark can measure the floor under [`super::XdpPort`] with the
/// very same rings.
#[derive(Debug)]
pub struct Queue {
    // The rings first: they point into the socket's memory.
    rings: Rings,
    socket: Socket,
    /// After the socket: the kernel uses it as long as that lives.
    umem: Umem,
    number: u32,
    zero_copy: bool,
    /// Chunks that nothing is sent from at this moment and that came back long ago.
    free: Vec<u64>,
    /// The frame that was lent and not committed yet.
    lent: Option<LentFrame>,
    /// The kernel has not taken all that was published.
    unsent: bool,
    refused: u64,
    senseless: u64,
}

/// The result of a flush.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The kernel has everything, or will look by itself.
    All,
    /// Some is still in the ring: it leaves with a later flush.
    Some,
    /// The kernel refuses: the interface is down or gone. The ring keeps what is in it.
    Refused(Errno),
}

/// Calls in a row that took nothing from the ring, at which a flush gives up for now.
const FRUITLESS: u32 = 4;

impl Queue {
    /// Opens queue `number` of the interface with this index. Only a queue that `sends` has chunks for frames
    /// to send.
    ///
    /// `Ok(None)`: the interface has no such queue.
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
        // From the last to the first, so that the lowest addresses are used first.
        let free = (sizes.receive as usize..count).rev().map(|chunk| umem.address(chunk)).collect();
        let zero_copy = socket.is_zero_copy();
        let (lent, unsent) = (None, false);
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

    /// Its number on the interface.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Does the driver use our memory without copies?
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Longest frame that can be received, bytes with the Ethernet header.
    pub fn longest_received(&self) -> usize {
        self.umem.chunk() - HEADROOM
    }

    /// The kernel's counters of this queue.
    pub fn kernel_counters(&self) -> KernelCounters {
        self.socket.counters()
    }

    /// Frames that the kernel dropped instead of sending because the interface's own queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Received descriptors that lie in no chunk. A kernel sends none.
    pub fn senseless(&self) -> u64 {
        self.senseless
    }

    /// Hands at most `budget` received frames to `take`, each from its Ethernet header; returns how many and
    /// their bytes.
    #[inline(always)]
    pub fn receive(&mut self, budget: usize, take: &mut impl FnMut(&[u8])) -> (usize, usize) {
        let Queue { rings, umem, senseless, .. } = self;
        let (mut frames, mut bytes, mut taken) = (0, 0, false);
        while frames < budget {
            let Some(described) = rings.receive.take() else { break };
            taken = true;
            match umem.frame(described.addr, described.len as usize) {
                Some(frame) => {
                    frames += 1;
                    bytes += frame.len();
                    take(frame);
                    // There are as many entries as chunks, so the ring is never full.
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

    /// Has a frame come that was not taken yet?
    pub fn has_received(&mut self) -> bool {
        self.rings.receive.available() > 0
    }

    /// A buffer for a frame of `len` bytes with its Ethernet header; `None`: all chunks are on their way, or
    /// no frame can have that length. An earlier lease that was never committed is forgotten.
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

    /// A chunk to send from. The chunk that came back last comes first, since the cache still has it.
    #[inline(always)]
    fn free_chunk(&mut self) -> Option<u64> {
        if let Some(address) = self.rings.completion.take() {
            self.rings.completion.give_back();
            return Some(self.umem.chunk_of(address));
        }
        self.free.pop()
    }

    /// The bytes of the last lease, before it is committed.
    #[inline(always)]
    pub fn lent(&mut self) -> Option<&mut [u8]> {
        let LentFrame { chunk, len } = self.lent?;
        self.umem.frame_mut(chunk, len as usize)
    }

    /// The frame of the last lease leaves with the next flush; `false`: nothing was lent.
    #[inline(always)]
    pub fn commit(&mut self) -> bool {
        let (Some(lease), Some(send)) = (self.lent.take(), &mut self.rings.send) else { return false };
        // There are as many entries as chunks, so the ring is never full.
        send.put(libc::xdp_desc { addr: lease.chunk, len: lease.len, options: 0 })
    }

    /// Takes the frame of the last lease out instead of committing it. The caller reads it and gives it back
    /// with [`Queue::put_back`].
    #[inline(always)]
    pub(super) fn keep(&mut self) -> Option<LentFrame> {
        self.lent.take()
    }

    /// A frame that was kept.
    #[inline(always)]
    pub(super) fn kept(&self, lease: LentFrame) -> &[u8] {
        self.umem.frame(lease.chunk, lease.len as usize).unwrap_or(&[])
    }

    /// The chunk of a frame that was kept is free again.
    #[inline(always)]
    pub(super) fn put_back(&mut self, lease: LentFrame) {
        self.free.push(lease.chunk);
    }

    /// Sends the committed frames, up to the number that the kernel takes.
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
            // A call takes at most 32 frames.
            fruitless = if left < waiting { 0 } else { fruitless + 1 };
            if fruitless == FRUITLESS {
                return Flushed::Some;
            }
            waiting = left;
        }
        self.unsent = false;
        Flushed::All
    }

    /// Are there frames that an earlier flush could not send?
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

/// Binds the socket. A worker of the kernel takes a queue back only a moment after its socket was closed. A
/// program that restarts at once would find its own old socket there.
fn bind(socket: &Socket, interface: u32, queue: u32, zero_copy: bool) -> Result<(), Errno> {
    super::patiently(Errno::BUSY, || socket.bind(interface, queue, zero_copy))
}

/// The error of a failed bind to a queue.
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
