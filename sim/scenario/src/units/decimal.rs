//! Decimal numbers, read as integers of a smaller unit.

use crate::error::excerpt;

/// Parses a decimal number, multiplies it by `scale` and rounds down: `("2.5", 1000)` gives 2500. An exponent
/// is allowed. Returns `None` if the text is not a number or is negative, or if the result does not fit.
pub fn parse_scaled(text: &str, scale: u64) -> Option<u64> {
    parse_unbounded(text, scale).and_then(|scaled| u64::try_from(scaled).ok())
}

/// Parses like [`parse_scaled`], but returns `u64::MAX` if the result does not fit. Files use such numbers
/// for times that are never reached.
pub fn parse_saturating(text: &str, scale: u64) -> Option<u64> {
    parse_unbounded(text, scale).map(|scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// Parses a text of digits only. Returns [`u128::MAX`] if the number does not fit, and `None` for any other
/// text.
fn parse_whole(text: &str) -> Option<u128> {
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u128::MAX))
}

/// The reason why a word is not a whole number within a limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WholeError {
    /// The word is empty or has a character that is not a digit.
    NoNumber,
    /// The number is larger than this limit.
    TooLarge(u64),
}

impl WholeError {
    /// Returns the message: what is wrong with `word` as the value of `what`, and how to correct it.
    pub fn of(self, what: &str, word: &str) -> String {
        let word = excerpt(word);
        match self {
            WholeError::NoNumber => format!("{what} is `{word}`: write a whole number"),
            WholeError::TooLarge(max) => format!("{what} is {word}: choose at most {max}"),
        }
    }
}

/// Parses a whole number.
///
/// # Errors
/// Fails if the word is not a whole number or is larger than `max`.
pub fn whole(word: &str, max: u64) -> Result<u64, WholeError> {
    let number = parse_whole(word).ok_or(WholeError::NoNumber)?;
    u64::try_from(number).ok().filter(|number| *number <= max).ok_or(WholeError::TooLarge(max))
}

/// Parses and scales a number. Returns [`u128::MAX`] if the result does not fit, and `None` if the text is
/// not a number.
fn parse_unbounded(text: &str, scale: u64) -> Option<u128> {
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
    // Digits after the thirtieth do not change a result in picoseconds.
    for digit in whole.bytes().chain(part.bytes().take(30)) {
        // A larger value overflows, unless only digits after the decimal point follow; those are cut off.
        if value >= 1 << 90 {
            break;
        }
        value = value * 10 + u128::from(digit - b'0');
        digits += 1;
    }
    if digits < whole.len() {
        return Some(u128::MAX);
    }
    let places = i32::try_from(digits - whole.len()).ok()? - exponent;
    let scale = u128::from(scale);
    Some(if places <= 0 {
        let power = 10u128.saturating_pow(places.unsigned_abs());
        value.saturating_mul(power).saturating_mul(scale)
    } else {
        divided(value, scale, places.unsigned_abs())
    })
}

/// Computes `value * scale / 10^places`, rounded down, without overflow of the product.
fn divided(value: u128, scale: u128, places: u32) -> u128 {
    let Some(divisor) = 10u128.checked_pow(places) else { return 0 };
    let whole = value / divisor;
    let rest = value % divisor;
    let part = rest.checked_mul(scale).map_or_else(
        || (rest / 1_000_000_000_000).saturating_mul(scale) / (divisor / 1_000_000_000_000),
        |scaled| scaled / divisor,
    );
    whole.saturating_mul(scale).saturating_add(part)
}

/// Writes `value / 10^places` with exactly `places` decimals, as `{:.9}` writes seconds.
pub fn decimal(value: u64, places: u32) -> String {
    let scale = 10u64.pow(places.min(19));
    format!("{}.{:0width$}", value / scale, value % scale, width = places.min(19) as usize)
}
