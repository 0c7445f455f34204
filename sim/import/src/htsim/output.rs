//! The line that htsim prints when a flow ends.

/// Formats the line, including its line feed: `Flow Roce_S_D ID finished at US total bytes N`. `end` is the
/// simulated time at which the sender has the last ACK, in ps.
pub fn finished(src: u32, dst: u32, id: u64, end: u64, bytes: u64) -> String {
    format!("Flow Roce_{src}_{dst} {id} finished at {} total bytes {bytes}\n", microseconds(end))
}

/// Formats a time as C++ prints a double: in µs with six significant digits, without trailing zeros, and with
/// an exponent from one second on.
pub fn microseconds(ps: u64) -> String {
    if ps == 0 {
        return "0".into();
    }
    let (mantissa, exponent) = six_digits(u128::from(ps));
    let text = format!("{mantissa:06}");
    match exponent {
        0..=5 => {
            let (whole, part) = text.split_at(exponent as usize + 1);
            trimmed(&format!("{whole}.{part}"))
        }
        -4..=-1 => trimmed(&format!("0.{}{text}", "0".repeat(exponent.unsigned_abs() as usize - 1))),
        _ => {
            let (whole, part) = text.split_at(1);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(&format!("{whole}.{part}")), exponent.abs())
        }
    }
}

fn trimmed(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the first six digits of `ps`, rounded, and the power of ten that the first digit has in µs.
fn six_digits(ps: u128) -> (u128, i32) {
    let digits = ps.ilog10() as i32;
    let scaled = if digits >= 5 {
        let unit = 10u128.pow(digits as u32 - 5);
        (ps + unit / 2) / unit
    } else {
        ps * 10u128.pow(5 - digits as u32)
    };
    // Rounding may carry into a seventh digit.
    if scaled == 1_000_000 { (100_000, digits - 6 + 1) } else { (scaled, digits - 6) }
}
