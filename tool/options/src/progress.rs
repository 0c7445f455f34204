//! The bar that shows a person how far a benchmark is.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `len` steps of this kind, such as "rounds".
///
/// # Errors
/// The kind is no part of a template.
pub fn bar(len: u64, steps: &str) -> Result<ProgressBar> {
    let template = format!("{{spinner}} {{msg}} {{wide_bar}} {{pos}}/{{len}} {steps} {{elapsed}}");
    Ok(ProgressBar::new(len).with_style(ProgressStyle::with_template(&template)?))
}
