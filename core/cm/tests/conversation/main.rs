//! Conversations of two managers, and of one manager with recorded peers.

mod bounds;
mod captures;
mod chaos;
mod connect;
mod disconnect;
mod forged;
mod histories;
mod link;
mod losses;
mod node;
mod refusals;
mod repetitions;
mod sidr;
mod strangers;
