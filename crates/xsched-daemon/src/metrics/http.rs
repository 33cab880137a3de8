//! Subset of HTTP that monitors need: a request with a short head that arrives in time, an answer, and the end of the connection. A few
//! threads answer, each one connection at a time: a silent connection occupies one of them for a second.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::exchange::Exchange;
use super::page;
use super::series::{Series, Shown};
use crate::Error;
use crate::config::{Listen, MetricsConfig};
use crate::guard::guarded;
use crate::server::clock::now_ns;
use crate::server::service;
use crate::tuning::{METRICS_HEAD_MAX_BYTES, METRICS_HEAD_MS, METRICS_PATIENCE_MS, METRICS_THREADS, METRICS_WRITE_MS};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A connection, of either kind.
trait Stream: Read + Write {
    fn limit(&self, read: Duration, write: Duration) -> std::io::Result<()>;
}

impl Stream for UnixStream {
    fn limit(&self, read: Duration, write: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }
}

impl Stream for TcpStream {
    fn limit(&self, read: Duration, write: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }
}

struct Answers {
    listener: Listener,
    exchange: Arc<Exchange>,
    address: String,
    /// The number of the snapshot that was taken in last, and how many programs had no room.
    series: Mutex<(Series, u64, u64)>,
}

/// Listens, and answers from now on. Returns the address for the log.
///
/// # Errors
/// Fails if the address cannot be listened at, or nothing would reach it there.
pub(super) fn start(config: &MetricsConfig, exchange: &Arc<Exchange>) -> Result<String, Error> {
    let (listener, address) = match &config.listen {
        Listen::Unix(path) => (Listener::Unix(unix(path)?), format!("unix:{}", path.display())),
        Listen::Tcp(address) => {
            let fail = |e: std::io::Error| Error::environment(format!("cannot listen at {address}: {e}"));
            let passed = service::passed_listener(*address);
            if passed.is_none() && service::has_no_port_of_its_own() {
                return Err(Error::environment(format!(
                    "nothing reaches {address}: this unit may open no port; enable xsched-metrics.socket with that address and restart the service"
                )));
            }
            let listener = passed.map_or_else(|| TcpListener::bind(address), Ok).map_err(fail)?;
            let address = listener.local_addr().map_err(fail)?;
            (Listener::Tcp(listener), format!("http://{address}/metrics"))
        }
    };
    let shown = Shown { names: config.names, pids: config.pids, most: config.max_programs };
    let series = Mutex::new((Series::new(shown), 0, 0));
    let answers = Arc::new(Answers { listener, exchange: exchange.clone(), address: address.clone(), series });
    for n in 0..METRICS_THREADS {
        let answers = answers.clone();
        let started = std::thread::Builder::new().name("xsched-metrics".into()).spawn(move || answers.serve());
        match started {
            Ok(_) => (),
            // One thread is enough.
            Err(_) if n > 0 => break,
            Err(e) => return Err(Error::environment(format!("cannot start a thread: {e}"))),
        }
    }
    Ok(address)
}

/// A socket that its group may use, too: that of the folder where the folder passes its group on.
fn unix(path: &Path) -> Result<UnixListener, Error> {
    let fail = |e: std::io::Error| Error::environment(format!("cannot listen at {}: {e}", path.display()));
    let is_left = path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket()) && is_refused(path);
    if is_left {
        std::fs::remove_file(path).map_err(fail)?;
    }
    let listener = UnixListener::bind(path).map_err(fail)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(fail)?;
    Ok(listener)
}

/// Reports whether no process listens at a socket. A full backlog is no reason to wait.
fn is_refused(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let connect = |socket| rustix::net::connect(socket, &SocketAddrUnix::new(path)?);
    socket.and_then(connect) == Err(Errno::CONNREFUSED)
}

impl Answers {
    fn serve(&self) {
        loop {
            let done = match &self.listener {
                Listener::Unix(listener) => listener.accept().map(|(stream, _)| self.answer(stream)),
                Listener::Tcp(listener) => listener.accept().map(|(stream, _)| self.answer(stream)),
            };
            if done.is_err() {
                // No descriptor is left: some are soon.
                std::thread::sleep(Duration::from_millis(METRICS_HEAD_MS));
            }
        }
    }

    fn answer(&self, mut stream: impl Stream) {
        let (status, kind, body) = match head(&mut stream) {
            Some(head) => self.guarded_reply(&head),
            None => ("400 Bad Request", "text/plain", "a request of HTTP/1 is expected\n".to_owned()),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        // A client that has gone needs no answer.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    }

    fn guarded_reply(&self, head: &str) -> (&'static str, &'static str, String) {
        guarded(format_args!("an answer at {}", self.address), || self.reply(head)).unwrap_or_else(|fault| {
            self.exchange.report(fault);
            ("500 Internal Server Error", "text/plain", "a fault of the daemon: its log has it\n".to_owned())
        })
    }

    fn reply(&self, head: &str) -> (&'static str, &'static str, String) {
        let mut words = head.split(' ');
        let (method, target) = (words.next(), words.next().unwrap_or_default());
        let plain = |status, text: &str| (status, "text/plain", format!("{text}\n"));
        match (method, target.split('?').next()) {
            (Some("GET"), Some("/metrics")) => match self.page() {
                Ok(page) => ("200 OK", OPENMETRICS, page),
                Err(why) => plain("503 Service Unavailable", why.line()),
            },
            (Some("GET"), _) => plain("404 Not Found", "there is /metrics"),
            _ => plain("405 Method Not Allowed", "use GET"),
        }
    }

    fn page(&self) -> Result<String, Error> {
        let snapshot = self.exchange.snapshot(Duration::from_millis(METRICS_PATIENCE_MS));
        let (number, snapshot) = snapshot.ok_or_else(|| Error::environment("the daemon is busy"))?;
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let (series, taken, left_out) = &mut *series;
        // Another thread may have been quicker, even with a later one.
        if number > *taken {
            (*left_out, *taken) = (series.take(now_ns(), &snapshot), number);
        }
        page::text(&snapshot, series, *left_out)
    }
}

/// The first line of a request, once its head is there.
fn head(stream: &mut impl Stream) -> Option<String> {
    let until = Instant::now() + Duration::from_millis(METRICS_HEAD_MS);
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.limit(left, Duration::from_millis(METRICS_WRITE_MS)).ok()?;
        let got = stream.read(&mut part).ok().filter(|got| *got > 0)?;
        bytes.extend_from_slice(&part[..got]);
        if bytes.len() > METRICS_HEAD_MAX_BYTES {
            return None;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    let line = text.lines().next()?;
    line.contains(" HTTP/1.").then(|| line.to_owned())
}
