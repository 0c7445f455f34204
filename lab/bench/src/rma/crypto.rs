//! The time of the cipher alone: encryption and decryption of the same messages in a loop.

use std::hint::black_box;
use std::process::Command;

use anyhow::{Context as _, Result};
use remora_cipher::Aes;
use remora_nic::rma::Cipher;
use remora_nic::rma::cipher::{NONCE_LEN, TAG_LEN};
use remora_wire::rma::{MAX_OPERATION, Nonce, header, request};

use crate::SHORTER;
use crate::typical_of;

/// Number of calls in one reading, and of calls in a round.
const RUN: u64 = 64;
const CALLS: u64 = 12_800 / SHORTER;

/// The lengths of the associated data of a request and of a read's data: the header, and for data also the
/// request's nonce.
const REQUEST_AAD: usize = header::LEN + request::LEN;
const DATA_AAD: usize = header::LEN + Nonce::LEN;

/// The computing times of both sides for a read, in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Costs {
    /// The time to encrypt the request.
    pub seal_request: f64,
    /// The time to decrypt the request.
    pub open_request: f64,
    /// The time to encrypt the data.
    pub seal_data: f64,
    /// The time to decrypt the data.
    pub open_data: f64,
}

impl Costs {
    /// Measures the cipher's costs of a read of `len` bytes.
    pub(crate) fn measure(len: usize) -> Result<Costs> {
        Ok(Costs {
            seal_request: seal(REQUEST_AAD, 0)?,
            open_request: open(REQUEST_AAD, 0)?,
            seal_data: seal(DATA_AAD, len)?,
            open_data: open(DATA_AAD, len)?,
        })
    }

    /// Returns the time of both sides together.
    pub(crate) fn both(&self) -> f64 {
        self.initiator() + self.server()
    }

    /// Returns the time of the side that computes longer.
    pub(crate) fn busier(&self) -> f64 {
        self.initiator().max(self.server())
    }

    fn initiator(&self) -> f64 {
        self.seal_request + self.open_data
    }

    fn server(&self) -> f64 {
        self.open_request + self.seal_data
    }
}

/// Creates a cipher with one key.
fn cipher() -> Box<dyn Cipher> {
    let mut aes = Aes::new(2);
    aes.load(0, &[0x5a; 16]);
    Box::new(aes)
}

/// Measures the time in nanoseconds to encrypt a text of `len` bytes.
pub(crate) fn seal(aad: usize, len: usize) -> Result<f64> {
    let mut cipher = cipher();
    let mut text = [1; MAX_OPERATION as usize];
    let aad = [2; 64][..aad].to_vec();
    let mut counter = 0_u64;
    typical_of(RUN, CALLS, || {
        counter += 1;
        black_box(cipher.seal(0, &nonce(counter), &aad, &mut text[..len]));
        Ok(())
    })
}

/// Measures the time in nanoseconds to open a message, including the copy that precedes it.
pub(crate) fn open(aad: usize, len: usize) -> Result<f64> {
    let mut cipher = cipher();
    let aad = [2; 64][..aad].to_vec();
    let mut sealed = vec![1; len];
    let mut text = vec![0; len];
    let tag: [u8; TAG_LEN] = cipher.seal(0, &nonce(1), &aad, &mut sealed);
    typical_of(RUN, CALLS, || {
        text.copy_from_slice(black_box(&sealed));
        anyhow::ensure!(
            cipher.open(0, &nonce(1), &aad, &mut text, &tag),
            "the cipher does not decrypt its own message"
        );
        Ok(())
    })
}

/// Measures the time in nanoseconds to derive a key and to expand it, in sequence.
pub(crate) fn key_set_up() -> Result<f64> {
    let mut cipher = cipher();
    let mut identity = [3_u8; 32];
    typical_of(RUN, CALLS, || {
        identity[0] = identity[0].wrapping_add(1);
        let derived = cipher.derive(&[0x5a; 16], &identity);
        cipher.load(0, &derived);
        Ok(())
    })
}

fn nonce(counter: u64) -> [u8; NONCE_LEN] {
    Nonce { sender: 0x5a, counter }.bytes()
}

/// Measures OpenSSL's rate in bytes per second for blocks of `len` bytes. Returns `None` if OpenSSL is not
/// installed.
pub(crate) fn openssl(len: usize) -> Result<Option<f64>> {
    let mut command = Command::new("openssl");
    command.args(["speed", "-aead", "-evp", "aes-128-gcm", "-seconds", "1", "-mr", "-bytes"]);
    let ended = match command.arg(len.to_string()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        ended => ended.context("starting openssl")?,
    };
    let text = String::from_utf8_lossy(&ended.stdout);
    let rate = rate(&text).with_context(|| format!("`openssl speed` prints no rate: {}", text.trim()))?;
    Ok(Some(rate))
}

/// Returns the rate in the output of `openssl speed -mr`: `+F:number:cipher:rate`.
fn rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("+F:"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_openssl_is_the_last_word_of_its_line() {
        let text = "+H:4096\n+F:25:AES-128-GCM:3474255943.86\n";
        assert_eq!(rate(text), Some(3_474_255_943.86));
        assert_eq!(rate("+H:4096\n"), None);
        assert_eq!(rate("+F:25:AES-128-GCM:none"), None);
    }

    #[test]
    fn the_busier_side_is_the_one_that_computes_longer() {
        let costs = Costs { seal_request: 1.0, open_request: 2.0, seal_data: 4.0, open_data: 8.0 };
        assert_eq!((costs.both(), costs.busier()), (15.0, 9.0));
        let costs = Costs { open_request: 20.0, ..costs };
        assert_eq!(costs.busier(), 24.0);
    }
}
