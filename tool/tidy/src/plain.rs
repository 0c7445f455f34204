//! Plain words: names that a stranger knows, comments that fit a screen, and counts of what reads badly.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenTree;

use crate::Fault;
use crate::tokens::{Scope, is_ident, line, walk};
use crate::tree::File;

/// Columns of a comment line, its indentation included: as wide as code.
const WIDTH: usize = 110;

/// Metaphors: as the name of a type, each hides what the thing is.
const METAPHORS: [&str; 14] = [
    "Seat", "Ground", "Crowd", "Desk", "Estate", "Doors", "Knock", "Told", "Heard", "Said", "Fleet", "Crew",
    "Standing", "Deal",
];

/// Words that meant three things each: a crate or layer, a buffer, and free capacity.
const WORN: [&str; 3] = ["room", "rooms", "house"];

/// Words of a sentence that nobody reads twice.
const SENTENCE: usize = 40;

/// Crates that may have a type of one name before readers mix them up.
const CRATES: usize = 3;

/// Comment lines that are wider than code. Tables and blocks of code keep their lines.
pub fn width(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let mut fenced = false;
        for (at, text) in file.text.lines().enumerate() {
            let Some(comment) = comment(text) else {
                fenced = false;
                continue;
            };
            fenced ^= comment.starts_with("```");
            let columns = text.chars().count();
            if columns > WIDTH && !fenced && !comment.starts_with('|') {
                let says = format!("a comment of {columns} columns: wrap it at {WIDTH}");
                faults.push(Fault::new(&file.path, at + 1, says));
            }
        }
    }
    faults
}

/// The text of a line that is a comment.
fn comment(text: &str) -> Option<&str> {
    let marked = text.trim_start().strip_prefix("//")?;
    Some(marked.trim_start_matches(['/', '!']).trim_start())
}

/// Types with a metaphor for a name.
pub fn metaphors(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && is_judged(file)) {
        for (name, at) in types(file) {
            if METAPHORS.contains(&name.as_str()) {
                let says = format!("{name} is a metaphor: take the word of the field");
                faults.push(Fault::new(&file.path, at, says));
            }
        }
    }
    faults
}

/// Files and folders with a metaphor or a worn word in their name, whatever they hold.
pub fn file_names(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| is_judged(file)) {
        let mut words = file.path.split(|c: char| !c.is_alphanumeric()).map(str::to_ascii_lowercase);
        let is_banned = |word: &String| {
            let is_metaphor = METAPHORS.iter().any(|name| name.to_ascii_lowercase() == *word);
            is_metaphor || WORN.contains(&word.as_str())
        };
        if let Some(word) = words.find(is_banned) {
            let says = format!("\"{word}\" in a file's name: name the file after what is in it");
            faults.push(Fault::new(&file.path, 0, says));
        }
    }
    faults
}

/// The worn words, in any text: code, comments, documents and scripts.
pub fn worn(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| is_judged(file) && file.path != "CHANGELOG.md") {
        for (at, text) in file.text.lines().enumerate() {
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| WORN.contains(&word.to_ascii_lowercase().as_str())) {
                let says = format!("\"{word}\": say crate, layer, module, buffer, capacity or space");
                faults.push(Fault::new(&file.path, at + 1, says));
            }
        }
    }
    faults
}

/// These rules name the words that they refuse.
fn is_judged(file: &File) -> bool {
    file.member() != "tidy"
}

/// What reads badly, counted: for a person to look at, not to fail.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Doc comments of one or two words.
    pub short_docs: usize,
    /// Sentences in doc comments that are too long.
    pub long_sentences: usize,
    /// Types whose name more crates have than a reader can tell apart, with how many do.
    pub common_names: Vec<(String, usize)>,
}

/// Counts what reads badly in the sources.
pub fn counts(files: &[File]) -> Counts {
    let mut counts = Counts::default();
    let mut crates: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_source()) {
        for paragraph in doc_paragraphs(&file.text) {
            counts.short_docs += usize::from(paragraph.split_whitespace().count() <= 2);
            let sentences = paragraph.split(['.', ':', ';', '?', '!']);
            counts.long_sentences +=
                sentences.filter(|sentence| sentence.split_whitespace().count() > SENTENCE).count();
        }
        for (name, _) in types(file) {
            crates.entry(name).or_default().insert(file.member());
        }
    }
    let common = crates.into_iter().map(|(name, crates)| (name, crates.len()));
    counts.common_names = common.filter(|(_, crates)| *crates > CRATES).collect();
    counts
}

