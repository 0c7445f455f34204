//! Tests that return early: they would count as passed without having run.
//!
//! A test that lacks root, a device or a program reports that by `remora_netns::require!`. The entry point of
//! another process is `#[ignore]`d.

use crate::Fault;
use crate::tree::File;

/// Returns the early returns at the top of a test's body: `let … else { return }` and `if … { return; }`.
pub fn early_returns(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (number, _) in lines.iter().enumerate().filter(|(_, line)| line.trim() == "#[test]") {
            let indent = depth(lines[number]);
            let body = lines.iter().enumerate().skip(number + 1);
            let body = body.take_while(|(_, line)| line.is_empty() || **line != closing(indent));
            let returns = body.filter(|(index, _)| is_early_return(&lines, *index, indent));
            faults.extend(returns.map(|(index, _)| {
                let says = "a test that returns early counts as passed: use `remora_netns::require!`";
                Fault::new(&file.path, index + 1, says)
            }));
        }
    }
    faults
}

/// Returns whether line `index`, in a test at this indent, leaves the test by a statement of its body.
/// Closures and loops are deeper.
fn is_early_return(lines: &[&str], index: usize, indent: usize) -> bool {
    let text = lines[index].trim();
    if depth(lines[index]) == indent + 4 {
        return text.ends_with("else { return };") || text.ends_with("else { return; };");
    }
    let returns =
        text == "return;" || text.starts_with("return println!") || text.starts_with("return eprintln!");
    let before = &lines[index.saturating_sub(1)];
    let branches = before.trim_start().starts_with("if ") || before.trim_end().ends_with("else {");
    returns && depth(lines[index]) == indent + 8 && branches && depth(before) == indent + 4
}

fn depth(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The last line of a function at this indent, as rustfmt writes it.
fn closing(indent: usize) -> String {
    format!("{}}}", " ".repeat(indent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(body: &str) -> Vec<usize> {
        let text = format!(
            "#[test]\nfn a() {{\n{body}\n}}\n\nfn b() {{\n    let Some(c) = d() else {{ return }};\n}}\n"
        );
        early_returns(&[File::sample("wire/tests/a.rs", &text)]).iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn a_test_that_returns_without_what_it_needs_is_a_fault() {
        assert_eq!(lines("    let Some(veth) = Veth::new() else { return };"), [3]);
        assert_eq!(lines("    if !possible() {\n        return;\n    }"), [4]);
        assert_eq!(lines("    if no_tshark {\n        return eprintln!(\"left out\");\n    }"), [4]);
    }

    #[test]
    fn returns_of_closures_and_loops_in_a_test_are_none() {
        assert_eq!(
            lines("    spawn(move || {\n        if over {\n            return;\n        }\n    });"),
            [0; 0]
        );
        assert_eq!(lines("    let veth = require!(Veth::new());"), [0; 0]);
    }
}
