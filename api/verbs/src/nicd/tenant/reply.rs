//! The replies to a tenant's requests, and the refusals that its modules share.

use remora_memory::Bytes;
use std::os::fd::OwnedFd;

use super::super::message::{Refusal, Reply};

/// The daemon's reply to a request with the reply's descriptors, or the text of a refusal.
pub(crate) type ReplyResult = Result<(Reply, Vec<OwnedFd>), Refusal>;

/// The refusal of a request because of this error.
pub(super) fn words(error: impl ToString) -> Refusal {
    Refusal::Request(error.to_string())
}

pub(super) fn unknown(kind: &str, number: impl std::fmt::Display) -> Refusal {
    Refusal::Request(format!("this program has no {kind} {number}"))
}

pub(super) fn descriptor(bytes: &Bytes) -> Result<OwnedFd, Refusal> {
    let fd = bytes.fd().ok_or("this memory cannot be lent")?;
    fd.try_clone_to_owned().map_err(words)
}

/// The length of memory that a program sends. Nothing of it is mapped yet.
pub(super) fn sent_len(memory: &OwnedFd) -> Result<u64, Refusal> {
    let status = rustix::fs::fstat(memory).map_err(words)?;
    u64::try_from(status.st_size).map_err(words)
}