/// The paragraphs of `///` comments, headings and code left out.
fn doc_paragraphs(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = String::new();
    let mut fenced = false;
    for line in text.lines().chain([""]) {
        let doc = line.trim_start().strip_prefix("///").map(str::trim);
        match doc {
            Some(code) if code.starts_with("```") => fenced = !fenced,
            Some(_) if fenced => {}
            Some(words) if !words.is_empty() && !words.starts_with(['#', '|']) => {
                open.push_str(words);
                open.push(' ');
            }
            _ if !open.is_empty() => all.push(std::mem::take(&mut open)),
            _ => {}
        }
    }
    all
}

/// The types that a file defines, and on which lines.
fn types(file: &File) -> Vec<(String, usize)> {
    let mut types = Vec::new();
    // A file that does not parse is a fault of other rules.
    let _ = walk(file, Scope::All, &mut |tokens| {
        for pair in tokens.windows(2) {
            let defines =
                ["struct", "enum", "trait", "union"].iter().any(|word| is_ident(Some(&pair[0]), word));
            if let (true, TokenTree::Ident(name)) = (defines, &pair[1]) {
                types.push((name.to_string(), line(&pair[1])));
            }
        }
    });
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str, text: &str) -> [File; 1] {
        [File::sample(path, text)]
    }

    #[test]
    fn a_comment_is_as_wide_as_code_unless_it_is_a_table_or_code() {
        let wide = "x".repeat(WIDTH);
        let bad = format!("// {wide}\n/// {wide}\n    //! {wide}\n");
        assert_eq!(width(&sample("core/nic/src/a.rs", &bad)).len(), 3);
        let good = format!("// fits\n/// | {wide} |\n/// ```\n/// {wide}\n/// ```\nlet a = \"{wide}\";\n");
        assert_eq!(width(&sample("core/nic/src/a.rs", &good)), []);
    }

    #[test]
    fn a_metaphor_names_neither_a_type_nor_a_file() {
        assert_eq!(metaphors(&sample("core/nic/src/a.rs", "pub struct Crowd;")).len(), 1);
        for bad in
            ["core/nic/src/desk.rs", "core/nic/src/desk/a.rs", "core/nic/src/front_desk.rs", "docs/ROOM.md"]
        {
            assert_eq!(file_names(&sample(bad, "")).len(), 1, "{bad}");
        }
        assert_eq!(file_names(&sample("core/nic/src/desktop.rs", "")), []);
        assert_eq!(metaphors(&sample("core/nic/src/a.rs", "struct Crowded; fn said() {}")), []);
    }

    #[test]
    fn worn_words_stand_nowhere() {
        assert_eq!(worn(&sample("core/nic/src/a.rs", "fn room() {}\n// The House rules.\n")).len(), 2);
        assert_eq!(worn(&sample("docs/guides/key-value.md", "There is room for it.")).len(), 1);
        assert_eq!(worn(&sample("CHANGELOG.md", "room")), []);
        assert_eq!(worn(&sample("core/nic/src/a.rs", "fn has_room() {}\n// mushrooms\n")), []);
    }

    #[test]
    fn what_reads_badly_is_counted() {
        let long = "word ".repeat(SENTENCE + 1);
        let text = format!("/// Which.\nstruct A;\n\n/// It is {long}.\nstruct B;\n");
        let files: Vec<File> = (0..=CRATES).map(|n| File::sample(&format!("c{n}/src/a.rs"), &text)).collect();
        let Counts { short_docs, long_sentences, common_names } = counts(&files);
        assert_eq!((short_docs, long_sentences), (CRATES + 1, CRATES + 1));
        assert_eq!(common_names, [("A".to_owned(), CRATES + 1), ("B".to_owned(), CRATES + 1)]);
    }
}
