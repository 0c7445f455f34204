//! The file with which a server of 1RMA tells clients all that they need: its address, the fingerprint of its
//! certificate, and its token.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use remora_grants::{make_secret, read_secret};
use serde::{Deserialize, Serialize};

/// What such a file holds, as JSON.
#[derive(Serialize, Deserialize)]
pub struct Credentials {
    /// Host and TCP port for grants.
    pub address: String,
    /// Of the server's certificate.
    pub fingerprint: String,
    /// None: the server admits certificates alone.
    pub token: Option<String>,
}

impl Credentials {
    /// Writes them to a file that nobody else can read. One of an earlier server is replaced, and no other
    /// file is.
    pub fn write(&self, path: &Path) -> Result<()> {
        if path.exists() {
            let earlier = Credentials::of_file(path).is_ok();
            ensure!(earlier, "{} is there and holds no credentials: choose another name", path.display());
            std::fs::remove_file(path).with_context(|| format!("replacing {}", path.display()))?;
        }
        Ok(make_secret(path, &serde_json::to_vec(self)?)?)
    }

    /// Those of a file that nobody else can read.
    pub fn of_file(path: &Path) -> Result<Credentials> {
        let bytes = read_secret(path)?;
        // Some editors begin a text with a byte-order mark.
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        serde_json::from_slice(text).ok().with_context(|| {
            let shown = path.display();
            format!("{shown} holds no credentials: name the file of `remora rma serve --credentials`")
        })
    }
}
