//! Progress bars of benchmarks.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// Creates a progress bar of `len` steps. `steps` names the steps on the screen, for example "rounds".
///
/// # Errors
/// Fails if `steps` contains braces that are not a valid template.
pub fn bar(len: u64, steps: &str) -> Result<ProgressBar> {
    let template = format!("{{spinner}} {{msg}} {{wide_bar}} {{pos}}/{{len}} {steps} {{elapsed}}");
    Ok(ProgressBar::new(len).with_style(ProgressStyle::with_template(&template)?))
}
