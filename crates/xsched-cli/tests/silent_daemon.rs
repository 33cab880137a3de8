//! Daemons and displays that do not answer: no command waits for them for ever.

mod common;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Place, until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Time limit of the test, far beyond the time that any command waits for a silent daemon.
const FOR_EVER: Duration = Duration::from_secs(90);

fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// Listens at the daemon's socket and holds the daemon's lock, so that another daemon ends at once.
fn listen(place: &Place, backlog: i32) -> (OwnedFd, File) {
    let lock = File::create(format!("{}.pid", place.socket().display())).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let listener = socket();
    rustix::net::bind(&listener, &SocketAddrUnix::new(place.socket()).unwrap()).unwrap();
    rustix::net::listen(&listener, backlog).unwrap();
    (listener, lock)
}

/// Commands that cannot work without an answer.
const NEED: &[&[&str]] = &[
    &["ps"],
    &["policy", "get"],
    &["policy", "set", "up"],
    &["hint", "--pid", "1", "--priority", "low"],
    &["suspend", "--pid", "1"],
    &["resume", "--pid", "1"],
    &["doctor", "--pid", "1"],
    &["doctor"],
    &["run", "--require", "--", "true"],
];

/// Starts all commands, and some that need no answer, and waits for their ends. Those that need an answer fail with a line that there is
/// none.
fn ask_all(place: &Place) {
    common::library();
    let start = |words: &[&str]| -> (String, Child) {
        let mut command = place.xsched(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        (words.join(" "), command.spawn().unwrap())
    };
    // A display that never answers either. Displays have the ports from 6000 on; ports from the kernel lie above.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let display = format!("127.0.0.1:{}", listener.local_addr().unwrap().port() - 6_000);
    let window: &[&str] = &["active-window", "--display", &display];
    let asking: Vec<_> = NEED.iter().copied().chain([window]).map(start).collect();
    let others = [&["run", "--", "true"][..], &["policy", "list"]].map(start);
    let begin = Instant::now();
    let end = |(words, mut child): (String, Child)| {
        while child.try_wait().unwrap().is_none() {
            if begin.elapsed() > FOR_EVER {
                child.kill().unwrap();
                panic!("{words}: hangs");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (words, output.status.code(), text)
    };
    for child in asking {
        let (words, code, text) = end(child);
        assert_eq!(code, Some(3), "{words}: {text}");
        assert!(text.contains("does not answer"), "{words}: {text}");
    }
    for child in others {
        let (words, code, text) = end(child);
        assert_eq!(code, Some(0), "{words}: {text}");
    }
}

#[test]
fn one_that_never_accepts_is_given_up() {
    let place = Place::new();
    let _held = listen(&place, 0);
    // The backlog is full, as that of a stopped daemon.
    let mut waiting = Vec::new();
    until("there is no room", || {
        let next = socket();
        let full = rustix::net::connect(&next, &SocketAddrUnix::new(place.socket()).unwrap()).is_err();
        waiting.push(next);
        full
    });
    ask_all(&place);
}

#[test]
fn one_that_never_answers_is_given_up() {
    let place = Place::new();
    let (listener, _lock) = listen(&place, 64);
    let (over, watched) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut taken = Vec::new();
            let mut fds = [
                rustix::event::PollFd::from_borrowed_fd(listener.as_fd(), rustix::event::PollFlags::IN),
                rustix::event::PollFd::new(&over, rustix::event::PollFlags::IN),
            ];
            while rustix::event::poll(&mut fds, None).is_ok() && fds[1].revents().is_empty() {
                taken.extend(rustix::net::accept(&listener));
            }
        });
        // Dropping this ends the other thread, even if this one panics.
        let _watched = watched;
        ask_all(&place);
    });
}
