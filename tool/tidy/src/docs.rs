//! The rules that the files, links and Make targets that documents name exist.

use crate::Fault;
use crate::tree::File;
use std::collections::BTreeSet;

/// The file-name extensions by which a word in backticks counts as a file of this repository.
const ENDINGS: [&str; 14] = [
    "rs",
    "md",
    "toml",
    "sh",
    "py",
    "lua",
    "yml",
    "yaml",
    "json",
    "pcap",
    "txt",
    "c",
    "h",
    "proptest-regressions",
];

/// Pages of the book that `scripts/pages` makes.
const MADE: [&str; 3] =
    ["docs/reference/commands.md", "docs/reference/scenario.md", "docs/reference/scenario-traffic.md"];

/// Reports files, folders, links and `make` targets that documents name and that do not exist.
///
/// A name in backticks counts if it contains a `/` and has a known extension, ends with `/`, or is a file in
/// the root. A link counts if it leads into the repository. `CHANGELOG.md` is excepted, because it may name
/// removed files.
pub fn check(files: &[File]) -> Vec<Fault> {
    let known = paths(files);
    let targets = make_targets(files);
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| is_document(&file.path)) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut fenced = false;
        for (index, text) in file.text.lines().enumerate() {
            if text.trim_start().starts_with("```") {
                fenced = !fenced;
                continue;
            }
            let mut missing = |says: String| faults.push(Fault::new(&file.path, index + 1, says));
            let spans = if fenced { Vec::new() } else { spans(text) };
            for name in spans.iter().copied().filter(|name| is_path(name)).chain(links(text)) {
                if !exists(&known, folder, name) {
                    missing(format!("names `{name}`, which does not exist"));
                }
            }
            let command = text.split('#').next().unwrap_or(text).trim();
            let commands = if fenced { vec![command] } else { spans };
            for target in commands
                .iter()
                .filter_map(|command| command.strip_prefix("make "))
                .flat_map(str::split_whitespace)
            {
                let is_target = target.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                if is_target && !targets.contains(target) {
                    missing(format!("names `make {target}`, which the Makefile does not know"));
                }
            }
        }
    }
    faults
}

/// Reports documents that a comment in the code names and that do not exist.
pub fn comments(files: &[File]) -> Vec<Fault> {
    let known = paths(files);
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let comments = file.text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        for (index, text) in comments {
            let documents = spans(text).into_iter().filter(|name| name.ends_with(".md") && is_path(name));
            for name in documents.filter(|name| !exists(&known, "", name)) {
                let says = format!("sends the reader to `{name}`, which does not exist");
                faults.push(Fault::new(&file.path, index + 1, says));
            }
        }
    }
    faults
}

fn is_document(path: &str) -> bool {
    matches!(path, "README.md" | "ARCHITECTURE.md" | "CONTRIBUTING.md")
        || (path.starts_with("docs/") && path.ends_with(".md"))
}

/// Returns the paths of all files and of the folders above them, relative to the root.
fn paths(files: &[File]) -> BTreeSet<&str> {
    let mut known = BTreeSet::from(MADE);
    for file in files {
        known.insert(file.path.as_str());
        known.extend(file.path.match_indices('/').map(|(offset, _)| &file.path[..offset]));
    }
    known
}

fn make_targets(files: &[File]) -> BTreeSet<&str> {
    let makefile = files.iter().find(|file| file.path == "Makefile").map_or("", |file| file.text.as_str());
    let rules = makefile.lines().filter(|line| !line.starts_with(['\t', '#', '.', ' ']));
    rules.filter_map(|line| line.split_once(':')).flat_map(|(names, _)| names.split_whitespace()).collect()
}

/// Returns the texts between single backticks.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the targets of `[text](target)` links that lead into the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains("://") && !target.starts_with(['#', '<']))
        .map(|target| target.split('#').next().unwrap_or(target))
}

fn is_path(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    // A path that begins with `/` or `../` lies outside the repository.
    if !plain || name.starts_with('/') || name.starts_with("..") || name.len() < 2 {
        return false;
    }
    let last = name.rsplit('/').next().unwrap_or(name);
    let ending = last.rsplit_once('.').map_or("", |(stem, ending)| if stem.is_empty() { "" } else { ending });
    name.ends_with('/') || ENDINGS.contains(&ending)
}

/// Returns true if the name exists relative to the root or to the document's folder, or if it is the bare
/// name of an existing file.
fn exists(known: &BTreeSet<&str>, folder: &str, name: &str) -> bool {
    let name = name.trim_end_matches('/').trim_start_matches("./");
    let beside = joined(folder, name);
    let bare = !name.contains('/') && known.iter().any(|path| path.rsplit('/').next() == Some(name));
    known.contains(name) || known.contains(beside.as_str()) || bare
}

/// Returns the path of `name` relative to `folder`, with `..` resolved.
fn joined(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let files = [
            File::sample("docs/A.md", text),
            File::sample("wire/src/psn.rs", ""),
            File::sample("Makefile", "help: ## x\ntest demo:\n\tcargo test\nCARGO = cargo\n"),
        ];
        check(&files).into_iter().map(|fault| fault.says).collect()
    }

    #[test]
    fn a_missing_file_or_folder_in_backticks_is_a_fault() {
        for bad in
            ["see `wire/src/gone.rs`", "see `fabric/`", "see `gone.md`", "a `fine` one and `wire/gone.toml`"]
        {
            assert_eq!(faults(bad).len(), 1, "{bad}");
        }
        for good in [
            "`wire/src/psn.rs`",
            "`wire/src/`",
            "`psn.rs`",
            "`A.md`",
            "`udp/read/64`",
            "`cargo test a/b`",
            "`../x.md`",
        ] {
            assert!(faults(good).is_empty(), "{good}");
        }
    }

    #[test]
    fn a_comment_may_not_send_the_reader_nowhere() {
        let code = "//! See `docs/A.md`.\nfn a() {\n    // `docs/GONE.md` draws it.\n    let b = \"`docs/GONE.md`\";\n}\n";
        let faults = comments(&[File::sample("docs/A.md", ""), File::sample("nic/src/a.rs", code)]);
        assert!(faults.len() == 1 && faults[0].line == 3, "{faults:?}");
    }

    #[test]
    fn a_link_into_nowhere_is_a_fault() {
        assert_eq!(faults("[a](gone.md) and [b](https://example.org/x.md) and [c](#part)").len(), 1);
        assert_eq!(faults("[a](../wire/src/gone.rs)").len(), 1);
        assert!(faults("[a](../wire/src/psn.rs) and [b](wire/src/psn.rs#L3)").is_empty());
    }

    #[test]
    fn a_make_target_that_is_missing_is_a_fault_in_prose_and_in_a_block() {
        assert_eq!(faults("run `make gone`").len(), 1);
        assert_eq!(faults("```sh\nmake gone\n```").len(), 1);
        assert!(
            faults("run `make test` or\n```sh\nmake demo CARGO=cargo   # with words after it\n```")
                .is_empty()
        );
    }
}
