//! `xsched run`: sets the environment and executes the program.

mod environment;
mod exec;
mod share;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use xsched_proto::account::Amount;
use xsched_proto::class::PRIORITY_NEVER;
use xsched_proto::paths;
use xsched_proto::settings::{Mode, Settings};
use xsched_proto::variables;
use xsched_proto::wire::Request;

use crate::candidates;
use crate::failure::{Error, Result, say};
use crate::hints::HintArgs;
use crate::target::{self, Verdict};
use crate::values::{self, Level};
use crate::{client, out_of_sight, preload, start};

use self::environment::Environment;
use self::share::Share;

/// Start a program under the scheduler
///
/// Sets the environment and becomes the program: process id, signals and exit status are its own. A daemon is started
/// when none answers; it ends 60 s after its last client.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Priority: low, normal, high, realtime, system, or -255..255 (table below)
    #[arg(long, short = 'p', value_name = "N|CLASS", value_parser = values::priority, allow_hyphen_values = true,
        add = candidates::classes())]
    priority: Option<i32>,

    #[command(flatten)]
    hints: HintArgs,

    /// Preemption level: 1 holds launches back, 2 stops at the next kernel, 3 cuts the running kernel
    #[arg(long, value_name = "auto|1|2|3", value_parser = values::level, allow_hyphen_values = true)]
    level: Option<Level>,

    /// Number of commands in flight while another program wants the device, 0 = automatic
    #[arg(long, value_name = "N", value_parser = values::threshold, allow_hyphen_values = true)]
    threshold: Option<u32>,

    /// Number of commands that free their room under the threshold together, 0 = automatic
    #[arg(long, value_name = "N", value_parser = values::batch, allow_hyphen_values = true)]
    batch: Option<u32>,

    /// Job, whose programs get all their devices together or none [default: this run and its descendants]
    #[arg(long, value_name = "NAME", value_parser = values::job, add = candidates::jobs())]
    job: Option<String>,

    /// Memory that the program may use on each GPU, with all its processes: 20GiB, or 25% of the GPU's
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    memory_limit: Option<Amount>,

    /// Memory of each GPU that less urgent programs have to leave to this one
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    memory_reserve: Option<Amount>,

    /// Have the program's CUDA memory leave the GPU while others need the room, and with `freeze`
    #[arg(long, value_name = "swap")]
    memory: Option<Movement>,

    /// With `--memory swap`: have that memory leave once the program has launched nothing for this long: 5m
    #[arg(long, value_name = "TIME", value_parser = values::memory_idle)]
    memory_idle: Option<u32>,

    /// Sharing of an NVIDIA GPU with others: by turns, or side by side [default: auto]
    #[arg(long, value_name = "time|pool|spatial|auto")]
    share: Option<Share>,

    /// A shared library that decides instead of a policy, for the daemon that this starts
    #[arg(long, value_name = "FILE", value_parser = values::library, conflicts_with_all = ["local", "no_daemon"])]
    scheduler: Option<PathBuf>,

    /// Schedule only inside the program, by this policy, without a daemon
    #[arg(long, value_name = "POLICY", value_parser = values::PolicyParser, conflicts_with_all = ["no_daemon", "socket"])]
    local: Option<String>,

    /// Neither start nor use a daemon: the program runs unscheduled
    #[arg(long, conflicts_with = "socket")]
    no_daemon: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,

    /// Fail with exit code 3 instead of starting the program unscheduled, or at its first device call
    #[arg(long, conflicts_with = "no_daemon")]
    require: bool,

    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true,
        add = candidates::command())]
    command: Vec<OsString>,
}

/// Value of `--memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Movement {
    Swap,
}

const AFTER_HELP: &str = "\
Examples:
  xsched run --priority high -- python3 serve.py
  xsched run --priority low --weight 300 -- ./train --epochs 10
  xsched run --require -- ./app          rather not at all than unscheduled

