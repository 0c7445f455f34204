//! Self-signed certificates, their fingerprints, and tokens: the identities of servers and clients.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use zeroize::{Zeroize as _, Zeroizing};

use crate::hexadecimal::{hex, unhex};
use crate::secret_file::{make_secret, read_secret, without_mark};
use crate::{Error, Result};

/// The SHA-256 hash of an encoded (DER) certificate.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The error for a text that is not a fingerprint or token.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("64 hexadecimal digits")]
pub struct ParseError;

impl Fingerprint {
    /// Computes the fingerprint of a DER-encoded certificate.
    pub fn of(certificate: &[u8]) -> Fingerprint {
        Fingerprint(sha256(certificate))
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
    sum
}

impl FromStr for Fingerprint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Fingerprint, ParseError> {
        unhex(text).map(Fingerprint).ok_or(ParseError)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// A secret of 32 bytes that admits any client that presents it. [`Display`](fmt::Display) prints the
/// secret; `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; Token::LEN]);

impl Token {
    /// The length of a token in bytes.
    pub const LEN: usize = 32;

    /// Generates a token from the system's random numbers.
    ///
    /// # Errors
    /// `Certificate` if the system provides no random numbers.
    pub fn random() -> Result<Token> {
        let mut bytes = [0; Token::LEN];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| Error::Certificate("the system gives no randomness".to_owned()))?;
        Ok(Token(bytes))
    }

    /// Reads the token in a file. If the file does not exist, generates a token and writes it there.
    ///
    /// # Errors
    /// `File` if the file cannot be read or created, or holds no token; `Certificate` if the system provides
    /// no random numbers.
    pub fn at(path: &Path) -> Result<Token> {
        if !path.exists() {
            let token = Token::random()?;
            make_secret(path, Zeroizing::new(format!("{token}\n")).as_bytes())?;
            return Ok(token);
        }
        Token::of_file(path)
    }

    /// Reads the token in a file.
    ///
    /// # Errors
    /// `File` if the file cannot be read, other users can read it, or it holds no token.
    pub fn of_file(path: &Path) -> Result<Token> {
        let text = read_secret(path)?;
        let token = std::str::from_utf8(without_mark(&text)).ok().and_then(|text| text.trim().parse().ok());
        token.ok_or_else(|| Error::File(format!("{} holds no token: {ParseError}", path.display())))
    }

    pub(crate) fn bytes(&self) -> &[u8; Token::LEN] {
        &self.0
    }

    /// Returns true if `claimed` is this token. The comparison is between hashes, so its duration reveals
    /// nothing about the token.
    pub(crate) fn is(&self, claimed: &[u8]) -> bool {
        sha256(&self.0) == sha256(claimed)
    }
}

impl FromStr for Token {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Token, ParseError> {
        unhex(text).map(Token).ok_or(ParseError)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A certificate and its private key. The certificates of [`new`](Certificate::new) are self-signed.
pub struct Certificate {
    pub(crate) chain: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// Generates a key and a self-signed certificate for it.
    ///
    /// # Errors
    /// `Certificate` if the key or the certificate cannot be generated.
    pub fn new() -> Result<Certificate> {
        Certificate::of_pem(generate()?.as_bytes()).ok_or_else(|| not_made("it cannot be read back"))
    }

    /// Reads the certificate and key in a PEM file. If the file does not exist, generates both and writes
    /// them there.
    ///
    /// # Errors
    /// `File` if the file cannot be read or created, or holds no usable certificate and key; `Certificate` if
    /// none can be generated.
    pub fn at(path: &Path) -> Result<Certificate> {
        if !path.exists() {
            make_secret(path, generate()?.as_bytes())?;
        }
        let unusable = |why: &dyn fmt::Display| {
            Error::File(format!(
                "{} does not hold a usable certificate and its private key: {why}. It takes both in PEM: an X.509 v3 certificate, and \
                 its key without a passphrase, which is RSA from 2048 bits, P-256, P-384 or Ed25519",
                path.display()
            ))
        };
        let pem = read_secret(path)?;
        let text = String::from_utf8_lossy(&pem);
        let certificate = Certificate::of_pem(&pem).ok_or_else(|| match text.contains("ENCRYPTED") {
            true => unusable(&"the key has a passphrase"),
            false => unusable(&"one of the two is missing or damaged"),
        })?;
        certificate.check().map_err(|error| unusable(&error))?;
        Ok(certificate)
    }

