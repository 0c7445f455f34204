//! Tests that keys that were replaced, wiped, dropped or used for a derivation are nowhere in the memory of
//! the process. The test reads all of it.
#![cfg(target_os = "linux")]

use remora_cipher::Aes;
use remora_nic::rma::Cipher;
use std::fs::{File, read_to_string};
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use zeroize::Zeroize;

/// Number of bytes read at once.
const CHUNK: usize = 1 << 16;
/// Keys are derived from this pattern by complementing each byte, so the pattern itself is never mistaken
/// for a key.
const PATTERN: [u8; 16] = *b"a complement of!";

/// Calls `user` with a key that exists nowhere else in memory, and then wipes it. A key schedule starts with
/// its key, so searching for keys finds schedules too.
fn with_key(number: u8, user: impl FnOnce(&[u8; 16])) {
    // The key is created on the heap, because a copy from the stack would leave a trace.
    let mut key = black_box(Box::new([0; 16]));
    for (byte, pattern) in key.iter_mut().zip(PATTERN) {
        // Written byte by byte, because a vector register could be spilled to the stack.
        *byte = black_box(!(pattern ^ number));
    }
    user(&key);
    key[..].zeroize();
}

fn is_key(bytes: &[u8], numbers: &Range<u8>) -> bool {
    let mut differ = bytes.iter().zip(PATTERN).map(|(byte, pattern)| !(byte ^ pattern));
    let Some(number) = differ.next() else { return false };
    numbers.contains(&number) && differ.all(|other| other == number)
}

/// Returns true if any key with these numbers is in writable memory.
fn found(numbers: Range<u8>) -> bool {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = read_to_string("/proc/self/maps").unwrap();
    let mut buffer = vec![0; CHUNK];
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        // Chunks overlap by the length of a key, so that no key is split.
        (start..end).step_by(CHUNK - 16).any(|address| {
            // The buffer is in memory too, so its content would be found.
            buffer[..].zeroize();
            let wanted = CHUNK.min((end - address) as usize);
            let read = memory.read_at(&mut buffer[..wanted], address).unwrap_or(0);
            buffer[..read].windows(16).any(|bytes| is_key(bytes, &numbers))
        })
    })
}

fn load(aes: &mut Aes, places: Range<u8>, first: u8) {
    places.for_each(|place| with_key(first + place, |key| aes.load(usize::from(place), key)));
}

#[test]
fn no_key_is_left_in_memory() {
    let mut aes = Aes::new(40);
    load(&mut aes, 0..40, 0);
    assert!((0..40).all(|number| found(number..number + 1)));

    load(&mut aes, 0..20, 100);
    assert!(!found(0..20) && found(100..120), "replaced");

    (0..10).for_each(|place| aes.wipe(place));
    assert!(!found(100..110) && found(110..120), "wiped");

    with_key(200, |key| assert_ne!(aes.derive(key, &[1; 32]), [0; 16]));
    aes.wipe(0);
    assert!(!found(200..201), "derived from");

    drop(aes);
    // Overwrites the traces of the last key that the test itself left.
    load(&mut Aes::new(1), 0..1, 255);
    assert!(!found(0..255), "dropped");
}
