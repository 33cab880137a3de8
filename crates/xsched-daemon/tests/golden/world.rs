//! World: a daemon in a process of its own, programs in processes that can be killed, and the steps that are played.
//!
//! A step is a line of words. A program has a letter, and its groups and queues have slots:
//! - `attach`, `leave`, `kill`; `add`, `remove`, `queue`, `unqueue`, `levels`, `ghint`, `phint`: messages of a program. `bad` is one that
//!   makes no sense.
//! - `words a 0=R 1=D 2=I`: states ready, drained, idle, and one wake-up. `0<50` lends a priority and `0<-` none, `0~S` has short commands,
//!   `0^1` tells how it keeps up.
//! - `hint`, `suspend`, `resume`, `policy`, `policies`, `window`: commands, by root or, after `as u`, by another user.
//! - `reload 2`: another configuration; `nice a 5`: another nice value.
//!
//! The record of a step is the line with the changes that followed: `words a 0=R | a0 + n2 | b0 -C b500 n1 | b: interrupt 0 true`.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::mm::ProtFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, setpriority_process};
use tempfile::TempDir;
use xsched_policy::registry;
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{GROUPS, GroupSlot, Heartbeat, SEGMENT_BYTES, Segment, device_place, length, state};
use xsched_proto::wire::{ClientMsg, DaemonMsg, Levels, Platform, ProgramOptions, Request, Sharing, Target, encode};
use xsched_testkit::{TIMEOUT, signal, until};

use crate::parse::{NewGroup, Wish, levels_of, number};
use crate::program::{FOLDER, FOREIGN, Link, Member, Program, STARTS, Ticker, count, stalls};
use crate::support::{ask, hello, map, memfd, options, receive, seals, send, send_raw, try_connect};
use crate::text::untimed;

/// Device of the groups that are added only for their answers.
const NO_DEVICE: &str = "sim:9";

/// Process id that no program has.
pub(crate) const NO_PROCESS: u32 = u32::MAX - 1;
/// Number that no queue has.
const NO_QUEUE: u64 = 99_999;
/// Longest time between two counts of progress. The daemon polls progress each 20 ms, and a program without progress for a second loses the
/// device. A world in which nothing was counted for half of that is played again.
const TICKS_APART: Duration = Duration::from_millis(500);
/// Time between the steps of a world in which time slices matter: the daemon sends a time slice again no sooner than 2 ms after the last
/// time.
const STEPS_APART: Duration = Duration::from_micros(2_200);

/// Configurations, by number. None has a guarantee that depends on time.
const CONFIGS: [&str; 6] = [
    "starvation_s = 0\n",
    r#"
starvation_s = 0
budget_us = 700
[[rule]]
script = "b.py"
priority = "low"
ceiling = "normal"
[[rule]]
script = "c.py"
ceiling = "high"
weight = 40
[[rule]]
script = "d.py"
domains = "exempt"
level = 2
[[rule]]
script = "e.py"
priority = 20
ceiling = 60
system_ceiling = 150
threshold = 5
batch = 2
"#,
    r#"
starvation_s = 0
budget_us = 900
[[rule]]
script = "b.py"
priority = "high"
[[rule]]
script = "c.py"
ceiling = "low"
weight = 70
[[rule]]
script = "e.py"
priority = -10
timeslice = 4000
[classes.high]
weight = 300
"#,
    r#"
policy = "awf"
starvation_s = 0
[devices."sim:1"]
policy = "observe"
[[rule]]
script = "a.py"
active = "on"
[[rule]]
exe = "*"
ceiling = 100
"#,
    r#"
starvation_s = 0
[limits]
max_class = "normal"
max_weight = 300
groups = 14
queues = 2
[[rule]]
script = "v.py"
priority = "high"
ceiling = "high"
domains = "exempt"
[[rule]]
script = "w.py"
ceiling = 40
system_ceiling = 90
"#,
    "starvation_s = 0\npolicy = \"up\"\n",
];

/// Parameter of `hpf` in all worlds. By default the policy classifies a program by how long it pauses; this way time does not influence the
/// recording.
const TIMELESS: (&str, &str) = ("interactive", "off");

fn is_hpf(name: &str) -> bool {
    registry::find(name).is_ok_and(|entry| entry.name == "hpf")
}

