//! What a client and a replica say to each other when they connect, and the numbers that writers are given.

use super::{ClientId, Grant, MAX_REPLICAS};
use crate::words::{set_u32, u32_at};

/// What a client says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// It will write, and has no number yet.
    pub wants_number: bool,
}

/// First word: "RBH1".
const HELLO: u32 = u32::from_le_bytes(*b"RBH1");

impl Hello {
    /// Bytes of the message.
    pub const LEN: usize = 8;

    /// The message.
    pub fn encode(&self) -> [u8; Hello::LEN] {
        let mut out = [0; Hello::LEN];
        set_u32(&mut out, 0, HELLO);
        set_u32(&mut out, 4, self.wants_number.into());
        out
    }

    /// Reads the message; None if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        if bytes.len() != Hello::LEN || u32_at(bytes, 0) != HELLO || u32_at(bytes, 4) > 1 {
            return None;
        }
        Some(Hello { wants_number: u32_at(bytes, 4) == 1 })
    }
}

/// What the replica answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Which replica it is.
    pub replica: usize,
    /// The client's number, if it wanted one.
    pub number: Option<ClientId>,
    /// The rest.
    pub grant: Grant,
}

impl Welcome {
    /// Bytes of the message.
    pub const LEN: usize = 8 + Grant::LEN;

    /// The message.
    pub fn encode(&self) -> [u8; Welcome::LEN] {
        let mut out = [0; Welcome::LEN];
        set_u32(&mut out, 0, self.replica as u32);
        set_u32(&mut out, 4, self.number.map_or(u32::MAX, ClientId::get));
        out[8..].copy_from_slice(&self.grant.encode());
        out
    }

    /// Reads the message; None if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        if bytes.len() != Welcome::LEN {
            return None;
        }
        let replica = u32_at(bytes, 0) as usize;
        let number = match u32_at(bytes, 4) {
            u32::MAX => None,
            number => Some(ClientId::new(number)?),
        };
        let grant = Grant::decode(&bytes[8..])?;
        (replica < MAX_REPLICAS).then_some(Welcome { replica, number, grant })
    }
}

/// The numbers that a replica gives to writers, each once. Those of different replicas are different, so nobody has to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    next: u32,
    end: u32,
}

/// Writers that a replica can number.
const SHARE: u32 = (1 << ClientId::BITS) / (MAX_REPLICAS as u32 + 1);

impl Numbers {
    /// All that belong to a replica. None: there is no such replica.
    pub fn of(replica: usize) -> Option<Numbers> {
        let first = (replica < MAX_REPLICAS).then(|| replica as u32 * SHARE)?;
        Some(Numbers { next: first, end: first + SHARE })
    }

    /// The next one; None when all were given.
    pub fn give(&mut self) -> Option<ClientId> {
        let number = ClientId::new(self.next).filter(|_| self.next < self.end)?;
        self.next += 1;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Design, Layout};
    use crate::heap::Class;
    use memory::Key;
    use nic::Remote;

    #[test]
    fn messages_come_back_as_they_went_and_nothing_else_does() {
        for wants_number in [false, true] {
            let hello = Hello { wants_number };
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
        let mut bad = Hello { wants_number: true }.encode();
        bad[4] = 2;
        assert_eq!((Hello::decode(&bad), Hello::decode(&bad[1..]), Hello::decode(&[])), (None, None, None));
        let grant = Grant {
            design: Design::AbdLock,
            layout: Layout { blocks: 5, block_len: 1024 },
            table: Remote { addr: 1 << 40, rkey: Key::new(7) },
            class: Class { list: 0, base: 0, size: 0, count: 0 },
            lease: 13,
        };
        for number in [None, ClientId::new(0), ClientId::new((1 << ClientId::BITS) - 1)] {
            let welcome = Welcome { replica: 6, number, grant };
            assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        }
        let good = Welcome { replica: 0, number: None, grant }.encode();
        for (at, byte) in [(0, 7), (6, 0xf0), (8, 0)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Welcome::decode(&bad), None, "byte {at}");
        }
        assert_eq!(Welcome::decode(&good[1..]), None);
    }

    #[test]
    fn no_number_is_given_twice_and_they_run_out() {
        let mut given = std::collections::BTreeSet::new();
        for replica in 0..MAX_REPLICAS {
            let mut numbers = Numbers::of(replica).expect("a replica");
            while let Some(number) = numbers.give() {
                assert!(given.insert(number.get()));
            }
            assert_eq!(numbers.give(), None);
        }
        assert_eq!(given.len(), MAX_REPLICAS << 17);
        assert_eq!(Numbers::of(MAX_REPLICAS), None);
    }
}
