//! Two managers talk to each other, and one talks to recorded peers.

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
