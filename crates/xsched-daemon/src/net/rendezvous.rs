//! Keeps the daemon at the paths where programs look for it. The files of its sockets may be removed while it runs: by the end of a login
//! session, by a cleaner of `/tmp`. A thread checks them and makes them again, at once where a program asks at the [meeting
//! point](xsched_proto::rendezvous).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use xsched_proto::rendezvous::{HERE, MAX_BYTES, address, connected, is_of_this_user, is_shared};
use xsched_proto::{paths, trust};

use super::site::Site;
use crate::Error;
use crate::tuning::{SITE_LOOK_S, SITE_QUESTION_MS};

/// Thread that keeps the sites, as the loop uses it. The files of all sites are removed with it.
pub(crate) struct Rendezvous {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Socket at the meeting point; none where another user has taken the name, or the system has no such names.
    meeting: Option<OwnedFd>,
    state: Mutex<State>,
    /// Eventfd that counts news.
    event: OwnedFd,
    /// Descriptor that is readable once the thread must end.
    stop: OwnedFd,
}

#[derive(Default)]
struct State {
    sites: Vec<Site>,
    /// Sites that cannot be made again, with the reasons that were reported.
    told: Vec<(PathBuf, String)>,
    news: Vec<News>,
}

/// News for the loop.
pub(crate) enum News {
    /// A new socket listens at a path, instead of the one before.
    Listens(PathBuf, OwnedFd),
    /// Line for the log.
    Line(String),
}

impl Rendezvous {
    /// Takes the meeting point of a path.
    ///
    /// # Errors
    /// Fails where another daemon of this user has it.
    pub(crate) fn new(path: &Path) -> Result<Rendezvous, Error> {
        let meeting = match meet(path) {
            Ok(socket) => Some(socket),
            Err(Errno::ADDRINUSE) => match holder(path) {
                Some(pid) => {
                    let line = format!("another daemon (pid {pid}) already serves {}", path.display());
                    return Err(Error::Environment(format!("{line}; end it or use --socket")));
                }
                None => None,
            },
            Err(_) => None,
        };
        let fail = |e: Errno| Error::Environment(format!("cannot make an event descriptor: {e}"));
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(fail);
        let shared = Shared { meeting, state: Mutex::default(), event: event()?, stop: event()? };
        Ok(Rendezvous { shared: Arc::new(shared), thread: None })
    }

    /// Keeps a site from now on.
    pub(crate) fn keep(&mut self, site: Site) -> Result<(), Error> {
        self.shared.lock().sites.push(site);
        let shared = self.shared.clone();
        let started = std::thread::Builder::new().name("xsched-sites".into()).spawn(move || work(&shared));
        self.thread = Some(started.map_err(|e| Error::environment(format!("cannot start a thread: {e}")))?);
        Ok(())
    }

    /// Takes the news since the last call.
    pub(crate) fn take(&self) -> Vec<News> {
        let _ = rustix::io::read(&self.shared.event, &mut [0u8; 8]);
        std::mem::take(&mut self.shared.lock().news)
    }
}

impl AsFd for Rendezvous {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the daemon listen at a path, because a program asks for it or the daemon did listen there.
    fn serve(&self, path: &Path, is_asked: bool) -> Result<(), Error> {
        let mut state = self.lock();
        let known = state.sites.iter().position(|site| site.path() == path);
        if known.is_some_and(|at| state.sites[at].is_there()) {
            return Ok(());
        }
        let is_own = state.sites.first().is_some_and(|first| is_shared(first.path(), path));
        if known.is_none() && !is_own {
            return Err(Error::input("it serves another place"));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        // A folder that others made and removed is not made again unless a program asks.
        if !is_asked && !folder.is_dir() && !paths::is_made_here(folder) {
            return Err(Error::environment("its folder is gone"));
        }
        let socket = match known {
            Some(at) => state.sites[at].renew()?,
            None => {
                let (site, socket) = Site::new(path, false)?;
                state.sites.push(site);
                socket
            }
        };
        let line = format!("the socket {} was gone: it is there again", path.display());
        state.news.extend([News::Listens(path.to_owned(), socket), News::Line(line)]);
        state.told.retain(|(of, _)| of != path);
        drop(state);
        self.notify();
        Ok(())
    }

    /// Makes missing files again. Where a session has ended its folder cannot be made: then the folder under `/tmp` is used.
    fn look(&self) {
        let gone: Vec<PathBuf> =
            self.lock().sites.iter().filter(|site| !site.is_there()).map(|site| site.path().to_owned()).collect();
        for path in gone {
            let Err(why) = self.serve(&path, false) else { continue };
            if paths::is_usual_of(&path, rustix::process::geteuid().as_raw()) {
                let _ = self.serve(&paths::fallback_socket(), false);
            }
            self.complain(&path, why.line());
        }
    }

    fn complain(&self, path: &Path, why: &str) {
        let mut state = self.lock();
        if state.told.iter().any(|(of, told)| of == path && told == why) {
            return;
        }
        state.told.retain(|(of, _)| of != path);
        state.told.push((path.to_owned(), why.to_owned()));
        let line = format!("the socket {} is gone and cannot be made again: {why}", path.display());
        state.news.push(News::Line(line));
        drop(state);
        self.notify();
    }

    fn notify(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Answers one question at the meeting point.
    fn answer(&self, meeting: &OwnedFd) -> rustix::io::Result<()> {
        let socket = rustix::net::accept_with(meeting, SocketFlags::CLOEXEC)?;
        // Any user can connect to an abstract name.
        if !is_of_this_user(&socket) {
            return Ok(());
        }
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(SITE_QUESTION_MS)))?;
        let mut question = [0; MAX_BYTES];
        let (length, _) = rustix::net::recv(&socket, &mut question, RecvFlags::empty())?;
        let path = Path::new(std::ffi::OsStr::from_bytes(&question[..length]));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match self.serve(path, true) {
            Ok(()) => rustix::net::send(&socket, HERE, flags),
            Err(why) => rustix::net::send(&socket, why.line().as_bytes(), flags),
        }
        .map(drop)
    }
}

