use super::*;
use proptest::prelude::*;

#[test]
fn rates_are_read_as_ns_3_reads_them() {
    for (text, bits) in [
        ("100Gbps", 100_000_000_000),
        ("50Mb/s", 50_000_000),
        ("40.0Mb/s", 40_000_000),
        ("2.5Gbps", 2_500_000_000),
        ("10MB/s", 80_000_000),
        ("3Bps", 24),
        ("7kbps", 7_000),
        ("1KiB/s", 8192),
        ("1500", 1500),
    ] {
        assert_eq!(Rate::parse(text), Some(Rate(bits)), "{text}");
    }
    for text in ["", "Gbps", "-1Gbps", "1gbps", "1.2.3Gbps", "99999999999999999999Gbps", "1e99bps", "inf"] {
        assert_eq!(Rate::parse(text), None, "{text}");
    }
}

#[test]
fn times_are_exact_decimals() {
    for (text, ps) in [
        ("1000ns", 1_000_000),
        ("0.001ms", 1_000_000),
        ("2", 2_000_000_000_000),
        ("2.000000027", 2_000_000_027_000),
        ("2.010000000", 2_010_000_000_000),
        ("1ps", 1),
        ("0.0009ns", 0),
        ("1min", 60_000_000_000_000),
        ("0.00000000000000000000000000000000000000000000001s", 0),
        ("3.33333333333333333333333333333333333333s", 3_333_333_333_333),
    ] {
        assert_eq!(Time::parse(text), Some(Time(ps)), "{text}");
    }
    assert_eq!(Time::parse("1e30s"), None);
    assert_eq!(parse_scaled("2e3", 10), Some(20_000));
    assert_eq!(parse_scaled("25e-1", 10), Some(25));
    assert_eq!(parse_scaled("40000000000000.00", 1_000_000_000), None);
    assert_eq!(parse_saturating("40000000000000.00", 1_000_000_000), Some(u64::MAX));
    let digits = "9".repeat(60);
    assert_eq!(
        (parse_saturating(&digits, 1), parse_saturating("1e30", 1 << 40)),
        (Some(u64::MAX), Some(u64::MAX))
    );
}

#[test]
fn our_own_files_need_a_unit() {
    assert_eq!("2us".parse(), Ok(Time(2_000_000)));
    assert_eq!("240KB".parse(), Ok(Size(240_000)));
    assert_eq!("9MiB".parse(), Ok(Size(9 << 20)));
    assert_eq!("1.5 KB".parse(), Ok(Size(1500)));
    assert_eq!("12".parse::<Time>().unwrap_err(), "`12` is not a time: write one like \"2us\"");
    assert_eq!("1e30s".parse::<Time>().unwrap_err(), "`1e30s` is more than 18446744073709551615ps");
    assert_eq!(decimal(2_000_000_027, 9), "2.000000027");
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(value: u64, shift in 0u32..64) {
        let value = value >> shift;
        prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
        prop_assert_eq!(Time(value).to_string().parse(), Ok(Time(value)));
        prop_assert_eq!(Size(value).to_string().parse(), Ok(Size(value)));
        prop_assert_eq!(parse_scaled(&decimal(value, 9), 1_000_000_000), Some(value));
    }

    #[test]
    fn no_text_makes_a_number_panic(text in "[0-9.eE+-]{0,60}(Gbps|ns|KB|s)?") {
        let _ = (Rate::parse(&text), Time::parse(&text), text.parse::<Size>());
    }
}

/// Regression test of a fuzzer finding: the thirtieth byte lay within a multi-byte character.
///
/// Regression: a number with more than thirty digits behind its point, one of them a character of
/// several bytes, ended the program, because text was cut by bytes.
#[test]
fn characters_that_are_no_digits_are_no_number_wherever_they_stand() {
    for digits in 0..40 {
        for odd in ["\u{fffd}", "x", "-"] {
            assert_eq!(
                parse_scaled(&format!("2.{}{odd}", "0".repeat(digits)), 1_000),
                None,
                "{digits} {odd}"
            );
        }
    }
    assert_eq!(parse_scaled(&format!("2.{}", "0".repeat(40)), 1_000), Some(2_000));
}
