//! `remora chain verify`: checks a program for faults.

use std::path::Path;

use anyhow::{Result, bail};
use remora_chain::{Finding, Program, Severity};
use serde_json::json;

use super::start::program;
use remora_options::print;

/// Prints the findings about a program.
///
/// # Errors
/// Fails if the program cannot be read or has faults.
pub(crate) fn verify(file: &Path, json: bool) -> Result<()> {
    let program = program(file)?;
    let findings = remora_chain::verify(&program);
    for finding in &findings {
        if json {
            let queue = &program.queues[finding.queue].name;
            let severity = severity(finding);
            let object =
                json!({"severity": severity, "queue": queue, "line": finding.line, "what": finding.what});
            print::line(object);
        } else {
            print::line(text(file, &program, finding));
        }
    }
    match findings.iter().filter(|finding| finding.severity == Severity::Fault).count() {
        0 if findings.is_empty() && !json => {
            print::line(format_args!("nothing is wrong with {}", file.display()))
        }
        0 => {}
        faults => bail!("{} has {faults} faults", file.display()),
    }
    Ok(())
}

fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Fault => "fault",
        Severity::Notice => "notice",
    }
}

fn text(file: &Path, program: &Program, finding: &Finding) -> String {
    let queue = &program.queues[finding.queue].name;
    let line = if finding.line == 0 { String::new() } else { format!("{}:", finding.line) };
    format!("{}:{line} {}: {queue}: {}", file.display(), severity(finding), finding.what)
}
