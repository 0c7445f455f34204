//! The rules for plain language: known names, comments of limited width, and counts of texts that read
//! badly.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenTree;

use crate::Fault;
use crate::tokens::{Scope, is_ident, line, walk};
use crate::tree::File;

/// The maximum width of a comment line in columns, with its indentation; it equals that of code.
const WIDTH: usize = 110;

/// Metaphors, which hide the meaning of a type that has one for its name.
const METAPHORS: [&str; 14] = [
    "Seat", "Ground", "Crowd", "Desk", "Estate", "Doors", "Knock", "Told", "Heard", "Said", "Fleet", "Crew",
    "Standing", "Deal",
];

/// Words that had three meanings each: a crate or layer, a buffer, and free capacity.
const WORN: [&str; 3] = ["room", "rooms", "house"];

/// The maximum number of words of a readable sentence.
const SENTENCE: usize = 40;

/// The maximum number of crates that may have types of one name before readers confuse them.
const CRATES: usize = 3;

/// Reports comment lines that are too wide. Tables and blocks of code are excepted.
pub fn width(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let mut fenced = false;
        for (index, text) in file.text.lines().enumerate() {
            let Some(comment) = comment(text) else {
                fenced = false;
                continue;
            };
            fenced ^= comment.starts_with("```");
            let columns = text.chars().count();
            if columns > WIDTH && !fenced && !comment.starts_with('|') {
                let says = format!("a comment of {columns} columns: wrap it at {WIDTH}");
                faults.push(Fault::new(&file.path, index + 1, says));
            }
        }
    }
    faults
}

/// Returns the text of a line that is a comment.
fn comment(text: &str) -> Option<&str> {
    let marked = text.trim_start().strip_prefix("//")?;
    Some(marked.trim_start_matches(['/', '!']).trim_start())
}

/// Reports types whose name is a metaphor.
pub fn metaphors(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && is_judged(file)) {
        for (name, line) in types(file) {
            if METAPHORS.contains(&name.as_str()) {
                let says = format!("{name} is a metaphor: take the word of the field");
                faults.push(Fault::new(&file.path, line, says));
            }
        }
    }
    faults
}

/// Reports files and folders with a metaphor or a worn word in their name.
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

/// Reports worn words in any text: code, comments, documents and scripts.
pub fn worn(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| is_judged(file) && file.path != "CHANGELOG.md") {
        for (index, text) in file.text.lines().enumerate() {
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| WORN.contains(&word.to_ascii_lowercase().as_str())) {
                let says = format!("\"{word}\": say crate, layer, module, buffer, capacity or space");
                faults.push(Fault::new(&file.path, index + 1, says));
            }
        }
    }
    faults
}

/// Returns false for the files of this crate, because its rules contain the words that they refuse.
fn is_judged(file: &File) -> bool {
    file.member() != "tidy"
}

/// The numbers of texts that read badly. They are for information and do not fail a test.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of doc comments of one or two words.
    pub short_docs: usize,
    /// The number of overlong sentences in doc comments.
    pub long_sentences: usize,
    /// The type names that occur in too many crates, with the number of crates.
    pub common_names: Vec<(String, usize)>,
}

/// Counts the texts in the sources that read badly.
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

/// Returns the paragraphs of `///` comments, without headings and code.
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

/// Returns the types that a file defines, with their line numbers.
fn types(file: &File) -> Vec<(String, usize)> {
    let mut types = Vec::new();
    // Other rules report a file that does not parse.
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
