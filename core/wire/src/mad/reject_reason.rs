//! The reasons of a REJ (IBTA volume 1, chapter 12.6.7.2).

use core::fmt;

/// Reason of a REJ, as IBTA's number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RejectReason(pub u16);

macro_rules! reasons {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl RejectReason {
            $(#[doc = concat!("IBTA's reason ", $number, ": ", $words, ".")]
            pub const $name: RejectReason = RejectReason($number);)*

            /// All reasons that IBTA names, with descriptions.
            pub const NAMED: &[(RejectReason, &str)] = &[$((RejectReason::$name, $words)),*];
        }
    };
}

reasons! {
    NO_QP = 1, "no queue pair available";
    NO_EEC = 2, "no EE context available";
    NO_RESOURCES = 3, "no resources available";
    TIMEOUT = 4, "timeout";
    UNSUPPORTED_REQUEST = 5, "unsupported request";
    INVALID_COMM_ID = 6, "invalid communication id";
    INVALID_COMM_INSTANCE = 7, "invalid communication instance";
    INVALID_SERVICE_ID = 8, "invalid service id";
    INVALID_TRANSPORT = 9, "invalid transport service type";
    STALE_CONNECTION = 10, "stale connection";
    RDC_DOES_NOT_EXIST = 11, "RDC does not exist";
    PRIMARY_GID = 12, "primary remote port GID rejected";
    PRIMARY_LID = 13, "primary remote port LID rejected";
    PRIMARY_SL = 14, "invalid primary service level";
    PRIMARY_TRAFFIC_CLASS = 15, "invalid primary traffic class";
    PRIMARY_HOP_LIMIT = 16, "invalid primary hop limit";
    PRIMARY_RATE = 17, "invalid primary packet rate";
    ALTERNATE_GID = 18, "alternate remote port GID rejected";
    ALTERNATE_LID = 19, "alternate remote port LID rejected";
    ALTERNATE_SL = 20, "invalid alternate service level";
    ALTERNATE_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
    ALTERNATE_HOP_LIMIT = 22, "invalid alternate hop limit";
    ALTERNATE_RATE = 23, "invalid alternate packet rate";
    PORT_AND_CM_REDIRECTION = 24, "redirection to another port and CM";
    PORT_REDIRECTION = 25, "redirection to another port";
    INVALID_MTU = 26, "invalid path MTU";
    RESPONDER_RESOURCES = 27, "insufficient responder resources";
    CONSUMER = 28, "rejected by the consumer";
    RNR_RETRY_COUNT = 29, "RNR retry count rejected";
    DUPLICATE_COMM_ID = 30, "duplicate local communication id";
    CLASS_VERSION = 31, "invalid class version";
    PRIMARY_FLOW_LABEL = 32, "invalid primary flow label";
    ALTERNATE_FLOW_LABEL = 33, "invalid alternate flow label";
    VENDOR_OPTION = 35, "vendor option not supported";
}

super::fields::numbers! {
    RejectReason: number => RejectReason(number as u16), value => value.0.into();
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RejectReason::NAMED.iter().find(|(reason, _)| reason == self) {
            Some((_, words)) => f.write_str(words),
            None => write!(f, "reason {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_ibtas_numbers_in_order_and_words() {
        let numbers: Vec<u16> = RejectReason::NAMED.iter().map(|(reason, _)| reason.0).collect();
        let expected: Vec<u16> = (1..=33).chain([35]).collect();
        assert_eq!(numbers, expected);
        assert_eq!(RejectReason::STALE_CONNECTION.to_string(), "stale connection");
        assert_eq!(RejectReason(34).to_string(), "reason 34");
    }
}
