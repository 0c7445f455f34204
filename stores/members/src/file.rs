//! A map in a file, read periodically. An operator may rename a new file over the old one, or edit the file
//! in place. So a file with an invalid map is read once more the next time.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, thread};

use crate::backend::{Backend, Update};
use crate::{Map, SourceError};

/// Time between two reads of the file.
const LOOK: Duration = Duration::from_millis(200);
/// Maximum length of the file in bytes. A map with the maximum number of servers is shorter.
const LONGEST: u64 = 1 << 20;

pub(crate) struct File {
    path: PathBuf,
    /// The text, or the error, of the last read.
    text: Result<String, SourceError>,
}

impl File {
    pub(crate) fn new(path: PathBuf) -> File {
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
