//! The start of a new store: its replicas exchange their states, and none serves before it has seen all of
//! them.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use remora_store::block::Purpose;
use remora_verbs::{Answered, ConnectRequest, Context, Handshakes, Listener, ProtectionDomain, QpOptions};

use super::peers::Peers;
use super::replica::{Blocks, Replica, Shared};
use crate::Result;
use crate::post::Later;
use crate::server::Program;

/// Time between two rounds in which the other replicas are asked for their state.
const AGAIN: Duration = Duration::from_millis(50);
/// Time between two checks for incoming connections.
const TURN: Duration = Duration::from_millis(2);
/// Time after which the user is told which replicas are missing.
const QUIET: Duration = Duration::from_secs(2);
/// Maximum time to answer one peer. Others are answered concurrently.
const ANSWERING: Duration = Duration::from_secs(3);

/// Answers peers until `over` returns true.
fn answer_until(
    listener: &Listener,
    handshakes: &mut Handshakes,
    mut over: impl FnMut() -> Result<bool>,
    mut answer: impl FnMut(ConnectRequest, &mut Handshakes) -> Result<()>,
) -> Result<()> {
    while !over()? {
        take_finished(handshakes);
        if !handshakes.has_capacity(Handshakes::HASTE) {
            std::thread::sleep(TURN);
        } else if let Some(request) = listener.accept(Some(TURN))?
            && let Err(error) = answer(request, handshakes)
        {
            tracing::info!("somebody was not answered: {}", error.chain());
        }
    }
    Ok(())
}

/// Completes the answers that are under way.
fn finish(handshakes: &mut Handshakes) -> Result<()> {
    let began = Instant::now();
    while !handshakes.is_empty() && began.elapsed() < ANSWERING {
        remora_host::wait_any(&[handshakes.as_fd()], AGAIN)?;
        take_finished(handshakes);
    }
    Ok(())
}

fn take_finished(handshakes: &mut Handshakes) {
    while let Some((_, outcome)) = handshakes.finished() {
        if let Err(error) = outcome.and_then(Answered::go) {
            tracing::info!("somebody was not answered: {error}");
        }
    }
}

/// Starts to answer one peer, over a queue pair that is closed after the answer.
fn answer<B: Blocks>(
    request: ConnectRequest,
    handshakes: &mut Handshakes,
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
    handshakes.begin(request, domain.create_qp(&cq, &cq, &options)?)?;
    Ok(())
}

/// Waits until the store has begun. `waits_for` is called with the missing replicas whenever these change.
///
/// # Errors
/// The store began without this replica.
pub fn bootstrap<B: Blocks>(
    peers: &mut Peers,
    membership: &Shared,
    replica: &mut Replica<B>,
    context: &Context,
    domain: &ProtectionDomain,
    listener: &Listener,
    mut waits_for: impl FnMut(&[SocketAddr]),
) -> Result<()> {
    let started = Instant::now();
    let mut previous = Vec::new();
    let mut handshakes = Handshakes::new()?;
    let mut reply = |request: ConnectRequest, handshakes: &mut Handshakes| {
        answer(request, handshakes, replica, context, domain)
    };
    loop {
        let own = membership.lock().state();
        peers.begin(Purpose::Ask { replica: own.replica, incarnation: own.incarnation() })?;
        answer_until(listener, &mut handshakes, || peers.poll(), &mut reply)?;
        if membership.lock().take_answers(peers.answers())? {
            return finish(&mut handshakes);
        }
        let missing = peers.missing();
        if started.elapsed() > QUIET && missing != previous {
            waits_for(&missing);
            previous = missing;
        }
        let pause = Instant::now();
        let over = || Ok(pause.elapsed() > AGAIN);
        answer_until(listener, &mut handshakes, over, &mut reply)?;
    }
}
