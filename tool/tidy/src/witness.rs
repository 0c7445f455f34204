//! `docs/TESTS.md`: each requirement and the tests that show it. `docs/FAULTS.md`: each mended fault and its
//! tests.
//!
//! A row is `| sentence | tests |`. A test is written `path/file.rs::name` in backticks, the examples that
//! must not compile as `path/file.rs::compile_fail`, a fuzzer as `fuzz/fuzz_targets/file.rs::fuzz_target`.
//! `(open)` says that no test shows the sentence yet.

use crate::Fault;
use crate::tokens::{Scope, is_ident, is_punct, walk};
use crate::tree::File;
use proc_macro2::TokenTree;

/// Where the map stands.
pub const PATH: &str = "docs/TESTS.md";
/// Where the faults stand that were found and mended, in rows of the same form.
pub const FAULTS: &str = "docs/FAULTS.md";
/// How a sentence without a test is marked.
pub const OPEN: &str = "(open)";

/// The chapters the map must have, each with at least one row.
pub const CHAPTERS: [&str; 11] = [
    "Repository",
    "wire",
    "memory",
    "transport",
    "nic",
    "port",
    "host",
    "Rust API",
    "cli",
    "Bad input, faults",
    "Shows",
];

/// One row of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'a> {
    /// The chapter it stands in.
    pub chapter: &'a str,
    /// What must be so.
    pub sentence: &'a str,
    /// The tests that show it.
    pub tests: Vec<&'a str>,
    /// Is it marked as not shown yet?
    pub open: bool,
    /// Its line in the file.
    pub line: usize,
}

/// The rows of the map.
pub fn rows(text: &str) -> Vec<Row<'_>> {
    let mut chapter = "";
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            chapter = title.trim();
        }
        let Some((sentence, tests)) =
            line.strip_prefix('|').and_then(|row| row.trim_end().trim_end_matches('|').rsplit_once('|'))
        else {
            continue;
        };
        let heading =
            matches!(sentence.trim(), "sentence" | "fault") || sentence.chars().all(|c| "- :".contains(c));
        if !heading {
            let open = tests.contains(OPEN);
            let tests = tests.split('`').skip(1).step_by(2).collect();
            rows.push(Row { chapter, sentence: sentence.trim(), tests, open, line: at + 1 });
        }
    }
    rows
}

/// Rows without a test and not marked open, tests that do not exist, chapters that are missing.
pub fn check(files: &[File]) -> Vec<Fault> {
    let Some(map) = files.iter().find(|file| file.path == PATH) else {
        return vec![Fault::new(PATH, 0, "is missing")];
    };
    let rows = rows(&map.text);
    let mut faults = Vec::new();
    for chapter in CHAPTERS {
        if !rows.iter().any(|row| row.chapter == chapter) {
            faults.push(Fault::new(PATH, 0, format!("no row under `## {chapter}`")));
        }
    }
    named(files, PATH, &rows, &mut faults);
    match files.iter().find(|file| file.path == FAULTS) {
        Some(file) => named(files, FAULTS, &self::rows(&file.text), &mut faults),
        None => faults.push(Fault::new(FAULTS, 0, "is missing")),
    }
    faults
}

