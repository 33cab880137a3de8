//! The daemon dies or falls silent at each step of the protocol: the program must go on. The test plays the daemon, so that it is lost at
//! that very step.

#[path = "../../../crates/xsched-daemon/tests/support/mod.rs"]
mod support;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::ProtFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use support::{map, receive_packet, send_raw};
use xsched_e2e::{Place, Process, beside, least_of, now_ns};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::segment::{Heartbeat, SEGMENT_BYTES, Segment};
use xsched_proto::wire::{ClientMsg, DaemonMsg, decode, encode};

/// Promised times, as in `daemon_lost.rs`; a program without an answer waits half a second for one in addition.
const HANG_UP: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_secs(1);
const ATTACH: Duration = Duration::from_millis(500);
/// Tries at each step, see [`least_of`].
const TRIES: u32 = 5;

/// Last step that the daemon takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Listens,
    HelloRead,
    WelcomeSent,
    GroupRead,
    GroupHeld,
    GroupRuns,
    GroupInterrupted,
    GroupGrantedButInterrupted,
}

const STEPS: [Step; 8] = [
    Step::Listens,
    Step::HelloRead,
    Step::WelcomeSent,
    Step::GroupRead,
    Step::GroupHeld,
    Step::GroupRuns,
    Step::GroupInterrupted,
    Step::GroupGrantedButInterrupted,
];

/// Played daemon at a step.
struct Daemon {
    listener: OwnedFd,
    connection: Option<OwnedFd>,
    /// Descriptors that it was given.
    kept: Vec<OwnedFd>,
    page: (OwnedFd, &'static Heartbeat),
}

impl Daemon {
    fn listening(place: &Place) -> Daemon {
        let address = SocketAddrUnix::new(place.socket()).expect("an address");
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket");
        rustix::net::bind(&listener, &address).expect("an address of its own");
        rustix::net::listen(&listener, 8).expect("a socket that listens");
        Daemon { listener, connection: None, kept: Vec::new(), page: heartbeat() }
    }

    /// Waits for a time without a batch: all commands that were launched, and may run, are complete.
    fn until_held(&self, program: &mut Process) {
        while program.line_within(Duration::from_millis(100)).is_some() {
            self.beat();
        }
    }

    /// Beats once, so that the daemon counts as alive.
    fn beat(&self) {
        self.page.1.beat_ns.store(now_ns(), SeqCst);
    }

    /// Takes the protocol with the program up to this step.
    fn go_to(&mut self, step: Step, program: &mut Process) {
        if step == Step::Listens {
            return;
        }
        let connection = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC).expect("the program connects");
        let (hello, mut fds) = hear(&connection);
        assert!(matches!(hello, ClientMsg::Hello { .. }), "{hello:?}");
        // SAFETY: the client's segment is so long, and mapped for the rest of the test's life; made of atomics.
        let segment = unsafe { &*map::<Segment>(&fds[0], SEGMENT_BYTES, ProtFlags::READ | ProtFlags::WRITE) };
        self.kept.append(&mut fds);
        if step >= Step::WelcomeSent {
            self.beat();
            let domains = xsched_proto::domains::DomainMode::Off;
            let welcome = DaemonMsg::Welcome {
                version: PROTOCOL_VERSION,
                session: 1,
                priority: 0,
                domains,
                streams_apart: false,
            };
            say(&connection, &welcome, &[self.page.0.as_fd()]);
        }
        if step >= Step::GroupRead {
            let (slot, words) = loop {
                match hear(&connection).0 {
                    ClientMsg::GroupAdd { slot, .. } => break (slot, &segment.groups[usize::from(slot)]),
                    ClientMsg::QueueAdd { .. } => {}
                    other => panic!("{other:?}"),
                }
            };
            if step >= Step::GroupHeld {
                words.gate.take_over();
                if step >= Step::GroupRuns {
                    words.gate.grant();
                }
                say(&connection, &DaemonMsg::GroupAdded { slot, id: 1, priority: 0, policy: "hpf".into() }, &[]);
            }
            if step >= Step::GroupRuns {
                program.expect("ready");
                program.progress_after(0);
                words.gate.close();
                self.until_held(program);
            }
            if step >= Step::GroupInterrupted {
                say(&connection, &DaemonMsg::Interrupt { slot, on: true }, &[]);
                // The program answers this after it has carried out the message before.
                say(&connection, &DaemonMsg::Describe { token: 1 }, &[]);
                while !matches!(hear(&connection).0, ClientMsg::Description { more: false, .. }) {
                    self.beat();
                }
            }
            if step == Step::GroupGrantedButInterrupted {
                // The message that ends the interruption does not come.
                words.gate.grant();
                self.until_held(program);
            }
        }
        self.connection = Some(connection);
    }
}

fn hear(connection: &OwnedFd) -> (ClientMsg, Vec<OwnedFd>) {
    let (packet, fds) = receive_packet(connection).expect("the program says something");
    (decode(&packet).expect("a message"), fds)
}

fn say(connection: &OwnedFd, message: &DaemonMsg, fds: &[BorrowedFd<'_>]) {
    send_raw(connection, &encode(message).expect("a message"), fds).expect("the program listens");
}

/// Page by which programs see that the daemon lives.
fn heartbeat() -> (OwnedFd, &'static Heartbeat) {
    let page = rustix::fs::memfd_create("heartbeat", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a page");
    rustix::fs::ftruncate(&page, 4096).expect("a page");
    // SAFETY: as long, and mapped for the rest of the test's life; made of atomics.
    let beat = unsafe { &*map::<Heartbeat>(&page, 4096, ProtFlags::READ | ProtFlags::WRITE) };
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&page, seals).expect("seals");
    (page, beat)
}

/// Time from the loss of the daemon at a step until the program has done a batch. Its results are checked at its end.
fn time_until_it_goes_on(step: Step, hangs_up: bool) -> Duration {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let mut daemon = Daemon::listening(&place);
    let mut command = place.command(&steady, &["200", "4"]);
    command.env("LD_PRELOAD", beside("libxsched.so"));
    let mut program = Process::start(command);
    daemon.go_to(step, &mut program);
    program.skip_lines();
    daemon.beat();
    let lost = now_ns();
    // A silent daemon keeps all descriptors open.
    let silent = (!hangs_up).then_some(daemon);
    let took = program.progress_after(lost);
    drop(silent);
    program.tell("end");
    let pid = program.pid();
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{step:?}: {errors}");
    let launched = lines.iter().find_map(|line| line.strip_prefix(&format!("launched {pid} "))).expect("its counts");
    assert_eq!(place.stats_of(pid)["launches"].as_u64(), launched.parse().ok(), "{step:?}");
    took
}

fn lost_at_each_step(how: &str, hangs_up: bool, within: Duration) {
    for step in STEPS {
        // Before the welcome a program is still starting, and waits for an answer.
        let start = if step < Step::GroupHeld { ATTACH } else { Duration::ZERO };
        let what = format!("{step:?}, {how}: the program has done a batch after");
        least_of(TRIES, within + start, &what, || time_until_it_goes_on(step, hangs_up));
    }
}

#[test]
fn a_program_goes_on_when_the_daemon_hangs_up_at_any_step() {
    lost_at_each_step("hangs up", true, HANG_UP);
}

#[test]
fn a_program_goes_on_when_the_daemon_falls_silent_at_any_step() {
    lost_at_each_step("falls silent", false, SILENCE);
}
