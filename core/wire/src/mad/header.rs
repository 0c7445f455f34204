//! The header of every MAD (IBTA volume 1, chapter 13.4.2).

use core::fmt;

use super::fields::{mad, numbers};

/// Version of all MADs.
pub const BASE_VERSION: u8 = 1;

/// Management class of the communication manager.
pub const CM_CLASS: u8 = 7;

/// Version of the communication manager's class.
pub const CM_CLASS_VERSION: u8 = 2;

/// The operation of a MAD on its attribute.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Method(pub u8);

impl Method {
    /// Requests an attribute.
    pub const GET: Method = Method(0x01);
    /// Sends a message of the communication manager, which is answered by another message.
    pub const SEND: Method = Method(0x03);
    /// Response to [`Method::GET`].
    pub const GET_RESP: Method = Method(0x81);
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}

/// The type of a MAD's body.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute(pub u16);

impl Attribute {
    /// Capabilities of a management class.
    pub const CLASS_PORT_INFO: Attribute = Attribute(0x0001);
    /// Request for a connection.
    pub const REQ: Attribute = Attribute(0x0010);
    /// A message was received and its answer takes longer.
    pub const MRA: Attribute = Attribute(0x0011);
    /// Refusal of a message.
    pub const REJ: Attribute = Attribute(0x0012);
    /// Answer to a request for a connection.
    pub const REP: Attribute = Attribute(0x0013);
    /// Ready to use.
    pub const RTU: Attribute = Attribute(0x0014);
    /// Request to disconnect.
    pub const DREQ: Attribute = Attribute(0x0015);
    /// Answer to a request to disconnect.
    pub const DREP: Attribute = Attribute(0x0016);
    /// Requests the queue pair of a datagram service.
    pub const SIDR_REQ: Attribute = Attribute(0x0017);
    /// The queue pair of a datagram service.
    pub const SIDR_REP: Attribute = Attribute(0x0018);
    /// Request to load an alternate path.
    pub const LAP: Attribute = Attribute(0x0019);
    /// Response to [`Attribute::LAP`].
    pub const APR: Attribute = Attribute(0x001a);

    /// Returns IBTA's name of an attribute of the communication manager, or `None` for other attributes.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Attribute::CLASS_PORT_INFO => "ClassPortInfo",
            Attribute::REQ => "REQ",
            Attribute::MRA => "MRA",
            Attribute::REJ => "REJ",
            Attribute::REP => "REP",
            Attribute::RTU => "RTU",
            Attribute::DREQ => "DREQ",
            Attribute::DREP => "DREP",
            Attribute::SIDR_REQ => "SIDR_REQ",
            Attribute::SIDR_REP => "SIDR_REP",
            Attribute::LAP => "LAP",
            Attribute::APR => "APR",
            _ => return None,
        })
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#06x}", self.0),
        }
    }
}

numbers! {
    Method: number => Method(number as u8), value => value.0.into();
    Attribute: number => Attribute(number as u16), value => value.0.into();
}

mad! {
    24,
    "class={class:#04x}.{class_version} method={method} status={status} tid={transaction_id:#x} {attribute}";

    /// MAD version, [`BASE_VERSION`].
    base_version: u8 = 0, 8;
    /// Management class of the MAD.
    class: u8 = 1, 8;
    /// Version of the management class.
    class_version: u8 = 2, 8;
    /// Method: the operation on the attribute.
    method: Method = 3, 8;
    /// Status of a response; 0 in other MADs.
    status: u16 = 4, 16;
    /// Reserved for the management class; unused by the communication manager.
    class_specific: u16 = 6, 16;
    /// Transaction id, equal in a message, its retransmissions and its answers.
    transaction_id: u64 = 8, 64;
    /// Attribute: the type of the body.
    attribute: Attribute = 16, 16;
    /// Attribute modifier; unused by the communication manager.
    modifier: u32 = 20, 32;
}

impl Repr {
    /// Returns the header of a message of the communication manager.
    pub const fn cm(method: Method, transaction_id: u64, attribute: Attribute) -> Repr {
        Repr {
            base_version: BASE_VERSION,
            class: CM_CLASS,
            class_version: CM_CLASS_VERSION,
            method,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute,
            modifier: 0,
        }
    }
}
