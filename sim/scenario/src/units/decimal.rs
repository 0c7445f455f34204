//! Decimal numbers of files, as whole numbers of a smaller unit.

/// A decimal number times `scale`, cut to a whole number: `("2.5", 1000)` is 2500. An exponent is allowed.
/// `None`: not a number, below 0, or too large.
pub fn parse_scaled(text: &str, scale: u64) -> Option<u64> {
    let (text, exponent) = match text.split_once(['e', 'E']) {
        Some((text, exponent)) => (text, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let text = text.strip_prefix('+').unwrap_or(text);
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && part.is_empty() || !(-30..=30).contains(&exponent) {
        return None;
    }
    if !whole.bytes().chain(part.bytes()).all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut value: u128 = 0;
    let mut digits = 0;
    // Digits behind the thirtieth change no picosecond.
    for digit in whole.bytes().chain(part.bytes().take(30)) {
        // Beyond 2^120 / 10 nothing fits, unless digits behind the point follow, which are cut.
        if value >= 1 << 90 {
            break;
        }
        value = value * 10 + u128::from(digit - b'0');
        digits += 1;
    }
    if digits < whole.len() {
        return None;
    }
    let places = i32::try_from(digits - whole.len()).ok()? - exponent;
    let scale = u128::from(scale);
    let scaled = if places <= 0 {
        value.checked_mul(10u128.checked_pow(places.unsigned_abs())?)?.checked_mul(scale)?
    } else {
        divided(value, scale, places.unsigned_abs())
    };
    u64::try_from(scaled).ok()
}

/// `value * scale / 10^places`, cut, without an overflow in between.
fn divided(value: u128, scale: u128, places: u32) -> u128 {
    let Some(divisor) = 10u128.checked_pow(places) else { return 0 };
    let (whole, rest) = (value / divisor, value % divisor);
    let part = rest.checked_mul(scale).map_or_else(
        || (rest / 1_000_000_000_000).saturating_mul(scale) / (divisor / 1_000_000_000_000),
        |scaled| scaled / divisor,
    );
    whole.saturating_mul(scale).saturating_add(part)
}

/// A whole number with a decimal point before its last `places` digits, as `{:.9}` would write seconds.
pub fn decimal(value: u64, places: u32) -> String {
    let scale = 10u64.pow(places.min(19));
    format!("{}.{:0width$}", value / scale, value % scale, width = places.min(19) as usize)
}
