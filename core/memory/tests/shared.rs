//! Memory shared by memfd: two mappings stand for two processes.
// Miri knows no memfd.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "makes memfds that `Bytes` must refuse")]

use remora_memory::{Access, Biased, Bytes, Config, Error, Range, Table};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn descriptor(bytes: &Bytes) -> OwnedFd {
    bytes.fd().unwrap().try_clone_to_owned().unwrap()
}

#[test]
fn two_mappings_show_the_same_bytes() {
    let ours = Bytes::memfd("remora-test", 10_000).unwrap();
    let theirs = Bytes::from_memfd(descriptor(&ours)).unwrap();
    assert_eq!((ours.len(), theirs.len()), (10_000, 10_000));
    assert_ne!(ours.address(), theirs.address());
    ours.write(9_995, b"hello").unwrap();
    let mut seen = [0; 5];
    theirs.read(9_995, &mut seen).unwrap();
    assert_eq!(&seen, b"hello");
    drop(ours);
    theirs.read(9_995, &mut seen).unwrap();
    assert_eq!(&seen, b"hello", "the memory lives as long as it is mapped");
}

#[test]
fn atomics_meet_across_mappings() {
    let ours = Bytes::memfd("remora-test", 4096).unwrap();
    let theirs = Bytes::from_memfd(descriptor(&ours)).unwrap();
    let table = Arc::new(Table::new(Config::default()).unwrap());
    let engine = Biased::new(&table, ());
    let pd = table.alloc_pd().unwrap();
    let key = table.register(pd, &[Range::at(&theirs, 0)], Access::from_bits(0xf).unwrap()).unwrap();
    drop(theirs);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10_000 {
                ours.word(64).unwrap().fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..10_000 {
            let mut pass = engine.enter();
            let (_, mem) = pass.parts();
            mem.check(pd, key, 64, 8, Access::REMOTE_ATOMIC).unwrap().fetch_add64(1).unwrap();
        }
    });
    assert_eq!(ours.word(64).unwrap().load(Ordering::Relaxed), 20_000);
}

/// Entries of /proc/self/pagemap: bit 63 means that this mapping has the page, which mincore would not show.
fn present(bytes: &Bytes) -> bool {
    use std::os::unix::fs::FileExt;
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    let mut entries = vec![0; bytes.len() / 4096 * 8];
    map.read_exact_at(&mut entries, bytes.address() / 4096 * 8).unwrap();
    entries.chunks(8).all(|entry| entry[7] & 0x80 != 0)
}

#[test]
fn every_page_is_present_in_each_map_from_the_start() {
    let bytes = Bytes::memfd("remora-test", 1 << 20).unwrap();
    let again = Bytes::from_memfd(descriptor(&bytes)).unwrap();
    for bytes in [bytes, again, Bytes::heap(1 << 20).unwrap(), Bytes::heap(8 << 20).unwrap()] {
        assert!(present(&bytes), "{} bytes", bytes.len());
    }
}

#[test]
fn the_descriptor_cannot_be_resized() {
    let bytes = Bytes::memfd("remora-test", 8192).unwrap();
    let file = std::fs::File::from(descriptor(&bytes));
    assert!(file.set_len(4096).is_err(), "a peer that shrinks the file would kill us by SIGBUS");
    assert!(file.set_len(16384).is_err());
}

#[test]
fn descriptors_that_could_shrink_are_refused() {
    let make = |flags| {
        // SAFETY: a C string and a flag; the result is checked.
        let fd = unsafe { libc::memfd_create(c"unsealed".as_ptr(), flags) };
        assert!(fd >= 0);
        // SAFETY: a new descriptor that nobody else owns.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let unsealed = make(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // SAFETY: our descriptor.
    assert_eq!(unsafe { libc::ftruncate(unsealed.as_raw_fd(), 4096) }, 0);
    assert_eq!(Bytes::from_memfd(unsealed).err(), Some(Error::Invalid));
    let empty = make(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // SAFETY: our descriptor.
    assert_eq!(unsafe { libc::fcntl(empty.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
    assert_eq!(Bytes::from_memfd(empty).err(), Some(Error::Invalid));
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(Bytes::from_memfd(reader.into()).err(), Some(Error::Invalid));
}

#[test]
fn names_and_lengths_that_no_memfd_can_have() {
    assert_eq!(Bytes::memfd("a\0b", 4096).err(), Some(Error::Invalid));
    assert_eq!(Bytes::memfd("empty", 0).err(), Some(Error::Invalid));
    assert!(Bytes::memfd("too long", usize::MAX).is_err());
    assert!(Bytes::heap(64).unwrap().fd().is_none());
}
