//! The rules for `docs/internals/glossary.md`, which lists the words with a special meaning in this project.
//!
//! A row is `| term | meaning | where |`; `where` names in backticks a file that uses the term.

use std::collections::BTreeSet;

use crate::Fault;
use crate::tree::File;

/// The path of the glossary.
pub const PATH: &str = "docs/internals/glossary.md";

/// The maximum number of entries, so that a reader need not learn more words.
pub const ENTRIES: usize = 60;

/// The endings that a word of the code may add to the term.
const ENDINGS: [&str; 5] = ["", "s", "es", "d", "ed"];

/// Reports entries that the code does not use, whose file does not exist or does not use them, that occur
/// twice, and entries beyond the maximum.
pub fn check(files: &[File]) -> Vec<Fault> {
    let Some(glossary) = files.iter().find(|file| file.path == PATH) else {
        return vec![Fault::new(PATH, 0, "is missing")];
    };
    let rows = rows(&glossary.text);
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (line, [term, _, place]) in &rows {
        let mut fault = |says: String| faults.push(Fault::new(PATH, *line, says));
        if !seen.insert(term) {
            fault(format!("`{term}` has an entry already: one meaning each"));
        }
        if !files.iter().any(|file| is_code(file) && uses(&file.text, term)) {
            fault(format!("the code does not use `{term}`: drop the entry"));
            continue;
        }
        let path = place.trim_matches('`');
        match files.iter().find(|file| file.path == path) {
            None => fault(format!("`{term}` names {path}, which does not exist")),
            Some(file) if !uses(&file.text, term) => fault(format!("{path} does not use `{term}`")),
            Some(_) => {}
        }
    }
    if rows.len() > ENTRIES || rows.is_empty() {
        faults.push(Fault::new(PATH, 0, format!("has {} entries: 1 to {ENTRIES}", rows.len())));
    }
    faults
}

/// The rules of this crate contain words that no other code uses.
fn is_code(file: &File) -> bool {
    file.is_rust() && (file.member() != "tidy" || file.is_source() && file.module() != "glossary")
}

/// Returns the cells of each row, and its line number.
fn rows(text: &str) -> Vec<(usize, [&str; 3])> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if let (true, &[term, meaning, place]) = (line.starts_with('|'), &cells[..])
            && term != "term"
            && !term.starts_with('-')
        {
            rows.push((index + 1, [term, meaning, place]));
        }
    }
    rows
}

/// Returns true if an identifier or a comment contains the term as separate words.
fn uses(text: &str, term: &str) -> bool {
    let words = words(text);
    let term: Vec<&str> = term.split_whitespace().collect();
    let Some((last, first)) = term.split_last() else { return false };
    words.windows(term.len()).any(|window| {
        let ending = window[first.len()].strip_prefix(last);
        window[..first.len()].iter().eq(first) && ending.is_some_and(|ending| ENDINGS.contains(&ending))
    })
}

/// Returns the words of a text in lower case. `FreeList` and `free_list` are two words each.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars() {
        let starts = c.is_uppercase() && was_lower;
        if (starts || !c.is_alphanumeric()) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(row: &str, code: &str) -> Vec<String> {
        let glossary = format!("| term | meaning | where |\n|---|---|---|\n{row}\n");
        let files = [File::sample(PATH, &glossary), File::sample("core/nic/src/a.rs", code)];
        check(&files).into_iter().map(|fault| fault.says).collect()
    }

    #[test]
    fn an_entry_that_the_code_uses_is_good() {
        for code in ["struct FreeList;", "fn free_lists() {}", "// A free list\n// of buffers", "FreeList"] {
            assert_eq!(faults("| free list | Buffers. | `core/nic/src/a.rs` |", code), [""; 0], "{code}");
        }
        assert_eq!(faults("| lane | One. | `core/nic/src/a.rs` |", "struct Lane;"), [""; 0]);
    }

    #[test]
    fn an_entry_that_the_code_does_not_use_is_a_fault() {
        for code in ["struct Free; struct List;", "// planes", "lanes_of"] {
            let result = faults("| lane chief | One. | `core/nic/src/a.rs` |", code);
            assert!(result.len() == 1 && result[0].contains("does not use `lane chief`"), "{result:?}");
        }
    }

    #[test]
    fn an_entry_names_a_file_that_is_there_and_uses_it() {
        let gone = faults("| lane | One. | `core/nic/src/gone.rs` |", "struct Lane;");
        assert!(gone.len() == 1 && gone[0].contains("which does not exist"), "{gone:?}");
        let glossary = "| lane | One. | `core/nic/src/b.rs` |\n";
        let files = [("core/nic/src/a.rs", "struct Lane;"), ("core/nic/src/b.rs", "struct Line;")];
        let mut files: Vec<File> = files.iter().map(|(path, text)| File::sample(path, text)).collect();
        files.push(File::sample(PATH, glossary));
        let result = check(&files);
        assert!(result.len() == 1 && result[0].says.contains("b.rs does not use `lane`"), "{result:?}");
    }

    #[test]
    fn entries_are_few_and_stand_there_once() {
        let row = "| lane | One. | `core/nic/src/a.rs` |\n";
        assert!(faults(&row.repeat(2), "Lane")[0].contains("already"));
        let many: String =
            (0..=ENTRIES).map(|n| format!("| l{n} | One. | `core/nic/src/a.rs` |\n")).collect();
        let code: String = (0..=ENTRIES).map(|n| format!("l{n} ")).collect();
        assert_eq!(faults(&many, &code), [format!("has {} entries: 1 to {ENTRIES}", ENTRIES + 1)]);
    }
}