/// Adds [`TIMELESS`] to each `hpf` of a configuration.
fn timeless(config: &str) -> String {
    let parameters = format!("parameters = {{ {} = \"{}\" }}", TIMELESS.0, TIMELESS.1);
    let set = |policy: &str| format!("{policy}\n{parameters}\n");
    match config.contains("policy = ") {
        false => set("policy = \"hpf\"") + config,
        true => config.lines().map(|l| if l == "policy = \"hpf\"" { set(l) } else { format!("{l}\n") }).collect(),
    }
}

/// Settings of a world, for all of its steps.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setting {
    /// Number of the first configuration.
    pub(crate) config: usize,
    /// Policy at the start; none: the configuration's.
    pub(crate) policy: Option<&'static str>,
    /// Value of `XSCHED_YIELD` for the daemon.
    pub(crate) yields: Option<&'static str>,
    /// True to leave out [`Gate::EXCLUSIVE`]: a group of a job on several devices counts as on the device for 20 ms after its gate has
    /// closed.
    pub(crate) hides_exclusive: bool,
    /// True where time slices of the hardware are sent again, which the daemon does once in 2 ms at most.
    pub(crate) is_slow: bool,
    /// True to append the daemon's log, which has at most some forty lines of a user.
    pub(crate) has_log: bool,
}

/// Reason to play a world again: time had an effect on its record.
#[derive(Debug)]
pub(crate) struct Disturbed(pub(crate) String);

pub(crate) struct World {
    pub(crate) programs: BTreeMap<char, Program>,
    pub(crate) setting: Setting,
    pub(crate) folder: TempDir,
    socket: PathBuf,
    pub(crate) daemon: Child,
    ticker: Ticker,
    heartbeat: Option<&'static Heartbeat>,
    /// Numbers of groups in the order of their appearance.
    pub(crate) ids: Vec<u64>,
    devices: Vec<String>,
    seen: BTreeMap<String, String>,
    /// Words of all groups that ever existed, by the group's name in the record.
    all_words: BTreeMap<String, &'static GroupSlot>,
    record: Vec<String>,
    last: Instant,
}

