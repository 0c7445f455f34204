//! Model time: the paper's figures on its FPGAs at 10 and 100 Gb/s, computed from the operations of real
//! kernels (`remora_cost::kernels`), with the numbers of the paper's text.

use remora_cost::kernels::{at_10g, at_100g};
use remora_cost::number::Number;
use remora_cost::strom::{STROM_10G, STROM_100G};

use crate::Row;
use crate::numbers;

/// Returns the predictions for the paper's FPGAs at 10 Gb/s and at 100 Gb/s.
pub(crate) fn both() -> [Vec<Number>; 2] {
    [at_10g(&STROM_10G), at_100g(&STROM_100G)]
}

/// Returns the predictions as rows.
pub(crate) fn rows([ten, hundred]: &[Vec<Number>; 2]) -> Vec<Row> {
    let mut rows = numbers::rows("strom", STROM_10G.name, ten);
    rows.extend(numbers::rows("strom", STROM_100G.name, hundred));
    rows
}
