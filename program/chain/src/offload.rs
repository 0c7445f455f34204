//! Memory layout and client messages of the shipped offloads (`program/chain/programs/offloads`).
//!
//! Buckets of a table and nodes of a list have the layout of a work request's first words (header, address,
//! length), so that one READ turns them into an answer. Keys have 48 bits; 0 is not a valid key.
//!
//! A client posts a receive without elements and SENDs its request. The answer is one RDMA WRITE with
//! immediate data into the client's reply region, which completes the receive. Its length is that of the
//! value, or 0 if the key does not exist. Values are never empty.

use remora_nic::wqe::WqeOpcode;

use crate::program::header;

/// The shipped programs: name and text.
pub const OFFLOADS: [(&str, &str); 6] = [
    ("get", include_str!("../programs/offloads/get.chain")),
    ("get-two-sequential", include_str!("../programs/offloads/get-two-sequential.chain")),
    ("get-two-parallel", include_str!("../programs/offloads/get-two-parallel.chain")),
    ("list", include_str!("../programs/offloads/list.chain")),
    ("list-break", include_str!("../programs/offloads/list-break.chain")),
    ("cache", include_str!("../programs/offloads/cache.chain")),
];

/// Returns the text of a shipped program, or `None`.
pub fn shipped(name: &str) -> Option<&'static str> {
    OFFLOADS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Length of a bucket and of a node in bytes.
pub const BUCKET: u64 = 32;
/// Number of nodes that `list.chain` searches.
pub const LIST: usize = 8;

/// Returns the header with which a client looks up a key.
pub fn wanted(key: u64) -> u64 {
    header(WqeOpcode::NOP.0, 0, key)
}

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns a bucket with a key whose value is `len` bytes at `address`. An empty bucket has key 0.
pub fn bucket(key: u64, address: u64, len: u64) -> [u8; BUCKET as usize] {
    node(key, address, len, telling(key))
}

/// Returns a node of a list, which also has the address of the next node.
pub fn node(key: u64, address: u64, len: u64, next: u64) -> [u8; BUCKET as usize] {
    let mut bytes = [0; BUCKET as usize];
    bytes.copy_from_slice(&words([wanted(key), address, len, next]));
    bytes
}

/// Returns the header of the answer that is sent if a bucket has another key.
fn telling(key: u64) -> u64 {
    header(WqeOpcode::WRITE_IMM.0, 0, key)
}

/// Returns a request to `get.chain` with the address of a bucket, or to `list-break.chain` with the address
/// of the first node.
pub fn ask(bucket: u64, key: u64) -> Vec<u8> {
    words([bucket, wanted(key)])
}

/// Returns a request to the two programs that check two buckets.
pub fn ask_two(buckets: [u64; 2], key: u64) -> Vec<u8> {
    words([buckets[0], wanted(key), telling(key), buckets[1], wanted(key)])
}

/// Returns a request to `list.chain`.
pub fn ask_list(first: u64, key: u64) -> Vec<u8> {
    let mut message = first.to_le_bytes().to_vec();
    message.extend(wanted(key).to_le_bytes().repeat(LIST));
    message
}

/// Returns the two bucket numbers of a key in a table of `buckets` buckets, which must be a power of two.
pub fn places(key: u64, buckets: u64) -> [u64; 2] {
    // Multiplicative hashing with odd constants; the upper half of the product is mixed best.
    let hash = |by: u64| (key.wrapping_mul(by) >> 32) & (buckets - 1);
    [hash(0x9e37_79b9_7f4a_7c15), hash(0xc2b2_ae3d_27d4_eb4f)]
}
