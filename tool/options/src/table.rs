//! Tables on standard output.

use super::print;

/// A table with columns as wide as they need to be. Cells may hold texts of other processes: control
/// characters are escaped.
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
