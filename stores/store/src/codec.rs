//! Messages between clients and servers before the first operation: four letters, the last of which is the
//! version, then the fields in postcard's format, in the order of their declaration. An enumeration begins
//! with the number of its variant. An integer of more than 8 bits has 7 bits in each byte, the low ones
//! first.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the bytes of a message.
pub fn encode(magic: &[u8; 4], message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, magic.to_vec()).expect("a message whose lists have lengths")
}

/// Returns the message in exactly these bytes, or `None` if they are no message of this version.
pub fn decode<T: DeserializeOwned>(magic: &[u8; 4], bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes.strip_prefix(magic)?) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// A remote address, for `#[serde(with = "remote")]`: the address, then the key.
pub(crate) mod remote {
    use remora_memory::Key;
    use remora_nic::Remote;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(remote: &Remote, serializer: S) -> Result<S::Ok, S::Error> {
        (remote.addr, remote.rkey.get()).serialize(serializer)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Remote, D::Error> {
        let (addr, rkey) = Deserialize::deserialize(deserializer)?;
        Ok(Remote { addr, rkey: Key::new(rkey) })
    }
}
