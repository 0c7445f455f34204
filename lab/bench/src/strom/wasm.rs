//! A kernel as users write one: the template of `sandbox`, built to WebAssembly by the documented command.

use std::path::{Path, PathBuf};

use anyhow::Result;
use remora_verbs::kernel::Kernel;

/// The folder of the template, and the compiler that builds this workspace.
#[cfg(feature = "wasm")]
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../../../../program/sandbox/template/rust/Cargo.toml")),
    ("src/lib.rs", include_str!("../../../../program/sandbox/template/rust/src/lib.rs")),
    ("src/strom.rs", include_str!("../../../../program/sandbox/template/rust/src/strom.rs")),
    ("rust-toolchain.toml", include_str!("../../../../rust-toolchain.toml")),
];

#[cfg(not(feature = "wasm"))]
const WITHOUT: &str = "this remora is built without them; \
    `cargo build --release --package remora-cli --features wasm` builds one with them";

/// A temporary folder with the module, deleted when this value is dropped. The name is random and only this
/// user can write to the folder, since cargo obeys a `.cargo/config.toml` in it.
pub(crate) struct Built(tempfile::TempDir);

impl Built {
    /// Builds the module.
    ///
    /// # Errors
    /// Fails without the feature `wasm`, or if there is no compiler for WebAssembly.
    #[cfg(feature = "wasm")]
    pub(super) fn new() -> Result<Built> {
        use anyhow::{Context as _, ensure};
        let folder = tempfile::Builder::new().prefix("remora-kernel-").tempdir()?;
        let built = Built(folder);
        let folder = built.0.path();
        std::fs::create_dir(folder.join("src"))?;
        for (name, text) in FILES {
            std::fs::write(folder.join(name), text)?;
        }
        // The build must not use the target folder of a build that may be running this program.
        let done = std::process::Command::new("cargo")
            .args(["build", "--release", "--target", "wasm32-unknown-unknown"])
            .current_dir(folder)
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .context("building a kernel needs cargo")?;
        ensure!(done.status.success(), "building a kernel: {}", String::from_utf8_lossy(&done.stderr));
        Ok(built)
    }

    /// Builds nothing, because this program lacks the feature `wasm`.
    ///
    /// # Errors
    /// Fails in every call.
    #[cfg(not(feature = "wasm"))]
    pub(crate) fn new() -> Result<Built> {
        anyhow::bail!("{WITHOUT}")
    }

    /// Returns the path of the module.
    pub(crate) fn module(&self) -> PathBuf {
        self.0.path().join("target/wasm32-unknown-unknown/release/kernel.wasm")
    }
}

/// Returns a lane with the module of a file.
#[cfg(feature = "wasm")]
pub(super) fn kernel(module: &Path) -> Result<Box<dyn Kernel>> {
    use anyhow::Context as _;
    let bytes = std::fs::read(module).with_context(|| format!("opening {}", module.display()))?;
    let lanes = remora_sandbox::Module::new(&bytes, remora_sandbox::Limits::default())?.lanes(1)?;
    lanes.into_iter().next().context("a module was requested")
}

/// Fails, because this program lacks the feature `wasm`.
#[cfg(not(feature = "wasm"))]
pub(crate) fn kernel(module: &Path) -> Result<Box<dyn Kernel>> {
    anyhow::bail!("{}: {WITHOUT}", module.display())
}
