//! Tables with a header line and comma-separated columns, as recorded from other simulators.

use std::str::FromStr;

use remora_scenario::error::{ScenarioError, Source, excerpt};

/// A table whose rows all have as many columns as its header.
pub(crate) struct Table<'a> {
    source: Source<'a>,
    pub head: Vec<&'a str>,
    /// Rows without blank lines.
    pub rows: Vec<Row<'a>>,
}

pub(crate) struct Row<'a> {
    line: u32,
    words: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// Reads a table whose header line is one of `heads`.
    ///
    /// # Errors
    /// Fails if the header is another one, or if a row has another number of columns.
    pub(crate) fn parse(source: Source<'a>, heads: &[&[&str]]) -> Result<Table<'a>, ScenarioError> {
        source.check_size()?;
        let lines = source.lines().map(|(number, line)| (number, line.trim()));
        let mut lines = lines.filter(|(_, line)| !line.is_empty());
        let head: Vec<&str> = lines.next().map_or(Vec::new(), |(_, head)| head.split(',').collect());
        if !heads.contains(&head.as_slice()) {
            let known: Vec<String> = heads.iter().map(|head| head.join(",")).collect();
            let known = known.join(" or ");
            return Err(source.error(1, format!("the first line names no known columns: write {known}")));
        }
        let mut rows = Vec::new();
        for (line, text) in lines {
            let words: Vec<&str> = text.split(',').map(str::trim).collect();
            if words.len() != head.len() {
                let has = words.len();
                let wants = head.len();
                let says = format!("the row has {has} columns, and the header {wants}: correct the row");
                return Err(source.error(line, says));
            }
            rows.push(Row { line, words });
        }
        Ok(Table { source, head, rows })
    }

    /// Returns the word in a column.
    pub(crate) fn word(&self, row: &Row<'a>, column: usize) -> &'a str {
        row.words[column]
    }

    /// Parses the word in a column as a number.
    ///
    /// # Errors
    /// Fails if the word is not a number of type `T`.
    pub(crate) fn number<T: FromStr>(&self, row: &Row<'a>, column: usize) -> Result<T, ScenarioError> {
        let word = self.word(row, column);
        word.parse().map_err(|_| {
            let word = excerpt(word);
            let column = self.head[column];
            self.error(row, format!("`{word}` in column {column} is not a number: correct it"))
        })
    }

    /// Returns an error that names the line of the row.
    pub(crate) fn error(&self, row: &Row<'_>, says: impl Into<String>) -> ScenarioError {
        self.source.error(row.line, says)
    }
}
