//! A ring shared with the kernel: one side adds entries, the other removes them, and neither ever waits.
//!
//! The kernel writes its index after the entries that the index covers, and reads our index before it uses
//! entries. Therefore we load its index with acquire ordering and store our own with release ordering.
//! Between the two, positions are counted in private variables, so that the shared cache lines are accessed
//! once per batch.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Pointers to a ring's indices and entries. The owner of the memory keeps it mapped longer than the ring.
#[derive(Debug)]
pub(super) struct RingMemory<T> {
    /// Number of entries ever added (modulo 2^32).
    pub producer: NonNull<AtomicU32>,
    /// Number of entries ever removed (modulo 2^32).
    pub consumer: NonNull<AtomicU32>,
    /// The kernel's flags (`XDP_RING_NEED_WAKEUP`).
    pub flags: NonNull<AtomicU32>,
    /// The entries, `size` of them.
    pub entries: NonNull<T>,
    /// The number of entries, a power of two.
    pub size: u32,
}

impl<T: Copy> RingMemory<T> {
    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the creator keeps the words alive and shares them only as atomics.
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the index within the `size` entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

/// Our end of a ring that we fill: the fill ring or the transmit ring.
#[derive(Debug)]
pub(super) struct Producer<T> {
    words: RingMemory<T>,
    /// Number of entries added so far, published or not.
    put: u32,
    /// Number of entries that the kernel may see.
    published: u32,
    /// Number of entries that the kernel had removed when its index was read last.
    taken: u32,
}

impl<T: Copy> Producer<T> {
    /// Creates our end of a fresh ring.
    ///
    /// # Safety
    /// `words` point to memory that stays mapped as long as this value. Its only other user is the kernel,
    /// as the consumer of the ring. Both indices are equal.
    pub(super) unsafe fn new(words: RingMemory<T>) -> Self {
        let now = words.producer().load(Ordering::Relaxed);
        Producer { words, put: now, published: now, taken: now }
    }

    /// Returns whether the ring has a free entry.
    #[inline(always)]
    pub(super) fn has_space(&mut self) -> bool {
        if self.put.wrapping_sub(self.taken) < self.words.size {
            return true;
        }
        self.taken = self.words.consumer().load(Ordering::Acquire);
        self.put.wrapping_sub(self.taken) < self.words.size
    }

    /// Adds an entry, which the kernel sees after [`Producer::publish`]. Returns false if the ring is full.
    #[inline(always)]
    pub(super) fn put(&mut self, entry: T) -> bool {
        if !self.has_space() {
            return false;
        }
        // SAFETY: the entry is within the ring, and the kernel has released it. The kernel does not read it
        // before it is published.
        unsafe { self.words.entry(self.put).write(entry) };
        self.put = self.put.wrapping_add(1);
        true
    }

    /// Publishes the new entries to the kernel. Returns false if there were none.
    #[inline(always)]
    pub(super) fn publish(&mut self) -> bool {
        if self.put == self.published {
            return false;
        }
        self.published = self.put;
        self.words.producer().store(self.put, Ordering::Release);
        true
    }

    /// Returns the number of published entries that the kernel has not taken yet.
    #[inline(always)]
    pub(super) fn waiting(&mut self) -> u32 {
        self.taken = self.words.consumer().load(Ordering::Acquire);
        self.published.wrapping_sub(self.taken)
    }

    /// Returns whether the kernel takes published entries only when it is called.
    #[inline(always)]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.words.needs_wakeup()
    }
}

/// Our end of a ring that the kernel fills: the receive ring or the completion ring.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    words: RingMemory<T>,
    /// Number of entries removed so far, given back or not.
    taken: u32,
    /// Number of entries that the kernel had added when its index was read last.
    put: u32,
}

impl<T: Copy> Consumer<T> {
    /// Creates our end of a fresh ring.
    ///
    /// # Safety
    /// The conditions of [`Producer::new`], with the kernel as the ring's producer.
    pub(super) unsafe fn new(words: RingMemory<T>) -> Self {
        let now = words.consumer().load(Ordering::Relaxed);
        Consumer { words, taken: now, put: now }
    }

    /// Returns the number of entries that can be removed. Reads the kernel's index only if none is known.
    #[inline(always)]
    pub(super) fn available(&mut self) -> u32 {
        if self.put == self.taken {
            self.put = self.words.producer().load(Ordering::Acquire);
        }
        // Limited to the size of the ring: a correct kernel never writes an index beyond that.
        self.put.wrapping_sub(self.taken).min(self.words.size)
    }

