//! Benchmarks of key set-up and of messages by size.
//!
//! `cargo bench -p remora-cipher` prints nanoseconds per call. Messages have 60 bytes of AAD. `open` copies
//! the sealed text before opening it; `seal_and_open` runs both ends of a message without a copy.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use remora_cipher::Aes;
use remora_nic::rma::Cipher;

const SIZES: [usize; 5] = [16, 64, 256, 1024, 4096];
const AAD: [u8; 60] = [7; 60];
const NONCE: [u8; 12] = [9; 12];

fn main() {
    divan::main();
}

fn table() -> Aes {
    let mut aes = Aes::new(1);
    aes.load(0, &[1; 16]);
    aes
}

/// Replaces a key schedule.
#[divan::bench]
fn load(bencher: Bencher) {
    let mut aes = table();
    bencher.bench_local(|| aes.load(0, black_box(&[2; 16])));
}

#[divan::bench]
fn wipe(bencher: Bencher) {
    let mut aes = table();
    bencher.bench_local(|| aes.wipe(0));
}

/// Derives a key from a region's key.
#[divan::bench]
fn derive(bencher: Bencher) {
    let mut aes = table();
    bencher.bench_local(|| aes.derive(black_box(&[1; 16]), black_box(&[2; 32])));
}

/// Derives and loads a key: the additional cost of a message whose key is not in the table.
#[divan::bench]
fn derive_and_load(bencher: Bencher) {
    let mut aes = table();
    bencher.bench_local(|| {
        let key = aes.derive(black_box(&[1; 16]), black_box(&[2; 32]));
        aes.load(0, &key);
    });
}

#[divan::bench(args = SIZES)]
fn seal(bencher: Bencher, size: usize) {
    let mut aes = table();
    let mut text = vec![5; size];
    bencher.counter(BytesCount::new(size)).bench_local(|| aes.seal(0, &NONCE, &AAD, black_box(&mut text)));
}

#[divan::bench(args = SIZES)]
fn open(bencher: Bencher, size: usize) {
    let mut aes = table();
    let mut sealed = vec![5; size];
    let tag = aes.seal(0, &NONCE, &AAD, &mut sealed);
    let mut text = sealed.clone();
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        text.copy_from_slice(&sealed);
        assert!(aes.open(0, &NONCE, &AAD, black_box(&mut text), &tag));
    });
}

#[divan::bench(args = SIZES)]
fn seal_and_open(bencher: Bencher, size: usize) {
    let mut aes = table();
    let mut text = vec![5; size];
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        let tag = aes.seal(0, &NONCE, &AAD, black_box(&mut text));
        assert!(aes.open(0, &NONCE, &AAD, black_box(&mut text), &tag));
    });
}