    fn of_pem(pem: &[u8]) -> Option<Certificate> {
        let pem = without_mark(pem);
        let chain = CertificateDer::from_pem_slice(pem).ok()?;
        let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
        Some(Certificate { chain, key })
    }

    /// Checks that TLS can use the certificate and the key, so that the error names the user's own file and
    /// not the peer.
    fn check(&self) -> Result<(), rustls::Error> {
        rustls::server::ParsedCertificate::try_from(&self.chain)?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(vec![self.chain.clone()], self.key.clone_key(), &provider).map(drop)
    }

    /// Returns the fingerprint of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.chain)
    }
}

impl Clone for Certificate {
    fn clone(&self) -> Certificate {
        Certificate { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.fingerprint())
    }
}

/// Generates a key and a self-signed certificate, and returns both in PEM.
fn generate() -> Result<Zeroizing<String>> {
    let key = rcgen::KeyPair::generate().map_err(not_made)?;
    let params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).map_err(not_made)?;
    let certificate = params.self_signed(&key).map_err(not_made)?;
    let pem = Zeroizing::new(key.serialize_pem());
    Ok(Zeroizing::new(format!("{}{}", certificate.pem(), *pem)))
}

/// The host name in every generated certificate. Clients check the fingerprint and ignore this name.
pub(crate) const NAME: &str = "remora";

fn not_made(why: impl fmt::Display) -> Error {
    Error::Certificate(format!("no certificate was made: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a temporary file with the given contents, readable only by its owner.
    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// Regression: a byte-order mark hid a certificate, a token or a key.
    #[test]
    fn a_byte_order_mark_before_a_certificate_or_token_is_no_part_of_it() {
        let pem = generate().unwrap();
        let plain = Certificate::at(file(pem.as_bytes()).path()).unwrap();
        let marked = Certificate::at(file(format!("\u{feff}{}", *pem).as_bytes()).path()).unwrap();
        assert_eq!(plain.fingerprint(), marked.fingerprint());
        let token = Token::random().unwrap();
        assert_eq!(Token::of_file(file(format!("\u{feff}{token}\r\n").as_bytes()).path()).unwrap(), token);
    }

    /// Regression: an own certificate or key that TLS cannot use was reported as the peer's fault,
    /// without its file.
    #[test]
    fn an_own_certificate_that_tls_cannot_use_is_refused_with_its_file_and_what_may_stand_there() {
        let pem = generate().unwrap();
        let other = generate().unwrap();
        let (certificate, _) = pem.split_once("-----BEGIN PRIVATE").unwrap();
        let key = &other[other.find("-----BEGIN PRIVATE").unwrap()..];
        let passphrase = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let unknown = "-----BEGIN PRIVATE KEY-----\nMAMCAQA=\n-----END PRIVATE KEY-----\n";
        for (text, why) in [
            (format!("{certificate}{key}"), "KeyMismatch"),
            (format!("{certificate}{passphrase}"), "passphrase"),
            (certificate.to_owned(), "missing"),
            (format!("{certificate}{unknown}"), "private key"),
        ] {
            let file = file(text.as_bytes());
            let words = Certificate::at(file.path()).unwrap_err().to_string();
            let shown = file.path().display().to_string();
            assert!(words.contains(&shown) && words.contains(why) && words.contains("P-256"), "{words}");
        }
    }

    #[test]
    fn a_certificate_of_an_earlier_version_of_x509_is_not_usable() {
        let mut certificate = Certificate::new().unwrap();
        certificate.check().unwrap();
        let mut bytes = certificate.chain.to_vec();
        let version = bytes.windows(5).position(|window| window == [0xa0, 3, 2, 1, 2]).unwrap();
        bytes[version + 4] = 1;
        certificate.chain = bytes.into();
        let words = certificate.check().unwrap_err().to_string();
        assert!(words.contains("UnsupportedCertVersion"), "{words}");
    }

    #[test]
    fn what_is_printed_is_read_again_and_secrets_are_not_printed_by_debug() {
        let token = Token::random().unwrap();
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert!(token.is(token.bytes()) && !token.is(Token::random().unwrap().bytes()) && !token.is(&[]));
        let fingerprint = Certificate::new().unwrap().fingerprint();
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        let colons: Vec<_> = fingerprint.0.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(colons.join(":").parse(), Ok(fingerprint), "as openssl prints it");
        for bad in ["", "ab", &"g".repeat(64), &"0".repeat(65), &"0".repeat(66)] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(ParseError), "{bad}");
        }
    }
}
