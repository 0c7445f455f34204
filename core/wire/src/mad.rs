//! Management datagrams of the communication manager: how two programs bring their queue pairs together
//! (IBTA volume 1, chapters 12 and 13.4; annex A11 for what stands in a REQ's private data).
//!
//! A MAD is the payload of a datagram to QP 1 with Q_Key 0x80010000, always 256 bytes: a [`header`], then
//! a *body* that its attribute names. Each body is one file. All of them end with private data of the
//! programs, which has no length: what a program did not fill is zero.
//!
//! | attribute | body | from | answers |
//! | --------- | ---- | ---- | ------- |
//! | 0010 | [`req`] | active side | |
//! | 0011 | [`mra`] | either | REQ or REP: wait longer |
//! | 0012 | [`rej`] | either | REQ or REP: no |
//! | 0013 | [`rep`] | passive side | REQ |
//! | 0014 | [`rtu`] | active side | REP |
//! | 0015 | [`dreq`] | either | |
//! | 0016 | [`drep`] | either | DREQ |
//! | 0017 | [`sidr_req`] | who looks for a datagram service | |
//! | 0018 | [`sidr_rep`] | who has it | SIDR_REQ |
//!
//! LAP and APR (0019, 001a), which load an alternate path, are recognised and not supported.

pub mod class_port_info;
pub mod drep;
pub mod dreq;
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

/// Bytes of a MAD.
pub const LEN: usize = 256;

/// Bytes of a MAD behind its header.
pub const BODY_LEN: usize = LEN - header::LEN;

/// Bytes of additional information in a REJ and in a SIDR_REP.
pub const INFO_LEN: usize = 72;

/// The Q_Key of QP 1, which each MAD carries (IBTA volume 1, chapter 3.5.3).
pub const QKEY: u32 = 0x8001_0000;

/// Which message a MRA or REJ answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answered {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// No message, or a LAP.
    Other = 2,
    /// A value that IBTA reserves.
    Reserved = 3,
}

impl Answered {
    /// The value of the upper two bits of `byte`.
    #[inline]
    pub(crate) const fn of(byte: u8) -> Answered {
        match byte >> 6 {
            0 => Answered::Req,
            1 => Answered::Rep,
            2 => Answered::Other,
            _ => Answered::Reserved,
        }
    }
}

/// Nanoseconds of a 5-bit time: 4.096 µs times 2 to the `code`; only the low 5 bits count. Unlike a queue
/// pair's ACK timeout, code 0 is a time, too.
#[inline]
pub const fn time_ns(code: u8) -> u64 {
    4_096 << (code & 31)
}

#[cfg(test)]
mod tests;