Priorities: higher goes first. A number belongs to the class at or below it.
  class       name stands for    numbers     nice, roughly
  system           255           255             -20
  realtime         192           192..254     -19..-15
  high             128           128..191     -14..-5
  normal             0             0..127      -4..4
  low, batch      -128          -255..-1        5..19
  -256: never runs, until `xsched hint` gives it another priority
A stream priority (CUDA, HIP) shifts a queue by ten a step, never above its
program's class: -1 is ten above 0.
`normal` is the default. `normal` and `low` are best-effort: they take what is
left. On a system daemon more than `high` needs privilege.

Sharing an NVIDIA GPU: `time` gives a program a context of its own, which takes
turns with all others. `pool` puts it beside the other low and normal programs
of its user, in one context that takes turns with the urgent programs: more work
in total, but a GPU fault of one program ends all in the pool. `spatial` makes
it a client of the MPS daemon that runs. `auto` is `pool` for low and normal
programs where it can be had, and `time` else.

A program that the preload library cannot enter (setuid, 32-bit or of another
machine, musl, old glibc) runs unscheduled, and one line says so. One that is
linked statically, as launchers are, is taken to use no device itself; what it
starts is scheduled.
XSCHED_DISABLE=1 runs the program as if xsched was not there.

--require guards the start, of the program and of each process that it starts: a
process that no scheduler has taken at its first launch ends with exit code 3
(XSCHED_REQUIRE=1 does the same without `run`). A daemon that is lost later is
said once, and the program goes on unscheduled. A process that is itself started
with XSCHED_DISABLE=1 is left alone. One whose environment was replaced gets
ours back, unless XSCHED_FOLLOW=0 is set. COMMAND itself is refused where the
library cannot enter it, but for one that is linked statically. A process that
COMMAND starts and that the library cannot enter is not guarded, nor is the
static COMMAND itself: nothing of ours is in it. At the end of a COMMAND that
used no device such processes are named.";

/// Scheduler of the program.
#[derive(Debug, PartialEq, Eq)]
enum Scheduler {
    /// Daemon at this socket.
    Daemon(PathBuf, paths::Origin),
    /// The library in the program.
    Local,
    /// No scheduler.
    Nobody,
}

impl Scheduler {
    /// Scheduler that the library in the program will use by its environment, which has the flags already.
    fn of(args: &Args, settings: &Settings) -> Scheduler {
        match settings.mode {
            Mode::Unscheduled => return Scheduler::Nobody,
            Mode::Local(_) => return Scheduler::Local,
            Mode::Daemon(_) => {}
        }
        let (socket, origin) = paths::socket_path(args.socket.clone());
        // The program may change its folder before it opens the socket.
        Scheduler::Daemon(std::path::absolute(&socket).unwrap_or(socket), origin)
    }
}

/// Becomes the command. Returns the reason if it cannot.
pub(crate) fn main(args: Args) -> Result {
    let mut run = Run::new(&args)?;
    if variables::is_disabled() {
        if run.required {
            return Err(refused("XSCHED_DISABLE is set, which switches scheduling off: unset it"));
        }
        return Err(run.exec());
    }
    let library = preload::find()?;
    if !run.is_library_of_use()? {
        return Err(run.exec());
    }
    run.preload(&library)?;
    args.hand_over(&mut run.environment);
    let settings = run.environment.settings()?;
    if args.memory_idle.is_some() && !settings.options.memory_swap {
        return Err(Error::input("--memory-idle is for memory that can leave the GPU: add --memory swap"));
    }
    run.environment.tell_of(&settings);
    let scheduler = Scheduler::of(&args, &settings);
    let job = args.job.clone().unwrap_or_else(fresh_job);
    let sharing = share::Wish::of(&args, &settings);
    run.identify(&job);
    run.report_unscheduled_streams(&settings)?;
    run.report_never(&settings, &scheduler);
    let has_daemon = run.attach(&scheduler, job)?;
    sharing.settle(has_daemon, &mut run.environment)?;
    Err(run.exec())
}

