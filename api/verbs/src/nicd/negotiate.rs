//! Connection set-up for programs, each in a thread of its own because the peer may be slow.

use remora_host::connect::{Agreement, ConnectError};
use remora_host::packet::{PacketSocket, is_tcp};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;
use std::time::Duration;

use super::message::{Reply, Request};
use super::tenant::{ReplyResult, Shared};
use crate::{Answered, Init, QueuePair, Ready};

/// Time limit for sending the result to the program.
const PATIENCE: Duration = Duration::from_secs(1);

/// The connection set-up that a program requests.
enum Negotiation {
    Connect(SocketAddr),
    Pair,
    Answer(Box<remora_host::connect::Request>),
}

/// Begins a set-up. The result is sent over the socket that came with the request.
pub(super) fn begin(tenant: &Shared, request: Request, descriptors: Vec<OwnedFd>) -> ReplyResult {
    let mut descriptors = descriptors.into_iter();
    let reply = PacketSocket::from(descriptors.next().ok_or("this request needs a socket for its answer")?);
    reply.set_patience(Some(PATIENCE), None).map_err(|_| "the descriptor for the answer is no socket")?;
    let (numbers, task) = match request {
        Request::Connect { number, address } => (vec![number], Negotiation::Connect(address)),
        Request::ConnectPair { one, other } => (vec![one, other], Negotiation::Pair),
        Request::Answer { number, hello } => {
            let stream = descriptors.next().filter(|stream| is_tcp(stream.as_fd()));
            let stream = TcpStream::from(stream.ok_or("this request needs its TCP connection")?);
            let request = remora_host::connect::Request::received(stream, *hello);
            (vec![number], Negotiation::Answer(Box::new(request.map_err(|error| error.to_string())?)))
        }
        _ => return Err("this request takes no descriptors".to_owned()),
    };
    let pairs = tenant.lock().unwrap_or_else(PoisonError::into_inner).take(&numbers)?;
    let owner = tenant.clone();
    let named = numbers.clone();
    let spawned = std::thread::Builder::new().name("remora-connect".to_owned()).spawn(move || {
        let outcome = task.perform(pairs);
        let answer = match &outcome {
            Ok(pairs) => pairs[0].agreement().cloned().map_or(Reply::Nothing, agreed),
            Err(ConnectError::Full(full)) => Reply::Full(*full),
            Err(error) => Reply::Refused(error.to_string()),
        };
        // The program gets its own descriptor of the connection, whose other descriptor lives as long as the
        // queue pair.
        let connection = outcome.as_ref().ok().and_then(|pairs| pairs[0].connection()?.try_clone().ok());
        owner.lock().unwrap_or_else(PoisonError::into_inner).give_back(&named, outcome.ok());
        let descriptors: Vec<_> = connection.iter().map(AsFd::as_fd).collect();
        let _ = reply.send(&answer.emit(), &descriptors);
    });
    if let Err(error) = spawned {
        // The queue pairs were dropped with the closure of the thread that could not be started.
        tenant.lock().unwrap_or_else(PoisonError::into_inner).give_back(&numbers, None);
        return Err(error.to_string());
    }
    Ok((Reply::Done, Vec::new()))
}

fn agreed(agreement: Agreement) -> Reply {
    Reply::Agreed(Box::new(agreement))
}

impl Negotiation {
    fn perform(self, pairs: Vec<QueuePair<Init>>) -> Result<Vec<QueuePair<Ready>>, ConnectError> {
        let mut pairs = pairs.into_iter();
        let gone = || ConnectError::Daemon("the queue pair is gone".to_owned());
        let first = pairs.next().ok_or_else(gone)?;
        Ok(match self {
            Negotiation::Connect(address) => vec![first.connect(address)?],
            // The program sends the last message itself, once it knows that the queue pair is connected.
            Negotiation::Answer(request) => vec![Answered::of(first, *request)?.left_to_another()],
            Negotiation::Pair => {
                let (one, other) = QueuePair::connect_pair(first, pairs.next().ok_or_else(gone)?)?;
                vec![one, other]
            }
        })
    }
}
