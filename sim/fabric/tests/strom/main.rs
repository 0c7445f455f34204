//! StRoM between simulated NICs: requests to kernels and their answers, refusals, deployment and removal of
//! kernels. Each kernel also runs over bad links and is compared with a plain model.

mod bench;
mod bounds;
mod checked;
mod exactly_once;
mod get;
mod late;
mod lifetimes;
mod placement;
mod reading;
mod refusals;
mod scans;
#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../seeds/mod.rs"]
mod seeds;
mod shapes;
mod values;
