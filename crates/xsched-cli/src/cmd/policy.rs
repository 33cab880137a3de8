//! `xsched policy`: which there are, which one decides, and changing it while programs run.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use xsched_policy::registry;
use xsched_proto::wire::{DaemonMsg, PolicyInfo, Request};

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
        #[arg(value_name = "NAME", value_parser = values::policy)]
        name: String,
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
        Some(Action::Set { name, common }) => set(name, &common),
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
    }
    if let Some(why) = missing {
        let _ = writeln!(out, "none is in force: {}", why.line());
    }
    print(&out)
}

fn built_in() -> Vec<PolicyInfo> {
    let all = registry::POLICIES.iter().filter(|e| !e.test_only);
    all.map(|e| PolicyInfo {
        name: e.name.to_owned(),
        aliases: e.aliases.iter().map(|a| a.to_string()).collect(),
        about: e.about.to_owned(),
        current: false,
    })
    .collect()
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

fn set(name: String, common: &Common) -> Result {
    client::ask(common.socket.as_deref(), Request::PolicySet { name: name.clone() })?;
    if common.json { print_json(&serde_json::json!({"version": 1, "current": name})) } else { Ok(ExitCode::SUCCESS) }
}
