//! The current map, kept up to date by a thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;

use crate::backend::{Backend, Update};
use crate::etcd::Etcd;
use crate::file::File;
use crate::{Map, Source, SourceError};

/// Number of changes that may be queued before the source's thread waits.
const WAITING: usize = 4;

/// A map, and a thread that waits for its changes. The thread ends within seconds after the follower is
/// dropped.
#[derive(Debug)]
pub struct Follower {
    map: Map,
    news: Receiver<Update>,
    /// Keeps the thread alive: the thread ends when it can no longer upgrade its weak reference.
    _listens: Arc<()>,
}

impl Source {
    /// Reads the map, and follows its changes from then on.
    ///
    /// # Errors
    /// The map cannot be read now. The follower reports later errors, and continues with the last valid map.
    pub fn follow(&self) -> Result<Follower, SourceError> {
        Follower::open(self)
    }
}

impl Follower {
    pub(crate) fn open(source: &Source) -> Result<Follower, SourceError> {
        match source {
            Source::File(path) => Follower::of(File::new(path.clone())),
            Source::Etcd { endpoints, key } => Follower::of(Etcd::new(endpoints.clone(), key.clone())),
        }
    }

    fn of(mut place: impl Backend) -> Result<Follower, SourceError> {
        let map = place.load()?;
        let (sender, news) = sync_channel(WAITING);
        let first = map.clone();
        let listens = Arc::new(());
        let listener = Arc::downgrade(&listens);
        let thread = thread::Builder::new().name("members".into());
        let started = thread.spawn(move || watch(place, first, &sender, &listener));
        started.map_err(|error| SourceError::Reach(format!("no thread to follow the map: {error}")))?;
        Ok(Follower { map, news, _listens: listens })
    }

    /// Returns the map as of the last call of [`changed`](Follower::changed).
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Takes the next change, if there is one, without waiting. An error leaves the map unchanged; each
    /// error is returned once.
    pub fn changed(&mut self) -> Option<Result<&Map, SourceError>> {
        match self.news.try_recv().ok()? {
            Ok(map) => {
                self.map = map;
                Some(Ok(&self.map))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// Sends changes until the follower is dropped.
fn watch(mut place: impl Backend, mut known: Map, news: &SyncSender<Update>, listener: &Weak<()>) {
    let mut fault = None;
    while listener.strong_count() > 0 {
        let new = match place.wait() {
            Some(Ok(map)) if map != known || fault.is_some() => {
                (known, fault) = (map.clone(), None);
                Ok(map)
            }
            Some(Err(error)) if fault.as_ref() != Some(&error) => {
                fault = Some(error.clone());
                Err(error)
            }
            _ => continue,
        };
        if news.send(new).is_err() {
            return;
        }
    }
}
