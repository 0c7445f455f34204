//! The name of the source from which a map is read.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::MapError;

/// The source of a map, written as the path of a file or as `etcd://HOST:PORT[,HOST:PORT…]/KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The path of a file.
    File(PathBuf),
    /// A key in etcd.
    Etcd {
        /// `HOST:PORT` of one or more etcd servers. The first one that answers is used.
        endpoints: Vec<String>,
        /// Name of the key.
        key: String,
    },
}

/// The reason for which a map cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The text is not the name of a source.
    #[error("{0:?} names no map of servers: give a file, or etcd://HOST:2379/KEY")]
    Name(String),
    /// The source cannot be reached.
    #[error("{0}")]
    Reach(String),
    /// The source is empty.
    #[error("there is no map of servers at {0}: put one there, or check the name")]
    Missing(String),
    /// The source's content is not a valid map.
    #[error("{0} is no map of servers: {1}")]
    Map(String, MapError),
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(name: &str) -> Result<Source, SourceError> {
        let Some(rest) = name.strip_prefix("etcd://") else {
            return match name.split_once("://") {
                None if !name.is_empty() => Ok(Source::File(name.into())),
                _ => Err(SourceError::Name(name.into())),
            };
        };
        let (endpoints, key) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<String> = endpoints.split(',').map(String::from).collect();
        let complete = endpoints.iter().all(|endpoint| {
            endpoint
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        });
        match complete && !key.is_empty() {
            true => Ok(Source::Etcd { endpoints, key: key.into() }),
            false => Err(SourceError::Name(name.into())),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Etcd { endpoints, key } => write!(f, "etcd://{}/{key}", endpoints.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources_are_read_and_written() {
        for name in
            ["servers.toml", "/etc/remora/map", "etcd://127.0.0.1:2379/remora/blocks", "etcd://a:1,b:2/k"]
        {
            assert_eq!(name.parse::<Source>().unwrap().to_string(), name);
        }
        let key = |name: &str| {
            name.parse::<Source>().map(|source| matches!(source, Source::Etcd { key, .. } if key == "a/b"))
        };
        assert_eq!(key("etcd://h:1/a/b"), Ok(true));
        for bad in [
            "",
            "etcd://",
            "etcd://host/k",
            "etcd://host:1",
            "etcd://host:1/",
            "etcd://:1/k",
            "http://host:1/k",
        ] {
            let error = bad.parse::<Source>().unwrap_err();
            assert_eq!(error, SourceError::Name(bad.into()));
            assert!(error.to_string().contains("etcd://HOST:2379/KEY"));
        }
    }
}
