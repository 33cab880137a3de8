//! Fuzz target for the memory that a program shares with the daemon: arbitrary words, stored between any two steps of all readers: decisions,
//! looks at progress, `ps`, metrics, usage, and schedulers of versions 1 and 2.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::mem::offset_of;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rustix::net::RecvFlags;
use xsched_proto::account::{MEMORY_SLOTS, MemorySlot};
use xsched_proto::histogram::Histogram;
use xsched_proto::segment::{COUNTERS, CounterSlot, GROUPS, GroupSlot, Header, QUEUES, QueueSlot, Segment, state};
use xsched_proto::wire::{ClientMsg, Levels, MAX_PACKET, Platform, Sharing};

use crate::program::Program;
use crate::running::{Running, send};
use crate::scratch;

/// A daemon, and where its metrics are.
struct Observed {
    daemon: Running,
    metrics: PathBuf,
}

/// Daemons with schedulers of version 1 and of version 2.
static DAEMONS: [LazyLock<Observed>; 2] =
    [LazyLock::new(|| Observed::start("v1", false)), LazyLock::new(|| Observed::start("v2", true))];

/// Store to come: number of the reader's steps before it, word, value.
type Later = (u8, usize, u32);

pub(crate) fn run(data: &[u8]) {
    let Some((version, mut data)) = data.split_first() else { return };
    let observed = &*DAEMONS[usize::from(version % 2)];
    let program = Program::new(&observed.daemon);
    program.hello();
    // The daemon says welcome: from here on it reads the segment.
    let _ = rustix::net::recv(&program.socket, vec![0; MAX_PACKET].as_mut_slice(), RecvFlags::empty());
    let (mut later, mut queues) = (VecDeque::new(), 0);
    let stored: &'static AtomicUsize = Box::leak(Box::default());
    while let Some((step, rest)) = data.split_first() {
        data = rest;
        let mut byte = || data.split_first().map_or(0, |(first, rest)| (data = rest, *first).1);
        match step % 8 {
            0 => send(&program.socket, &group(byte(), byte())),
            1 => {
                queues += 1;
                send(&program.socket, &ClientMsg::QueueAdd { slot: byte().into(), group: byte().into() });
            }
            2 => {
                let (at, value) = word(&mut byte);
                program.words[at].store(value, SeqCst);
            }
            3 => {
                let steps = byte();
                let (at, value) = word(&mut byte);
                later.push_back((steps, at, value));
            }
            4 => {
                let at = offset_of!(Segment, groups) + usize::from(byte()) % GROUPS * size_of::<GroupSlot>();
                let at = (at + offset_of!(GroupSlot, state)) / size_of::<u32>();
                program.words[at].store(if byte() % 2 == 0 { state::READY } else { state::IDLE }, SeqCst);
                let _ = rustix::io::write(&program.eventfd, &1u64.to_ne_bytes());
            }
            5 => observed.read(|| drop(observed.daemon.ps()), &program, &mut later, stored),
            6 => observed.read(|| observed.metrics(), &program, &mut later, stored),
            _ => send(&program.socket, &ClientMsg::QueueRemove { slot: byte().into() }),
        }
    }
    // Everything before the question is done when it is answered.
    observed.read(|| drop(observed.daemon.ps()), &program, &mut later, stored);
    crate::planted::planted(|| version % 2 == 1 && queues >= 2 && stored.load(SeqCst) >= 1);
    drop(program);
    let (info, _) = observed.daemon.ps();
    assert_eq!((info.pid, &*info.policy), (std::process::id(), "external"));
}

fn group(slot: u8, device: u8) -> ClientMsg {
    ClientMsg::GroupAdd {
        slot: slot.into(),
        device: format!("sim:{}", device % 4),
        platform: Platform::Sim,
        priority_steps: 0,
        priority_fixed: None,
        system: false,
        levels: Levels::ONE,
        sharing: Sharing::Time,
    }
}

/// A word of the segment and a value for it. The two lengths of the header are frequent.
fn word(byte: &mut impl FnMut() -> u8) -> (usize, u32) {
    let (kind, slot, part) = (byte(), usize::from(byte()), usize::from(byte()));
    let within = |base: usize, slots: usize, bytes: usize| base + slot % slots * bytes + part * 4 % bytes;
    let at = match kind % 8 {
        0 => offset_of!(Segment, header) + offset_of!(Header, used),
        1 => offset_of!(Segment, header) + offset_of!(Header, used) + 4,
        2 => within(offset_of!(Segment, header), 1, size_of::<Header>()),
        3 => within(offset_of!(Segment, groups), GROUPS, size_of::<GroupSlot>()),
        4 => within(offset_of!(Segment, queues), QUEUES, size_of::<QueueSlot>()),
        5 => within(offset_of!(Segment, counters), COUNTERS, size_of::<CounterSlot>()),
        6 => within(offset_of!(Segment, waits), GROUPS, size_of::<Histogram>()),
        _ => within(offset_of!(Segment, memory), MEMORY_SLOTS, size_of::<MemorySlot>()),
    };
    (at / size_of::<u32>(), u32::from_ne_bytes([byte(), byte(), byte(), byte()]))
}

impl Observed {
    fn start(name: &str, per_stream: bool) -> Observed {
        let [metrics, config, state] = ["metrics", "toml", "state"].map(|end| scratch::place(&format!("{name}.{end}")));
        scratch::write(&config, format!("[metrics]\nlisten = \"unix:{}\"\n", metrics.display()).as_bytes());
        let daemon = Running::with_scheduler(&scratch::place(name), &state, &config, per_stream);
        Observed { daemon, metrics }
    }

    /// Has the daemon read, while stores that are to come are made between the steps of its readers.
    fn read(&self, ask: impl FnOnce(), program: &Program, later: &mut VecDeque<Later>, stored: &'static AtomicUsize) {
        let (words, mut stores, mut steps) = (program.words, std::mem::take(later), 0);
        xsched_daemon::fuzzing::between_reads(Some(Box::new(move || {
            steps += 1;
            while stores.front().is_some_and(|(after, ..)| u32::from(*after) < steps) {
                let Some((_, at, value)) = stores.pop_front() else { return };
                words[at].store(value, SeqCst);
                stored.fetch_add(1, SeqCst);
                steps = 0;
            }
        })));
        ask();
        xsched_daemon::fuzzing::between_reads(None);
    }

    fn metrics(&self) {
        let mut stream = UnixStream::connect(&self.metrics).expect("metrics are served");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    }
}
