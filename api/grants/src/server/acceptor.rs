//! The server's thread. It accepts connections, processes their messages, and ends connections that take too
//! long.

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token as Place};
use rustls::ServerConfig;
use slab::Slab;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::connection::{Answer, Connection, Drive};
use super::shared::Shared;
use super::{CallHandler, GrantOptions, Replies};
use crate::certificate::Fingerprint;
use crate::message::{ClientMessage, GrantReply, GrantRequest};
use remora_verbs::Address;
use remora_verbs::rma::Client;

pub(super) const WAKE: Place = Place(0);
const LISTEN: Place = Place(1);
/// The first poll token of a connection; the tokens below belong to the waker and the listener.
const FIRST: usize = 2;
/// The minimum age of a handshake before it may be ended in favour of a new connection.
const HASTE: Duration = Duration::from_millis(200);
/// The interval after which the thread calls accept anew when the system had no free file descriptor.
const AGAIN: Duration = Duration::from_millis(20);
/// The maximum number of messages of one client that are handled before other clients get a turn.
const TURN: usize = 32;

pub(super) struct Acceptor {
    poll: Poll,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    options: GrantOptions,
    shared: Arc<Shared>,
    connections: Slab<Connection>,
    calls: Option<Box<dyn CallHandler>>,
    /// The maximum length of a call message in bytes, with its kind byte; 0 without a handler.
    longest: usize,
    /// The connections that used up their turn and may have more messages.
    again: Vec<usize>,
    /// True if connections may be waiting in the listener's queue.
    waiting: bool,
}

impl Acceptor {
    pub(super) fn new(
        poll: Poll,
        mut listener: TcpListener,
        config: Arc<ServerConfig>,
        options: GrantOptions,
        shared: Arc<Shared>,
        calls: Option<Box<dyn CallHandler>>,
    ) -> io::Result<Acceptor> {
        poll.registry().register(&mut listener, LISTEN, Interest::READABLE)?;
        // One byte more for the kind of the message.
        let longest = calls.as_ref().map_or(0, |calls| calls.longest() + 1);
        Ok(Acceptor {
            poll,
            listener,
            config,
            options,
            shared,
            connections: Slab::new(),
            calls,
            longest,
            again: Vec::new(),
            waiting: true,
        })
    }

