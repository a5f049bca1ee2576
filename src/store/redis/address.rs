//! [`RedisAddress`]: the address of a Redis or Valkey, such as `redis://user:password@host:6379/0`, and the forms for
//! clusters and sentinels. An address is made by parsing. Its text, for logs too, never has user and password.

use std::fmt;

/// How the servers of a store work together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A single server, without sentinels.
    Single,
    /// A cluster: keys are spread over several servers.
    Cluster,
    /// Sentinels know the master under this name.
    Sentinel(String),
}

/// The address of a store in Redis or Valkey.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    /// How the servers work together.
    pub topology: Topology,
    /// Whether connections use TLS.
    pub uses_tls: bool,
    /// Host and port of each server or sentinel, at least one.
    pub hosts: Vec<(String, u16)>,
    /// The user name; `None` for the server's default user.
    pub user: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// The number of the database, 0 to 65,535; 0 for a cluster.
    pub database: i64,
}

/// Why text is not the address of a Redis or Valkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The scheme is missing, or not one of the six.
    #[error(
        "write redis://, rediss:// (TLS), redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://"
    )]
    Scheme,
    /// A host is missing or malformed, or a port is.
    #[error(
        "a host is written HOST or HOST:PORT, an IPv6 address in brackets; several are parted by commas"
    )]
    Host,
    /// A single server has several hosts.
    #[error("several hosts need redis+cluster:// or redis+sentinel://")]
    SeveralHosts,
    /// The path, or its part after the master's name, is not the number of a database.
    #[error("after the host stands the number of a database, as in redis://host:6379/0")]
    Database,
    /// The database of a cluster is not 0.
    #[error("a cluster has database 0 only")]
    ClusterDatabase,
    /// The name of the master is missing behind the sentinels.
    #[error(
        "after the sentinels stands the name of the master, as in redis+sentinel://a:26379,b:26379/mymaster or …/mymaster/0"
    )]
    MissingMaster,
    /// In user or password, a per cent sign has no two hexadecimal digits behind it, or the decoded text is not UTF-8.
    #[error("in user and password write % as %25, @ as %40, : as %3A and / as %2F")]
    Escape,
}

impl RedisAddress {
    /// Parses an address as policies write it. A port that is missing is 6,379, or 26,379 for sentinels.
    ///
    /// # Errors
    ///
    /// One mistake of the text, even where it has several.
    pub fn parse(text: &str) -> Result<RedisAddress, AddressError> {
        let (scheme, after_scheme) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let (protocol, topology) = scheme.split_once('+').unwrap_or((scheme, ""));
        let uses_tls = match protocol {
            "redis" => false,
            "rediss" => true,
            _ => return Err(AddressError::Scheme),
        };
        let (authority, path) = after_scheme.split_once('/').unwrap_or((after_scheme, ""));
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (Some(user_info), hosts),
            None => (None, authority),
        };
        let is_sentinel = topology == "sentinel";
        let default_port = if is_sentinel { 26_379 } else { 6_379 };
        let hosts = hosts.split(',').map(|host| parse_host(host, default_port));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let (topology, database) = match topology {
            "" if hosts.len() > 1 => return Err(AddressError::SeveralHosts),
            "" => (Topology::Single, path),
            "cluster" if !matches!(path, "" | "0") => return Err(AddressError::ClusterDatabase),
            "cluster" => (Topology::Cluster, ""),
            "sentinel" => {
                let (master_name, database) = path.split_once('/').unwrap_or((path, ""));
                if master_name.is_empty() {
                    return Err(AddressError::MissingMaster);
                }
                (Topology::Sentinel(master_name.to_owned()), database)
            }
            _ => return Err(AddressError::Scheme),
        };
        let database = match database {
            "" => 0,
            number => number.parse::<u16>().map_err(|_| AddressError::Database)?,
        };
        let (user, password) = match user_info {
            None => (None, None),
            Some(user_info) => {
                let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
                (Some(percent_decode(user)?), Some(percent_decode(password)?))
            }
        };
        Ok(RedisAddress {
            topology,
            uses_tls,
            hosts,
            user: user.filter(|user| !user.is_empty()),
            password: password.filter(|password| !password.is_empty()),
            database: i64::from(database),
        })
    }
}

