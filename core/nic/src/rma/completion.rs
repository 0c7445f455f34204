//! The completion of a command, encoded in an ordinary completion queue entry.
//!
//! The entry's kind is read, write or rekey (120 to 122), its id the slot, and its immediate data the status.
//! The work queue index holds the issue delay, the sender word the total delay.

use remora_transport::rma::{OperationEnd, Status};
use remora_wire::rma::Kind;

use crate::cqe::Cqe;
use crate::prism;
use crate::request::{self, CompletionKind, WorkCompletion};

/// The completion of a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Slot of the command, which is free again.
    pub slot: u16,
    /// Kind of the command; read for a malformed command.
    pub kind: Kind,
    /// Status of the command.
    pub status: Status,
    /// Number of bytes read or written, or of the key; 0 on an error.
    pub size: u32,
    /// Nanoseconds from the issue of the command until it entered service, or until it ended without service.
    pub issue_delay: u64,
    /// Nanoseconds from the issue of the command to its end, at most 4.2 s.
    pub total_delay: u64,
}

impl Completion {
    /// Returns the nanoseconds that the command spent in the network and at the server.
    pub fn remote_delay(&self) -> u64 {
        self.total_delay.saturating_sub(self.issue_delay)
    }

    /// Returns the completion in an entry; `None` if the entry belongs to other work than 1RMA.
    pub fn of(entry: &Cqe) -> Option<Completion> {
        let kind = match entry.completion.kind {
            CompletionKind::RmaRead => Kind::Read,
            CompletionKind::RmaWrite => Kind::Write,
            CompletionKind::RmaRekey => Kind::Rekey,
            _ => return None,
        };
        Some(Completion {
            slot: entry.completion.id as u16,
            kind,
            status: Status::from_number(entry.completion.imm? as u8),
            size: entry.completion.byte_len,
            issue_delay: entry.wqe_index,
            total_delay: u64::from(entry.completion.src_qp),
        })
    }

    /// Returns the completion queue entry of a command.
    pub(crate) fn entry(ended: &OperationEnd, kind: Kind, size: u32) -> Cqe {
        let fine = ended.status == Status::Ok;
        let completion = WorkCompletion {
            id: u64::from(ended.slot),
            status: verbs_status(ended.status),
            kind: match kind {
                Kind::Write => CompletionKind::RmaWrite,
                Kind::Rekey => CompletionKind::RmaRekey,
                _ => CompletionKind::RmaRead,
            },
            byte_len: if fine { size } else { 0 },
            imm: Some(ended.status as u32),
            invalidated: None,
            qp_num: 0,
            src_qp: ended.total_delay.min(u64::from(u32::MAX)) as u32,
            grh: None,
            outcome: prism::Verdict::Done,
        };
        Cqe { completion, solicited: false, wqe_index: ended.issue_delay, timestamp: 0 }
    }
}

/// Returns the closest verbs status, for programs that do not evaluate the 1RMA status.
fn verbs_status(status: Status) -> request::Status {
    match status {
        Status::Ok => request::Status::Success,
        Status::RemoteAuthenticationFailure | Status::RemoteAccessError => request::Status::RemoteAccess,
        Status::Nack => request::Status::RnrRetryExceeded,
        Status::Timeout | Status::DispatchTimeout => request::Status::RetryExceeded,
        Status::LocalError => request::Status::LocalProtection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_brings_back_what_it_was_made_of() {
        for status in Status::ALL {
            for kind in [Kind::Read, Kind::Write, Kind::Rekey] {
                let ended = OperationEnd { slot: 0x1234, status, issue_delay: 1 << 40, total_delay: 99 };
                let words = Completion::entry(&ended, kind, 4096).words(1);
                let completion = Completion::of(&Cqe::parse(&words)).unwrap();
                let size = if status == Status::Ok { 4096 } else { 0 };
                let expected =
                    Completion { slot: 0x1234, kind, status, size, issue_delay: 1 << 40, total_delay: 99 };
                assert_eq!(completion, expected);
            }
        }
    }
}
