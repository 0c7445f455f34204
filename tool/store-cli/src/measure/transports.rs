//! Servers of design farm over each transport, and clients of them.

use anyhow::Result;
use remora_grants::{Credential, Pin};
use remora_options::device::PortArgs;
use remora_service::kv::rma::{RmaServerAddress, RmaSession};
use remora_service::kv::{FarmDesign, Session};

use super::runner::{Plan, Server, memory_for};
use super::testbed::Testbed;
use crate::transport::TransportName;

/// Starts a server of design farm that uses this transport.
///
/// # Errors
/// Fails if the server does not start.
pub fn start(transport: TransportName, testbed: &Testbed, link: usize, plan: &Plan) -> Result<Server> {
    let most = plan.records + plan.inserts;
    let keys = (most * 2).to_string();
    let bytes = memory_for(most, plan.value_len).to_string();
    let words = ["serve", "kv", "--transport", transport.name(), "--capacity", &keys, "--memory", &bytes];
    Server::start_as(&words, testbed, link, plan)
}

/// Connects a client over queue pairs.
///
/// # Errors
/// Fails if the server does not answer, or does not support IRN when `transport` requires it.
pub fn by_pairs(
    server: &Server,
    transport: TransportName,
    port: &PortArgs,
    plan: &Plan,
) -> Result<Session<FarmDesign>> {
    let irn = transport == TransportName::Irn;
    Ok(Session::connect_by(&port.open()?, &server.address, plan.client(), irn)?)
}

/// Connects a client over 1RMA to all these servers.
///
/// # Errors
/// Fails if the servers do not answer.
pub fn by_rma(servers: &[&Server], port: &PortArgs, plan: &Plan) -> Result<RmaSession> {
    let address = |server: &&Server| -> Result<RmaServerAddress> {
        let [fingerprint, token] = &server.more[..] else {
            anyhow::bail!("the server printed no fingerprint")
        };
        let pin = Pin { address: server.address.parse()?, fingerprint: fingerprint.parse()? };
        Ok(RmaServerAddress { pin, credential: Credential::Token(token.parse()?) })
    };
    let addresses = servers.iter().map(address).collect::<Result<Vec<_>>>()?;
    Ok(RmaSession::connect(&port.open()?, &addresses, plan.client())?)
}