    /// Removes the next entry; `None` if there is none. The kernel may reuse the entry after
    /// [`Consumer::give_back`].
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: the entry is within the ring, and the kernel has finished writing it: its index, loaded
        // with acquire, is beyond the entry.
        let entry = unsafe { self.words.entry(self.taken).read() };
        self.taken = self.taken.wrapping_add(1);
        Some(entry)
    }

    /// Returns all removed entries to the kernel.
    #[inline(always)]
    pub(super) fn give_back(&mut self) {
        self.words.consumer().store(self.taken, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// The kernel's side of a ring, in plain memory.
    struct Kernel {
        producer: Box<AtomicU32>,
        consumer: Box<AtomicU32>,
        flags: Box<AtomicU32>,
        entries: Box<[u64]>,
    }

    impl Kernel {
        fn new(size: usize, index: u32) -> Kernel {
            let index = || Box::new(AtomicU32::new(index));
            let entries = vec![0; size].into_boxed_slice();
            Kernel { producer: index(), consumer: index(), flags: Box::new(AtomicU32::new(0)), entries }
        }

        fn words(&mut self) -> RingMemory<u64> {
            RingMemory {
                producer: NonNull::from(&*self.producer),
                consumer: NonNull::from(&*self.consumer),
                flags: NonNull::from(&*self.flags),
                entries: NonNull::new(self.entries.as_mut_ptr()).unwrap(),
                size: self.entries.len() as u32,
            }
        }

        fn take(&self, words: &RingMemory<u64>) -> Option<u64> {
            let index = self.consumer.load(Ordering::Relaxed);
            if index == self.producer.load(Ordering::Acquire) {
                return None;
            }
            // SAFETY: within the ring, and published.
            let entry = unsafe { words.entry(index).read() };
            self.consumer.store(index.wrapping_add(1), Ordering::Release);
            Some(entry)
        }

        fn put(&self, words: &RingMemory<u64>, entry: u64) -> bool {
            let index = self.producer.load(Ordering::Relaxed);
            if index.wrapping_sub(self.consumer.load(Ordering::Acquire)) == words.size {
                return false;
            }
            // SAFETY: within the ring, and given back.
            unsafe { words.entry(index).write(entry) };
            self.producer.store(index.wrapping_add(1), Ordering::Release);
            true
        }
    }

    #[test]
    fn a_full_ring_refuses_and_takes_again_when_the_kernel_has_taken() {
        let mut kernel = Kernel::new(4, 0);
        let words = kernel.words();
        // SAFETY: the words live in `kernel`, whose methods are the only other user.
        let mut ring = unsafe { Producer::new(kernel.words()) };
        for entry in 0..4 {
            assert!(ring.put(entry));
        }
        assert!(!ring.has_space() && !ring.put(4));
        assert_eq!(kernel.take(&words), None, "nothing is published yet");
        assert!(ring.publish() && !ring.publish());
        assert_eq!((kernel.take(&words), ring.waiting()), (Some(0), 3));
        assert!(ring.put(4) && !ring.put(5));
        assert!(ring.publish());
        for entry in 1..5 {
            assert_eq!(kernel.take(&words), Some(entry));
        }
        assert_eq!(ring.waiting(), 0);
    }

    #[test]
    fn what_was_taken_is_the_kernels_again_only_when_given_back() {
        let mut kernel = Kernel::new(2, 0);
        let words = kernel.words();
        // SAFETY: as above.
        let mut ring = unsafe { Consumer::new(kernel.words()) };
        assert!(kernel.put(&words, 7) && kernel.put(&words, 8) && !kernel.put(&words, 9));
        assert_eq!((ring.available(), ring.take(), ring.take(), ring.take()), (2, Some(7), Some(8), None));
        assert!(!kernel.put(&words, 9));
        ring.give_back();
        assert!(kernel.put(&words, 9));
        assert_eq!(ring.take(), Some(9));
    }

    #[test]
    fn the_kernels_wish_to_be_called_is_seen() {
        let mut kernel = Kernel::new(2, 0);
        // SAFETY: as above.
        let ring = unsafe { Producer::new(kernel.words()) };
        assert!(!ring.needs_wakeup());
        kernel.flags.store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(ring.needs_wakeup());
    }

    #[test]
    fn random_steps_agree_with_a_queue_also_where_the_index_wraps() {
        let mut random = remora_fault::Random::new(11);
        for size in [1, 2, 8, 64] {
            let mut down = Kernel::new(size, u32::MAX - 40);
            let mut up = Kernel::new(size, u32::MAX - 40);
            let down_words = down.words();
            let up_words = up.words();
            // SAFETY: as above.
            let mut ours = unsafe { Producer::new(down.words()) };
            // SAFETY: as above.
            let mut theirs = unsafe { Consumer::new(up.words()) };
            let mut unseen = VecDeque::new();
            let mut seen = VecDeque::new();
            let mut came = VecDeque::new();
            let mut held = 0;
            for step in 0..2000 {
                match random.below(6) {
                    0 => {
                        let fits = unseen.len() + seen.len() < size;
                        assert_eq!(ours.put(step), fits);
                        unseen.extend(fits.then_some(step));
                    }
                    1 => {
                        assert_eq!(ours.publish(), !unseen.is_empty());
                        seen.append(&mut unseen);
                    }
                    2 => assert_eq!(down.take(&down_words), seen.pop_front()),
                    3 => {
                        let fits = came.len() + held < size;
                        assert_eq!(up.put(&up_words, step), fits);
                        came.extend(fits.then_some(step));
                    }
                    4 => {
                        let due = came.pop_front();
                        held += usize::from(due.is_some());
                        assert_eq!(theirs.take(), due);
                    }
                    _ => {
                        theirs.give_back();
                        held = 0;
                    }
                }
                assert_eq!(ours.waiting() as usize, seen.len());
            }
        }
    }
}
