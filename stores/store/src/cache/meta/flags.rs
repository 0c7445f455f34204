//! The flags of a meta command, read.

use super::Wrong;
use crate::cache::MAX_KEY;
use crate::cache::command::{key, signed, unsigned};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// Keys as memcached encodes them. It takes bits behind the end of the key that are not 0, and so does this.
pub const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Bytes that a client may have handed back.
const OPAQUE: usize = 31;

/// All flags that a line may have.
const FLAGS: &[u8] = b"bcfhklOqstuvNRTPLIMCFDJ";

/// The words of a meta command behind its name, read.
pub struct Request<'a> {
    /// The key as it came.
    pub token: &'a [u8],
    /// The flags as they came.
    pub flags: &'a [&'a [u8]],
    /// The key is in base64.
    pub encoded: bool,
    /// The usual answer is suppressed.
    pub quiet: bool,
    /// The item is not to count as used.
    pub unused: bool,
    /// The value is asked for.
    pub value: bool,
    /// The item becomes stale.
    pub invalidate: bool,
    /// The number that the item must have.
    pub unique: Option<u64>,
    /// The client's own.
    pub client_flags: u32,
    /// The expiry, of an item that is stored, or the new one.
    pub expires: i64,
    /// Make an item where none is, with this expiry.
    pub make: Option<i64>,
    /// With fewer seconds left, one client is asked to store it again.
    pub renew: i64,
    /// The letter of the mode.
    pub mode: Option<u8>,
    /// The amount to count by.
    pub delta: u64,
    /// What a number begins with.
    pub initial: u64,
    decoded: [u8; MAX_KEY],
    len: usize,
}

impl<'a> Request<'a> {
    /// Reads the flags of a line.
    ///
    /// # Errors
    /// The first mistake that memcached would report.
    pub fn read(token: &'a [u8], flags: &'a [&'a [u8]]) -> Result<Request<'a>, Wrong> {
        let mut request = Request {
            token,
            flags,
            encoded: false,
            quiet: false,
            unused: false,
            value: false,
            invalidate: false,
            unique: None,
            client_flags: 0,
            expires: 0,
            make: None,
            renew: 0,
            mode: None,
            delta: 1,
            initial: 0,
            decoded: [0; MAX_KEY],
            len: 0,
        };
        for (at, flag) in flags.iter().enumerate() {
            if !FLAGS.contains(&flag[0]) {
                return Err(Wrong::Flag);
            }
            if flags[..at].iter().any(|other| other[0] == flag[0]) {
                return Err(Wrong::Twice);
            }
        }
        // As in memcached, the last mistake is reported; one of client flags only if there is no other kind.
        let mut wrong = None;
        let mut take = |flag: &&[u8]| match flag[0] {
            b'b' if decode(token).is_none() => Some(Wrong::Encoding),
            letter => request.take(letter, &flag[1..]).err(),
        };
        for error in flags.iter().filter_map(&mut take) {
            if wrong.is_none() || error != Wrong::ClientFlags {
                wrong = Some(error);
            }
        }
        wrong.map_or(Ok(()), Err)?;
        request.decode()?;
        if flags.iter().any(|flag| flag[0] == b'O' && flag.len() > 1 + OPAQUE) {
            return Err(Wrong::Opaque);
        }
        Ok(request)
    }

    fn take(&mut self, flag: u8, token: &[u8]) -> Result<(), Wrong> {
        let time = || signed(token).ok_or(Wrong::Token);
        match flag {
            b'b' => self.encoded = true,
            b'q' => self.quiet = true,
            b'u' => self.unused = true,
            b'v' => self.value = true,
            b'I' => self.invalidate = true,
            b'N' => self.make = Some(time()?),
            b'T' => self.expires = time()?,
            b'R' => self.renew = time()?,
            b'C' => self.unique = Some(unsigned(token).ok_or(Wrong::Token)?),
            b'F' => {
                let flags = unsigned(token).and_then(|flags| u32::try_from(flags).ok());
                self.client_flags = flags.ok_or(Wrong::ClientFlags)?;
            }
            b'D' => self.delta = unsigned(token).ok_or(Wrong::Delta)?,
            b'J' => self.initial = unsigned(token).ok_or(Wrong::Initial)?,
            b'M' => match token {
                [mode] => self.mode = Some(*mode),
                _ => return Err(Wrong::ModeLength),
            },
            // The rest asks for something in the answer, or is for a proxy.
            _ => {}
        }
        Ok(())
    }

    fn decode(&mut self) -> Result<(), Wrong> {
        if !self.encoded {
            key(self.token).ok_or(Wrong::Format)?;
            self.decoded[..self.token.len()].copy_from_slice(self.token);
            self.len = self.token.len();
            return Ok(());
        }
        (self.decoded, self.len) = decode(self.token).ok_or(Wrong::Encoding)?;
        Ok(())
    }

    /// The decoded key.
    pub fn key(&self) -> &[u8] {
        &self.decoded[..self.len]
    }
}

/// The key behind its base64.
pub fn decode(token: &[u8]) -> Option<([u8; MAX_KEY], usize)> {
    // The decoder needs a buffer for the longest output of so many letters.
    let mut decoded = [0; MAX_KEY];
    let len = BASE64.decode_slice(token, &mut decoded).ok().filter(|len| *len > 0)?;
    Some((decoded, len))
}
