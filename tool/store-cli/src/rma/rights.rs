//! The rights of clients and their names on the command line.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use remora_verbs::rma::Rights;

/// The rights and their names on the command line.
const RIGHTS: [(&str, Rights); 3] =
    [("read", Rights::READ), ("write", Rights::WRITE), ("rekey", Rights::REKEY)];

/// Returns the parser of a right on the command line.
pub(super) fn right() -> impl TypedValueParser<Value = Rights> {
    let find = |text: String| RIGHTS.iter().find(|(name, _)| *name == text).map(|(_, right)| *right);
    PossibleValuesParser::new(RIGHTS.map(|(name, _)| name))
        .try_map(move |text| find(text).ok_or("unknown right"))
}

/// Returns the rights as on the command line: `read`, `write`, `rekey`, separated by commas.
pub(super) fn rights_in_words(rights: Rights) -> String {
    let names: Vec<_> =
        RIGHTS.iter().filter(|(_, one)| rights.contains(*one)).map(|(name, _)| *name).collect();
    names.join(",")
}
