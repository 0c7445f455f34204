//! A running hash of all events of a world. Two runs with equal hashes were equal.

/// The hash so far.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Trace(u64);

impl Trace {
    /// Returns the initial hash.
    pub const fn new() -> Trace {
        Trace(0x243f_6a88_85a3_08d3)
    }

    /// Adds a number to the hash.
    #[inline]
    pub fn number(&mut self, number: u64) {
        // Multiply and fold: each step is a bijection of the state, so no input is lost.
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    /// Adds bytes, and their number, to the hash.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        rest.iter().for_each(|byte| self.number(u64::from(*byte)));
        self.number(bytes.len() as u64);
    }

    /// Returns the hash.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Default for Trace {
    fn default() -> Trace {
        Trace::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> u64 {
        let mut trace = Trace::new();
        parts.iter().for_each(|part| trace.bytes(part));
        trace.get()
    }

    #[test]
    fn order_borders_and_every_byte_count() {
        assert_eq!(of(&[b"abc", b"de"]), of(&[b"abc", b"de"]));
        assert_ne!(of(&[b"abc", b"de"]), of(&[b"de", b"abc"]));
        assert_ne!(of(&[b"abc", b"de"]), of(&[b"ab", b"cde"]));
        let long = [7u8; 29];
        for index in 0..long.len() {
            let mut other = long;
            other[index] ^= 0x80;
            assert_ne!(of(&[&long]), of(&[&other]), "byte {index}");
        }
    }
}
