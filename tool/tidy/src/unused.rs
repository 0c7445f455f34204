//! Public functions that nothing calls. The compiler reports unused functions of a crate, but not those that
//! are public.
//!
//! The rule compares names, not items: a function counts as used if another function's source, or a test of
//! another crate, has its name. It therefore misses some unused functions, and reports none that is used.

use std::collections::BTreeMap;

use crate::Fault;
use crate::tree::File;

/// Crates whose public functions are called from outside of the repository, each with its users.
const FOR_USERS: [(&str, &str); 7] = [
    ("verbs", "programs in Rust"),
    ("grants", "programs in Rust that use 1RMA"),
    ("chain", "programs in Rust that write RedN chains"),
    ("capi", "programs in C"),
    ("ibverbs", "programs of libibverbs"),
    ("rdmacm", "programs of librdmacm"),
    ("paths", "the C library's symbols"),
];

/// Public functions for the crate's own integration tests, each with the reason.
const FOR_TESTS: [(&str, &str); 5] = [
    ("is_sacked", "IRN's pair of machines compares both bitmaps"),
    ("move_producer", "a tenant that writes a wrong producer index"),
    ("register_code", "chains in the simulated network"),
    ("kernel_drops", "frames that the kernel dropped and the test must not count"),
    ("xdp_counters", "counters of AF_XDP"),
];

/// Reports public functions that no other source names.
pub fn check(files: &[File]) -> Vec<Fault> {
    let sources = Source::all(files);
    let names = Names::new(&sources);
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| !FOR_USERS.iter().any(|(name, _)| *name == source.member)) {
        for (index, line) in source.code.lines().enumerate() {
            let Some(name) = public(line).filter(|name| !names.is_used(name, source.member)) else {
                continue;
            };
            if !FOR_TESTS.iter().any(|(excepted, _)| *excepted == name) {
                let says = format!("nothing but its own tests calls {name}: delete it");
                faults.push(Fault::new(source.path, index + 1, says));
            }
        }
    }
    faults
}

/// Returns the exceptions whose function is gone or has a caller.
pub fn stale(files: &[File]) -> Vec<&'static str> {
    let sources = Source::all(files);
    let names = Names::new(&sources);
    let excepted = |name: &str| {
        let mut definers =
            sources.iter().filter(|source| source.code.lines().any(|line| public(line) == Some(name)));
        definers.any(|source| !names.is_used(name, source.member))
    };
    FOR_TESTS.iter().map(|(name, _)| *name).filter(|name| !excepted(name)).collect()
}

/// A Rust file, divided into code and tests. Neither part has comments.
struct Source<'a> {
    path: &'a str,
    member: &'a str,
    /// The code, with the line numbers of the file.
    code: String,
    tests: String,
}

impl<'a> Source<'a> {
    /// Returns the Rust files. Those of this crate have names of functions in strings, and define none for
    /// others.
    fn all(files: &'a [File]) -> Vec<Self> {
        files.iter().filter(|file| file.is_rust() && file.member() != "tidy").map(Source::new).collect()
    }

    fn new(file: &'a File) -> Self {
        let is_test =
            !file.is_source() || file.parts().any(|part| matches!(part, "tests" | "tests.rs" | "testing.rs"));
        let mut code = String::new();
        let mut tests = String::new();
        let mut rest = is_test;
        for line in file.text.lines() {
            rest |= line == "mod tests {";
            let part = if rest { &mut tests } else { &mut code };
            part.push_str(line.split("//").next().unwrap_or(""));
            part.push('\n');
        }
        Self { path: &file.path, member: file.member(), code, tests }
    }
}

/// The number of occurrences of each word.
#[derive(Default)]
struct Names<'a> {
    /// In code.
    code: BTreeMap<&'a str, usize>,
    /// In code, as the name of a function's definition.
    definitions: BTreeMap<&'a str, usize>,
    /// In the tests of each crate.
    tests: BTreeMap<(&'a str, &'a str), usize>,
    /// In all tests.
    all_tests: BTreeMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn new(sources: &'a [Source]) -> Self {
        let mut names = Self::default();
        for source in sources {
            for word in words(&source.code) {
                *names.code.entry(word).or_default() += 1;
            }
            for name in source.code.lines().filter_map(function) {
                *names.definitions.entry(name).or_default() += 1;
            }
            for word in words(&source.tests) {
                *names.tests.entry((source.member, word)).or_default() += 1;
                *names.all_tests.entry(word).or_default() += 1;
            }
        }
        names
    }

    /// Returns true if code, or a test of a crate other than `member`, has the name beside its definitions.
    fn is_used(&self, name: &str, member: &str) -> bool {
        let own = self.tests.get(&(member, name)).copied().unwrap_or(0);
        let all = self.all_tests.get(name).copied().unwrap_or(0);
        self.code[name] + all - own > self.definitions[name]
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Returns the name of the function that a line defines.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_definition = before.split_whitespace().all(|word| {
        matches!(word, "const" | "unsafe" | "async" | "extern" | "\"C\"") || word.starts_with("pub")
    });
    words(after).next().filter(|name| is_definition && after.starts_with(name))
}

/// Returns the name of the public function that a line defines.
fn public(line: &str) -> Option<&str> {
    line.trim_start().starts_with("pub ").then(|| function(line)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(samples: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = samples.iter().map(|(path, text)| File::sample(path, text)).collect();
        check(&files).into_iter().map(|fault| fault.to_string()).collect()
    }

    #[test]
    fn a_public_function_that_only_its_own_tests_call_is_a_fault() {
        let source =
            ("core/nic/src/a.rs", "pub fn lonely() {}\n#[cfg(test)]\nmod tests {\n    lonely();\n}\n");
        let own = ("core/nic/tests/b.rs", "fn test() { lonely() }\n");
        let comment = ("core/wire/src/b.rs", "// lonely\n");
        let says = "core/nic/src/a.rs:1: nothing but its own tests calls lonely: delete it";
        assert_eq!(faults(&[source, own, comment]), [says]);
        for path in ["core/nic/src/b.rs", "core/wire/src/b.rs", "core/wire/tests/b.rs"] {
            assert_eq!(faults(&[source, (path, "fn caller() { lonely() }\n")]), [""; 0]);
        }
    }

    #[test]
    fn private_functions_and_functions_for_users_may_have_no_caller() {
        assert_eq!(faults(&[("core/nic/src/a.rs", "fn lonely() {}\npub(crate) fn only() {}\n")]), [""; 0]);
        assert_eq!(faults(&[("api/verbs/src/a.rs", "pub fn lonely() {}\n")]), [""; 0]);
    }

    #[test]
    fn exceptions_without_their_function_are_stale() {
        let source = "pub fn is_sacked() {}\npub fn kernel_drops() {}\nfn caller() { kernel_drops() }\n";
        let stale = stale(&[File::sample("core/nic/src/a.rs", source)]);
        assert!(!stale.contains(&"is_sacked") && stale.contains(&"kernel_drops"), "{stale:?}");
    }
}
