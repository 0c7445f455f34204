//! The designs of the stores as values of the option `--design`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use remora_store::block::{MAX_BLOCK, MIN_BLOCK};
use remora_store::{block, kv, txn};

fn one_of<D: Copy + Send + Sync + 'static>(
    all: &'static [D],
    name: fn(D) -> &'static str,
    about: fn(D) -> &'static str,
) -> impl TypedValueParser<Value = D> {
    let values = all.iter().map(|design| PossibleValue::new(name(*design)).help(about(*design)));
    let find = move |text: String| all.iter().copied().find(|design| name(*design) == text);
    PossibleValuesParser::new(values).map(move |text| find(text).expect("one of the possible values"))
}

/// Parses a design of the key-value store.
pub fn kv() -> impl TypedValueParser<Value = kv::Design> {
    one_of(&kv::Design::ALL, kv::Design::name, kv::Design::about)
}

/// Parses a design of the block store.
pub fn block() -> impl TypedValueParser<Value = block::Design> {
    one_of(&block::Design::ALL, block::Design::name, block::Design::about)
}

/// Parses a design of transactions.
pub fn txn() -> impl TypedValueParser<Value = txn::Design> {
    one_of(&txn::Design::ALL, txn::Design::name, txn::Design::about)
}

/// Parses the length of a block: a multiple of 8 within the bounds of the store.
///
/// # Errors
/// Returns the rule for the length as a message.
pub fn block_len(text: &str) -> Result<u32, String> {
    let len = text.parse().ok().filter(|len: &u32| (MIN_BLOCK..=MAX_BLOCK).contains(len));
    len.filter(|len| len.is_multiple_of(8))
        .ok_or_else(|| format!("a multiple of 8 from {MIN_BLOCK} to {MAX_BLOCK}"))
}