fn work(shared: &Shared) {
    let period = Timespec { tv_sec: SITE_LOOK_S, tv_nsec: 0 };
    loop {
        let mut fds = vec![PollFd::new(&shared.stop, PollFlags::IN)];
        fds.extend(shared.meeting.as_ref().map(|meeting| PollFd::new(meeting, PollFlags::IN)));
        let _ = rustix::event::poll(&mut fds, Some(&period));
        if !fds[0].revents().is_empty() {
            return;
        }
        match (fds.get(1).is_some_and(|fd| !fd.revents().is_empty()), &shared.meeting) {
            (true, Some(meeting)) => drop(shared.answer(meeting)),
            _ => shared.look(),
        }
    }
}

/// Listens at the meeting point of a path.
fn meet(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &address(path)?)?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

/// Process id of this user's daemon that has the meeting point of a path; none where the daemon is another user's, or sees other files than
/// this process: in a container that shares the machine's network, names are common, and paths are not.
fn holder(path: &Path) -> Option<u32> {
    let socket = connected(path).ok()?;
    let (pid, _) = trust::peer(socket.as_fd())?;
    let files = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    (files(&pid.to_string())? == files("self")?).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::clock::now_ns;
    use xsched_proto::rendezvous::call;

    /// Makes the part of a daemon that listens at a path; the test's process answers.
    fn listening(path: &Path) -> Rendezvous {
        let mut rendezvous = Rendezvous::new(path).unwrap();
        let (site, _socket) = Site::new(path, true).unwrap();
        rendezvous.keep(site).unwrap();
        rendezvous
    }

    fn asked(path: &Path) -> bool {
        call(path, Duration::from_secs(20))
    }

    #[test]
    fn a_socket_whose_folder_was_removed_is_made_again_for_who_asks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a").join("s");
        let rendezvous = listening(&path);
        assert!(asked(&path) && rendezvous.take().is_empty(), "nothing is gone");
        for _ in 0..3 {
            std::fs::remove_dir_all(dir.path().join("a")).unwrap();
            assert!(asked(&path));
            assert!(path.exists());
            let news = rendezvous.take();
            assert!(matches!(&news[..], [News::Listens(at, _), News::Line(_)] if *at == path));
        }
        assert!(!asked(&dir.path().join("a").join("other")), "it serves no other place");
        // The folder that lies there now belongs to another user.
        std::fs::remove_dir_all(dir.path().join("a")).unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(&path, "no socket").unwrap();
        assert!(!asked(&path));
        drop(rendezvous);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "no socket", "it leaves what is not its own");
    }

    #[test]
    fn a_second_daemon_of_a_place_is_refused_whatever_became_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = listening(&path);
        std::fs::remove_file(&path).unwrap();
        let Err(why) = Rendezvous::new(&path) else { panic!("a second one") };
        assert!(why.line().contains(&format!("(pid {})", std::process::id())), "{why}");
        drop(first);
        assert!(Rendezvous::new(&path).is_ok(), "it goes with the daemon");
    }

    #[test]
    fn a_folder_of_xscheds_own_is_made_again_unasked_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("xsched").join("s"), dir.path().join("other").join("s"));
        let [ours, others] = [&own, &other].map(|path| listening(path));
        std::fs::remove_dir_all(own.parent().unwrap()).unwrap();
        std::fs::remove_dir_all(other.parent().unwrap()).unwrap();
        let until = now_ns() + 60_000_000_000;
        while others.shared.lock().told.is_empty() || !own.exists() {
            assert!(now_ns() < until, "nobody looks");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!other.parent().unwrap().exists());
        drop((ours, others));
    }
}