/// Rows of the file at `path` that name no test and are not open, and tests in them that do not exist.
fn named(files: &[File], path: &str, rows: &[Row<'_>], faults: &mut Vec<Fault>) {
    for row in rows {
        if row.tests.is_empty() && !row.open {
            faults.push(Fault::new(path, row.line, format!("neither a test nor {OPEN}: {}", row.sentence)));
        }
        let absent = row.tests.iter().filter(|test| !test_exists(files, test));
        faults.extend(absent.map(|test| Fault::new(path, row.line, format!("no such test: {test}"))));
    }
}

/// How many rows are marked open, of how many.
pub fn open(files: &[File]) -> (usize, usize) {
    let rows = files.iter().find(|file| file.path == PATH).map_or_else(Vec::new, |map| rows(&map.text));
    (rows.iter().filter(|row| row.open).count(), rows.len())
}

/// Does `path::name` exist: a `fn name` in the file `path` that is a test; or, for the name `compile_fail`,
/// an example in that file's documentation that must not compile; or, for the name `fuzz_target`, a fuzzer?
fn test_exists(files: &[File], test: &str) -> bool {
    let Some((path, name)) = test.split_once("::") else { return false };
    let Some(file) = files.iter().find(|file| file.path == path) else { return false };
    if name == "compile_fail" {
        return file.text.lines().any(|line| line.trim_start().starts_with("/// ```compile_fail"));
    }
    let mut found = false;
    if name == "fuzz_target" {
        let walked = walk(file, Scope::All, &mut |tokens| {
            let called = |pair: &[TokenTree]| is_ident(Some(&pair[0]), name) && is_punct(Some(&pair[1]), '!');
            found |= tokens.windows(2).any(called);
        });
        return walked.is_ok() && found;
    }
    let walked = walk(file, Scope::All, &mut |tokens| {
        found |= tokens.windows(2).enumerate().any(|(at, pair)| {
            is_ident(Some(&pair[0]), "fn")
                && is_ident(Some(&pair[1]), name)
                && has_test_attribute(&tokens[..at])
        });
    });
    walked.is_ok() && found
}

/// Does `#[test]` stand among the attributes right before the item that these tokens lead up to?
fn has_test_attribute(before: &[TokenTree]) -> bool {
    let item = before.iter().rev().take_while(|token| match token {
        TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Bracket,
        TokenTree::Punct(punct) => punct.as_char() == '#',
        // What may stand between an attribute and `fn`.
        TokenTree::Ident(ident) => ["pub", "async", "const", "extern"].contains(&ident.to_string().as_str()),
        TokenTree::Literal(_) => false,
    });
    item.into_iter().any(|token| match token {
        TokenTree::Group(group) => {
            group.stream().into_iter().next().is_some_and(|first| is_ident(Some(&first), "test"))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str =
        "#[test]\n#[cfg(unix)]\nfn wraps() {} fn plain() {} proptest! { #[test] fn any(a in 0..1) {} }";

    fn map(rows: &str) -> Vec<File> {
        let chapters: String =
            CHAPTERS.iter().map(|chapter| format!("## {chapter}\n| a | (open) |\n")).collect();
        let faults = "| fault | tests |\n|---|---|\n| a PSN did not wrap | `wire/src/psn.rs::wraps` |\n";
        vec![
            File::sample(PATH, &format!("{chapters}{rows}")),
            File::sample("wire/src/psn.rs", CODE),
            File::sample(FAULTS, faults),
        ]
    }

    #[test]
    fn a_test_that_exists_is_accepted_also_inside_a_macro() {
        assert_eq!(check(&map("| PSNs wrap | `wire/src/psn.rs::wraps`, `wire/src/psn.rs::any` |\n")), []);
    }

    #[test]
    fn examples_that_must_not_compile_are_tests_too() {
        let mut files = map("| no two owners | `nic/src/a.rs::compile_fail` |\n");
        files.push(File::sample("nic/src/a.rs", "/// ```compile_fail,E0382\n/// x\n/// ```\nfn a() {}"));
        assert_eq!(check(&files), []);
        files.pop();
        files.push(File::sample("nic/src/a.rs", "/// ```\n/// compile_fail\n/// ```\nfn a() {}"));
        assert_eq!(check(&files).len(), 1);
    }

    #[test]
    fn a_fuzzer_is_a_test_where_it_is_one() {
        let mut files = map("| any bytes | `fuzz/fuzz_targets/a.rs::fuzz_target` |\n");
        files.push(File::sample(
            "fuzz/fuzz_targets/a.rs",
            "use b::fuzz_target; fuzz_target!(|data: &[u8]| c(data));",
        ));
        assert_eq!(check(&files), []);
        files.pop();
        files.push(File::sample("fuzz/fuzz_targets/a.rs", "use b::fuzz_target; fn a() {}"));
        assert_eq!(check(&files).len(), 1);
    }

    #[test]
    fn a_missing_test_a_missing_file_and_a_plain_function_are_faults() {
        for bad in ["wire/src/psn.rs::gone", "wire/src/gone.rs::wraps", "wire/src/psn.rs::plain", "wraps"] {
            let faults = check(&map(&format!("| PSNs wrap | `{bad}` |\n")));
            assert!(faults.len() == 1 && faults[0].says.contains("no such test"), "{bad}: {faults:?}");
        }
    }

    #[test]
    fn a_fault_without_a_test_that_exists_is_a_fault_of_its_document() {
        let mut files = map("");
        files.pop();
        files.push(File::sample(
            FAULTS,
            "| fault | tests |\n|---|---|\n| it fell | `wire/src/psn.rs::gone` |\n",
        ));
        let faults = check(&files);
        assert!(faults.len() == 1 && faults[0].path == FAULTS, "{faults:?}");
        files.pop();
        assert_eq!(check(&files).len(), 1);
    }

    #[test]
    fn a_row_without_a_test_must_say_open_and_open_rows_are_counted() {
        assert_eq!(check(&map("| PSNs wrap | by hand |\n")).len(), 1);
        let files = map("| sentence | tests |\n|---|---|\n| PSNs wrap | `wire/src/psn.rs::wraps` |\n");
        assert_eq!(open(&files), (CHAPTERS.len(), CHAPTERS.len() + 1));
    }

    #[test]
    fn a_missing_map_or_chapter_is_a_fault() {
        assert_eq!(check(&[]).len(), 1);
        assert_eq!(check(&[File::sample(PATH, "## wire\n| a | (open) |\n")]).len(), CHAPTERS.len());
    }
}
