//! How a program shares an NVIDIA GPU: by turns, or side by side under the Multi-Process Service (MPS).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use xsched_daemon::{MpsConfig, mps};
use xsched_proto::class::{self, Class};
use xsched_proto::wire::{DaemonMsg, MpsWish, Request};

use super::{Args, Environment};
use crate::failure::{Error, Result, say};
use crate::{client, folders};

/// Longest wait for an MPS daemon that was just started.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two looks at it.
const STEP: Duration = Duration::from_millis(5);
/// What a run without `--share` within another one finds.
const VARIABLE: &str = "XSCHED_SHARE";
/// MPS knows two priorities: 0 = normal, 1 = below normal.
const CLIENT_PRIORITY: &str = "CUDA_MPS_CLIENT_PRIORITY";

/// `--share`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Share {
    Time,
    Spatial,
    Auto,
}

/// `--mps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Mps {
    Running,
    Start,
}

/// What was asked for, with what there is.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    share: Share,
    start: bool,
    class: Class,
    job: &'a str,
    program: String,
    config: MpsConfig,
    /// Pipe directory of an MPS daemon that a program with this environment would find.
    running: Option<PathBuf>,
}

impl<'a> Wish<'a> {
    /// Reads flags, then environment, then configuration.
    ///
    /// # Errors
    /// Exit code 2 for what contradicts itself.
    pub(super) fn of(args: &Args, job: &'a str, program: &Path) -> Result<Wish<'a>> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let share = match (args.share, var(VARIABLE)) {
            (Some(share), _) => share,
            (None, Some(text)) => Share::from_str(&text, true).map_err(|_| {
                Error::input(format!("{VARIABLE}: '{text}' is no way to share: use time, spatial or auto"))
            })?,
            (None, None) => Share::Auto,
        };
        if share == Share::Time && args.mps == Some(Mps::Start) {
            return Err(Error::input("--mps start is for --share spatial or auto; time sharing is without MPS"));
        }
        // A mistake in a file is the daemon's to tell, which does not start with it.
        let config = MpsConfig::read(&folders::configuration());
        let config = config.unwrap_or(MpsConfig { start: false, auto: false, max_class: Class::Normal });
        let inherited = || var("XSCHED_AUTO_XQUEUE_PRIORITY").and_then(|text| class::parse_priority(&text).ok());
        let priority = args.priority.or_else(inherited).unwrap_or(Class::Normal.nominal());
        let pipe = mps::pipe_directory();
        Ok(Wish {
            share,
            start: args.mps.map_or(config.start, |mps| mps == Mps::Start),
            class: Class::of(priority),
            job,
            program: name_of(program, &args.command[1..]),
            config,
            running: mps::answers(&pipe).then_some(pipe),
        })
    }

    /// Tells the daemon of the program, and puts what comes of the wish into the program's environment.
    ///
    /// # Errors
    /// Exit code 3 where the program cannot share its GPU as it must.
    pub(super) fn settle(&self, daemon: Option<&Path>, environment: &mut Environment) -> Result<()> {
        let pipe = self.pipe(daemon)?;
        if pipe.is_some() || self.share != Share::Auto {
            environment.set(VARIABLE, if pipe.is_some() { "spatial" } else { "time" });
        }
        match pipe {
            Some(pipe) => {
                say("the GPU is shared by MPS: a GPU fault of one program ends all that share it");
                environment.set(mps::PIPE_DIRECTORY, pipe);
                environment.set(CLIENT_PRIORITY, if self.class >= Class::High { "0" } else { "1" });
            }
            None => {
                let Some(running) = &self.running else { return Ok(()) };
                environment.set(mps::PIPE_DIRECTORY, nowhere()?);
                if self.share == Share::Auto && !self.config.auto {
                    let at = running.display();
                    say(&format!("time sharing: not under the MPS daemon at {at}; --share spatial uses it"));
                }
            }
        }
        Ok(())
    }

    /// Pipe directory of the MPS daemon to use; none = time sharing.
    fn pipe(&self, daemon: Option<&Path>) -> Result<Option<PathBuf>> {
        let auto = self.share == Share::Auto;
        let wanted = match self.share {
            Share::Time => false,
            Share::Spatial => true,
            Share::Auto => self.config.auto && self.class <= self.config.max_class,
        };
        let possible = self.running.is_some() || self.start;
        let Some(socket) = daemon else {
            // How other programs use the GPU is unknown, and nothing would end what is started.
            return match (&self.running, wanted && !auto) {
                (_, false) => Ok(None),
                (Some(running), true) => Ok(Some(running.clone())),
                (None, true) => Err(missing("without xsched's daemon none is started")),
            };
        };
        if !(wanted && possible) {
            if wanted && !auto {
                return Err(missing("give --mps start as well"));
            }
            client::tell(socket, self.announce(None));
            return Ok(None);
        }
        let running = match self.running.as_ref().map(|p| p.to_str()) {
            Some(None) => return Err(Error::environment("the folder of the MPS daemon that runs has no UTF-8 name")),
            Some(Some(pipe)) => Some(pipe.to_owned()),
            None => None,
        };
        let wish = MpsWish { running, start: self.start, if_pays: auto };
        let answer = match client::ask(Some(socket), self.announce(Some(wish))) {
            Ok(answer) => answer,
            Err(e) if auto => {
                say(&format!("time sharing: {}", e.line()));
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        match answer.into_iter().next() {
            Some(DaemonMsg::Mps { pipe, warning }) => {
                if let Some(warning) = warning {
                    say(&warning);
                }
                wait_for(pipe.into()).map(Some)
            }
            Some(DaemonMsg::ByTime { why }) => {
                say(&format!("time sharing: {why}"));
                Ok(None)
            }
            _ => Err(Error::environment("the daemon's answer says nothing of MPS; restart it with this version")),
        }
    }

    fn announce(&self, mps: Option<MpsWish>) -> Request {
        Request::Announce { job: self.job.to_owned(), program: self.program.clone(), mps }
    }
}

/// What the daemon remembers the program by: its path, and that of the script or module it is given.
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

fn missing(advice: &str) -> Error {
    let at = mps::pipe_directory();
    Error::environment(format!(
        "no MPS daemon answers at {}: start one with `{} -d`, or {advice}",
        at.display(),
        mps::CONTROL
    ))
}

/// Waits until the MPS daemon answers.
fn wait_for(pipe: PathBuf) -> Result<PathBuf> {
    let deadline = Instant::now() + PATIENCE;
    while !mps::answers(&pipe) {
        if Instant::now() > deadline {
            let log = pipe.with_file_name("log").join("control.out");
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().next_back().unwrap_or("it said nothing");
            return Err(Error::environment(format!(
                "the MPS daemon that was started does not answer within {} s ({last}); use --share time",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(STEP);
    }
    Ok(pipe)
}

/// An empty folder, where no MPS daemon will ever answer.
fn nowhere() -> Result<PathBuf> {
    let runtime = folders::runtime();
    let folder = runtime.join("no-mps");
    folders::private(&runtime).and_then(|()| folders::private(&folder))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

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