/// Program on its way to its start.
#[derive(Debug)]
struct Run<'a> {
    args: &'a Args,
    /// File to execute.
    program: PathBuf,
    /// Name of the program as it was given.
    name: &'a OsStr,
    /// Arguments of the program.
    rest: &'a [OsString],
    /// Set if it must not start unscheduled.
    required: bool,
    environment: Environment,
}

impl<'a> Run<'a> {
    /// Finds the program.
    fn new(args: &'a Args) -> Result<Run<'a>> {
        let Some((name, rest)) = args.command.split_first() else {
            return Err(Error::input("the command is missing: xsched run [OPTIONS] -- COMMAND [ARGS]"));
        };
        let required = is_required(args);
        let program = target::resolve(name)?;
        Ok(Run { args, program, name, rest, required, environment: Environment::inherited() })
    }

    /// Name of the program for messages.
    fn name(&self) -> Cow<'a, str> {
        self.name.to_string_lossy()
    }

    /// Becomes the program. Returns only on failure, with the reason.
    fn exec(&self) -> Error {
        exec::exec(&self.program, self.name, self.rest, &self.environment)
    }

    /// Reports whether the library is of use: in the program, or in those that it starts. Says so where the program itself cannot be
    /// scheduled.
    fn is_library_of_use(&self) -> Result<bool> {
        let Verdict::Cannot { file, why, hands_on } = target::inspect(&self.program)? else { return Ok(true) };
        let line = format!("{} is {why}: it cannot be scheduled", file.display());
        if self.required {
            return Err(Error::environment(format!("{line}, and --require was given")));
        }
        say(&format!("{line}; {} runs unscheduled", self.name()));
        Ok(hands_on)
    }

    /// Has the program load the library.
    fn preload(&mut self, library: &Path) -> Result<()> {
        let library = preload::speakable(library)?;
        let before = std::env::var_os("LD_PRELOAD");
        self.environment.set("LD_PRELOAD", preload::prepend(&library, before.as_deref()));
        if let Some(options) = preload::sanitizer_options(std::env::var_os("ASAN_OPTIONS").as_deref()) {
            self.environment.set("ASAN_OPTIONS", options);
        }
        Ok(())
    }

    /// Tells the program its job, the run that started it, and whether it has to be scheduled.
    fn identify(&mut self, job: &str) {
        self.environment.set("XSCHED_JOB", job);
        self.environment.set("XSCHED_RUN", std::process::id().to_string());
        if self.required {
            self.environment.set("XSCHED_REQUIRE", "1");
        } else {
            self.environment.unset("XSCHED_REQUIRE");
        }
    }

    /// Reports streams that go unscheduled.
    fn report_unscheduled_streams(&self, settings: &Settings) -> Result<()> {
        if settings.auto_xqueue {
            return Ok(());
        }
        let off = "XSCHED_AUTO_XQUEUE=OFF has streams go unscheduled";
        if self.required {
            return Err(refused(&format!("{off}: unset it")));
        }
        say(&format!("{off}, in {} and what it starts", self.name()));
        Ok(())
    }

    /// Reports a priority with which the program waits at its first launch.
    fn report_never(&self, settings: &Settings, scheduler: &Scheduler) {
        if settings.options.priority != Some(PRIORITY_NEVER) {
            return;
        }
        let until = match scheduler {
            Scheduler::Nobody => return,
            Scheduler::Local => "for ever, since --local knows no `xsched hint`".to_owned(),
            Scheduler::Daemon(..) => {
                format!("until `xsched hint {} --priority N` gives it another priority", std::process::id())
            }
        };
        say(&format!("priority -256: it waits at its first launch {until}"));
    }

