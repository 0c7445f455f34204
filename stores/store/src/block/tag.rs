//! Tags, which order the writes of a block.

use serde::{Deserialize, Serialize};

/// A client's number: 20 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct ClientId(u32);

impl TryFrom<u32> for ClientId {
    type Error = &'static str;

    fn try_from(id: u32) -> Result<ClientId, &'static str> {
        ClientId::new(id).ok_or("a client's number has at most 20 bits")
    }
}

impl ClientId {
    /// Number of bits in a client's number.
    pub const BITS: u32 = 20;

    /// Returns the client with this number, or `None` if the number has more than [`ClientId::BITS`] bits.
    pub fn new(id: u32) -> Option<ClientId> {
        (id < 1 << ClientId::BITS).then_some(ClientId(id))
    }

    /// Returns the client's number as an integer.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The version of a block: the time in the high bits, the writer's number in the low bits. No two writes of
/// a block have the same tag.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub u64);

impl Tag {
    /// The tag of a block that was never written.
    pub const NEVER: Tag = Tag(0);

    /// Returns the number of writes of the block, one after the other, that led to this tag.
    pub fn time(self) -> u64 {
        self.0 >> ClientId::BITS
    }

    /// Returns the tag of a client's write that follows the given time, or `None` if the time is exhausted.
    pub fn after(time: u64, client: ClientId) -> Option<Tag> {
        let time = time + 1;
        (time < 1 << (64 - ClientId::BITS)).then(|| Tag(time << ClientId::BITS | u64::from(client.get())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_is_greater_whoever_writes_and_time_ends() {
        let client = |id| ClientId::new(id).unwrap();
        let last = (1 << ClientId::BITS) - 1;
        assert_eq!(ClientId::new(last + 1), None);
        let early = Tag::after(4, client(last)).unwrap();
        let late = Tag::after(early.time(), client(0)).unwrap();
        assert!(Tag::NEVER < early && early < late && Tag::after(4, client(7)).unwrap() < early);
        assert_eq!((early.time(), late.time()), (5, 6));
        assert_eq!(Tag::after((1 << 44) - 2, client(1)).unwrap().time(), (1 << 44) - 1);
        assert_eq!(Tag::after((1 << 44) - 1, client(1)), None);
    }
}
