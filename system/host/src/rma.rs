//! 1RMA on an engine: the cipher, the clock and the random numbers for the NIC, which does no I/O itself.

use remora_cipher::Aes;
use remora_nic::rma::{Cipher, Delays, Init, RegionKey, Regions};
use remora_transport::rma::Settings;
use remora_wire::rma::Nonce;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::adapter::{OpenError, random};
use crate::engine::Engine;
use crate::recording::Feature;

/// Returns a random key that cannot be predicted.
///
/// # Errors
/// [`OpenError`] if the system has no randomness.
pub fn random_key() -> Result<RegionKey, OpenError> {
    loop {
        if let Some(key) = RegionKey::new(random()?.to_ne_bytes()) {
            return Ok(key);
        }
    }
}

/// Returns the default cipher of an engine; the schedules of `keys` keys stay expanded.
pub fn rma_cipher(keys: usize) -> Box<dyn Cipher> {
    Box::new(Aes::new(keys.max(2)))
}

/// Returns a cipher that derives keys, for software that distributes them.
pub fn key_deriver() -> impl Cipher {
    Aes::new(2)
}

impl Engine {
    /// Enables 1RMA on the engine, over these regions and with this cipher, until `user` is dropped.
    /// Returns false if 1RMA is enabled for another user that still exists.
    ///
    /// # Errors
    /// [`OpenError`] if the system has no randomness.
    pub fn enable_rma(
        &self,
        settings: Settings,
        user: Weak<()>,
        regions: Arc<Regions>,
        cipher: Box<dyn Cipher>,
    ) -> Result<bool, OpenError> {
        // Six bits identify the engine and 26 this start, so that no two senders use the same nonces.
        let sender = (self.number() as u32) << 26 | random()? as u32 >> 6;
        let failure_nonce = Nonce { sender: random()? as u32, counter: random()? as u64 };
        let decoy = random_key()?;
        let first_nonce =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let enabled = self.with_core(move |core| {
            if core.nic.rma_is_in_use() {
                return false;
            }
            core.end_recording(Feature::Rma);
            let clock = core.clock.clone();
            core.nic.enable_rma(Init {
                settings,
                user,
                regions,
                cipher,
                sender,
                first_nonce,
                failure_nonce,
                decoy,
                clock: Some(Box::new(move || clock.now())),
            });
            true
        });
        Ok(enabled)
    }

    /// Returns the delays of the engine's commands; `None` if 1RMA is not enabled.
    pub fn rma_delays(&self) -> Option<Delays> {
        self.with_core(|core| core.nic.rma_delays(core.clock.now()))
    }
}
