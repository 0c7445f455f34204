//! The id of a work request. The completion returns the id to the machine that posted the request.

/// The parts of a work request's id: kind of work (4 bits), slot or receive buffer (16 bits), and the number
/// in the send queue's account (28 bits). A NIC's ids have 48 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkId {
    pub work: Work,
    pub place: u16,
    /// Number of a send request in the account; 28 bits.
    pub number: u32,
}

/// The kind of work that a request does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The last READ of a step.
    Read,
    /// A SEND or a WRITE with a message.
    Message,
    /// A receive buffer.
    Receive,
}

/// Mask of the bits of a number that an id holds.
pub(crate) const NUMBER: u32 = (1 << 28) - 1;

impl WorkId {
    #[inline]
    pub(crate) fn encode(self) -> u64 {
        let kind = match self.work {
            Work::Read => 1,
            Work::Message => 2,
            Work::Receive => 3,
        };
        kind << 44 | u64::from(self.place) << 28 | u64::from(self.number & NUMBER)
    }

    /// Decodes an id. Returns `None` if the kind of work is unknown.
    #[inline]
    pub(crate) fn decode(id: u64) -> Option<WorkId> {
        let work = match id >> 44 {
            1 => Work::Read,
            2 => Work::Message,
            3 => Work::Receive,
            _ => return None,
        };
        Some(WorkId { work, place: (id >> 28) as u16, number: id as u32 & NUMBER })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_take_48_bits_and_come_back() {
        for work in [Work::Read, Work::Message, Work::Receive] {
            let id = WorkId { work, place: u16::MAX, number: NUMBER };
            assert!(id.encode() < 1 << 48);
            assert_eq!(WorkId::decode(id.encode()), Some(id));
        }
        let wrapped = WorkId { work: Work::Read, place: 0, number: NUMBER + 6 };
        assert_eq!(WorkId::decode(wrapped.encode()).map(|id| id.number), Some(5));
        assert_eq!(WorkId::decode(0), None);
    }
}
