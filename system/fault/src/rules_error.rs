//! The error of a rule file.

/// An error in a rule file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault rules: {}", .0.trim_end())]
pub struct RulesError(pub(crate) String);

impl RulesError {
    pub(crate) fn new(words: impl Into<String>) -> RulesError {
        RulesError(words.into())
    }
}
