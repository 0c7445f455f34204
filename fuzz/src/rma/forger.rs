//! Messages that a peer with keys can create.

use arbitrary::Arbitrary;
use remora_cipher::Aes;
use remora_nic::rma::{Cipher, Identity};
use remora_wire::rma::{Body, Message, Nonce, TAG_LEN, TagSequence, header};

/// The fault of a message.
#[derive(Arbitrary, Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The message has no fault.
    Nothing,
    /// No fault; this variant makes valid messages as frequent as all others together.
    NothingAgain,
    /// The message is encrypted with another key.
    Key,
    /// The message is encrypted for another tag sequence of hops.
    TagSequence,
    /// A bit of the tag is inverted.
    Tag(u8),
    /// A bit of the clear part is inverted after encryption.
    Clear(u16),
    /// The message is cut short.
    Cut(u8),
}

impl Wrong {
    /// Returns true if the message is valid.
    pub fn is_nothing(self) -> bool {
        matches!(self, Wrong::Nothing | Wrong::NothingAgain)
    }
}

/// A cipher with any key.
pub struct Forger {
    aes: Aes,
    counter: u64,
}

impl Forger {
    pub fn new() -> Forger {
        Forger { aes: Aes::new(2), counter: 0 }
    }

    pub fn derive(&mut self, key: &[u8; 16], identity: &Identity) -> [u8; 16] {
        self.aes.derive(key, &identity.bytes())
    }

    /// Builds a message and returns its bytes and its nonce.
    pub fn seal(
        &mut self,
        header: header::Repr,
        body: Body,
        tags: &TagSequence,
        key: &[u8; 16],
        text: &[u8],
        wrong: Wrong,
    ) -> (Vec<u8>, Nonce) {
        self.counter += 1;
        let nonce = Nonce { sender: 63 << 26, counter: self.counter };
        let header = header::Repr { nonce, ..header };
        let mut bytes = vec![0; header::LEN + body.len() + text.len() + TAG_LEN];
        let clear = Message::emit_clear(&header, &body, &mut bytes);
        let tags = if wrong == Wrong::TagSequence { TagSequence::new(nonce) } else { *tags };
        let aad = aad(&bytes[..clear], &tags);
        let mut key = *key;
        key[0] ^= u8::from(wrong == Wrong::Key);
        self.aes.load(0, &key);
        let end = bytes.len() - TAG_LEN;
        bytes[clear..end].copy_from_slice(text);
        let tag = self.aes.seal(0, &nonce.bytes(), &aad, &mut bytes[clear..end]);
        bytes[end..].copy_from_slice(&tag);
        match wrong {
            Wrong::Tag(bit) => bytes[end + usize::from(bit) / 8 % TAG_LEN] ^= 1 << (bit % 8),
            // The first byte stays, because a change there would make a message of another kind.
            Wrong::Clear(bit) => bytes[1 + usize::from(bit) / 8 % (clear - 1)] ^= 1 << (bit % 8),
            Wrong::Cut(len) => bytes.truncate(bytes.len() - 1 - usize::from(len) % (bytes.len() - 1)),
            _ => {}
        }
        (bytes, nonce)
    }

    /// Returns the plaintext of a message, or `None` if the key and the tag sequence do not decrypt it.
    pub fn open(&mut self, message: &Message<'_>, tags: &TagSequence, key: &[u8; 16]) -> Option<Vec<u8>> {
        let aad = aad(message.clear, tags);
        self.aes.load(0, key);
        let mut text = message.sealed.to_vec();
        self.aes.open(0, &message.header.nonce.bytes(), &aad, &mut text, message.tag).then_some(text)
    }
}

/// Builds the additional data that the tag covers. This is a separate implementation from the code under
/// test.
fn aad(clear: &[u8], tags: &TagSequence) -> Vec<u8> {
    let nonces = tags.hops().iter().flat_map(|nonce| {
        let Nonce { sender, counter } = *nonce;
        sender.to_be_bytes().into_iter().chain(counter.to_be_bytes())
    });
    clear.iter().copied().chain(nonces).collect()
}
