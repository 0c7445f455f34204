//! The parser of a meta command's flags.

use super::Wrong;
use crate::cache::MAX_KEY;
use crate::cache::command::{key, signed, unsigned};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// The base64 encoding of keys. As in memcached, unused bits after the end of a key need not be 0.
pub(crate) const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Maximum length of an opaque value, which the answer returns.
const OPAQUE: usize = 31;

/// All flags that a line may have.
const FLAGS: &[u8] = b"bcfhklOqstuvNRTPLIMCFDJ";

/// The parsed words of a meta command after its name.
pub(crate) struct Request<'a> {
    /// The key as it was received.
    pub token: &'a [u8],
    /// The flags as they were received.
    pub flags: &'a [&'a [u8]],
    /// True if the key is in base64.
    pub encoded: bool,
    /// True if the usual answer is suppressed.
    pub quiet: bool,
    /// True if the command does not count as a use of the item.
    pub unused: bool,
    /// True if the value is requested.
    pub value: bool,
    /// True if the item becomes stale.
    pub invalidate: bool,
    /// The number that the item must have.
    pub unique: Option<u64>,
    /// The flags of the client, to be stored with the item.
    pub client_flags: u32,
    /// The expiry of an item that is stored, or the new expiry.
    pub expires: i64,
    /// The expiry of an item to be created if none exists.
    pub make: Option<i64>,
    /// Remaining lifetime in seconds below which one client is asked to store the item again.
    pub renew: i64,
    /// The letter of the mode.
    pub mode: Option<u8>,
    /// The amount to count by.
    pub delta: u64,
    /// The initial value of a number.
    pub initial: u64,
    decoded: [u8; MAX_KEY],
    len: usize,
}

impl<'a> Request<'a> {
    /// Parses the flags of a line.
    ///
    /// # Errors
    /// The mistake that memcached would report.
    pub(crate) fn read(token: &'a [u8], flags: &'a [&'a [u8]]) -> Result<Request<'a>, Wrong> {
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
        for (index, flag) in flags.iter().enumerate() {
            if !FLAGS.contains(&flag[0]) {
                return Err(Wrong::Flag);
            }
            if flags[..index].iter().any(|other| other[0] == flag[0]) {
                return Err(Wrong::Twice);
            }
        }
        // As in memcached, the last mistake is reported; a mistake in the client's flags only if there is no
        // other.
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
            // The other flags request something in the answer, or are for a proxy.
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

    /// Returns the decoded key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.decoded[..self.len]
    }
}

/// Decodes a key in base64. Returns the bytes and their number.
pub(crate) fn decode(token: &[u8]) -> Option<([u8; MAX_KEY], usize)> {
    // The decoder needs a buffer for the longest possible output of the input's length.
    let mut decoded = [0; MAX_KEY];
    let len = BASE64.decode_slice(token, &mut decoded).ok().filter(|len| *len > 0)?;
    Some((decoded, len))
}
