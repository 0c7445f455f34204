//! Management datagrams (MADs) of the communication manager, with which two programs connect their queue
//! pairs (IBTA volume 1, chapters 12 and 13.4; annex A11 for the start of a REQ's private data).
//!
//! A MAD is the payload of a datagram to QP 1 with Q_Key 0x80010000. It has 256 bytes: a [`header`] and a
//! *body* whose type is the attribute in the header. Each body is one module. All bodies end with private
//! data of the programs, which has a fixed length and is zero where unused.
//!
//! | attribute | body | from | answers |
//! | --------- | ---- | ---- | ------- |
//! | 0010 | [`req`] | active side | |
//! | 0011 | [`mra`] | either | REQ or REP: wait longer |
//! | 0012 | [`rej`] | either | REQ or REP: refused |
//! | 0013 | [`rep`] | passive side | REQ |
//! | 0014 | [`rtu`] | active side | REP |
//! | 0015 | [`dreq`] | either | |
//! | 0016 | [`drep`] | either | DREQ |
//! | 0017 | [`sidr_req`] | client of a datagram service | |
//! | 0018 | [`sidr_rep`] | its server | SIDR_REQ |
//!
//! LAP and APR (0019, 001a), which load an alternate path, are recognised but not supported.

pub mod class_port_info;
pub mod drep;
pub mod dreq;
mod fields;
pub mod header;
pub mod ip_cm;
mod message;
pub mod mra;
pub mod path;
pub mod rej;
mod reject_reason;
pub mod rep;
pub mod req;
pub mod rtu;
mod service_id;
pub mod sidr_rep;
pub mod sidr_req;

pub use header::{Attribute, Method};
pub use message::CmMessage;
pub use reject_reason::RejectReason;
pub use service_id::{PortSpace, ServiceId};
pub use sidr_rep::SidrStatus;

/// Length of a MAD in bytes.
pub const LEN: usize = 256;

/// Length of a MAD without its header, in bytes.
pub const BODY_LEN: usize = LEN - header::LEN;

/// Length of the additional information in a REJ and a SIDR_REP, in bytes.
pub const INFO_LEN: usize = 72;

/// The Q_Key of QP 1, which each MAD carries (IBTA volume 1, chapter 3.5.3).
pub const QKEY: u32 = 0x8001_0000;

/// The message that an MRA or REJ answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answered {
    /// A REQ message.
    Req = 0,
    /// A REP message.
    Rep = 1,
    /// No message, or a LAP.
    Other = 2,
    /// A value that IBTA reserves.
    Reserved = 3,
}

impl Answered {
    /// Decodes a number of two bits.
    pub(crate) const fn of(number: u8) -> Answered {
        match number {
            0 => Answered::Req,
            1 => Answered::Rep,
            2 => Answered::Other,
            _ => Answered::Reserved,
        }
    }
}

fields::numbers! {
    Answered: number => Answered::of(number as u8), value => value as u64;
}

/// Returns the nanoseconds of a 5-bit time code: 4.096 µs times 2 to the power of `code`. Only the low 5
/// bits count. Unlike a queue pair's ACK timeout, code 0 is a finite time.
#[inline]
pub const fn time_ns(code: u8) -> u64 {
    4_096 << (code & 31)
}

#[cfg(test)]
mod tests;