/// Parses `HOST` or `HOST:PORT`, with an IPv6 address in brackets. The form of names and addresses is not checked.
///
/// # Errors
///
/// [`AddressError::Host`] where the host is missing or has spaces or control characters, a bracket is not closed, or the
/// port is not 1 to 65,535.
pub fn parse_host(text: &str, default_port: u16) -> Result<(String, u16), AddressError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => text.split_once(']').ok_or(AddressError::Host)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(digits) => digits.parse().map_err(|_| AddressError::Host)?,
        None if port.is_empty() => default_port,
        None => return Err(AddressError::Host),
    };
    let is_invisible = |c: char| c.is_whitespace() || c.is_control();
    if host.is_empty() || host.contains(is_invisible) || port == 0 {
        return Err(AddressError::Host);
    }
    Ok((host.to_owned(), port))
}

/// Decodes `%` and two hexadecimal digits to a byte.
///
/// # Errors
///
/// [`AddressError::Escape`] if a `%` is not followed by two such digits, or the decoded text is not UTF-8.
fn percent_decode(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut encoded = text.bytes();
    while let Some(byte) = encoded.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(encoded.next()?).to_digit(16);
        let (high, low) = digit().zip(digit()).ok_or(AddressError::Escape)?;
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Escape)
}

/// The address without user and password.
impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.uses_tls { "s" } else { "" };
        let topology = match self.topology {
            Topology::Single => "",
            Topology::Cluster => "+cluster",
            Topology::Sentinel(_) => "+sentinel",
        };
        write!(f, "redis{tls}{topology}://")?;
        for (index, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let (open, close) = if host.contains(':') {
                ("[", "]")
            } else {
                ("", "")
            };
            write!(f, "{comma}{open}{host}{close}:{port}")?;
        }
        if let Topology::Sentinel(master_name) = &self.topology {
            write!(f, "/{master_name}")?;
        }
        if self.topology != Topology::Cluster {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, AddressError>) {
        let read = RedisAddress::parse(text);
        assert_eq!(
            read.map(|address| address.to_string()),
            expected.map(str::to_owned),
            "{text}"
        );
    }

    #[test]
    fn addresses() {
        check("redis://a", Ok("redis://a:6379/0"));
        check("rediss://u:p%40ss@a:1/7", Ok("rediss://a:1/7"));
        check("redis://[::1]:7000", Ok("redis://[::1]:7000/0"));
        check("redis+cluster://a:1,b:2", Ok("redis+cluster://a:1,b:2"));
        check(
            "rediss+sentinel://a,b/mine/3",
            Ok("rediss+sentinel://a:26379,b:26379/mine/3"),
        );
        check("redis+sentinel://a,b", Err(AddressError::MissingMaster));
        check("redis+cluster://a/1", Err(AddressError::ClusterDatabase));
        check("redis://a,b", Err(AddressError::SeveralHosts));
        check("redis://a/x", Err(AddressError::Database));
        check("redis://", Err(AddressError::Host));
        check("redis://a:0", Err(AddressError::Host));
        check("redis://a:b", Err(AddressError::Host));
        check("redis://[::1", Err(AddressError::Host));
        check("redis://u:%zz@a", Err(AddressError::Escape));
        check("redis+x://a", Err(AddressError::Scheme));
        check("http://a", Err(AddressError::Scheme));
        let read = RedisAddress::parse("redis://u%3a:p%40@a").unwrap();
        assert_eq!(read.user.as_deref(), Some("u:"));
        assert_eq!(read.password.as_deref(), Some("p@"));
        assert_eq!(format!("{read:?}"), "RedisAddress(redis://a:6379/0)");
        assert_eq!(RedisAddress::parse("redis://:p@a").unwrap().user, None);
    }
}
