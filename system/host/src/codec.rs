//! Control messages between programs and daemons of this host as bytes: one packet each, in postcard's
//! format.
//!
//! An enumeration begins with the number of its variant, counted from 0; the fields follow in the order of
//! their declaration. An integer of more than 8 bits has 7 bits in each byte, the low ones first. A packet is
//! not trusted: one that is too short or too long, or has an impossible value, is no message.

use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Maximum length of a packet in bytes.
pub const MAX_PACKET: usize = 2048;

/// Returns the packet of a message. The vector does not grow while it is written, so no copy of a key stays
/// behind.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let bytes = Vec::with_capacity(MAX_PACKET);
    postcard::to_extend(message, bytes).expect("a message whose lists have lengths")
}

/// Returns the message in exactly these bytes, or `None` if they are no message.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// Returns the packet of a refusal: variant 1 of the replies of every service of a daemon. It is sent to
/// programs that have not named a service yet.
pub fn refusal(words: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Refused<'a>(u8, #[serde(serialize_with = "Text::<{ MAX_PACKET / 2 }>::serialize")] &'a str);
    encode(&Refused(1, words))
}

/// A list of at most `N` elements, for `#[serde(with = "Bounded::<N>")]`. Further elements are not sent; a
/// longer list is no message.
pub struct Bounded<const N: usize>;

impl<const N: usize> Bounded<N> {
    /// Writes the first `N` elements.
    ///
    /// # Errors
    /// The errors of `serializer`.
    pub fn serialize<T: Serialize, S: Serializer>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        list[..list.len().min(N)].serialize(serializer)
    }

    /// Reads a list.
    ///
    /// # Errors
    /// More than `N` elements, or the errors of `deserializer`.
    pub fn deserialize<'d, T: Deserialize<'d>, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        struct List<T, const N: usize>(PhantomData<T>);
        impl<'d, T: Deserialize<'d>, const N: usize> Visitor<'d> for List<T, N> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {N} elements")
            }

            fn visit_seq<A: SeqAccess<'d>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(element) = elements.next_element()? {
                    if list.len() == N {
                        return Err(A::Error::invalid_length(N + 1, &self));
                    }
                    list.push(element);
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(List::<T, N>(PhantomData))
    }
}

/// A text of at most `N` bytes behind its length, 16 bits little-endian, for `#[serde(with = "Text::<N>")]`.
/// The format does not depend on the version of the other messages: a refusal of another version can be read.
/// A text that is longer is cut at a character when it is sent, and is no message when it is received.
pub struct Text<const N: usize>;

impl<const N: usize> Text<N> {
    /// Writes a text.
    ///
    /// # Errors
    /// The errors of `serializer`.
    pub fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = &text.as_bytes()[..text.floor_char_boundary(N)];
        let mut tuple = serializer.serialize_tuple(2 + bytes.len())?;
        for byte in (bytes.len() as u16).to_le_bytes().iter().chain(bytes) {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }

    /// Reads a text.
    ///
    /// # Errors
    /// More than `N` bytes, bytes that are not UTF-8, or the errors of `deserializer`.
    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<String, D::Error> {
        struct Counted<const N: usize>;
        impl<'d, const N: usize> Visitor<'d> for Counted<N> {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a text of at most {N} bytes behind its length")
            }

            fn visit_seq<A: SeqAccess<'d>>(self, mut bytes: A) -> Result<String, A::Error> {
                let mut next = || bytes.next_element::<u8>()?.ok_or_else(|| A::Error::custom("no text"));
                let len = usize::from(u16::from_le_bytes([next()?, next()?]));
                if len > N {
                    return Err(A::Error::invalid_length(len, &self));
                }
                let text = (0..len).map(|_| next()).collect::<Result<Vec<u8>, _>>()?;
                String::from_utf8(text).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_tuple(2 + N, Counted::<N>)
    }
}

/// Declares a module for `#[serde(with = "…")]` that sends a type of another crate as a type that serde
/// knows: `NAME: TYPE as SENT, TO, FROM`. `FROM` returns `None` for a value that is no message.
#[macro_export]
macro_rules! sent_as {
    ($($name:ident: $type:ty as $sent:ty, $to:expr, $from:expr;)*) => {$(
        mod $name {
            use super::*;

            pub(crate) fn serialize<S: ::serde::Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                let encode: fn(&$type) -> $sent = $to;
                ::serde::Serialize::serialize(&encode(value), serializer)
            }

            pub(crate) fn deserialize<'d, D: ::serde::Deserializer<'d>>(deserializer: D) -> Result<$type, D::Error> {
                let decode: fn($sent) -> Option<$type> = $from;
                decode(::serde::Deserialize::deserialize(deserializer)?)
                    .ok_or_else(|| ::serde::de::Error::custom(concat!("not a value of ", stringify!($type))))
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Message {
        #[serde(with = "Text::<4>")]
        text: String,
        #[serde(with = "Bounded::<2>")]
        list: Vec<u32>,
    }

    #[test]
    fn literal_bytes() {
        let message = Message { text: "ab".to_owned(), list: vec![1, 300] };
        let packet = encode(&message);
        assert_eq!(packet, b"\x02\0ab\x02\x01\xac\x02");
        assert_eq!(decode(&packet), Some(message));
        assert!((0..packet.len()).all(|len| decode::<Message>(&packet[..len]).is_none()));
        assert_eq!(decode::<Message>(&[&packet[..], &[0]].concat()), None);
    }

    #[test]
    fn a_refusal_is_variant_1_with_a_text() {
        assert_eq!(refusal("no"), b"\x01\x02\0no");
    }

    #[test]
    fn a_text_or_list_beyond_its_bound_is_cut_when_sent_and_no_message_when_received() {
        let long = Message { text: "abcé".to_owned(), list: vec![1, 2, 3] };
        assert_eq!(encode(&long), b"\x03\0abc\x02\x01\x02");
        assert_eq!(decode::<Message>(b"\x05\0abcde\x00"), None);
        assert_eq!(decode::<Message>(b"\x01\0a\x03\x01\x02\x03"), None);
        assert_eq!(decode::<Message>(b"\x01\0\xff\x00"), None, "no UTF-8");
        assert_eq!(
            decode::<Message>(b"\x01\0a\xff\xff\xff\xff\x0f\x00"),
            None,
            "a list of 2^32 - 1 elements"
        );
    }
}
