//! TLS 1.3 without certificate authorities: a certificate is accepted by its fingerprint.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::certificate::{Certificate, Fingerprint};

/// The check of the peer's certificate.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// The fingerprint that the server's certificate must have. `None` on the server, which checks client
    /// certificates when the request arrives.
    expected: Option<Fingerprint>,
}

impl Verifier {
    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The error for TLS 1.2 signatures. TLS 1.2 is not offered, so they cannot occur.
const OLD: Error = Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13);

/// The methods about signatures, which are the same for certificates of servers and of clients.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(OLD)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.schemes()
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.expected == Some(Fingerprint::of(certificate)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    signatures!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Accepts any certificate; the handshake's signature proves that the client has its key. The server
    /// decides about admission when the client asks for grants, so that the client can receive the reason of
    /// a refusal.
    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

/// The system clock. A time before 1970, as on a board without a battery, counts as 1970. That is harmless
/// because the dates of certificates are not checked.
#[derive(Debug)]
struct SystemClock;

impl TimeProvider for SystemClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(time_of(SystemTime::now()))
    }
}

fn time_of(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn verifier(expected: Option<Fingerprint>) -> (Arc<CryptoProvider>, Arc<Verifier>) {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier { provider: Arc::clone(&provider), expected };
    (provider, Arc::new(verifier))
}

/// Builds the server's TLS configuration. It offers no session resumption, so every client presents its
/// credential.
pub(crate) fn server(certificate: &Certificate) -> Result<Arc<ServerConfig>, Error> {
    let (provider, verifier) = verifier(None);
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(SystemClock))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.chain.clone()], certificate.key.clone_key())?;
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Builds the client's TLS configuration.
pub(crate) fn client(expected: Fingerprint, own: Option<&Certificate>) -> Result<Arc<ClientConfig>, Error> {
    let (provider, verifier) = verifier(Some(expected));
    let builder = ClientConfig::builder_with_details(provider, Arc::new(SystemClock))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_auth_cert(vec![own.chain.clone()], own.key.clone_key())?,
    };
    config.enable_sni = false;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Regression: a clock before 1970 ended the program.
    #[test]
    fn a_clock_before_1970_counts_as_1970() {
        let second = Duration::from_secs(1);
        assert_eq!(time_of(UNIX_EPOCH - second).as_secs(), 0);
        assert_eq!(time_of(UNIX_EPOCH + second).as_secs(), 1);
    }
}
