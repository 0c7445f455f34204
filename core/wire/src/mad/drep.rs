//! DREP: confirms the end of a connection (IBTA volume 1, chapter 12.6.11).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                     local communication id                   |
//!   +---------------------------------------------------------------+
//!   4|                    remote communication id                   |
//!   +---------------------------------------------------------------+
//!   8|                      private data (224)                      |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The body has the layout of an RTU.

pub use super::rtu::{LEN, PRIVATE_LEN, Repr, View};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WireError;
    use crate::mad::tests::{any_body, body};
    use proptest::prelude::*;

    /// Bytes of the first DREP in the Soft-RoCE capture.
    fn bytes() -> [u8; LEN] {
        body("67571cca 88a881c1")
    }

    fn value() -> Repr {
        let (local_comm_id, remote_comm_id) = (0x6757_1cca, 0x88a8_81c1);
        Repr { local_comm_id, remote_comm_id, private_data: [0; PRIVATE_LEN] }
    }

    #[test]
    fn literal_bytes() {
        let (bytes, value) = (bytes(), value());
        assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), value);
        let mut out = [0x5a; LEN + 1];
        value.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&bytes[..], 0x5a));
        assert_eq!(value.to_string(), "local_comm_id=0x67571cca remote_comm_id=0x88a881c1");
    }

    #[test]
    fn truncation_is_an_error() {
        let bytes = bytes();
        for len in 0..LEN {
            assert_eq!(View::new(&bytes[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip(bytes in any_body()) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
