//! Sharing of an NVIDIA GPU by a program: by turns, or side by side.

use std::path::PathBuf;

use clap::ValueEnum;
use xsched_daemon::mps;
use xsched_proto::class::Class;
use xsched_proto::settings::Settings;
use xsched_proto::variables;

use super::Args;
use super::environment::Environment;
use crate::failure::{Error, Result, say};
use crate::folders;

/// Variable by which `--share` reaches runs within this one, and the preload library.
const VARIABLE: &str = "XSCHED_SHARE";
/// Variable with the priority of an MPS client: 0 = normal, 1 = below normal.
const CLIENT_PRIORITY: &str = "CUDA_MPS_CLIENT_PRIORITY";
/// Folder of NVIDIA's kernel module.
const DRIVER: &str = "/proc/driver/nvidia";

/// Value of `--share`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Share {
    Time,
    Pool,
    Spatial,
    Auto,
}

/// Sharing that was asked for, with the facts that decide about it.
#[derive(Debug)]
pub(super) struct Wish {
    share: Share,
    class: Class,
    /// Pipe directory of an MPS daemon that answers, and that a program with this environment would use.
    running: Option<PathBuf>,
}

impl Wish {
    /// Reads the option, then the environment, whose value was checked before.
    pub(super) fn of(args: &Args, settings: &Settings) -> Wish {
        let inherited = || variables::text(VARIABLE).and_then(|text| Share::from_str(&text, true).ok());
        let share = args.share.or_else(inherited).unwrap_or(Share::Auto);
        let share = if settings.options.memory_swap { beside_swap(share) } else { share };
        let priority = settings.options.priority.unwrap_or(Class::Normal.nominal());
        let pipe = mps::pipe_directory();
        Wish { share, class: Class::of(priority), running: mps::answers(&pipe).then_some(pipe) }
    }

    /// Sets the variables that follow from the wish in the program's environment. A program joins a pool by itself, at its first use of a
    /// GPU, since before nobody knows whether it uses one.
    ///
    /// # Errors
    /// Exit code 3 if the program cannot share its GPU as it must.
    pub(super) fn settle(&self, has_daemon: bool, environment: &mut Environment) -> Result<()> {
        // True on a machine with NVIDIA's driver, or where the user has set a variable of MPS.
        let may_touch = || {
            std::fs::exists(DRIVER).unwrap_or(false)
                || std::env::var_os(mps::PIPE_DIRECTORY).is_some_and(|v| !v.is_empty())
        };
        let joins = has_daemon && (self.share == Share::Pool || self.share == Share::Auto && may_touch());
        if joins || self.share != Share::Auto {
            let name = self.share.to_possible_value();
            environment.set(VARIABLE, name.as_ref().map_or("auto", |name| name.get_name()));
        }
        let priority = if self.class >= Class::High { "0" } else { "1" };
        if self.share == Share::Spatial {
            let pipe = self.running.as_ref().ok_or_else(missing)?;
            say("the GPU is shared by MPS: a GPU fault of one program ends all that share it");
            environment.set(mps::PIPE_DIRECTORY, pipe);
            environment.set(CLIENT_PRIORITY, priority);
            return Ok(());
        }
        if joins || self.running.is_some() {
            // The library replaces this by a pool's directory. Adding a variable then would be unsafe, since other threads may read the
            // environment.
            environment.set(mps::PIPE_DIRECTORY, nowhere());
        }
        if joins {
            // The library may replace this, too.
            environment.set(CLIENT_PRIORITY, priority);
        }
        if self.share == Share::Auto
            && let Some(running) = &self.running
        {
            let at = running.display();
            say(&format!("not under the MPS daemon at {at}; --share spatial uses it"));
        }
        Ok(())
    }
}

/// Sharing of a program whose memory can leave the GPU: an access while it is away would end all programs of a server.
fn beside_swap(share: Share) -> Share {
    if matches!(share, Share::Pool | Share::Spatial) {
        say("--memory swap: the program takes turns with others instead of sharing the GPU side by side");
    }
    Share::Time
}

fn missing() -> Error {
    let at = mps::pipe_directory();
    Error::environment(format!("no MPS daemon answers at {}: start one with `{} -d`", at.display(), mps::CONTROL))
}

/// Empty folder, in which no MPS daemon ever answers; `/dev/null` if another user has taken the path of this user's folder.
fn nowhere() -> PathBuf {
    let runtime = folders::runtime();
    let folder = runtime.join("no-mps");
    let made = folders::private(&runtime).and_then(|()| folders::private(&folder));
    made.map_or_else(|_| "/dev/null".into(), |()| folder)
}
