//! The configuration file of both dialects: a sequence of `KEY value` pairs.
//!
//! If a key occurs twice, the later value counts. Text in braces is a comment, as in HPCC's `config_doc`. A
//! key that neither dialect knows is reported in a warning and skipped together with its values.

mod keys;
mod value;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use remora_scenario::error::{Read, ScenarioError, Source, Warnings, excerpt};
use remora_scenario::tokens::{Token, Tokens};
use remora_scenario::units::{self, Rate, WholeError, decimal, parse_saturating};

pub use keys::{KEYS, Kind};
pub use value::Value;

/// Largest number of pairs in the value of a [`Kind::Map`] key.
const PAIRS_MAX: u64 = 1000;

/// A configuration file: the values of all keys that are listed in [`KEYS`] and occur in the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    values: BTreeMap<&'static str, Value>,
}

/// The number 1 in the unit of [`Value::Decimal`], which is 10⁻⁹.
pub const ONE: u64 = 1_000_000_000;

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Fails if the value of a known key is missing or is not of the key's [`Kind`].
    pub fn parse(source: Source<'_>) -> Result<Read<Config>, ScenarioError> {
        source.check_size()?;
        let mut warnings = Warnings::of(source);
        let mut tokens = Tokens::of(source);
        let mut values = BTreeMap::new();
        // Words after an unknown key are its values; they cause no further warning.
        let mut unknown = false;
        while let Some(token) = tokens.next() {
            if token.text.starts_with('{') {
                skip_prose(&mut tokens, token);
            } else if let Some((name, kind)) = KEYS.iter().find(|(name, _)| *name == token.text) {
                unknown = false;
                let value = value(&mut tokens, name, *kind, &mut warnings)?;
                values.insert(*name, value);
            } else if is_key(token.text) {
                unknown = true;
                warnings
                    .add(token.line, format!("the key {} is not known; it is skipped", excerpt(token.text)));
            } else if !unknown {
                let says = format!("`{}` is not a key; it is skipped", excerpt(token.text));
                warnings.add(token.line, says);
            }
        }
        Ok(warnings.with(Config { values }))
    }

    /// Returns the value of `key`, or `None` if the file does not set it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns a whole number, or `default` if the file does not set `key`.
    pub fn integer(&self, key: &str, default: u64) -> u64 {
        if let Some(Value::Integer(value)) = self.get(key) { *value } else { default }
    }

    /// Returns a number as a multiple of 10⁻⁹, or `default` if the file does not set `key`.
    pub fn decimal(&self, key: &str, default: u64) -> u64 {
        if let Some(Value::Decimal(value)) = self.get(key) { *value } else { default }
    }

    /// Returns a rate, or `None` if the file does not set `key`.
    pub fn rate(&self, key: &str) -> Option<Rate> {
        if let Some(Value::Rate(rate)) = self.get(key) { Some(*rate) } else { None }
    }

    /// Returns a word, or `None` if the file does not set `key`.
    pub fn text(&self, key: &str) -> Option<&str> {
        if let Some(Value::Text(text)) = self.get(key) { Some(text) } else { None }
    }

    /// Returns the numbers by link rate, which is empty if the file does not set `key`.
    pub fn map(&self, key: &str) -> BTreeMap<u64, u64> {
        if let Some(Value::Map(map)) = self.get(key) { map.clone() } else { BTreeMap::new() }
    }

    /// Sets a key. Returns false if [`KEYS`] does not list `key` or if `value` is of another kind.
    pub fn set(&mut self, key: &str, value: Value) -> bool {
        match KEYS.iter().find(|(name, kind)| *name == key && kind.takes(&value)) {
            Some((name, _)) => self.values.insert(name, value).is_none_or(|_| true),
            None => false,
        }
    }

    /// Writes the configuration in the format that [`Config::parse`] reads: one key per line, in alphabetical
    /// order.
    pub fn write(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.values {
            let _ = writeln!(text, "{key} {}", written(value));
        }
        text
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::Integer(value) => value.to_string(),
        Value::Decimal(value) => decimal(*value, 9),
        Value::Rate(rate) => rate.to_string(),
        Value::Text(text) => text.clone(),
        Value::Triple([time, a, b]) => format!("{time} {a} {b}"),
        Value::Map(map) => {
            let mut text = map.len().to_string();
            for (rate, value) in map {
                let _ = write!(text, " {rate} {}", decimal(*value, 9));
            }
            text
        }
    }
}

