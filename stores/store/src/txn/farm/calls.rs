//! The immediate data (32 bits) of a message between client and shard. A log entry is sent together with the
//! request to lock its key. All other messages carry no bytes.
//!
//! ```text
//! 31..28  request, or result of a request       27..0  entry of the client's log
//! ```

use super::layout::ENTRIES;

/// A request of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ask {
    /// Lock the key whose log entry was sent with this message.
    Lock = 1,
    /// Write and unlock everything that the entry's transaction has locked.
    Update,
    /// Unlock everything that the entry's transaction has locked.
    Unlock,
}

/// The answer of a shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    /// The request was executed.
    Done = 1,
    /// The key is locked, or has another version.
    Changed,
    /// The shard has no space for another key.
    Full,
}

fn pack(code: u8, entry: u32) -> u32 {
    u32::from(code) << 28 | entry
}

fn parts(imm: u32) -> Option<(u32, u32)> {
    let entry = imm & 0x0fff_ffff;
    (entry < ENTRIES).then_some((imm >> 28, entry))
}

impl Ask {
    pub(crate) fn pack(self, entry: u32) -> u32 {
        pack(self as u8, entry)
    }

    /// Decodes a request. Returns `None` if it is malformed.
    pub(crate) fn parse(imm: u32) -> Option<(Ask, u32)> {
        let (code, entry) = parts(imm)?;
        let ask = [Ask::Lock, Ask::Update, Ask::Unlock].into_iter().find(|ask| *ask as u32 == code)?;
        Some((ask, entry))
    }
}

impl Reply {
    pub(crate) fn pack(self, entry: u32) -> u32 {
        pack(self as u8, entry)
    }

    /// Decodes an answer. Returns `None` if it is malformed.
    pub(crate) fn parse(imm: u32) -> Option<(Reply, u32)> {
        let (code, entry) = parts(imm)?;
        let all = [Reply::Done, Reply::Changed, Reply::Full];
        Some((all.into_iter().find(|reply| *reply as u32 == code)?, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_as_they_went_and_nothing_else_does() {
        for entry in [0, 1, ENTRIES - 1] {
            assert_eq!(Ask::parse(Ask::Lock.pack(entry)), Some((Ask::Lock, entry)));
            assert_eq!(Ask::parse(Ask::Unlock.pack(entry)), Some((Ask::Unlock, entry)));
            assert_eq!(Reply::parse(Reply::Full.pack(entry)), Some((Reply::Full, entry)));
        }
        for imm in [0, 5, 4 << 28, u32::MAX, 1 << 28 | ENTRIES] {
            assert_eq!((Ask::parse(imm), Reply::parse(imm)), (None, None));
        }
    }
}
