//! Tests of the repository's scripts, with replacements for the programs that they call.

mod checks;
mod dropin;
mod install;
mod place;
mod setup;
