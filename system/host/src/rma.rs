//! 1RMA on an engine: the cipher, the clock and the randomness that the pure NIC is handed.

use remora_cipher::Aes;
use remora_nic::NicError;
use remora_nic::rma::{Cipher, Delays, Init, RegionKey, Regions};
use remora_transport::rma::Settings;
use remora_wire::rma::Nonce;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::adapter::{OpenError, random};
use crate::engine::{Control, Engine};

/// A key that nobody can guess.
///
/// # Errors
/// The system has no randomness.
pub fn random_key() -> Result<RegionKey, OpenError> {
    loop {
        if let Some(key) = RegionKey::new(random()?.to_ne_bytes()) {
            return Ok(key);
        }
    }
}

/// The cipher that an engine has if no other is given; `keys` schedules stay expanded.
pub fn rma_cipher(keys: usize) -> Box<dyn Cipher> {
    Box::new(Aes::new(keys.max(2)))
}

/// A cipher that derives keys, for software that hands them out.
pub fn key_deriver() -> impl Cipher {
    Aes::new(2)
}

impl Control<'_> {
    /// Removes a portal, as [`remora_nic::Nic::destroy_portal`] does.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn destroy_portal(&mut self, number: u32) -> Result<(), NicError> {
        self.nic.destroy_portal(self.clock.now(), number)
    }
}

impl Engine {
    /// The engine speaks 1RMA from now on, over these regions and by this cipher, until `user` is gone.
    /// False: it does so for another user, who is still there.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn enable_rma(
        &self,
        settings: Settings,
        user: Weak<()>,
        regions: Arc<Regions>,
        cipher: Box<dyn Cipher>,
    ) -> Result<bool, OpenError> {
        // Six bits of the engine, 26 of this start: no two senders seal under the same nonces.
        let sender = (self.number() as u32) << 26 | random()? as u32 >> 6;
        let failure_nonce = Nonce { sender: random()? as u32, counter: random()? as u64 };
        let decoy = random_key()?;
        let first_nonce =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let enabled = self.control(move |control| {
            if control.nic.rma_is_in_use() {
                return false;
            }
            let clock = control.clock.clone();
            control.nic.enable_rma(Init {
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

    /// The delays of its commands. None: it does not speak 1RMA.
    pub fn rma_delays(&self) -> Option<Delays> {
        self.control(|control| control.nic.rma_delays(control.clock.now()))
    }
}
