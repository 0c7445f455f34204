//! The rule that environment variables are read in one place, which ignores them in a set-user-ID program.

use std::collections::BTreeSet;

use crate::Fault;
use crate::layers;
use crate::tokens::{Scope, is_ident, is_punct, line, test_modules, walk};
use crate::tree::File;

/// The files that may read variables. The preload library reads its own, because it depends on no other
/// crate. The requirements of tests are part of no library.
const READERS: [&str; 3] =
    ["api/broker/src/environment.rs", "api/paths/src/rewrite.rs", "system/netns/src/requirement.rs"];
/// The folders whose crates are part of the drop-in libraries, in addition to the crate `fault`.
const LINKED: [&str; 4] = ["core", "program", "system", "api"];
/// The functions of `std::env` that read a variable; `temp_dir` is one of them.
const STANDARD: [&str; 5] = ["var", "var_os", "vars", "vars_os", "temp_dir"];
/// The functions of the C library that read a variable.
const FOREIGN: [&str; 2] = ["getenv", "secure_getenv"];

/// Reports variables that library code reads in any other place.
pub fn check(files: &[File]) -> Vec<Fault> {
    let sources: Vec<&File> = files.iter().filter(|file| file.is_source() && is_linked(file)).collect();
    let tests: BTreeSet<(&str, String)> = sources
        .iter()
        .flat_map(|file| test_modules(file).into_iter().map(|module| (file.member(), module)))
        .collect();
    let mut faults = Vec::new();
    for file in sources {
        let is_test = tests.contains(&(file.member(), file.module().to_owned()));
        if is_test || READERS.contains(&file.path.as_str()) {
            continue;
        }
        let walked = walk(file, Scope::Shipped, &mut |tokens| {
            for (index, token) in tokens.iter().enumerate() {
                let follows = |name: &&str| is_ident(tokens.get(index + 3), name);
                let reads = is_ident(Some(token), "env")
                    && is_punct(tokens.get(index + 1), ':')
                    && STANDARD.iter().any(follows);
                if reads || FOREIGN.iter().any(|name| is_ident(Some(token), name)) {
                    let says =
                        "a set-user-ID program must not obey this variable: ask `remora_broker::environment`";
                    faults.push(Fault::new(&file.path, line(token), says));
                }
            }
        });
        faults.extend(walked.err());
    }
    faults
}

/// The page with a row for each variable.
pub const PAGE: &str = "docs/reference/environment.md";

/// Variables that code or a script names and the page does not, and variables of the page that nothing names.
pub fn documented(files: &[File]) -> Vec<Fault> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![Fault::new(PAGE, 0, "is missing")];
    };
    let rows: BTreeSet<&str> =
        page.text.lines().filter(|line| line.starts_with('|')).flat_map(names).collect();
    let readers = files.iter().filter(|file| is_reader(file));
    let mut read = BTreeSet::new();
    let mut faults = Vec::new();
    for file in readers {
        for (index, text) in file.text.lines().enumerate() {
            let quoted = |name: &&str| !file.is_rust() || text.contains(&format!("\"{name}\""));
            for name in names(text).filter(quoted) {
                if read.insert(name) && !rows.contains(name) {
                    faults.push(Fault::new(&file.path, index + 1, format!("{PAGE} has no row for {name}")));
                }
            }
        }
    }
    let unread = rows.difference(&read);
    faults.extend(unread.map(|name| Fault::new(PAGE, 0, format!("nothing reads {name}"))));
    faults
}

/// Files that may read variables: Rust outside of this crate, C of tests, scripts, the Makefile and the book.
fn is_reader(file: &File) -> bool {
    let is_script =
        file.path.starts_with("scripts/") || matches!(file.path.as_str(), "Makefile" | "mkdocs.yml");
    let is_shim = file.path.contains("/tests/") && file.path.ends_with(".c") && file.text.contains("getenv(");
    (file.is_rust() && file.member() != "tidy") || is_script || is_shim
}

/// The variables of Remora that a line names, without those that tell a child of a test its role.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| {
        let rest = word.strip_prefix("REMORA_").unwrap_or_default();
        !rest.is_empty() && !rest.ends_with('_') && !rest.starts_with("TEST_")
    })
}

fn is_linked(file: &File) -> bool {
    let layer = layers::find(file.member());
    layer.is_some_and(|layer| LINKED.contains(&layer.folder) || layer.name == "fault")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&[File::sample(path, text)]).len()
    }

    #[test]
    fn a_variable_without_a_row_and_a_row_without_a_reader_are_faults() {
        let page = File::sample(PAGE, "REMORA_PROSE\n| `REMORA_PORT` | a port |\n");
        let code = |text| File::sample("api/ibverbs/src/a.rs", text);
        assert_eq!(documented(&[page.clone(), code("env(\"REMORA_PORT\"); // REMORA_Y\n")]), []);
        assert_eq!(documented(&[page.clone(), code("env(\"REMORA_PORT\"); env(\"REMORA_TEST_ROLE\");")]), []);
        assert_eq!(documented(&[page.clone(), code("env(\"REMORA_PORT\"); env(\"REMORA_X\");")]).len(), 1);
        assert_eq!(documented(&[page, code("")]).len(), 1);
        assert_eq!(documented(&[]).len(), 1);
    }

    #[test]
    fn a_variable_that_a_library_reads_by_itself_is_a_fault() {
        for text in [
            "fn a() { std::env::var_os(\"REMORA_X\"); }",
            "fn a() { std::env::temp_dir(); }",
            "fn a() { unsafe { libc::getenv(c\"X\".as_ptr()) }; }",
        ] {
            assert_eq!(faults("api/ibverbs/src/a.rs", text), 1, "{text}");
            assert_eq!(faults("tool/cli/src/a.rs", text), 0, "the command is no library: {text}");
            assert_eq!(faults("api/broker/src/environment.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn a_variable_of_a_test_or_of_the_build_is_none() {
        for text in
            ["#[cfg(test)] mod tests { fn a() { std::env::var(\"X\"); } }", "const A: &str = env!(\"X\");"]
        {
            assert_eq!(faults("core/cm/src/a.rs", text), 0, "{text}");
        }
    }
}
