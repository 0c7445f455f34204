//! Flow size distributions: one `bytes percent` pair per line, a cumulative distribution function (CDF).

use std::fmt::Write as _;

use remora_scenario::error::{Read, ScenarioError, Source, Warnings, excerpt};
use remora_scenario::tokens::Tokens;
use remora_scenario::workload::distribution::{Cdf, Point};

/// Reads a flow size distribution.
///
/// # Errors
/// Fails if a word is not a number, if the first percentage is not 0 or the last is not 100, or if a line
/// does not rise in both columns. The traffic generator of the original program rejects the same files.
pub fn parse(source: Source<'_>) -> Result<Read<Cdf>, ScenarioError> {
    source.check_size()?;
    let mut tokens = Tokens::of(source);
    let mut points: Vec<Point> = Vec::new();
    let mut line = 1;
    while tokens.peek().is_some() {
        let [bytes, percent] = [number(&mut tokens)?, number(&mut tokens)?];
        line = bytes.line;
        let point = Point { bytes: bytes.value, percent: percent.value };
        if let Some(last) = points.last()
            && (point.bytes <= last.bytes || point.percent <= last.percent)
        {
            let says =
                "bytes and percent must both be larger than in the line above: remove or correct the line";
            return Err(source.error(line, says));
        }
        points.push(point);
    }
    let cdf = Cdf::new(points).map_err(|error| source.error(line, error.to_string()))?;
    Ok(Warnings::of(source).with(cdf))
}

struct Number {
    value: f64,
    line: u32,
}

fn number(tokens: &mut Tokens<'_>) -> Result<Number, ScenarioError> {
    let token = tokens.need("a line of `bytes percent`")?;
    let value = token.text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    let value = value.ok_or_else(|| {
        let says = format!("`{}` is not a number: write lines of `bytes percent`", excerpt(token.text));
        tokens.error(token, says)
    })?;
    Ok(Number { value, line: token.line })
}

/// Writes a distribution in the format that [`parse`] reads.
pub fn write(cdf: &Cdf) -> String {
    let mut text = String::new();
    for Point { bytes, percent } in cdf.points() {
        let _ = writeln!(text, "{bytes} {percent}");
    }
    text
}
