//! A map in etcd (v3.4 or later), read through the JSON gateway of an etcd server: `/v3/kv/range`,
//! `/v3/watch`.

use std::io::{BufRead, BufReader, Read};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use crate::backend::{Backend, Update};
use crate::{Map, SourceError};

/// A server that does not answer within this time is skipped.
const ANSWER: Duration = Duration::from_secs(3);
/// A watch that is silent for this time is restarted, because its server may be dead.
const WATCH: Duration = Duration::from_secs(10);
/// Time until a retry after no server answered.
const AGAIN: Duration = Duration::from_millis(500);
/// Maximum length of a line of a watch, in bytes.
const LONGEST: u64 = 4 << 20;

pub(crate) struct Etcd {
    endpoints: Vec<String>,
    /// Index of the endpoint that answered last.
    current: usize,
    key: String,
    agent: ureq::Agent,
    watch: Option<BufReader<Box<dyn Read + Send>>>,
    /// The last revision whose changes are known.
    revision: u64,
}

/// A response of etcd. Its numbers are strings, and zero or empty fields are omitted.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Response {
    header: Header,
    kvs: Vec<Pair>,
    events: Vec<Event>,
    canceled: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Header {
    revision: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pair {
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Event {
    r#type: String,
    kv: Pair,
}

/// A line of a watch's response.
#[derive(Deserialize)]
struct Line {
    result: Response,
}

impl Etcd {
    pub(crate) fn new(endpoints: Vec<String>, key: String) -> Etcd {
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(ANSWER))
            .timeout_recv_response(Some(ANSWER))
            .timeout_recv_body(Some(WATCH));
        let agent = config.build().new_agent();
        Etcd { endpoints, current: 0, key, agent, watch: None, revision: 0 }
    }

    fn place(&self) -> String {
        format!("etcd's key {:?} at {}", self.key, self.endpoints.join(","))
    }

    fn ask(&self, call: &str, question: &serde_json::Value) -> Result<ureq::Body, ureq::Error> {
        let url = format!("http://{}{call}", self.endpoints[self.current]);
        self.agent.post(&url).send_json(question).map(|answer| answer.into_body())
    }

    fn coded_key(&self) -> String {
        STANDARD.encode(&self.key)
    }

    /// Reads the key from the first server that answers.
    fn range(&mut self) -> Result<Response, SourceError> {
        let question = json!({ "key": self.coded_key() });
        let mut says = String::new();
        for _ in 0..self.endpoints.len() {
            match self.ask("/v3/kv/range", &question).and_then(|mut body| body.read_json::<Response>()) {
                Ok(answer) => return Ok(answer),
                Err(error) => says = error.to_string(),
            }
            self.current = (self.current + 1) % self.endpoints.len();
        }
        Err(SourceError::Reach(format!("no etcd answers at {}: {says}", self.endpoints.join(","))))
    }

    fn read(&self, pair: Option<&Pair>) -> Update {
        let pair = pair.ok_or_else(|| SourceError::Missing(self.place()))?;
        let text = STANDARD.decode(&pair.value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| SourceError::Reach(format!("{} holds no text", self.place())))?;
        Map::parse(&text).map_err(|error| SourceError::Map(self.place(), error))
    }

    /// Starts a watch of the revisions after the last known one.
    fn listen(&mut self) -> Result<(), ureq::Error> {
        let create = json!({ "key": self.coded_key(), "start_revision": (self.revision + 1).to_string() });
        let body = self.ask("/v3/watch", &json!({ "create_request": create }))?;
        self.watch = Some(BufReader::new(Box::new(body.into_reader())));
        Ok(())
    }

    /// Returns the next line of the watch, or `None` if the watch has ended.
    fn line(&mut self) -> Option<Response> {
        let watch = self.watch.as_mut()?;
        let mut text = String::new();
        let read = watch.by_ref().take(LONGEST).read_line(&mut text);
        let line = read.ok().and_then(|_| serde_json::from_str::<Line>(&text).ok());
        line.map(|line| line.result).filter(|answer| !answer.canceled)
    }
}

impl Backend for Etcd {
    fn load(&mut self) -> Update {
        let answer = self.range()?;
        self.revision = answer.header.revision.parse().unwrap_or(0);
        self.read(answer.kvs.first())
    }

    fn wait(&mut self) -> Option<Update> {
        if self.watch.is_none() && self.listen().is_err() {
            thread::sleep(AGAIN);
            // A new request finds a live server, and the missed changes.
            return Some(self.load());
        }
        let Some(answer) = self.line() else {
            self.watch = None;
            return Some(self.load());
        };
        let revision = answer.header.revision.parse().unwrap_or(0);
        self.revision = self.revision.max(revision);
        let last = answer.events.last()?;
        Some(self.read((last.r#type != "DELETE").then_some(&last.kv)))
    }
}