    /// Makes the scheduler ready, and tells the program of it. Returns true if there is a daemon.
    fn attach(&mut self, scheduler: &Scheduler, job: String) -> Result<bool> {
        match scheduler {
            Scheduler::Daemon(socket, origin) => self.attach_to_daemon(socket, *origin, job),
            Scheduler::Local => Ok(false),
            Scheduler::Nobody if self.required => {
                Err(refused("XSCHED_NO_DAEMON or XSCHED_SCHEDULER=APP asks for no scheduler: unset it"))
            }
            Scheduler::Nobody => {
                say(&format!("no daemon is used; {} runs unscheduled", self.name()));
                self.environment.set("XSCHED_TOLD", "1");
                Ok(false)
            }
        }
    }

    /// Starts the daemon where none answers, and announces the program to it. Returns true if there is one.
    fn attach_to_daemon(&mut self, socket: &Path, origin: paths::Origin, job: String) -> Result<bool> {
        self.environment.set("XSCHED_SOCKET", socket);
        let is_new = match start::ensure(socket, origin, self.args.scheduler.as_deref()) {
            Ok(is_new) => is_new,
            Err(why) if self.required => return Err(refused(why.line())),
            Err(why) => {
                self.go_without_daemon(&why);
                return Ok(false);
            }
        };
        tell_of_others(socket, origin, is_new, self.required)?;
        if self.args.scheduler.is_some() {
            decides_by_scheduler(socket)?;
        }
        if self.required {
            answers(socket)?;
        }
        client::tell(socket, Request::Announce { job, program: name_of(&self.program, self.rest) });
        self.environment.unset("XSCHED_TOLD");
        Ok(true)
    }

    /// Reports that there is no daemon.
    fn go_without_daemon(&mut self, why: &start::NoDaemon) {
        say(&format!("{}; {} runs unscheduled", why.line(), self.name()));
        if let start::NoDaemon::Distrusted(_) = why {
            self.environment.unset("XSCHED_SOCKET");
            self.environment.set("XSCHED_NO_DAEMON", "1");
        }
        // The library would print the same line.
        self.environment.set("XSCHED_TOLD", "1");
    }
}

/// Reports programs that the daemon does not schedule together with this one. Where a system daemon serves, a daemon of another user's is
/// no reason not to start: otherwise any user could keep all others from starting.
fn tell_of_others(socket: &Path, origin: paths::Origin, is_new: bool, required: bool) -> Result<()> {
    if origin == paths::Origin::Explicit {
        return Ok(());
    }
    if let Some(line) = out_of_sight::of_a_container(origin).filter(|_| is_new) {
        say(&line);
    }
    for other in out_of_sight::others(client::server(socket)) {
        let line = format!("{}; {}", other.line(), other.cure());
        if required && origin == paths::Origin::User {
            return Err(refused(&line));
        }
        say(&line);
    }
    Ok(())
}

/// Checks that the daemon asks a scheduler: one that was there already may not, and another user's may ask another.
fn decides_by_scheduler(socket: &Path) -> Result<()> {
    let answer = crate::client::ask(Some(socket), Request::Ps)?;
    let external =
        answer.iter().any(|m| matches!(m, xsched_proto::wire::DaemonMsg::Daemon(d) if d.policy == "external"));
    if external {
        return Ok(());
    }
    let shown = socket.display();
    Err(Error::environment(format!(
        "a daemon runs at {shown} already, without this scheduler: end it, or use --socket"
    )))
}

/// Reports whether the program has to end rather than run unscheduled. A run within such a run inherits this, unless it asks for no daemon
/// itself.
fn is_required(args: &Args) -> bool {
    args.require || !args.no_daemon && variables::is_on("XSCHED_REQUIRE")
}

/// Error for a program that must be scheduled and is not started.
fn refused(why: &str) -> Error {
    Error::environment(format!("{why}; --require was given"))
}

