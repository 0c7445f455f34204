//! 1RMA on the NIC: encrypted one-sided operations without connections (1RMA paper, SIGCOMM 2020; `docs/RMA.md`).

pub mod cipher;

pub use cipher::Cipher;
