//! `xsched policy`: which there are, which one decides, and changing it while programs run.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use xsched_policy::{Choice, Param, registry};
use xsched_proto::wire::{DaemonMsg, ParamInfo, PolicyInfo, Request};

use crate::candidates;
use crate::failure::{Error, Result, print, print_json};
use crate::{client, values};

/// List the policies, or show or change the one in force
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Common {
    /// The answer as JSON
    #[arg(long)]
    json: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// List the policies (the default)
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Print the name of the policy in force
    Get {
        #[command(flatten)]
        common: Common,
    },
    /// Change the policy; programs go on running
    Set {
        /// The policy's name
        #[arg(value_name = "NAME", value_parser = values::PolicyParser)]
        name: String,
        /// Its parameters, such as k=2; those left out have their defaults (`xsched policy list`)
        #[arg(value_name = "NAME=VALUE", value_parser = values::parameter)]
        params: Vec<(String, String)>,
        /// Only on this device, by its key in `xsched ps` [default: on all]
        #[arg(long, value_name = "DEVICE", add = candidates::devices())]
        device: Option<String>,
        #[command(flatten)]
        common: Common,
    },
}

/// Lists, gets or sets.
pub(crate) fn main(args: Args) -> Result {
    match args.action {
        None => list(&args.common),
        Some(Action::List { common }) => list(&common),
        Some(Action::Get { common }) => get(&common),
        Some(Action::Set { name, params, device, common }) => set(name, params, device, &common),
    }
}

fn ask(common: &Common) -> Result<Vec<PolicyInfo>> {
    let parts = client::ask(common.socket.as_deref(), Request::PolicyList)?;
    let policies = parts.into_iter().filter_map(|part| match part {
        DaemonMsg::Policy(info) => Some(info),
        _ => None,
    });
    Ok(policies.collect())
}

#[derive(Serialize)]
struct Answer<'a> {
    version: u32,
    current: Option<&'a str>,
    policies: &'a [PolicyInfo],
}

/// The daemon's list; without one, what this version has.
fn list(common: &Common) -> Result {
    let (policies, missing) = match ask(common) {
        Ok(policies) => (policies, None),
        Err(why) => (built_in(), Some(why)),
    };
    let current = policies.iter().find(|p| p.current).map(|p| p.name.as_str());
    if common.json {
        return print_json(&Answer { version: 1, current, policies: &policies });
    }
    let mut out = String::new();
    for p in &policies {
        let mark = if p.current { '*' } else { ' ' };
        let names = std::iter::once(&p.name).chain(&p.aliases).map(String::as_str).collect::<Vec<_>>().join(", ");
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{mark} {names:<16} {}", p.about);
        for device in &p.devices {
            let _ = writeln!(out, "* {:<16} in force on {device}", "");
        }
        for param in &p.params {
            let _ = writeln!(out, "  {:<16} {}={}: {} ({})", "", param.name, param.value, param.about, param.accepts);
        }
    }
    if let Some(why) = missing {
        let _ = writeln!(out, "none is in force: {}", why.line());
    }
    print(&out)
}

fn built_in() -> Vec<PolicyInfo> {
    let param = |p: &Param| ParamInfo {
        name: p.name.to_owned(),
        about: p.about.to_owned(),
        accepts: p.accepts.accepted(),
        value: p.accepts.default_text(),
    };
    let policy = |e: &registry::Entry| PolicyInfo {
        name: e.name.to_owned(),
        aliases: e.aliases.iter().map(|a| a.to_string()).collect(),
        about: e.about.to_owned(),
        current: false,
        devices: Vec::new(),
        params: e.params.iter().map(param).collect(),
    };
    registry::listed().map(policy).collect()
}

fn get(common: &Common) -> Result {
    let policies = ask(common)?;
    let Some(current) = policies.iter().find(|p| p.current) else {
        return Err(Error::environment("the daemon names no policy in force; is it of another version?"));
    };
    if common.json {
        print_json(&serde_json::json!({"version": 1, "current": current.name}))
    } else {
        print(&format!("{}\n", current.name))
    }
}

fn set(name: String, params: Vec<(String, String)>, device: Option<String>, common: &Common) -> Result {
    // A mistake is one whether or not a daemon answers.
    Choice::with(&name, params.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
    client::ask(common.socket.as_deref(), Request::PolicySet { name: name.clone(), params, device })?;
    if common.json { print_json(&serde_json::json!({"version": 1, "current": name})) } else { Ok(ExitCode::SUCCESS) }
}