/// Checks that the daemon does more than accept the connection: a stopped one does that too.
fn answers(socket: &Path) -> Result<()> {
    let asked = crate::client::ask(Some(socket), Request::PolicyList);
    asked.map(drop).map_err(|failure| refused(failure.line()))
}

impl Args {
    /// Puts the options into the program's environment; variables of options that were not given stay.
    fn hand_over(&self, environment: &mut Environment) {
        if self.no_daemon {
            environment.set("XSCHED_NO_DAEMON", "1");
        }
        let scheduler = if self.local.is_some() { "LCL" } else { "GLB" };
        if self.local.is_some() || self.socket.is_some() {
            environment.set("XSCHED_SCHEDULER", scheduler);
            environment.unset("XSCHED_NO_DAEMON");
        }
        if let Some(policy) = &self.local {
            environment.set("XSCHED_POLICY", policy);
        }
        let numbers = [
            ("XSCHED_AUTO_XQUEUE_PRIORITY", self.priority.map(|n| n.to_string())),
            ("XSCHED_AUTO_XQUEUE_LEVEL", self.level.map(|l| l.0.map_or("auto".to_owned(), |n| n.to_string()))),
            ("XSCHED_AUTO_XQUEUE_THRESHOLD", self.threshold.map(|n| n.to_string())),
            ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", self.batch.map(|n| n.to_string())),
            ("XSCHED_MEMORY", self.memory.map(|Movement::Swap| "swap".to_owned())),
            ("XSCHED_MEMORY_IDLE", self.memory_idle.map(|s| format!("{s}s"))),
            ("XSCHED_MEMORY_LIMIT", self.memory_limit.map(|amount| amount.to_string())),
            ("XSCHED_MEMORY_RESERVE", self.memory_reserve.map(|amount| amount.to_string())),
        ];
        let hints = self.hints.hints();
        let hints = hints.given().map(|hint| (hint.variable(), hints.text(hint)));
        for (name, value) in numbers.into_iter().chain(hints) {
            if let Some(value) = value {
                environment.set(name, value);
            }
        }
        // These variables would win over the flags.
        if self.level.is_some() {
            environment.unset("XSCHED_FORCE_LEVEL");
        }
        if self.priority.is_some() {
            environment.unset("XSCHED_PRIORITY");
        }
    }
}

/// Name under which the daemon remembers the program: its path, and that of the script or module that it runs.
fn name_of(program: &Path, rest: &[OsString]) -> String {
    let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = full(program).to_string_lossy().into_owned();
    let is_option = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
    if let Some(script) = rest.iter().find(|word| !is_option(word)) {
        let path = Path::new(script);
        let shown = if path.is_file() { full(path) } else { path.to_owned() };
        name = format!("{name} {}", shown.display());
    }
    name
}

/// Name of a job that no other run has, even where containers with process ids of their own share a daemon.
fn fresh_job() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    format!("run-{}-{:x}", std::process::id(), now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_job_is_fresh() {
        let (a, b) = (fresh_job(), fresh_job());
        assert!(a.starts_with(&format!("run-{}-", std::process::id())));
        assert_ne!(a, b);
    }

    #[test]
    fn a_program_has_one_name_however_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        std::fs::write(at("python3.11"), "").unwrap();
        std::fs::write(at("train.py"), "").unwrap();
        std::os::unix::fs::symlink("python3.11", at("python3")).unwrap();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let expected = format!("{} {}", at("python3.11"), at("train.py"));
        for rest in [&["-u", &at("train.py"), "--epochs", "3"][..], &[&at("./train.py")]] {
            assert_eq!(name_of(Path::new(&at("python3")), &words(rest)), expected);
        }
        let module = name_of(Path::new(&at("python3")), &words(&["-m", "train"]));
        assert_eq!(module, format!("{} train", at("python3.11")));
        assert_eq!(name_of(Path::new(&at("train.py")), &[]), at("train.py"));
    }
}
