//! The `remora` command.

fn main() {}
