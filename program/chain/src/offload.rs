//! The data of the offloads in `program/chain/programs/offloads` in memory, and the messages of their
//! clients.
//!
//! Buckets of a table and nodes of a list have the form of a work request's first words (header, address,
//! length). So one READ makes an answer of them. Keys have 48 bits, and none is 0.
//!
//! A client posts a receive without elements and SENDs its request. The answer is one RDMA WRITE with
//! immediate data. The receive completes when the answer is in the client's reply region. It has the length
//! of the value, or 0 bytes if the key is not there. No value is empty.

use remora_nic::wqe::WqeOpcode;

use crate::program::header;

/// The shipped programs, by name.
pub const OFFLOADS: [(&str, &str); 6] = [
    ("get", include_str!("../programs/offloads/get.chain")),
    ("get-two-sequential", include_str!("../programs/offloads/get-two-sequential.chain")),
    ("get-two-parallel", include_str!("../programs/offloads/get-two-parallel.chain")),
    ("list", include_str!("../programs/offloads/list.chain")),
    ("list-break", include_str!("../programs/offloads/list-break.chain")),
    ("cache", include_str!("../programs/offloads/cache.chain")),
];

/// The text of a shipped program.
pub fn shipped(name: &str) -> Option<&'static str> {
    OFFLOADS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Bytes from one bucket to the next, and of a node.
pub const BUCKET: u64 = 32;
/// Nodes that `list.chain` looks at.
pub const LIST: usize = 8;

/// The header that a client looks for.
pub fn wanted(key: u64) -> u64 {
    header(WqeOpcode::NOP.0, 0, key)
}

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A bucket that holds a key, whose value is `len` bytes at `at`. An empty one holds key 0, and answers so.
pub fn bucket(key: u64, at: u64, len: u64) -> [u8; BUCKET as usize] {
    node(key, at, len, telling(key))
}

/// A node of a list: the same, and where the next one is.
pub fn node(key: u64, at: u64, len: u64, next: u64) -> [u8; BUCKET as usize] {
    let mut bytes = [0; BUCKET as usize];
    bytes.copy_from_slice(&words([wanted(key), at, len, next]));
    bytes
}

/// The header of an answer that goes if a bucket has another key.
fn telling(key: u64) -> u64 {
    header(WqeOpcode::WRITE_IMM.0, 0, key)
}

/// What a client sends to `get.chain` about a bucket, and to `list-break.chain` about a first node.
pub fn ask(bucket: u64, key: u64) -> Vec<u8> {
    words([bucket, wanted(key)])
}

/// What a client sends to the two programs that look at two buckets.
pub fn ask_two(buckets: [u64; 2], key: u64) -> Vec<u8> {
    words([buckets[0], wanted(key), telling(key), buckets[1], wanted(key)])
}

/// What a client sends to `list.chain`.
pub fn ask_list(first: u64, key: u64) -> Vec<u8> {
    let mut message = first.to_le_bytes().to_vec();
    message.extend(wanted(key).to_le_bytes().repeat(LIST));
    message
}

/// The two buckets of a key in a table of `buckets`, which is a power of two.
pub fn places(key: u64, buckets: u64) -> [u64; 2] {
    // Two odd multipliers: of a product the upper half is mixed best.
    let hash = |by: u64| (key.wrapping_mul(by) >> 32) & (buckets - 1);
    [hash(0x9e37_79b9_7f4a_7c15), hash(0xc2b2_ae3d_27d4_eb4f)]
}
