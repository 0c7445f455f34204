//! Tags order the writes of a block.

/// A client's number, of 20 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientId(u32);

impl ClientId {
    /// Bits of it.
    pub const BITS: u32 = 20;

    /// None if it has more bits.
    pub fn new(id: u32) -> Option<ClientId> {
        (id < 1 << ClientId::BITS).then_some(ClientId(id))
    }

    /// As a number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Time above, the writer's number below: no two writes of a block have the same one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub u64);

impl Tag {
    /// The block was never written.
    pub const NEVER: Tag = Tag(0);

    /// How often the block had been written, one write after the other.
    pub fn time(self) -> u64 {
        self.0 >> ClientId::BITS
    }

    /// The first tag of a client after a time; None if time has run out.
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
