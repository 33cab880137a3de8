//! How a program shares an NVIDIA GPU: by turns, or side by side under the Multi-Process Service (MPS).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use xsched_daemon::{MpsConfig, mps};
use xsched_proto::class::{self, Class};
use xsched_proto::wire::{DaemonMsg, MpsWish, Request};

use super::{Args, Environment};
use crate::failure::{Failure, Result, say};
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
    config: MpsConfig,
    /// Pipe directory of an MPS daemon that a program with this environment would find.
    running: Option<PathBuf>,
}

impl<'a> Wish<'a> {
    /// Reads flags, then environment, then configuration.
    ///
    /// # Errors
    /// Exit code 2 for what contradicts itself.
    pub(super) fn of(args: &Args, job: &'a str) -> Result<Wish<'a>> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let share = match (args.share, var(VARIABLE)) {
            (Some(share), _) => share,
            (None, Some(text)) => Share::from_str(&text, true).map_err(|_| {
                Failure::input(format!("{VARIABLE}: '{text}' is no way to share: use time, spatial or auto"))
            })?,
            (None, None) => Share::Auto,
        };
        if share == Share::Time && args.mps == Some(Mps::Start) {
            return Err(Failure::input("--mps start is for --share spatial or auto; time sharing is without MPS"));
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
                say(
                    "the GPU is shared by MPS: a GPU fault of one program ends all that share it (--share time keeps apart)",
                );
                environment.set(mps::PIPE_DIRECTORY, pipe);
                environment.set(CLIENT_PRIORITY, if self.class >= Class::High { "0" } else { "1" });
            }
            None => {
                let Some(running) = &self.running else { return Ok(()) };
                environment.set(mps::PIPE_DIRECTORY, nowhere()?);
                if self.share == Share::Auto {
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
            // Nobody knows how other programs use the GPU, and nobody would end what is started.
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
            client::tell(socket, Request::Announce { job: self.job.to_owned(), mps: None });
            return Ok(None);
        }
        let running = match self.running.as_ref().map(|p| p.to_str()) {
            Some(None) => return Err(Failure::environment("the folder of the MPS daemon that runs has no UTF-8 name")),
            Some(Some(pipe)) => Some(pipe.to_owned()),
            None => None,
        };
        let wish = MpsWish { running, start: self.start, if_all: auto };
        let asked = client::ask(Some(socket), Request::Announce { job: self.job.to_owned(), mps: Some(wish) });
        let answer = match asked {
            Ok(answer) => answer,
            Err(e) if auto => {
                say(&format!("time sharing: {}", e.message()));
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let pipe = answer.into_iter().find_map(|part| match part {
            DaemonMsg::Mps { pipe } => Some(PathBuf::from(pipe)),
            _ => None,
        });
        pipe.map(wait_for).transpose()
    }
}

fn missing(advice: &str) -> Failure {
    let at = mps::pipe_directory();
    Failure::environment(format!(
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
            return Err(Failure::environment(format!(
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
    folders::private(&runtime).and_then(|()| folders::private(&folder)).map_err(Failure::environment)?;
    Ok(folder)
}