impl World {
    /// Starts a daemon, and a process for each program.
    pub(crate) fn new(names: &str, setting: Setting) -> World {
        let folder = tempfile::tempdir().unwrap();
        let socket = options(folder.path()).socket;
        let run = socket.parent().unwrap();
        std::fs::create_dir_all(run).unwrap();
        for folder in [folder.path(), run] {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::fs::write(folder.path().join("config.toml"), timeless(CONFIGS[setting.config])).unwrap();
        if let Some(policy) = setting.policy {
            std::fs::write(folder.path().join("policy"), policy).unwrap();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(FOLDER, folder.path()).env_remove("XSCHED_YIELD").stdin(Stdio::null());
        setting.yields.map(|value| command.env("XSCHED_YIELD", value));
        let start = STARTS.write().unwrap();
        let daemon = command.spawn().unwrap();
        // Answers are ordered by process id, so that the ids must rise: the kernel may begin again at small numbers.
        let programs = loop {
            let programs: Vec<Program> = names.chars().map(|name| Program::start(name, &socket)).collect();
            if programs.is_sorted_by_key(Program::pid) {
                break names.chars().zip(programs).collect();
            }
        };
        until("the daemon listens", || try_connect(&socket).is_some());
        drop(start);
        World {
            programs,
            setting,
            folder,
            socket,
            daemon,
            ticker: Ticker::start(),
            heartbeat: None,
            ids: Vec::new(),
            devices: Vec::new(),
            seen: BTreeMap::new(),
            all_words: BTreeMap::new(),
            record: Vec::new(),
            last: Instant::now(),
        }
    }

    /// Ends the world and returns its record.
    ///
    /// # Errors
    /// The world was disturbed by time.
    pub(crate) fn end(mut self) -> Result<Vec<String>, Disturbed> {
        self.step("ps");
        self.step("end");
        let stalls: u32 = self.ticker.segments.lock().unwrap().iter().map(|segment| stalls(segment)).sum();
        let longest = self.ticker.end();
        ask(&self.socket, Request::Stop).unwrap();
        assert!(self.daemon.wait().unwrap().success());
        if stalls > 0 {
            return Err(Disturbed(format!("{stalls} times a group showed no progress")));
        }
        if longest > TICKS_APART {
            return Err(Disturbed(format!("nothing was counted for {} ms", longest.as_millis())));
        }
        if self.setting.has_log {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            // Each line begins with its time. When the daemon ends, programs leave in any order.
            let lines = log.lines().filter_map(|line| Some(line.split_once(' ')?.1));
            let lines = lines.take_while(|line| !line.starts_with("end the daemon"));
            let lines: Vec<String> =
                lines.map(|line| format!("log {}", self.numbered(&self.named(untimed(line))))).collect();
            self.record.extend(lines);
        }
        Ok(std::mem::take(&mut self.record))
    }

    /// Plays a step, waits until the daemon has processed it, and records the changes.
    pub(crate) fn step(&mut self, step: &str) {
        if self.setting.is_slow {
            std::thread::sleep(STEPS_APART.saturating_sub(self.last.elapsed()));
        }
        count(&self.ticker.segments.lock().unwrap());
        let words: Vec<&str> = step.split_whitespace().collect();
        let mut told = BTreeMap::new();
        let answer = self.play(&words, &mut told);
        if let [verb, name, ..] = words.as_slice()
            && name.len() == 1
            && name.starts_with(|name| name >= FOREIGN)
        {
            self.settle_foreign(verb, name.chars().next().unwrap());
        }
        self.settle();
        self.last = Instant::now();
        let mut parts = vec![step.to_owned()];
        parts.extend(answer.map(|answer| format!("= {answer}")));
        parts.extend(self.changed_words());
        self.receive_all(&mut told);
        parts.extend(told.into_iter().map(|(name, messages)| format!("{name}: {}", messages.join("; "))));
        self.record.push(parts.join(" | "));
    }

    /// Waits until the daemon has processed everything before. The request comes on a new connection, which the daemon accepts after them;
    /// on an older connection it could be answered before a wake-up, which the next turn of the loop takes.
    fn settle(&self) {
        let refused = ask(&self.socket, Request::Describe { pid: NO_PROCESS });
        assert!(refused.is_err(), "{refused:?}");
    }

    /// Waits until the daemon has taken all messages of another user's program.
    fn settle_foreign(&mut self, verb: &str, name: char) {
        let program = &self.programs[&name];
        match verb {
            "attach" | "as" => return,
            "add" => (),
            // The daemon answers a program's messages in order, so that an answer to this group shows that it has taken those before. Each
            // such slot is used once. A connection that has ended serves as well.
            _ => {
                let slot = 8 + self.ids.len() as u16;
                let message = encode(&NewGroup::plain(slot, NO_DEVICE).message()).unwrap();
                let _ = send_raw(&program.link().socket, &message, &[]);
            }
        }
        let mut fds = [PollFd::new(&program.link().socket, PollFlags::IN)];
        let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        assert_ne!(poll(&mut fds, Some(&timeout)).unwrap(), 0, "no answer");
    }

    fn play(&mut self, words: &[&str], told: &mut BTreeMap<char, Vec<String>>) -> Option<String> {
        let name = words.get(1).and_then(|word| word.chars().next()).unwrap_or(' ');
        match words {
            ["attach", _, wishes @ ..] => self.attach(name, wishes, told),
            ["leave", _] => self.program(name).hang_up(),
            ["kill", _] => {
                let program = self.program(name);
                program.process.kill().unwrap();
                program.process.wait().unwrap();
                program.is_alive = false;
            }
            ["add", _, slot, device, more @ ..] => self.add(name, number(slot), device, more),
            ["remove", _, slot] => {
                let slot = number(slot);
                self.program(name).say(&ClientMsg::GroupRemove { slot });
                self.program(name).groups.remove(&slot);
            }
            ["queue", _, slot, group] => {
                let (slot, group) = (number(slot), number(group));
                self.program(name).say(&ClientMsg::QueueAdd { slot, group });
                self.program(name).queues.insert(slot, group);
            }
            ["unqueue", _, slot] => {
                let slot = number(slot);
                self.program(name).say(&ClientMsg::QueueRemove { slot });
                self.program(name).queues.remove(&slot);
            }
            ["words", _, changes @ ..] => self.set_words(name, changes),
            ["levels", _, slot, levels] => {
                self.program(name).say(&ClientMsg::Levels { slot: number(slot), levels: levels_of(levels) });
            }
            ["ghint", _, slot, values @ ..] => {
                let Wish { priority, hints, .. } = Wish::of(values);
                self.program(name).say(&ClientMsg::GroupHint { slot: number(slot), priority, hints });
            }
            ["phint", _, values @ ..] => {
                self.program(name).say(&ClientMsg::ProgramHint { hints: Wish::of(values).hints });
            }
            ["bad", _, kind] => self.say_nonsense(name, kind),
            ["nice", _, nice] => self.renice(name, nice.parse().unwrap()),
            ["reload", config] => {
                std::fs::write(self.folder.path().join("config.toml"), timeless(CONFIGS[number::<usize>(config)]))
                    .unwrap();
                // Another thread reads the file.
                let outcomes = || {
                    let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                    log.lines().filter(|line| line.contains(" the configuration ")).count()
                };
                let before = outcomes();
                signal(self.daemon.id(), Signal::HUP);
                until("the configuration is read again", || outcomes() > before);
            }
            ["end"] => (),
            ["as", _, command @ ..] => {
                let request = self.request(command);
                return Some(self.ask_as(name, request));
            }
            _ => return Some(self.command(words)),
        }
        None
    }

    fn program(&mut self, name: char) -> &mut Program {
        self.programs.get_mut(&name).expect("a program of this name")
    }

    fn attach(&mut self, name: char, wishes: &[&str], told: &mut BTreeMap<char, Vec<String>>) {
        let program = &self.programs[&name];
        let pid = Pid::from_raw(program.pid() as i32).unwrap();
        let wish = Wish::of(wishes);
        if let Some(nice) = wish.nice {
            setpriority_process(Some(pid), nice).unwrap();
        }
        let (socket, eventfd) = (program.connect(), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let file = memfd(SEGMENT_BYTES, seals());
        // SAFETY: mapped for the rest of the test's life; made of atomics.
        let segment = unsafe { &*map::<Segment>(&file, SEGMENT_BYTES, ProtFlags::READ | ProtFlags::WRITE) };
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let options = ProgramOptions {
            priority: wish.priority,
            hints: wish.hints,
            level: wish.level,
            threshold: wish.threshold,
            batch: wish.batch,
            job: wish.job,
            domains: wish.domains,
            command: vec!["python3".into(), format!("{name}.py")],
            ..ProgramOptions::default()
        };
        send(&socket, &hello(options), &[file.as_fd(), eventfd.as_fd(), pidfd.as_fd()]);
        let (message, mut passed) = receive(&socket).expect("an answer");
        if let (DaemonMsg::Welcome { .. }, None) = (&message, self.heartbeat) {
            let page = passed.pop().expect("a heartbeat page");
            // SAFETY: mapped for the rest of the test's life; made of atomics.
            self.heartbeat = Some(unsafe { &*map::<Heartbeat>(&page, 4096, ProtFlags::READ) });
        }
        told.entry(name).or_default().push(self.message_text(&message));
        self.ticker.segments.lock().unwrap().push(segment);
        self.program(name).link = Some(Link { socket, eventfd, segment, _files: [file, pidfd] });
    }

    fn add(&mut self, name: char, slot: u16, device: &str, more: &[&str]) {
        let mut group = NewGroup::plain(slot, device);
        let mut word = state::IDLE;
        for given in more {
            match given.split_once('=') {
                None if *given == "sys" => group.system = true,
                None if *given == "ready" => word = state::READY,
                None => {
                    let mut all = Platform::ALL.into_iter();
                    group.platform = all.find(|platform| platform.name() == *given).expect("a platform");
                }
                Some(("lv", value)) => group.levels = levels_of(value),
                Some(("steps", value)) => group.steps = number(value),
                Some(("fixed", value)) => group.fixed = Some(number(value)),
                Some(("spatial", value)) => group.sharing = Sharing::Spatial(number(value)),
                other => panic!("{other:?}"),
            }
        }
        if !self.devices.iter().any(|known| known == device) {
            self.devices.push(device.to_owned());
        }
        let program = self.program(name);
        let words = program.words(slot);
        words.inherited_priority.store(i32::MIN, SeqCst);
        words.state.store(word, SeqCst);
        words.system.store(group.system.into(), SeqCst);
        self.all_words.insert(format!("{name}{slot}"), words);
        let program = self.program(name);
        program.groups.insert(slot, Member { word });
        program.say(&group.message());
    }

    /// Changes words of a program's groups, and wakes the daemon once for all of them.
    fn set_words(&mut self, name: char, changes: &[&str]) {
        let program = self.program(name);
        for change in changes {
            let at = change.find(|c: char| !c.is_ascii_digit()).unwrap();
            let (slot, change) = (number(&change[..at]), &change[at..]);
            let words = program.words(slot);
            let word = match change {
                "=R" => state::READY,
                "=D" => state::DRAINED,
                "=I" => state::IDLE,
                "=?" => 77,
                "<-" => {
                    words.inherited_priority.store(i32::MIN, SeqCst);
                    continue;
                }
                "~S" | "~L" => {
                    let lengths = if change == "~S" { length::SHORT } else { length::LONG };
                    words.lengths.store(lengths, SeqCst);
                    continue;
                }
                "^1" | "^0" => {
                    words.publishes.store(number(&change[1..]), SeqCst);
                    continue;
                }
                lent => {
                    words.inherited_priority.store(number(lent.strip_prefix('<').unwrap()), SeqCst);
                    continue;
                }
            };
            let member = program.groups.get_mut(&slot).expect("a group");
            if word == state::IDLE && member.word != state::IDLE {
                words.burst_us.store(100, SeqCst);
                words.bursts.fetch_add(1, SeqCst);
            }
            member.word = word;
            words.gate.go_on();
            words.state.store(word, SeqCst);
        }
        rustix::io::write(&program.link().eventfd, &1u64.to_ne_bytes()).unwrap();
    }

    /// Sends an invalid message, which ends the connection.
    fn say_nonsense(&mut self, name: char, kind: &str) {
        let program = self.program(name);
        let (slot, group) = (9, 9);
        program.say(&match kind {
            "remove" => ClientMsg::GroupRemove { slot },
            "levels" => ClientMsg::Levels { slot, levels: Levels::ONE },
            "ghint" => ClientMsg::GroupHint { slot, priority: None, hints: Hints::default() },
            "ghint-range" => ClientMsg::GroupHint { slot: 0, priority: Some(300), hints: Hints::default() },
            "phint" => ClientMsg::ProgramHint { hints: Hints { weight: Some(0), ..Hints::default() } },
            "queue" => ClientMsg::QueueAdd { slot: 0, group },
            "queue-slot" => ClientMsg::QueueAdd { slot: u16::MAX, group },
            "unqueue" => ClientMsg::QueueRemove { slot },
            "hello" => hello(ProgramOptions::default()),
            "add-slot" => NewGroup::plain(GROUPS as u16, "sim:0").message(),
            "add-taken" => NewGroup::plain(*program.groups.keys().next().expect("a group"), "sim:0").message(),
            "add-device" => NewGroup::plain(slot, "").message(),
            "add-priority" => NewGroup { fixed: Some(300), ..NewGroup::plain(slot, "sim:0") }.message(),
            _ => panic!("{kind}"),
        });
    }

    /// Changes the nice value of a program's process, and waits for the change of a gate that follows under the policy in force.
    fn renice(&mut self, name: char, nice: i32) {
        let before = self.words();
        let pid = Pid::from_raw(self.programs[&name].pid() as i32);
        setpriority_process(pid, nice).unwrap();
        until("the daemon has read it", || self.words() != before);
    }

    /// Gives a command and returns its answer.
    fn command(&self, words: &[&str]) -> String {
        self.answer_text(ask(&self.socket, self.request(words)))
    }

    /// Gives a command from the process of a program and returns the answer.
    fn ask_as(&self, name: char, request: Request) -> String {
        let socket = self.programs[&name].connect();
        send(&socket, &ClientMsg::Control { version: PROTOCOL_VERSION, request }, &[]);
        let mut answer = Vec::new();
        self.answer_text(loop {
            match receive(&socket).expect("an answer has an end").0 {
                DaemonMsg::End => break Ok(answer),
                DaemonMsg::Refused(error) => break Err(error),
                message => answer.push(message),
            }
        })
    }

    fn request(&self, words: &[&str]) -> Request {
        match words {
            ["hint", targets, values @ ..] => {
                let Wish { priority, hints, level, threshold, batch, .. } = Wish::of(values);
                Request::Hint { targets: self.targets(targets), priority, hints, level, threshold, batch }
            }
            ["suspend", targets] => Request::Suspend { targets: self.targets(targets) },
            ["resume", targets] => Request::Resume { targets: self.targets(targets) },
            ["policies"] => Request::PolicyList,
            ["ps"] => Request::Ps,
            ["window", "-"] => Request::ActiveWindow { pid: None },
            ["window", name] => Request::ActiveWindow { pid: Some(self.pid_of(name)) },
            ["policy", name, more @ ..] => {
                let pairs = more.iter().map(|word| word.split_once('=').unwrap());
                let (device, mut params): (Vec<_>, Vec<_>) = pairs.partition(|(key, _)| *key == "dev");
                if params.is_empty() && is_hpf(name) {
                    params.push(TIMELESS);
                }
                Request::PolicySet {
                    name: (*name).to_owned(),
                    params: params.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
                    device: device.first().map(|(_, value)| (*value).to_owned()),
                }
            }
            _ => panic!("no step: {words:?}"),
        }
    }

    fn targets(&self, words: &str) -> Vec<Target> {
        let target = |word: &str| match word.split_once(':') {
            Some(("pid", name)) => Target::Pid(self.pid_of(name)),
            Some(("tree", name)) => Target::Tree(self.pid_of(name)),
            Some(("job", job)) => Target::Job(job.into()),
            Some(("user", "own")) => Target::User(rustix::process::geteuid().as_raw()),
            Some(("user", uid)) => Target::User(number(uid)),
            Some(("queue", "none")) => Target::Queue(NO_QUEUE),
            Some(("queue", place)) => Target::Queue(self.queue_at(number(place))),
            _ => Target::All,
        };
        words.split(',').map(target).collect()
    }

    fn pid_of(&self, name: &str) -> u32 {
        match name {
            "test" => std::process::id(),
            "none" => NO_PROCESS,
            "init" => 1,
            _ => self.programs[&name.chars().next().unwrap()].pid(),
        }
    }

    /// Number of a queue, by its place in the order in which queues were added.
    fn queue_at(&self, place: usize) -> u64 {
        let programs = ask(&self.socket, Request::Ps).unwrap();
        let groups =
            programs.into_iter().filter_map(|m| if let DaemonMsg::Program(p) = m { Some(p.groups) } else { None });
        let queues = groups.flatten().flat_map(|group| group.queues);
        let mut ids: Vec<u64> = queues.map(|queue| number(queue.id.strip_prefix('q').unwrap())).collect();
        ids.sort_unstable();
        ids.get(place).copied().unwrap_or(NO_QUEUE)
    }

    /// Words that the daemon stored, by group, and values on the heartbeat page, by device.
    fn words(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (name, program) in self.programs.iter().filter(|(_, program)| program.is_attached()) {
            for slot in program.groups.keys() {
                all.insert(format!("{name}{slot}"), self.words_text(program.words(*slot)));
            }
        }
        for device in &self.devices {
            let best_effort = self.heartbeat.map_or(0, |page| page.best_effort[device_place(device)].load(SeqCst));
            if best_effort > 0 {
                all.insert(device.clone(), format!("be{best_effort}"));
            }
        }
        all
    }

    /// Words that have changed since the last step, and those of groups that were removed since.
    fn changed_words(&mut self) -> Vec<String> {
        let now = self.words();
        let gone = self.seen.keys().filter(|key| !now.contains_key(*key));
        let left = |key: &String| self.all_words.get(key).map_or_else(String::new, |words| self.words_text(words));
        let mut parts: Vec<String> = gone.map(|key| format!("{key} gone {}", left(key))).collect();
        let changed = now.iter().filter(|(key, text)| self.seen.get(*key) != Some(text));
        parts.extend(changed.map(|(key, text)| format!("{key} {text}")));
        self.seen = now;
        parts
    }

    /// Receives all waiting messages. A program that is told that its connection ends is no longer attached.
    fn receive_all(&mut self, told: &mut BTreeMap<char, Vec<String>>) {
        for name in self.programs.keys().copied().collect::<Vec<_>>() {
            while let Some(link) = &self.programs[&name].link {
                let mut fds = [PollFd::new(&link.socket, PollFlags::IN)];
                if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 0 {
                    break;
                }
                let message = receive(&link.socket);
                let text = match &message {
                    Some((DaemonMsg::GroupAdded { id, .. }, _)) => {
                        self.ids.push(*id);
                        self.message_text(&message.as_ref().unwrap().0)
                    }
                    Some((message, _)) => self.message_text(message),
                    None => {
                        self.program(name).hang_up();
                        "the end".into()
                    }
                };
                told.entry(name).or_default().push(text);
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
