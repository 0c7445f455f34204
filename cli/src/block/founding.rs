//! How a new store begins: its replicas meet, and nobody serves before all have been seen.

use std::time::{Duration, Instant};

use anyhow::Result;
use store::block::Errand;
use verbs::{ConnectRequest, Context, Listener, ProtectionDomain, QpOptions};

use super::peers::Peers;
use super::replica::{Blocks, Replica, Shared};
use crate::post::Later;
use crate::serving::program::Program;

/// Time between two rounds of questions.
const AGAIN: Duration = Duration::from_millis(50);
/// How long the others may take to begin before a person is told whom this one waits for.
const QUIET: Duration = Duration::from_secs(2);
/// Time that answering one question may take.
const ANSWERING: Duration = Duration::from_secs(1);

/// Answers questions until `over`.
fn answer_until(
    listener: &Listener,
    mut over: impl FnMut() -> Result<bool>,
    mut answer: impl FnMut(ConnectRequest) -> Result<()>,
) -> Result<()> {
    while !over()? {
        if let Some(request) = listener.accept(Some(Duration::from_millis(2)))?
            && let Err(error) = answer(request)
        {
            tracing::info!("somebody was not answered: {error:#}");
        }
    }
    Ok(())
}

/// Answers one question, over a queue pair that ends with the answer.
fn answer<B: Blocks>(
    request: ConnectRequest,
    replica: &mut Replica<B>,
    context: &Context,
    domain: &ProtectionDomain,
) -> Result<()> {
    let private_data = match replica.accept(request.private_data(), &mut Later::default()) {
        Ok((_, welcome)) => welcome,
        Err(error) => {
            request.reject(&error.to_string());
            return Err(error);
        }
    };
    let cq = context.create_cq(2)?;
    let options = QpOptions { private_data, connect_timeout: ANSWERING, ..QpOptions::default() };
    request.accept(domain.create_qp(&cq, &cq, &options)?)?;
    Ok(())
}

/// Waits until the store has begun.
///
/// # Errors
/// It had begun without this replica.
pub fn found<B: Blocks>(
    peers: &mut Peers,
    standing: &Shared,
    replica: &mut Replica<B>,
    (context, domain): (&Context, &ProtectionDomain),
    listener: &Listener,
) -> Result<()> {
    let (started, mut told) = (Instant::now(), Vec::new());
    loop {
        let own = standing.lock().state();
        peers.begin(Errand::Ask { replica: own.replica, incarnation: own.incarnation() })?;
        answer_until(listener, || peers.poll(), |request| answer(request, replica, context, domain))?;
        if standing.lock().heard(peers.answers())? {
            return Ok(());
        }
        let missing = peers.missing();
        if started.elapsed() > QUIET && missing != told {
            let list: Vec<String> = missing.iter().map(ToString::to_string).collect();
            eprintln!("the new store waits for {}", list.join(", "));
            told = missing;
        }
        let pause = Instant::now();
        let over = || Ok(pause.elapsed() > AGAIN);
        answer_until(listener, over, |request| answer(request, replica, context, domain))?;
    }
}
