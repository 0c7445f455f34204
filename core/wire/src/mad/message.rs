//! Parsed MADs of the communication manager.

use super::{
    Attribute, BODY_LEN, LEN, Method, class_port_info, drep, dreq, header, mra, rej, rep, req, rtu, sidr_rep,
    sidr_req,
};
use crate::WireError;

macro_rules! messages {
    ($($(#[$doc:meta])* $message:ident($body:ident) = $method:ident $attribute:ident;)*) => {
        /// A message of the communication manager, without the MAD header.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum CmMessage {
            $($(#[$doc])* $message($body::Repr),)*
            /// Request for the capabilities of the communication manager.
            GetClassPortInfo,
        }

        impl CmMessage {
            /// Parses the body of a message after its header.
            ///
            /// Fails with [`WireError::MadVersion`] for another version of MADs or of the class; with
            /// [`WireError::UnsupportedMad`] for another class, method or attribute, including LAP and APR;
            /// and like the parser of the body.
            pub fn parse(header: &header::Repr, body: &[u8]) -> Result<CmMessage, WireError> {
                check_header(header)?;
                let body = body.get(..BODY_LEN).ok_or(WireError::Truncated)?;
                match (header.method, header.attribute) {
                    $((Method::$method, Attribute::$attribute) => {
                        $body::View::new(body).map(|view| CmMessage::$message($body::Repr::parse(&view)))
                    })*
                    (Method::GET, Attribute::CLASS_PORT_INFO) => Ok(CmMessage::GetClassPortInfo),
                    (_, Attribute(attribute)) => Err(WireError::UnsupportedMad(attribute)),
                }
            }

            /// Returns the attribute of the message.
            pub const fn attribute(&self) -> Attribute {
                match self {
                    $(CmMessage::$message(_) => Attribute::$attribute,)*
                    CmMessage::GetClassPortInfo => Attribute::CLASS_PORT_INFO,
                }
            }

            /// Writes the whole MAD with its header.
            pub fn emit(&self, transaction_id: u64, out: &mut [u8; LEN]) {
                let method = match self {
                    $(CmMessage::$message(_) => Method::$method,)*
                    CmMessage::GetClassPortInfo => Method::GET,
                };
                out.fill(0);
                header::Repr::cm(method, transaction_id, self.attribute()).emit(out);
                match self {
                    $(CmMessage::$message(repr) => repr.emit(&mut out[header::LEN..]),)*
                    CmMessage::GetClassPortInfo => {}
                }
            }
        }
    };
}

messages! {
    /// Request for a connection.
    Req(req) = SEND REQ;
    /// The answer to a message takes longer.
    Mra(mra) = SEND MRA;
    /// Refusal of a connection.
    Rej(rej) = SEND REJ;
    /// Acceptance of a connection.
    Rep(rep) = SEND REP;
    /// Ready to use.
    Rtu(rtu) = SEND RTU;
    /// End of a connection.
    Dreq(dreq) = SEND DREQ;
    /// Answer to a DREQ.
    Drep(drep) = SEND DREP;
    /// Lookup of a datagram service.
    SidrReq(sidr_req) = SEND SIDR_REQ;
    /// Answer to a SIDR_REQ.
    SidrRep(sidr_rep) = SEND SIDR_REP;
    /// Capabilities of the communication manager.
    ClassPortInfo(class_port_info) = GET_RESP CLASS_PORT_INFO;
}

/// Accepts the headers of the communication manager's class in the versions of this implementation.
fn check_header(header: &header::Repr) -> Result<(), WireError> {
    match (header.base_version, header.class, header.class_version) {
        (header::BASE_VERSION, header::CM_CLASS, header::CM_CLASS_VERSION) => Ok(()),
        (header::BASE_VERSION, header::CM_CLASS, version) => Err(WireError::MadVersion(version)),
        (header::BASE_VERSION, _, _) => Err(WireError::UnsupportedMad(header.attribute.0)),
        (version, _, _) => Err(WireError::MadVersion(version)),
    }
}
