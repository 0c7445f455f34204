//! Tables on standard output.

use super::print;

/// Prints a table. Each column is as wide as its widest cell. Control characters are escaped, since cells
/// may hold texts of other processes.
pub fn print_table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| print::shown(&cell))).collect();
    let columns = Columns(std::array::from_fn(|index| {
        rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0)
    }));
    rows.iter().for_each(|row| columns.print(row));
}

/// The widths of a table's columns in characters, for tables that are printed line by line.
pub struct Columns<const N: usize>(pub [usize; N]);

impl<const N: usize> Columns<N> {
    /// Prints one line. A cell that is wider than its column moves the rest of the line.
    pub fn print(&self, cells: &[String; N]) {
        let cells = cells.iter().zip(self.0).map(|(cell, width)| format!("{cell:<width$}"));
        print::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
