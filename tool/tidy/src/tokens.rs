//! Iteration over the tokens of a Rust file.
//!
//! The rules use tokens and not a syntax tree, because they must see the bodies of macros too (a long
//! function inside `macro_rules!` is a long function), and because strings and comments must never look like
//! code.

use crate::Fault;
use crate::tree::File;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The part of the code that a rule checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All code of the file.
    All,
    /// All code except items under `#[cfg(test)]`, because tests may use clocks and threads.
    Shipped,
}

/// Calls `visit` with the tokens of each nesting level, outermost first.
///
/// # Errors
/// Returns a fault if the file does not lex as Rust.
pub fn walk(file: &File, scope: Scope, visit: &mut impl FnMut(&[TokenTree])) -> Result<(), Fault> {
    // A byte-order mark would be lexed as code.
    let text = file.text.trim_start_matches('\u{feff}');
    let stream: TokenStream =
        text.parse().map_err(|error| Fault::new(&file.path, 1, format!("does not lex as Rust: {error}")))?;
    level(stream, scope, visit);
    Ok(())
}

fn level(stream: TokenStream, scope: Scope, visit: &mut impl FnMut(&[TokenTree])) {
    let all: Vec<TokenTree> = stream.into_iter().collect();
    let seen = if scope == Scope::Shipped { without_tests(&all) } else { all };
    visit(&seen);
    for token in seen {
        if let TokenTree::Group(group) = token {
            level(group.stream(), scope, visit);
        }
    }
}

/// Returns the outermost tokens of a stream without its `#[cfg(test)]` items.
pub fn shipped(stream: TokenStream) -> Vec<TokenTree> {
    without_tests(&stream.into_iter().collect::<Vec<_>>())
}

/// Returns the tokens of one level without its `#[cfg(test)]` items.
fn without_tests(tokens: &[TokenTree]) -> Vec<TokenTree> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while index < tokens.len() {
        match attribute(tokens, index) {
            Some((body, next)) if is_test_only(&body) => index = end_of_item(tokens, next),
            _ => {
                kept.push(tokens[index].clone());
                index += 1;
            }
        }
    }
    kept
}

/// Returns the inner tokens of the attribute `#[…]` at `index` (not `#![…]`), and the index after it.
fn attribute(tokens: &[TokenTree], index: usize) -> Option<(TokenStream, usize)> {
    match (tokens.get(index)?, tokens.get(index + 1)?) {
        (TokenTree::Punct(punct), TokenTree::Group(group))
            if punct.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
        {
            Some((group.stream(), index + 2))
        }
        _ => None,
    }
}

/// Returns true for `cfg(test)`, `cfg(loom)`, and an `all` with one of them.
fn is_test_only(attribute: &TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    let Some(condition) = text.strip_prefix("cfg(").and_then(|text| text.strip_suffix(')')) else {
        return false;
    };
    let all = condition.strip_prefix("all(").and_then(|all| all.strip_suffix(')')).unwrap_or(condition);
    all.split(',').any(|part| part == "test" || part == "loom")
}

/// Returns the names of the modules that the file declares only for tests: `#[cfg(test)] mod name;`.
pub fn test_modules(file: &File) -> Vec<String> {
    let declared = |scope| {
        let mut names = Vec::new();
        let walked = walk(file, scope, &mut |tokens| {
            for three in tokens.windows(3) {
                if is_ident(Some(&three[0]), "mod") && is_punct(Some(&three[2]), ';') {
                    names.push(three[1].to_string());
                }
            }
        });
        // Other rules report a file that does not lex.
        walked.map_or_else(|_| Vec::new(), |()| names)
    };
    let shipped = declared(Scope::Shipped);
    declared(Scope::All).into_iter().filter(|name| !shipped.contains(name)).collect()
}

/// Returns the index after the item that begins at `index`: after its body or its semicolon.
fn end_of_item(tokens: &[TokenTree], mut index: usize) -> usize {
    while index < tokens.len() {
        let ends = match &tokens[index] {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            _ => false,
        };
        index += 1;
        if ends {
            break;
        }
    }
    index
}

/// Returns true if the token is the given identifier.
pub fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == name)
}

/// Returns true if the token is the given punctuation character.
pub fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

/// Returns the line on which a token begins, counted from 1.
pub fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idents(text: &str, scope: Scope) -> Vec<String> {
        let mut seen = Vec::new();
        walk(&File::sample("wire/src/a.rs", text), scope, &mut |tokens| {
            seen.extend(tokens.iter().filter_map(|token| match token {
                TokenTree::Ident(ident) => Some(ident.to_string()),
                _ => None,
            }));
        })
        .expect("lexes");
        seen
    }

    #[test]
    fn code_in_strings_and_comments_is_not_code() {
        assert_eq!(
            idents("/* unsafe */ const A: &str = \"unsafe\"; // unsafe", Scope::All),
            ["const", "A", "str"]
        );
    }

    #[test]
    fn test_items_are_left_out_of_shipped_code_and_what_follows_is_kept() {
        let text = "fn a() {} #[cfg(test)] #[path = \"x.rs\"] mod tests { fn b() {} } #[cfg(test)] use c::d; fn e() {}";
        assert_eq!(idents(text, Scope::Shipped), ["fn", "a", "fn", "e"]);
        assert!(idents(text, Scope::All).contains(&"b".to_owned()));
    }

    #[test]
    fn modules_for_tests_are_known_by_their_condition() {
        let text = "mod a; #[cfg(test)] mod b; #[cfg(all(test, loom))] mod c; #[cfg(not(test))] mod d; #[cfg(loom)] mod e;";
        assert_eq!(test_modules(&File::sample("wire/src/lib.rs", text)), ["b", "c", "e"]);
    }

    #[test]
    fn a_file_that_does_not_lex_is_a_fault() {
        let fault = walk(&File::sample("wire/src/a.rs", "fn a( {"), Scope::All, &mut |_| {}).unwrap_err();
        assert!(fault.says.contains("does not lex"), "{fault}");
    }
}
