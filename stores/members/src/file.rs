//! A map in a file. An operator writes a new file and renames it, or edits it in place. So a file that is no
//! map is read again at the next look.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, thread};

use crate::backend::{Backend, Update};
use crate::{Map, SourceError};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Longest file that is read: a map of all the servers there may be takes less.
const LONGEST: u64 = 1 << 20;

pub struct File {
    path: PathBuf,
    /// The text, or the error, of the last look.
    text: Result<String, SourceError>,
}

impl File {
    pub fn new(path: PathBuf) -> File {
        File { path, text: Ok(String::new()) }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self) -> Result<String, SourceError> {
        let len = fs::metadata(&self.path).map(|facts| facts.len());
        match len
            .and_then(|len| if len > LONGEST { Ok(None) } else { fs::read_to_string(&self.path).map(Some) })
        {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err(SourceError::Reach(format!("{} is longer than {LONGEST} bytes", self.place()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(SourceError::Missing(self.place())),
            Err(error) => Err(SourceError::Reach(format!("{} cannot be read: {error}", self.place()))),
        }
    }

    fn news(&self) -> Update {
        let text = self.text.clone()?;
        Map::parse(&text).map_err(|error| SourceError::Map(self.place(), error))
    }
}

impl Backend for File {
    fn load(&mut self) -> Update {
        self.text = self.read();
        self.news()
    }

    fn wait(&mut self) -> Option<Update> {
        thread::sleep(LOOK);
        let text = self.read();
        if text == self.text {
            return None;
        }
        self.text = text;
        Some(self.news())
    }
}
