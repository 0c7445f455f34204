//! The proof that the pure crates import nothing: wasm modules whose import section is empty.
//!
//! Each pure crate is built for wasm32-unknown-unknown as a module of its own, with all its code linked,
//! called or not. A socket, a clock or a foreign function would have to come from outside the module, and so
//! would appear as an import. (The functions for which `std` has only stubs on wasm, such as its clock, are
//! banned by name: `words`.)

use crate::layers::Layer;
use cargo_metadata::Message;
use cargo_metadata::camino::{Utf8Path, Utf8PathBuf};
use std::path::{Path, PathBuf};
use std::process::Command;
use wasmparser::{Parser, Payload};

/// The imports of a wasm module as `module.name`, and the number of its functions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Face {
    /// The imports of the module.
    pub imports: Vec<String>,
    /// The number of the module's own functions.
    pub functions: u32,
}

/// Reads the imports and the number of functions of a wasm module.
///
/// # Errors
/// Returns the parser's text if the bytes are not a wasm module.
pub fn face(module: &[u8]) -> Result<Face, String> {
    let mut face = Face::default();
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| error.to_string())? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(|error| error.to_string())?;
                    face.imports.push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::FunctionSection(section) => face.functions = section.count(),
            _ => {}
        }
    }
    Ok(face)
}

/// The compiler flags that link all code of a crate. Otherwise an import in code that nobody calls would not
/// appear.
pub const LINK_WHOLE: [&str; 2] = ["-Clink-dead-code", "-Clink-arg=--no-gc-sections"];

/// Builds one crate as a wasm module and returns the path of the module.
///
/// # Errors
/// Returns the compiler's text if the crate does not build for wasm32.
pub fn build(root: &Path, target: &Utf8Path, layer: &Layer) -> Result<PathBuf, String> {
    let package = format!("remora-{}", layer.name);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args([
        "rustc",
        "--quiet",
        "--message-format=json",
        "--release",
        "--package",
        &package,
        "--lib",
    ]);
    cargo.args(["--crate-type", "cdylib", "--target", "wasm32-unknown-unknown", "--target-dir"]).arg(target);
    // The imports do not depend on the optimisation level.
    for (setting, value) in [("LTO", "off"), ("DEBUG", "false"), ("OPT_LEVEL", "0"), ("CODEGEN_UNITS", "64")]
    {
        cargo.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    // Only this crate is linked as a whole; its dependencies are built in their own turn.
    cargo.arg("--").args(LINK_WHOLE);
    let output = cargo.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // Cargo reports the path of the module. A guessed path could be that of an older module, and other crates
    // make modules, too.
    let manifest = root.join(layer.folder).join(layer.name).join("Cargo.toml");
    let artifacts = Message::parse_stream(output.stdout.as_slice()).filter_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) if artifact.manifest_path == manifest => {
            Some(artifact.filenames)
        }
        _ => None,
    });
    let module = artifacts.flatten().find(|path| path.extension() == Some("wasm"));
    module.map(Utf8PathBuf::into_std_path_buf).ok_or_else(|| format!("cargo names no module for {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module `(module (import "env" "now" (func)) (func))`, byte by byte.
    const WITH_A_CLOCK: [u8; 37] = [
        0, b'a', b's', b'm', 1, 0, 0, 0, // magic, version
        1, 4, 1, 0x60, 0, 0, // types: () -> ()
        2, 11, 1, 3, b'e', b'n', b'v', 3, b'n', b'o', b'w', 0,
        0, // imports: env.now is a function of type 0
        3, 2, 1, 0, // functions: one of type 0
        10, 4, 1, 2, 0, 0x0b, // code: one body, no locals, end
    ];

    #[test]
    fn an_import_is_seen() {
        let face = face(&WITH_A_CLOCK).expect("a module");
        assert_eq!(face, Face { imports: vec!["env.now".to_owned()], functions: 1 });
    }

    #[test]
    fn what_is_no_module_is_an_error() {
        assert!(face(b"\x7fELF").is_err());
        assert!(face(&WITH_A_CLOCK[..20]).is_err());
    }
}
