//! DREP: confirms the end of a connection (IBTA volume 1, chapter 12.6.11). The body has the layout of an
//! RTU.

pub use super::rtu::{LEN, PRIVATE_LEN, Repr, View};
