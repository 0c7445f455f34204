//! Tables on standard output.

use super::print;

/// Prints a table. Each column is as wide as its widest cell. Control characters are escaped, since cells
/// may hold texts of other processes.
pub fn print_table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| print::shown(&cell))).collect();
    let widths: [usize; N] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    for row in rows {
        let line: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        print::line(line.join("  ").trim_end());
    }
}
