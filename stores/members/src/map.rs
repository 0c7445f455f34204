//! The map of servers, and its rules.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::Deserialize;

/// Maximum number of servers in a map.
pub const MAX_SERVERS: usize = 1024;

/// A server of a store.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Name of the server, unique in the map.
    pub name: String,
    /// TCP address at which the server accepts connections.
    pub address: SocketAddr,
    /// Index of the server's shard. Servers of the same shard are replicas of each other.
    #[serde(default)]
    pub shard: u32,
}

/// The servers of a store, by shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Ordered by shard, and within a shard as in the text.
    servers: Vec<Server>,
    shards: u32,
}

/// The text as parsed TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    server: Vec<Server>,
}

/// The reason for which a text is not a valid map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The text is not TOML, or has unknown fields.
    #[error("{0}")]
    Text(String),
    /// The map contains no server.
    #[error("it names no server: add [[server]] with name = \"a\" and address = \"10.0.0.1:7481\"")]
    Empty,
    /// The map contains this number of servers, more than [`MAX_SERVERS`].
    #[error("it names {0} servers, and {max_servers} are the most", max_servers = MAX_SERVERS)]
    TooMany(usize),
    /// Two servers have the same name or address.
    #[error("two servers have {0}")]
    Twice(String),
    /// No server has this shard, although there are shards with higher numbers.
    #[error("no server has shard = {0}, and shards are counted from 0")]
    Gap(u32),
}

impl Map {
    /// Parses a map.
    ///
    /// # Errors
    /// The text is not a valid map.
    pub fn parse(text: &str) -> Result<Map, MapError> {
        let text: Text = toml::from_str(text).map_err(|error| MapError::Text(one_line(&error)))?;
        let mut servers = text.server;
        if servers.is_empty() {
            return Err(MapError::Empty);
        }
        if servers.len() > MAX_SERVERS {
            return Err(MapError::TooMany(servers.len()));
        }
        servers.sort_by_key(|server| server.shard);
        let mut names = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        let mut shards = 0;
        for server in &servers {
            if !names.insert(&server.name) {
                return Err(MapError::Twice(format!("the name {:?}", server.name)));
            }
            if !addresses.insert(server.address) {
                return Err(MapError::Twice(format!("the address {}", server.address)));
            }
            if server.shard > shards {
                return Err(MapError::Gap(shards));
            }
            if server.shard == shards {
                shards += 1;
            } else if server.shard + 1 != shards {
                return Err(MapError::Gap(shards));
            }
        }
        Ok(Map { servers, shards })
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// Returns all servers, ordered by shard.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the servers of a shard.
    pub fn replicas(&self, shard: u32) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(move |server| server.shard == shard)
    }

    /// Returns the shard of a key with this hash. The shards divide the range of hashes into equal parts, in
    /// order.
    #[inline]
    pub fn shard_of(&self, hash: u64) -> u32 {
        ((u128::from(hash) * u128::from(self.shards)) >> 64) as u32
    }
}

/// Returns the message of a TOML error in one line, without its excerpt of the text.
fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(servers: &[(&str, &str, u32)]) -> String {
        let line = |(name, address, shard): &(&str, &str, u32)| {
            format!("[[server]]\nname = \"{name}\"\naddress = \"{address}\"\nshard = {shard}\n")
        };
        servers.iter().map(line).collect()
    }

    #[test]
    fn shards_have_their_replicas_in_the_order_of_the_text() {
        let map = Map::parse(&text(&[
            ("d", "10.0.0.4:1", 1),
            ("a", "10.0.0.1:1", 0),
            ("c", "10.0.0.3:1", 1),
            ("b", "[::1]:1", 0),
        ]));
        let map = map.unwrap();
        let names = |shard| map.replicas(shard).map(|server| server.name.as_str()).collect::<Vec<_>>();
        assert_eq!((map.shards(), names(0), names(1), names(2)), (2, vec!["a", "b"], vec!["d", "c"], vec![]));
    }

    #[test]
    fn hashes_are_shared_out_evenly() {
        let map =
            Map::parse(&text(&[("a", "10.0.0.1:1", 0), ("b", "10.0.0.2:1", 1), ("c", "10.0.0.3:1", 2)]));
        let map = map.unwrap();
        assert_eq!(
            [0, u64::MAX / 3, u64::MAX / 3 + 1, u64::MAX].map(|hash| map.shard_of(hash)),
            [0, 0, 1, 2]
        );
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let cases = [
            (String::new(), MapError::Empty),
            (
                text(&[("a", "10.0.0.1:1", 0), ("a", "10.0.0.2:1", 0)]),
                MapError::Twice("the name \"a\"".into()),
            ),
            (
                text(&[("a", "10.0.0.1:1", 0), ("b", "10.0.0.1:1", 0)]),
                MapError::Twice("the address 10.0.0.1:1".into()),
            ),
            (text(&[("a", "10.0.0.1:1", 0), ("b", "10.0.0.2:1", 2)]), MapError::Gap(1)),
            (text(&[("a", "10.0.0.1:1", u32::MAX)]), MapError::Gap(0)),
        ];
        for (text, expected) in cases {
            assert_eq!(Map::parse(&text), Err(expected));
        }
        for bad in [
            "server = 1",
            "[[server]]\nname = 'a'",
            "[[server]]\nname = 'a'\naddress = 'here'",
            "[[servers]]",
        ] {
            let error = Map::parse(bad).unwrap_err();
            assert!(matches!(&error, MapError::Text(says) if !says.contains('\n')), "{error}");
        }
        let servers: String = (0..=MAX_SERVERS)
            .map(|at| {
                format!("[[server]]\nname = \"{at}\"\naddress = \"10.0.{}.{}:1\"\n", at / 256, at % 256)
            })
            .collect();
        assert_eq!(Map::parse(&servers), Err(MapError::TooMany(MAX_SERVERS + 1)));
    }
}
