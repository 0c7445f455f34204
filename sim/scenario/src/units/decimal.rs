//! Decimal numbers of files, as whole numbers of a smaller unit.

use crate::error::excerpt;

/// A decimal number times `scale`, cut to a whole number: `("2.5", 1000)` is 2500. An exponent is allowed.
/// `None` if the text is not a number, or a negative or too large one.
pub fn parse_scaled(text: &str, scale: u64) -> Option<u64> {
    parse_unbounded(text, scale).and_then(|scaled| u64::try_from(scaled).ok())
}

/// As [`parse_scaled`], with the largest value for a number that is too large: files write such numbers for
/// times that never come.
pub fn parse_saturating(text: &str, scale: u64) -> Option<u64> {
    parse_unbounded(text, scale).map(|scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// A number of digits alone; [`u128::MAX`] if it is too large for that type. `None` for any other text.
fn parse_whole(text: &str) -> Option<u128> {
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u128::MAX))
}

/// Why a word of a file is no whole number up to some limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WholeError {
    /// It has other characters than digits, or none.
    NoNumber,
    /// It is more than this limit.
    TooLarge(u64),
}

impl WholeError {
    /// The fault of the word that gives `what`, and the remedy.
    pub fn of(self, what: &str, word: &str) -> String {
        let word = excerpt(word);
        match self {
            WholeError::NoNumber => format!("{what} is `{word}`: write a whole number"),
            WholeError::TooLarge(max) => format!("{what} is {word}: choose at most {max}"),
        }
    }
}

/// The whole number that a word is.
///
/// # Errors
/// The word is none, or more than `max`.
pub fn whole(word: &str, max: u64) -> Result<u64, WholeError> {
    let number = parse_whole(word).ok_or(WholeError::NoNumber)?;
    u64::try_from(number).ok().filter(|number| *number <= max).ok_or(WholeError::TooLarge(max))
}

/// The scaled number; [`u128::MAX`] if it is too large for that type.
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
