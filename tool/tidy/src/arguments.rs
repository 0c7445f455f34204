//! The rule that no function takes a tuple. Two arguments, or a struct, have names that a caller can read.

use crate::Fault;
use crate::tokens::{Scope, is_ident, is_punct, line, walk};
use crate::tree::File;
use proc_macro2::{Delimiter, TokenTree};

/// Reports functions that take a tuple or a reference to one.
pub fn check(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let walked = walk(file, Scope::All, &mut |tokens| {
            let functions = (0..tokens.len()).filter(|index| is_ident(tokens.get(*index), "fn"));
            for group in functions.filter_map(|index| parameters(&tokens[index + 1..])) {
                let parts = group.split(|token| is_punct(Some(token), ','));
                let tuples = parts.filter(|part| is_tuple(part));
                faults.extend(tuples.map(|part| Fault::new(&file.path, line(&part[0]), SAYS)));
            }
        });
        faults.extend(walked.err());
    }
    faults
}

const SAYS: &str = "a tuple as an argument: take its parts as arguments, or a struct that names them";

/// Returns the tokens of the parameter list of the function whose name begins here. Returns `None` for a
/// type `fn(A)`, which has no name.
fn parameters(tokens: &[TokenTree]) -> Option<Vec<TokenTree>> {
    let Some(TokenTree::Ident(_)) = tokens.first() else { return None };
    let group = tokens.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    });
    Some(group?.stream().into_iter().collect())
}

/// Returns true for a parameter `name: (A, B)`, or a reference to a tuple.
fn is_tuple(parameter: &[TokenTree]) -> bool {
    let is_path = |index: usize| is_punct(parameter.get(index), ':');
    let colon = (0..parameter.len())
        .find(|index| is_path(*index) && !is_path(index + 1) && (*index == 0 || !is_path(index - 1)));
    let Some(colon) = colon else { return false };
    let mut index = colon + 1;
    while let Some(token) = parameter.get(index) {
        if is_punct(Some(token), '&') || is_ident(Some(token), "mut") {
            index += 1;
        } else if is_punct(Some(token), '\'') {
            index += 2;
        } else {
            break;
        }
    }
    match parameter.get(index) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            group.stream().into_iter().any(|token| is_punct(Some(&token), ','))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> usize {
        check(&[File::sample("core/nic/src/a.rs", text)]).len()
    }

    #[test]
    fn a_tuple_as_an_argument_is_a_fault() {
        for bad in [
            "fn a(b: (u32, u32)) {}",
            "fn a((b, c): (u32, u32), d: u8) {}",
            "impl A { pub fn a<T: B>(&self, b: &'a mut (T, u8)) {} }",
            "macro_rules! m { () => { fn a(b: &(u8, u8)) {} } }",
            "#[cfg(test)] mod tests { fn a(b: u8, c: (u8, u8)) {} }",
        ] {
            assert_eq!(faults(bad), 1, "{bad}");
        }
        assert_eq!(faults("fn a(b: (u8, u8), c: (u8, u8)) {}"), 2);
    }

    #[test]
    fn tuples_elsewhere_are_none() {
        for good in [
            "fn a(b: u8, c: &[(u8, u8)], d: impl Fn((u8, u8)) -> (u8, u8)) -> (u8, u8) {}",
            "fn a(b: Option<(u8, u8)>, c: HashMap<u8, (u8, u8)>) { let d: (u8, u8) = (1, 2); }",
            "fn a(b: fn((u8, u8)), c: ()) { let d = |(e, f): (u8, u8)| e + f; }",
            "struct A { b: (u8, u8) }",
            "fn a(b: &(dyn B + Send), c: <D as d::E>::F) {}",
        ] {
            assert_eq!(faults(good), 0, "{good}");
        }
    }
}
