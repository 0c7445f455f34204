//! The credentials file of a 1RMA server. It contains what a client needs: the server's address, the
//! fingerprint of its certificate, and its token.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use remora_grants::{make_secret, read_secret};
use serde::{Deserialize, Serialize};

/// Content of a credentials file, stored as JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// Host and TCP port on which the server grants access.
    pub address: String,
    /// SHA-256 fingerprint of the server's certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// Token of the server, or `None` if the server admits clients by their certificates only.
    pub token: Option<String>,
}

impl Credentials {
    /// Writes the credentials to a file that only this user can read. Replaces an earlier credentials file.
    ///
    /// # Errors
    /// Fails if the path exists and is not a credentials file, or the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        if path.exists() {
            let earlier = Credentials::of_file(path).is_ok();
            ensure!(
                earlier,
                "cannot write credentials to {}: it exists and is not a credentials file; choose another name",
                path.display()
            );
            std::fs::remove_file(path).with_context(|| format!("replacing {}", path.display()))?;
        }
        Ok(make_secret(path, &serde_json::to_vec(self)?)?)
    }

    /// Reads a credentials file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, others can read it too, or its content is invalid.
    pub(crate) fn of_file(path: &Path) -> Result<Credentials> {
        let bytes = read_secret(path)?;
        // Some editors begin a text with a byte order mark.
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        serde_json::from_slice(text).ok().with_context(|| {
            let shown = path.display();
            format!(
                "{shown} is not a credentials file: give the file that `remora rma serve --credentials` wrote"
            )
        })
    }
}