/// Returns true if `text` is spelled like a key: more than two capitals, digits and underscores, the first a
/// capital.
fn is_key(text: &str) -> bool {
    let capital = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_';
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.len() > 2 && text.bytes().all(capital)
}

/// Skips a comment in braces, up to the word that ends with the closing brace.
fn skip_prose<'a>(tokens: &mut Tokens<'a>, first: Token<'a>) {
    let mut open = Some(first);
    while let Some(token) = open
        && !token.text.ends_with('}')
    {
        open = tokens.next();
    }
}

fn value(
    tokens: &mut Tokens<'_>,
    key: &str,
    kind: Kind,
    warnings: &mut Warnings<'_>,
) -> Result<Value, ScenarioError> {
    let what = format!("the value of {key}");
    Ok(match kind {
        Kind::Integer => Value::Integer(integer(tokens, key, warnings)?),
        Kind::Decimal => Value::Decimal(billionths(tokens, &what)?),
        Kind::Text => Value::Text(tokens.need(&what)?.text.to_owned()),
        Kind::Rate => {
            let token = tokens.need(&what)?;
            let rate = Rate::parse(token.text).ok_or_else(|| {
                let says = format!("{key} is `{}`: write a rate like 100Mb/s", excerpt(token.text));
                tokens.error(token, says)
            })?;
            Value::Rate(rate)
        }
        Kind::Triple => {
            let mut numbers = [0; 3];
            for number in &mut numbers {
                *number = tokens.number(&what, u64::MAX)?;
            }
            Value::Triple(numbers)
        }
        Kind::Map => {
            let pairs = tokens.number(&what, PAIRS_MAX)?;
            let mut map = BTreeMap::new();
            for _ in 0..pairs {
                let rate = tokens.number(&format!("a rate of {key}"), u64::MAX)?;
                map.insert(rate, billionths(tokens, &what)?);
            }
            Value::Map(map)
        }
    })
}

/// Reads a whole number. Of a decimal number the digits before the point count, because a C++ stream reads no
/// further.
fn integer(tokens: &mut Tokens<'_>, key: &str, warnings: &mut Warnings<'_>) -> Result<u64, ScenarioError> {
    let token = tokens.need(&format!("the value of {key}"))?;
    let whole = token.text.split_once('.').map_or(token.text, |(whole, _)| whole);
    let value = match units::whole(whole, u64::MAX) {
        Ok(value) => value,
        Err(WholeError::TooLarge(max)) => {
            warnings.add(token.line, format!("{key} is {}; it is read as {max}", excerpt(token.text)));
            return Ok(max);
        }
        Err(fault) => return Err(tokens.error(token, fault.of(key, token.text))),
    };
    if whole != token.text {
        let says = format!("{key} is a whole number; {} is read as {value}, as in ns-3", excerpt(token.text));
        warnings.add(token.line, says);
    }
    Ok(value)
}

/// Reads a number as a multiple of 10⁻⁹. A larger number than fits becomes `u64::MAX`: a time that large is
/// never reached.
fn billionths(tokens: &mut Tokens<'_>, what: &str) -> Result<u64, ScenarioError> {
    let token = tokens.need(what)?;
    parse_saturating(token.text, ONE).ok_or_else(|| {
        let says = format!("{what} is `{}`: write a number like 0.5", excerpt(token.text));
        tokens.error(token, says)
    })
}
