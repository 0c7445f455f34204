//! The one-sided verbs that are measured.

use remora_verbs::{Remote, Sge, WorkRequest, work};

/// The two one-sided verbs that are measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Write,
}

impl Verb {
    pub(super) const BOTH: [Verb; 2] = [Verb::Read, Verb::Write];

    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
        }
    }

    #[inline]
    pub(crate) fn request<'a>(self, id: u64, list: &'a [Sge], remote: Remote) -> WorkRequest<'a> {
        match self {
            Verb::Read => work::read(id, list, remote),
            Verb::Write => work::write(id, list, remote),
        }
    }
}
