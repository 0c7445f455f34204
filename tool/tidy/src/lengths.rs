//! The rules for the lengths of files and functions.

use crate::Fault;
use crate::tokens::{Scope, is_ident, is_punct, line, walk};
use crate::tree::File;
use proc_macro2::{Delimiter, TokenTree};

/// The maximum length of a file in lines.
pub const FILE_LINES_MAX: usize = 1000;
/// The maximum length of a function in lines, from its `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// The maximum of the median file length in lines.
pub const FILE_LINES_MEDIAN: usize = 250;

/// Reports Rust files and functions that are too long, tests included.
pub fn check(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut lengths = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let lines = file.text.lines().count();
        lengths.push(lines);
        if lines > FILE_LINES_MAX {
            faults.push(Fault::new(
                &file.path,
                lines,
                format!("{lines} lines: over {FILE_LINES_MAX}, make it two files"),
            ));
        }
        let walked = walk(file, Scope::All, &mut |tokens| functions(file, tokens, &mut faults));
        faults.extend(walked.err());
    }
    lengths.sort_unstable();
    if let Some(&median) = lengths.get(lengths.len() / 2)
        && median > FILE_LINES_MEDIAN
    {
        faults.push(Fault::new(
            ".",
            0,
            format!("the median file has {median} lines: over {FILE_LINES_MEDIAN}"),
        ));
    }
    faults
}

/// Reports long functions of one nesting level: `fn name … { body }`.
fn functions(file: &File, tokens: &[TokenTree], faults: &mut Vec<Fault>) {
    for (index, token) in tokens.iter().enumerate() {
        let Some(TokenTree::Ident(name)) = tokens.get(index + 1) else { continue };
        if !is_ident(Some(token), "fn") {
            continue;
        }
        let rest = tokens[index + 2..].iter();
        let mut rest = rest.take_while(|token| !is_punct(Some(token), ';'));
        let body = rest.find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
            _ => None,
        });
        if let Some(body) = body {
            let first = line(token);
            let lines = body.span_close().end().line - first + 1;
            if lines > FUNCTION_LINES_MAX {
                faults.push(Fault::new(
                    &file.path,
                    first,
                    format!("fn {name} has {lines} lines: over {FUNCTION_LINES_MAX}, give its parts names"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    let _ = 1;\n".repeat(lines - 2))
    }

    fn faults(text: &str) -> Vec<Fault> {
        check(&[File::sample("wire/src/a.rs", text)])
    }

    #[test]
    fn a_function_of_71_lines_is_a_fault_and_one_of_70_is_not() {
        assert_eq!(faults(&function(70)), []);
        let result = faults(&function(71));
        assert!(result.len() == 1 && result[0].says.contains("fn long has 71 lines"), "{result:?}");
    }

    #[test]
    fn long_functions_are_found_inside_macros_impls_and_functions() {
        for (before, after) in [("macro_rules! m { () => {", "} }"), ("impl A {", "}"), ("fn outer() {", "}")]
        {
            let result = faults(&format!("{before}{}{after}", function(71)));
            assert!(result.iter().any(|fault| fault.says.contains("fn long has 71")), "{before}: {result:?}");
        }
    }

    #[test]
    fn a_declaration_or_a_pointer_type_does_not_borrow_the_next_body() {
        let text = format!("trait T {{ fn a(); }} type F = fn(u8); struct S {{\n{} }}", "// x\n".repeat(80));
        assert_eq!(faults(&text), []);
    }

    #[test]
    fn a_file_of_1001_lines_is_a_fault() {
        assert!(faults(&"//\n".repeat(1001)).iter().any(|fault| fault.says.contains("1001 lines")));
    }

    #[test]
    fn the_median_counts_even_when_no_single_file_is_too_long() {
        let files: Vec<File> = (0..3).map(|_| File::sample("wire/src/a.rs", &"//\n".repeat(300))).collect();
        assert!(check(&files).iter().any(|fault| fault.says.contains("median")));
    }
}
