//! `[metrics]`: the address for monitors, and the data that they get.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

use super::values::{number, scalar};
use crate::Error;
use crate::tuning::METRICS_PROGRAMS_MAX;

/// Address to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Unix(PathBuf),
    /// Address of this machine's loopback, unless others are allowed.
    Tcp(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Programs(u32);

/// Settings of the files.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsTable {
    listen: Option<Listen>,
    network: Option<bool>,
    names: Option<bool>,
    pids: Option<bool>,
    max_programs: Option<Programs>,
}

/// Settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsConfig {
    pub(crate) listen: Listen,
    /// True if labels have names of users, programs and jobs.
    pub(crate) names: bool,
    pub(crate) pids: bool,
    /// Largest number of series of programs.
    pub(crate) max_programs: usize,
}

impl MetricsTable {
    /// Returns these settings, completed by `that` where they are not set.
    pub(super) fn or(self, that: MetricsTable) -> MetricsTable {
        MetricsTable {
            listen: self.listen.or(that.listen),
            network: self.network.or(that.network),
            names: self.names.or(that.names),
            pids: self.pids.or(that.pids),
            max_programs: self.max_programs.or(that.max_programs),
        }
    }

    /// Checks that other machines reach the port only where that is allowed.
    ///
    /// # Errors
    /// Returns one line if the address is not a loopback address and `network` does not allow others.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.listen {
            Some(Listen::Tcp(address)) if !address.ip().is_loopback() && self.network != Some(true) => Err(format!(
                "'{address}' can be reached from other machines: use a loopback address, such as 127.0.0.1:9495, or add network = true"
            )),
            _ => Ok(()),
        }
    }

    /// Settings in force; none = there are no metrics.
    pub(super) fn config(&self) -> Option<MetricsConfig> {
        let listen = self.listen.clone()?;
        Some(MetricsConfig {
            // A port can be reached by all users of the machine, and from other machines.
            names: self.names.unwrap_or(matches!(listen, Listen::Unix(_))),
            pids: self.pids.unwrap_or(false),
            max_programs: self.max_programs.map_or(METRICS_PROGRAMS_MAX, |n| n.0 as usize),
            listen,
        })
    }
}

const LISTEN_HELP: &str = "\"unix:/PATH\" or an address with a port, such as \"127.0.0.1:9495\"";

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, LISTEN_HELP, |text| {
            if let Some(path) = text.strip_prefix("unix:") {
                let fits = path.starts_with('/') && path.len() < 108 && !path.contains('\0');
                return fits
                    .then(|| Listen::Unix(path.into()))
                    .ok_or_else(|| Error::value(text, "place to listen", LISTEN_HELP));
            }
            let address = text.parse::<SocketAddr>().ok();
            address.map(Listen::Tcp).ok_or_else(|| Error::value(text, "place to listen", LISTEN_HELP))
        })
    }
}

impl<'de> Deserialize<'de> for Programs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 100_000).map(Programs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<MetricsConfig>, String> {
        let table = toml::from_str::<MetricsTable>(text).map_err(|e| e.message().to_owned())?;
        table.check().map(|()| table.config())
    }

    #[test]
    fn a_port_is_on_the_loopback_and_names_nobody_unless_told_to() {
        let tcp = read("listen = \"127.0.0.1:9495\"").unwrap().unwrap();
        assert_eq!((tcp.names, tcp.pids, tcp.max_programs), (false, false, METRICS_PROGRAMS_MAX));
        assert!(read("listen = \"[::1]:0\"\nnames = true").unwrap().unwrap().names);
        let unix = read("listen = \"unix:/run/x\"\nmax_programs = 7").unwrap().unwrap();
        assert_eq!((unix.names, unix.max_programs, unix.listen), (true, 7, Listen::Unix("/run/x".into())));
        assert_eq!(read("names = true"), Ok(None));
        for beyond in ["0.0.0.0:1", "10.0.0.1:80", "[::]:1"] {
            let listen = format!("listen = \"{beyond}\"");
            for network in ["", "\nnetwork = false"] {
                let error = read(&format!("{listen}{network}")).unwrap_err();
                assert!(error.contains(beyond) && error.ends_with("or add network = true"), "{error}");
            }
            let allowed = read(&format!("{listen}\nnetwork = true")).unwrap().unwrap();
            assert_eq!((allowed.listen, allowed.names), (Listen::Tcp(beyond.parse().unwrap()), false));
        }
        for wrong in ["localhost:80", "unix:x", "127.0.0.1", ""] {
            assert!(read(&format!("listen = \"{wrong}\"")).unwrap_err().contains("unix:/PATH"), "{wrong}");
        }
        assert!(read("max_programs = 0").is_err() && read("port = 1").is_err());
    }
}
