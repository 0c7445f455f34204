//! Parsed MADs of the communication manager.

use super::{
    Attribute, BODY_LEN, LEN, Method, class_port_info, drep, dreq, header, mra, rej, rep, req, rtu, sidr_rep,
    sidr_req,
};
use crate::WireError;

/// A message of the communication manager, without the MAD header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CmMessage {
    /// Connection request.
    Req(req::Repr),
    /// The answer to a message takes longer.
    Mra(mra::Repr),
    /// Refusal.
    Rej(rej::Repr),
    /// Acceptance.
    Rep(rep::Repr),
    /// Ready to use.
    Rtu(rtu::Repr),
    /// End of a connection.
    Dreq(dreq::Repr),
    /// Answer to the previous kind of message.
    Drep(drep::Repr),
    /// Lookup of a datagram service.
    SidrReq(sidr_req::Repr),
    /// Answer to the previous kind of message.
    SidrRep(sidr_rep::Repr),
    /// Request for the capabilities of the communication manager.
    GetClassPortInfo,
    /// Capabilities of the communication manager.
    ClassPortInfo(class_port_info::Repr),
}

impl CmMessage {
    /// Parses the body of a message after its header.
    ///
    /// Fails with [`WireError::MadVersion`] for another version of MADs or of the class; with
    /// [`WireError::UnsupportedMad`] for another class, method or attribute, including LAP and APR; and like
    /// the parser of the body.
    pub fn parse(header: &header::Repr, body: &[u8]) -> Result<CmMessage, WireError> {
        if header.base_version != header::BASE_VERSION {
            return Err(WireError::MadVersion(header.base_version));
        }
        if header.class != header::CM_CLASS {
            return Err(WireError::UnsupportedMad(header.attribute.0));
        }
        if header.class_version != header::CM_CLASS_VERSION {
            return Err(WireError::MadVersion(header.class_version));
        }
        let body = body.get(..BODY_LEN).ok_or(WireError::Truncated)?;
        Ok(match (header.method, header.attribute) {
            (Method::SEND, Attribute::REQ) => CmMessage::Req(req::Repr::parse(&req::View::new(body)?)),
            (Method::SEND, Attribute::MRA) => CmMessage::Mra(mra::Repr::parse(&mra::View::new(body)?)),
            (Method::SEND, Attribute::REJ) => CmMessage::Rej(rej::Repr::parse(&rej::View::new(body)?)),
            (Method::SEND, Attribute::REP) => CmMessage::Rep(rep::Repr::parse(&rep::View::new(body)?)),
            (Method::SEND, Attribute::RTU) => CmMessage::Rtu(rtu::Repr::parse(&rtu::View::new(body)?)),
            (Method::SEND, Attribute::DREQ) => CmMessage::Dreq(dreq::Repr::parse(&dreq::View::new(body)?)),
            (Method::SEND, Attribute::DREP) => CmMessage::Drep(drep::Repr::parse(&drep::View::new(body)?)),
            (Method::SEND, Attribute::SIDR_REQ) => {
                CmMessage::SidrReq(sidr_req::Repr::parse(&sidr_req::View::new(body)?))
            }
            (Method::SEND, Attribute::SIDR_REP) => {
                CmMessage::SidrRep(sidr_rep::Repr::parse(&sidr_rep::View::new(body)?))
            }
            (Method::GET, Attribute::CLASS_PORT_INFO) => CmMessage::GetClassPortInfo,
            (Method::GET_RESP, Attribute::CLASS_PORT_INFO) => {
                CmMessage::ClassPortInfo(class_port_info::Repr::parse(&class_port_info::View::new(body)?))
            }
            (_, Attribute(attribute)) => return Err(WireError::UnsupportedMad(attribute)),
        })
    }

    /// Returns the attribute of the message.
    pub const fn attribute(&self) -> Attribute {
        match self {
            CmMessage::Req(_) => Attribute::REQ,
            CmMessage::Mra(_) => Attribute::MRA,
            CmMessage::Rej(_) => Attribute::REJ,
            CmMessage::Rep(_) => Attribute::REP,
            CmMessage::Rtu(_) => Attribute::RTU,
            CmMessage::Dreq(_) => Attribute::DREQ,
            CmMessage::Drep(_) => Attribute::DREP,
            CmMessage::SidrReq(_) => Attribute::SIDR_REQ,
            CmMessage::SidrRep(_) => Attribute::SIDR_REP,
            CmMessage::GetClassPortInfo | CmMessage::ClassPortInfo(_) => Attribute::CLASS_PORT_INFO,
        }
    }

    /// Writes the whole MAD with its header.
    pub fn emit(&self, transaction_id: u64, out: &mut [u8; LEN]) {
        let method = match self {
            CmMessage::GetClassPortInfo => Method::GET,
            CmMessage::ClassPortInfo(_) => Method::GET_RESP,
            _ => Method::SEND,
        };
        header::Repr::cm(method, transaction_id, self.attribute()).emit(out);
        let body = &mut out[header::LEN..];
        match self {
            CmMessage::Req(repr) => repr.emit(body),
            CmMessage::Mra(repr) => repr.emit(body),
            CmMessage::Rej(repr) => repr.emit(body),
            CmMessage::Rep(repr) => repr.emit(body),
            CmMessage::Rtu(repr) => repr.emit(body),
            CmMessage::Dreq(repr) => repr.emit(body),
            CmMessage::Drep(repr) => repr.emit(body),
            CmMessage::SidrReq(repr) => repr.emit(body),
            CmMessage::SidrRep(repr) => repr.emit(body),
            CmMessage::GetClassPortInfo => body.fill(0),
            CmMessage::ClassPortInfo(repr) => {
                body.fill(0);
                repr.emit(body);
            }
        }
    }
}
