use super::*;
use std::sync::atomic::Ordering;

#[test]
fn new_memory_is_zero_and_aligned() {
    for len in [1, 63, 64, 4095, 4096, 300_000, (2 << 20) + 1, 5 << 20] {
        if cfg!(miri) && len > 100 {
            continue;
        }
        let bytes = Bytes::heap(len).unwrap();
        assert_eq!(bytes.len(), len);
        let align = if len >= 4096 { 4096 } else { 64 };
        assert_eq!(bytes.address() % align, 0, "{len} bytes");
        let mut seen = vec![1; len];
        bytes.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0));
        bytes.write(len - 1, &[7]).unwrap();
    }
    assert_eq!(Bytes::heap(0).err(), Some(Error::Invalid));
    assert!(Bytes::heap(usize::MAX).is_err() && Bytes::heap(isize::MAX as usize).is_err());
}

#[test]
fn nothing_outside_a_block_is_accessible() {
    let bytes = Bytes::heap(100).unwrap();
    let out = Err(AccessError::OutOfBounds);
    assert_eq!(bytes.read(100, &mut []), Ok(()));
    assert_eq!(bytes.read(101, &mut []), out);
    assert_eq!(bytes.read(99, &mut [0; 2]), out);
    assert_eq!(bytes.write(usize::MAX, &[0; 2]), out);
    assert_eq!(bytes.copy64(36, &mut [0; 64]), Ok(()));
    assert_eq!(bytes.copy64(37, &mut [0; 64]), out);
    assert_eq!(bytes.store64(37, &[0; 64]), out);
    assert!(bytes.word(88).is_some());
    for refused in [89, 92, 96, 104, usize::MAX, usize::MAX - 7] {
        assert!(bytes.word(refused).is_none(), "{refused}");
    }
}

#[test]
fn clones_share_the_bytes() {
    let bytes = Bytes::heap(256).unwrap();
    let clone = bytes.clone();
    let entry: [u8; 64] = std::array::from_fn(|at| at as u8 + 1);
    clone.store64(128, &entry).unwrap();
    let mut seen = [0; 64];
    bytes.copy64(128, &mut seen).unwrap();
    assert_eq!(seen, entry);
    drop(bytes);
    clone.copy64(128, &mut seen).unwrap();
    assert_eq!(seen, entry);
}

#[test]
fn words_are_the_bytes_in_the_machines_order() {
    let bytes = Bytes::heap(64).unwrap();
    bytes.word(8).unwrap().store(0x0102_0304_0506_0708, Ordering::Release);
    let mut seen = [0; 8];
    bytes.read(8, &mut seen).unwrap();
    assert_eq!(seen, 0x0102_0304_0506_0708u64.to_ne_bytes());
}

/// Rings publish entries by an index word. The consumer must then see each entry whole.
#[test]
fn an_entry_is_whole_once_its_index_is_seen() {
    const SLOTS: u64 = 8;
    let turns = if cfg!(miri) { 50 } else { 5_000 };
    let ring = Bytes::heap(64 * (SLOTS as usize + 2)).unwrap();
    let produced = ring.word(0).unwrap();
    let consumed = ring.word(64).unwrap();
    let slot = |at: u64| 128 + (at % SLOTS) as usize * 64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0..turns {
                while at - consumed.load(Ordering::Acquire) >= SLOTS {
                    std::thread::yield_now();
                }
                ring.store64(slot(at), &[at as u8; 64]).unwrap();
                produced.store(at + 1, Ordering::Release);
            }
        });
        for at in 0..turns {
            while produced.load(Ordering::Acquire) <= at {
                std::thread::yield_now();
            }
            let mut entry = [0; 64];
            ring.copy64(slot(at), &mut entry).unwrap();
            assert_eq!(entry, [at as u8; 64]);
            consumed.store(at + 1, Ordering::Release);
        }
    });
}
