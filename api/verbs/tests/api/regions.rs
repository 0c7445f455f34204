//! Memory through the API: memory of the caller, on the NIC, in several ranges, accessed as words and
//! values.
#![allow(unsafe_code, reason = "registering foreign memory")]

use remora_verbs::{
    Access, AccessError, Bytes, CompletionQueue, CreateError, Device, EMPTY, MemoryError, ProtectionDomain,
    QpOptions, QueuePair, Range, RemoteMemory, Status, WorkRequest, work,
};
use std::time::Duration;

struct Loop {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    pair: QueuePair,
    _other: QueuePair,
}

impl Loop {
    fn new() -> Loop {
        let context = Device::shm().open().unwrap();
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(64).unwrap();
        let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        let (pair, _other) = QueuePair::connect_pair(pair(), pair()).unwrap();
        Loop { domain, cq, pair, _other }
    }

    fn run(&mut self, request: &WorkRequest<'_>) -> Status {
        self.pair.post_send(request).unwrap();
        let mut done = [EMPTY; 1];
        assert_eq!(self.cq.wait(&mut done, Duration::from_secs(60)), Ok(1));
        done[0].status
    }
}

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

#[test]
fn foreign_memory_is_reached_by_its_keys_alone() {
    let mut nic = Loop::new();
    let mut buffer = vec![0u8; 256].into_boxed_slice();
    let start = buffer.as_mut_ptr();
    // SAFETY: the buffer outlives the region, and nothing else accesses it meanwhile.
    let foreign = unsafe { nic.domain.register_raw(start, 256, shared()) }.unwrap();
    let own = nic.domain.allocate(64, shared()).unwrap();
    own.write(0, b"foreign").unwrap();
    assert_eq!(nic.run(&work::write(1, &[own.sge(0, 7)], foreign.remote(100))), Status::Success);
    assert_eq!(
        foreign.read(100, &mut [0; 7]),
        Err(AccessError::OutOfBounds),
        "foreign memory has no accessors"
    );
    assert!(foreign.word(0).is_none() && foreign.bytes().is_none());
    drop(foreign);
    assert_eq!(buffer[100..107], *b"foreign");
}

#[test]
fn several_ranges_share_one_key() {
    let mut nic = Loop::new();
    let table = Bytes::heap(4096).unwrap();
    let buffers = Bytes::heap(4096).unwrap();
    let ranges = [Range::at(&table, 1 << 40), Range::at(&buffers, 2 << 40)];
    let region = nic.domain.register_ranges(&ranges, shared()).unwrap();
    let own = nic.domain.allocate(64, shared()).unwrap();
    own.write(0, b"pointer").unwrap();
    let place = |addr| remora_verbs::Remote { addr, rkey: region.rkey() };
    assert_eq!(nic.run(&work::write(1, &[own.sge(0, 7)], place((2 << 40) + 8))), Status::Success);
    let mut there = [0; 7];
    buffers.read(8, &mut there).unwrap();
    assert_eq!(&there, b"pointer");
    region.write(0, b"first range").unwrap();
    let mut first = [0; 11];
    table.read(0, &mut first).unwrap();
    assert_eq!(&first, b"first range");
    assert_eq!(nic.run(&work::write(2, &[own.sge(0, 7)], place(3 << 40))), Status::RemoteAccess);
}

#[test]
fn the_nics_own_memory_is_bounded_and_comes_back() {
    let mut nic = Loop::new();
    let on_nic = nic.domain.allocate_on_nic(128 << 10, shared()).unwrap();
    let more = nic.domain.allocate_on_nic(128 << 10, shared()).unwrap();
    let full = nic.domain.allocate_on_nic(64, shared());
    assert_eq!(full.err(), Some(CreateError::Memory(MemoryError::Full)));
    let own = nic.domain.allocate(64, shared()).unwrap();
    own.write(0, b"closer").unwrap();
    assert_eq!(nic.run(&work::write(1, &[own.sge(0, 6)], on_nic.remote(5))), Status::Success);
    assert_eq!(on_nic.get::<[u8; 6]>(5), Ok(*b"closer"));
    drop(more);
    assert!(nic.domain.allocate_on_nic(1000, shared()).is_ok());
}

#[test]
fn values_words_and_bounds() {
    let nic = Loop::new();
    let region = nic.domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
    region.put(4088, &0x0123_4567_89ab_cdef_u64).unwrap();
    assert_eq!(region.get::<u64>(4088), Ok(0x0123_4567_89ab_cdef));
    assert_eq!(region.get::<[u32; 3]>(4088), Err(AccessError::OutOfBounds));
    assert_eq!(region.put(usize::MAX, &1u8), Err(AccessError::OutOfBounds));
    region.word(16).unwrap().store(5, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(region.get::<u64>(16), Ok(5));
    assert!(region.word(17).is_none() && region.word(4096).is_none());
    let remote = region.remote_memory();
    assert_eq!(RemoteMemory::from_bytes(&remote.to_bytes()), Some(remote));
    assert_eq!(RemoteMemory::from_bytes(&[0; 19]), None);
    let writable_by_peers_only = nic.domain.allocate(64, Access::REMOTE_WRITE);
    assert_eq!(writable_by_peers_only.err(), Some(CreateError::Memory(MemoryError::Invalid)));
}

#[test]
fn a_zero_based_region_is_addressed_from_zero() {
    let mut nic = Loop::new();
    let region = nic.domain.allocate(4096, shared() | Access::ZERO_BASED).unwrap();
    assert_eq!(region.address(), 0);
    let own = nic.domain.allocate(64, shared()).unwrap();
    own.write(0, b"zero").unwrap();
    assert_eq!(nic.run(&work::write(1, &[own.sge(0, 4)], region.remote(10))), Status::Success);
    assert_eq!(region.get::<[u8; 4]>(10), Ok(*b"zero"));
}

/// A key of one domain gives no access to a queue pair of another.
#[test]
fn domains_are_apart() {
    let mut nic = Loop::new();
    let other = nic.domain.context().alloc_pd().unwrap();
    let foreign = other.allocate(64, shared()).unwrap();
    let own = nic.domain.allocate(64, shared()).unwrap();
    assert_eq!(nic.run(&work::write(1, &[own.sge(0, 4)], foreign.remote(0))), Status::RemoteAccess);
}
