//! The text of `--version`.

use crate::commands::Program;
use crate::sibling;

/// Returns the version, the commit that was built, and the programs whose commands are installed.
/// `scripts/build` names the commit; a plain `cargo build` names none.
pub(crate) fn text() -> &'static str {
    let installed = Program::ALL.into_iter().filter(|program| matches!(sibling::find(*program), Ok(Some(_))));
    let programs: Vec<&str> = installed.map(Program::file).collect();
    let text = format!(
        "{}\ncommit: {}\nprograms: {}",
        env!("CARGO_PKG_VERSION"),
        option_env!("REMORA_COMMIT").unwrap_or("unknown"),
        programs.join(", ")
    );
    // A parser of arguments keeps it for as long as the process runs.
    text.leak()
}
