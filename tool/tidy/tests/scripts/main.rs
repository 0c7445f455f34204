//! The repository's scripts, with stand-ins for the programs that they call.

mod checks;
mod install;
mod place;
mod setup;
