//! Parsers of numbers on the command line. Their errors say which number to give, unlike those of the
//! standard library ("invalid digit found in string").

use std::fmt::Display;
use std::num::{IntErrorKind, ParseIntError};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser of whole numbers in `range`.
pub fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: Copy + Display + FromStr + PartialOrd + Send + Sync + 'static,
{
    move |text: &str| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("give a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Parses a whole number of any value that `T` can hold.
///
/// # Errors
/// Returns a message if the text is not a whole number or the number is too large.
pub fn natural<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "the number is too large".to_owned(),
        _ => "give a whole number, 0 or more".to_owned(),
    })
}

/// Returns a parser of seconds in `range`; fractions are allowed.
pub fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text: &str| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("give seconds from {} to {}", range.start(), range.end()))
    }
}

/// Parses a number of bytes or items above 0: `4096`, `64k`, `64m`, `1g`, where the suffixes are multiples
/// of 1024.
///
/// # Errors
/// Returns a message if the text is not a size.
pub fn size(text: &str) -> Result<usize, String> {
    let bytes = remora_host::parse_bytes(text).ok().and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "give a size above 0, such as 4096, 64k, 64m or 1g".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_the_range_is_refused_with_the_range() {
        let parse = whole(1..=64_u32);
        assert_eq!((parse("1"), parse("64")), (Ok(1), Ok(64)));
        let refused = Err("give a whole number from 1 to 64".to_owned());
        for text in ["minusone", "", "0", "65", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(parse(text), refused, "{text:?}");
        }
        assert_eq!(natural::<u8>("255"), Ok(255));
        assert_eq!(natural::<u8>("256"), Err("the number is too large".to_owned()));
        for text in ["many", "", "-1", "1.5"] {
            assert_eq!(natural::<u8>(text), Err("give a whole number, 0 or more".to_owned()), "{text:?}");
        }
    }

    #[test]
    fn seconds_have_a_fraction_and_an_end() {
        let parse = seconds(0.1..=3600.0);
        assert_eq!((parse("0.1"), parse("2")), (Ok(0.1), Ok(2.0)));
        for text in ["0", "-1", "NaN", "inf", "3601", "soon"] {
            assert_eq!(parse(text), Err("give seconds from 0.1 to 3600".to_owned()), "{text:?}");
        }
    }
}