    pub(super) fn run(&mut self) {
        let mut events = Events::with_capacity(64);
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.waiting {
                self.accept();
            }
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // An error other than an interruption means that the poll descriptor is not valid any more.
                Err(_) => return,
            }
            for event in &events {
                match event.token() {
                    WAKE => self.announce(),
                    LISTEN => self.waiting = true,
                    Place(place) => self.drive(place - FIRST),
                }
            }
            for place in std::mem::take(&mut self.again) {
                self.drive(place);
            }
            self.end_late();
        }
    }

    /// Returns the time until the next deadline, or until the next retry. `None` if there is neither.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let deadlines = self.connections.iter().filter_map(|(_, one)| one.deadline());
        let next = deadlines.min().map(|deadline| deadline.saturating_duration_since(now));
        let again = match (self.again.is_empty(), self.waiting) {
            (false, _) => Some(Duration::ZERO),
            (true, waiting) => waiting.then_some(AGAIN),
        };
        next.into_iter().chain(again).min()
    }

    fn accept(&mut self) {
        loop {
            if self.handshakes() >= self.options.handshakes && !self.end_oldest() {
                return;
            }
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    let place = self.connections.vacant_key();
                    let deadline = Instant::now() + self.options.deadline;
                    let made = Connection::new(stream, peer, &self.config, deadline, self.longest);
                    let Some(mut made) = made else { continue };
                    let all = Interest::READABLE | Interest::WRITABLE;
                    if self.poll.registry().register(made.stream(), Place(place + FIRST), all).is_ok() {
                        self.connections.insert(made);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting = false;
                    return;
                }
                // The peer has hung up meanwhile, or no file descriptor is free. The next pass of the loop
                // tries anew.
                Err(_) => return,
            }
        }
    }

    fn handshakes(&self) -> usize {
        self.connections.iter().filter(|(_, one)| one.deadline().is_some()).count()
    }

    /// Ends the oldest handshake, unless it is younger than [`HASTE`]. Returns false if it kept that
    /// handshake.
    fn end_oldest(&mut self) -> bool {
        let oldest = self.connections.iter().filter_map(|(place, one)| Some((one.deadline()?, place))).min();
        let Some((deadline, place)) = oldest else { return true };
        let began = deadline - self.options.deadline;
        let old = began.elapsed() >= HASTE;
        if old {
            self.end(place);
        }
        old
    }

    fn end_late(&mut self) {
        let now = Instant::now();
        let late = |one: &Connection| one.deadline().is_some_and(|deadline| deadline <= now);
        let late: Vec<_> =
            self.connections.iter().filter(|(_, one)| late(one)).map(|(place, _)| place).collect();
        late.into_iter().for_each(|place| self.end(place));
    }

    fn end(&mut self, place: usize) {
        let mut one = self.connections.remove(place);
        let _ = self.poll.registry().deregister(one.stream());
        self.again.retain(|other| *other != place);
        if !one.is_answered() {
            self.shared.counted.failed.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(calls) = self.calls.as_mut().filter(|_| one.client().is_some()) {
            calls.ended(place);
        }
    }

    fn drive(&mut self, place: usize) {
        for _ in 0..TURN {
            let Some(one) = self.connections.get_mut(place) else { return };
            match one.drive() {
                Drive::Waits => return,
                Drive::Ended => return self.end(place),
                Drive::Asks(request) => self.answer(place, &request),
                Drive::Says(client, ClientMessage::Renew) => self.renew(place, &client),
                Drive::Says(_, ClientMessage::Call(message)) => self.call(place, &message),
            }
        }
        self.again.push(place);
    }

    /// Passes a message to the call handler and sends the replies.
    fn call(&mut self, place: usize, message: &[u8]) {
        let Some(calls) = &mut self.calls else { return };
        let mut replies = Replies(Vec::new());
        let goes_on = calls.message(place, message, &mut replies);
        let one = &mut self.connections[place];
        replies.0.into_iter().for_each(|reply| one.send(&GrantReply::Call(reply)));
        if !one.flush() || !goes_on {
            self.end(place);
        }
    }

    /// Sends the grants for all regions under the current keys.
    fn renew(&mut self, place: usize, client: &Client) {
        let grants = self.shared.offers.iter().map(|offer| offer.grant(client)).collect();
        self.shared.counted.granted.fetch_add(1, Ordering::Relaxed);
        let one = &mut self.connections[place];
        one.send(&GrantReply::Grants { follows: true, grants });
        if !one.flush() {
            self.end(place);
        }
    }

    fn answer(&mut self, place: usize, request: &GrantRequest) {
        let followers = self.connections.iter().filter(|(_, one)| one.client().is_some()).count();
        let one = &mut self.connections[place];
        let seen = Address::from(one.peer().ip().to_canonical());
        let counted = &self.shared.counted;
        let admitted = admits(&self.options, one.certificate(), request);
        if !admitted || seen != request.client.address {
            counted.refused.fetch_add(1, Ordering::Relaxed);
            let reply = if admitted { GrantReply::Translated(seen) } else { GrantReply::NotAdmitted };
            one.answer(&reply, Answer::Leaves);
        } else {
            counted.granted.fetch_add(1, Ordering::Relaxed);
            let client = request.client;
            let grants = self.shared.offers.iter().map(|offer| offer.grant(&client)).collect();
            let follows = request.follow && followers < self.options.followers;
            let answer = if follows { Answer::Follows(client) } else { Answer::Leaves };
            one.answer(&GrantReply::Grants { follows, grants }, answer);
            if follows {
                // Also send the announcements that were made before this client connected.
                for (time, granted) in self.shared.offers.iter().filter_map(|o| o.announcement(&client)) {
                    one.send(&GrantReply::Announcement(time, granted));
                }
            }
        }
        if !one.flush() {
            self.end(place);
        }
    }

    fn announce(&mut self) {
        let numbers =
            std::mem::take(&mut *self.shared.announce.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ended = Vec::new();
        for number in numbers {
            for (place, one) in &mut self.connections {
                let Some(client) = one.client() else { continue };
                let Some((time, granted)) = self.shared.offers[number].announcement(&client) else { break };
                one.send(&GrantReply::Announcement(time, granted));
                if one.flush() {
                    self.shared.counted.announced.fetch_add(1, Ordering::Relaxed);
                } else {
                    ended.push(place);
                }
            }
        }
        ended.sort_unstable();
        ended.dedup();
        ended.into_iter().for_each(|place| self.end(place));
    }
}

fn admits(options: &GrantOptions, certificate: Option<Fingerprint>, request: &GrantRequest) -> bool {
    let listed = certificate.is_some_and(|shown| options.clients.contains(&shown));
    listed || options.token.as_ref().is_some_and(|token| token.is(&request.token))
}
