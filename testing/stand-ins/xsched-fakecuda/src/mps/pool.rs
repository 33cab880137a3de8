//! The driver's side in a client: its connection to the server, and its contexts in the server's.

use super::packet;
use crate::result::{Error, Result};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use xsched_sim::client::{Context, Invitation, Ordering, lock};
use xsched_sim::model::WHOLE;

/// The pool to which the contexts of this process belong.
pub(crate) struct Pool {
    connection: Mutex<OwnedFd>,
    fd: RawFd,
    /// The machine's numbers of the devices that the server sees, in the server's order.
    pub(crate) devices: Vec<usize>,
    width: u32,
    /// Set by `CUDA_MPS_CLIENT_PRIORITY`, which is 0 for normal priority and 1 for below normal.
    below: bool,
}

impl Pool {
    /// The pool of the control daemon, if one answers.
    pub(crate) fn find() -> Result<Option<Self>> {
        let Ok(connection) = packet::connect(&packet::folder()) else { return Ok(None) };
        let width = width(|name| std::env::var(name).ok())?;
        let below = std::env::var("CUDA_MPS_CLIENT_PRIORITY").is_ok_and(|set| set.trim() == "1");
        let devices: Vec<usize> = asked(&connection, "client")?;
        let fd = connection.as_raw_fd();
        Ok(Some(Self { connection: Mutex::new(connection), fd, devices, width, below }))
    }

    /// Descriptor of the connection.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Creates a context in the server's on one of the machine's devices. Returns it with the number of its invitation.
    pub(crate) fn join(&self, device: usize) -> Result<(&'static Context, u64)> {
        let [number, secret] = asked(&lock(&self.connection), &format!("context {device}"))?[..] else {
            return Err(Error::MPS_RPC_FAILURE);
        };
        match Context::join(Invitation { number, secret }, self.width, self.below, Ordering::Barrier) {
            Ok(sim) => Ok((sim, number)),
            Err(_) => {
                self.leave(number);
                Err(Error::MPS_SERVER_NOT_READY)
            }
        }
    }

    /// Ends the context of this invitation.
    pub(crate) fn leave(&self, number: u64) {
        // If the server is gone, this fails, which does not matter.
        let _ = packet::ask(&*lock(&self.connection), &format!("end {number}"));
    }
}

/// Sends a request to the server, and returns the numbers in the answer.
fn asked<T: std::str::FromStr>(connection: &OwnedFd, question: &str) -> Result<Vec<T>> {
    let answer = packet::ask(connection, question).map_err(|_| Error::MPS_CONNECTION_FAILED)?;
    if let Some(code) = answer.strip_prefix("error ") {
        return Err(code.parse().map_or(Error::MPS_RPC_FAILURE, Error));
    }
    let words = answer.strip_prefix("ok").ok_or(Error::MPS_RPC_FAILURE)?.split_ascii_whitespace();
    words.map(|word| word.parse().map_err(|_| Error::MPS_RPC_FAILURE)).collect()
}

/// Part of the device that a kernel of this process takes, in thousandths. Like NVIDIA's driver, it ignores a malformed
/// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`; a malformed `FAKECUDA_WIDTH` is an error in a test.
fn width(get: impl Fn(&str) -> Option<String>) -> Result<u32> {
    let percent = |name: &str| {
        let set = get(name)?;
        Some(set.trim().parse::<f64>().ok().filter(|&n| n > 0.0 && n <= 100.0).ok_or(set))
    };
    let own = percent("FAKECUDA_WIDTH").unwrap_or(Ok(100.0)).map_err(|set| {
        eprintln!("FAKECUDA_WIDTH={set}: expected a percentage above 0, up to 100");
        Error::INVALID_VALUE
    })?;
    let given = percent("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").and_then(std::result::Result::ok).unwrap_or(100.0);
    Ok((own.min(given) * f64::from(WHOLE) / 100.0).ceil() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_percentage_is_the_width() {
        let of = |own: Option<&str>, given: Option<&str>| {
            width(|name| if name == "FAKECUDA_WIDTH" { own } else { given }.map(str::to_owned))
        };
        assert_eq!(of(None, None), Ok(WHOLE));
        assert_eq!(of(Some("50"), None), Ok(WHOLE / 2));
        assert_eq!(of(Some("50"), Some("12.5")), Ok(WHOLE / 8));
        assert_eq!(of(Some("0.01"), Some("100")), Ok(1), "something");
        assert_eq!(of(None, Some("200")), Ok(WHOLE), "NVIDIA's is left out");
        assert_eq!(of(Some("half"), None), Err(Error::INVALID_VALUE));
        assert_eq!(of(Some("0"), None), Err(Error::INVALID_VALUE));
    }
}
