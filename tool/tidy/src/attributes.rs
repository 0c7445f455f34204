//! The rules that an attribute which disables a check gives a reason, and that documentation examples run.

use crate::Fault;
use crate::tokens::{Scope, is_ident, is_punct, line, walk};
use crate::tree::File;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Reports `allow` and `expect` without a reason, `#[ignore]` without a reason or on a test that neither
/// `make soak` nor `make nightly` finds, and doc examples marked `ignore`.
pub fn check(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let walked = walk(file, Scope::All, &mut |tokens| {
            for index in 0..tokens.len() {
                if let Some(body) = attribute(tokens, index) {
                    let says = says(body.clone())
                        .or_else(|| is_unsoaked(body, &tokens[index..]).then_some(UNSOAKED));
                    faults.extend(says.map(|says| Fault::new(&file.path, line(&tokens[index]), says)));
                }
            }
        });
        faults.extend(walked.err());
    }
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let fences = file.text.lines().enumerate().filter(|(_, line)| is_ignored_fence(line));
        faults.extend(fences.map(|(index, _)| Fault::new(&file.path, index + 1, IGNORED)));
    }
    faults
}

const IGNORED: &str = "an example marked `ignore` drifts unseen: make it run, or `no_run`, or plain `text`";

const UNSOAKED: &str = "an ignored test runs in `make soak` or `make nightly` alone, which ask for `soak` or `nightly` in its name";

/// The reasons of ignored functions that another test, or another command, runs by name.
const RUN_ELSEWHERE: [&str; 2] =
    ["the entry point of a process that another test starts", "`make interop` starts the guest"];

/// Returns true for `#[ignore = "…"]` on a function that neither `make soak` nor `make nightly`, which look
/// at its name, nor anything else runs.
fn is_unsoaked(body: TokenStream, behind: &[TokenTree]) -> bool {
    let mut behind = behind.iter().skip_while(|token| !is_ident(Some(token), "fn")).skip(1);
    let reason = body.to_string();
    if RUN_ELSEWHERE.iter().any(|known| reason.contains(known)) {
        return false;
    }
    let ignores = is_ident(body.into_iter().next().as_ref(), "ignore");
    let runs_by_name = |name: String| name.contains("soak") || name.contains("nightly");
    ignores && behind.next().is_some_and(|name| !runs_by_name(name.to_string()))
}

/// Returns the tokens inside `#[…]` or `#![…]` at index `index`.
fn attribute(tokens: &[TokenTree], index: usize) -> Option<TokenStream> {
    if !is_punct(tokens.get(index), '#') {
        return None;
    }
    let inner = if is_punct(tokens.get(index + 1), '!') { index + 2 } else { index + 1 };
    match tokens.get(inner) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => Some(group.stream()),
        _ => None,
    }
}

fn says(body: TokenStream) -> Option<&'static str> {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let arguments = match tokens.get(index + 1) {
            Some(TokenTree::Group(group)) => Some(group.stream()),
            _ => None,
        };
        let silences = is_ident(Some(token), "allow") || is_ident(Some(token), "expect");
        if let (true, Some(arguments)) = (silences, &arguments) {
            let reasoned = arguments.clone().into_iter().any(|token| is_ident(Some(&token), "reason"));
            return (!reasoned).then_some("a lint is switched off without `reason = \"…\"`");
        }
        if is_ident(Some(token), "ignore") && index + 1 == tokens.len() {
            return Some("a test is left out without saying why: `#[ignore = \"soak: …\"]`");
        }
        if is_ident(Some(token), "doc") && tokens.last().is_some_and(is_ignored_doc) {
            return Some(IGNORED);
        }
        if let (true, Some(arguments)) = (is_ident(Some(token), "cfg_attr"), arguments) {
            // The first part is the condition, and an attribute named there is not applied.
            let set = arguments.into_iter().skip_while(|token| !is_punct(Some(token), ',')).skip(1);
            return says(set.collect());
        }
    }
    None
}

fn is_ignored_doc(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Literal(literal)
        if literal.to_string().trim_matches(|c| c == 'r' || c == '#' || c == '"').split("\\n").any(is_ignored_fence))
}

fn is_ignored_fence(line: &str) -> bool {
    let Some(labels) = line.trim_start().strip_prefix("```") else { return false };
    labels.split([',', ' ']).any(|label| label == "ignore" || label.starts_with("ignore-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> usize {
        check(&[File::sample("nic/src/a.rs", text)]).len()
    }

    #[test]
    fn a_silenced_lint_needs_a_reason() {
        for bad in [
            "#[allow(dead_code)] fn a() {}",
            "#![allow(unsafe_code)]",
            "#[cfg_attr(unix, expect(dead_code))] fn a() {}",
        ] {
            assert_eq!(faults(bad), 1, "{bad}");
        }
        assert_eq!(faults("#[allow(dead_code, reason = \"read by a debugger\")] fn a() {}"), 0);
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        assert_eq!(faults("#[test] #[ignore] fn a() {}"), 1);
        assert_eq!(faults("#[test] #[ignore = \"soak: an hour\"] fn soak_a() {}"), 0);
        assert_eq!(faults("#[test] #[ignore = \"nightly: a minute\"] fn nightly_a() {}"), 0);
        assert_eq!(faults("#[cfg_attr(miri, ignore)] fn a() {}"), 1);
        assert_eq!(faults("#[cfg_attr(miri, ignore = \"slow\")] fn a() {}"), 0);
    }

    #[test]
    fn an_ignored_test_that_no_soak_runs_is_a_fault() {
        assert_eq!(faults("#[test] #[ignore = \"soak: an hour\"] fn a() {}"), 1);
        let role = "#[test] #[ignore = \"the entry point of a process that another test starts\"] fn a() {}";
        assert_eq!(faults(role), 0);
        assert_eq!(faults("#[ignore = \"an hour\"] #[test] pub fn a() {} fn soak_b() {}"), 1);
    }

    #[test]
    fn an_ignored_example_is_a_fault_in_code_and_in_markdown() {
        assert_eq!(faults("/// ```ignore\n/// x\n/// ```\nfn a() {}"), 1);
        assert_eq!(faults("//! ```rust,ignore\n//! x\n//! ```\n"), 1);
        assert_eq!(faults("/// Says \"ignore\" in prose, and ```text\nfn a() {}"), 0);
        assert_eq!(check(&[File::sample("README.md", "text\n```rust,ignore\nx\n```\n")]).len(), 1);
    }
}
