//! Lookups by chains: a table, the server that loads a chain for each client, and a client's connection.

pub mod loading;
pub mod table;
pub mod way;
