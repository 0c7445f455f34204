//! Keys that were replaced, wiped or dropped, and those from which others were derived, stand nowhere in the
//! memory of the process: the test reads all of it.
#![cfg(target_os = "linux")]

use remora_cipher::Aes;
use remora_nic::rma::Cipher;
use std::fs::{File, read_to_string};
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use zeroize::Zeroize;

/// Bytes read at once.
const CHUNK: usize = 1 << 16;
/// The keys differ from this in each byte, so that it is not taken for one of them.
const PATTERN: [u8; 16] = *b"a complement of!";

/// Calls `user` with a key that stands nowhere else, and wipes it. A key schedule begins with its key.
fn with_key(number: u8, user: impl FnOnce(&[u8; 16])) {
    // Made in its place: not on the stack, from which it would be copied.
    let mut key = black_box(Box::new([0; 16]));
    for (byte, pattern) in key.iter_mut().zip(PATTERN) {
        // A byte at a time: a vector of them could be spilled to the stack.
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

/// Do any keys of these numbers stand in writable memory?
fn found(numbers: Range<u8>) -> bool {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = read_to_string("/proc/self/maps").unwrap();
    let mut buffer = vec![0; CHUNK];
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        // Chunks overlap by a key: none is cut.
        (start..end).step_by(CHUNK - 16).any(|at| {
            // The buffer is in memory, too, and what it held would be found again.
            buffer[..].zeroize();
            let wanted = CHUNK.min((end - at) as usize);
            let read = memory.read_at(&mut buffer[..wanted], at).unwrap_or(0);
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
    // What the test itself had of the last key lies where this one comes by.
    load(&mut Aes::new(1), 0..1, 255);
    assert!(!found(0..255), "dropped");
}
