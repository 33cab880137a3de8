//! `xsched policy`: lists the policies, shows the one in force, and changes it while programs run.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use xsched_policy::{Choice, Param, registry};
use xsched_proto::text::escaped;
use xsched_proto::wire::{DaemonMsg, ParamInfo, PolicyInfo, Request};

use crate::candidates;
use crate::failure::{Error, Result, print, print_json, say};
use crate::{client, values};

/// List the policies, or show or change the one in force
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// Print the JSON Schema of `list --json`
    #[arg(long, exclusive = true)]
    schema: bool,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Common {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket, global = true)]
    socket: Option<PathBuf>,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// List the policies (the default)
    List,
    /// Print the name of the policy in force
    Get,
    /// Change the policy; programs go on running
    Set {
        /// The policy's name
        #[arg(value_name = "NAME", value_parser = values::PolicyParser)]
        name: String,
        /// Parameters, such as k=2; omitted ones have their defaults (`xsched policy list`)
        #[arg(value_name = "NAME=VALUE", value_parser = values::parameter)]
        params: Vec<(String, String)>,
        /// Only on this device, by its key in `xsched ps` [default: on all]
        #[arg(long, value_name = "DEVICE", add = candidates::devices())]
        device: Option<String>,
    },
}

/// Published schema of the answer.
const SCHEMA: &str = include_str!("../../../../docs/reference/policy.schema.json");

/// Lists, shows or sets the policy.
pub(crate) fn main(args: Args) -> Result {
    if args.schema {
        return print(SCHEMA);
    }
    let common = &args.common;
    match args.action {
        None | Some(Action::List) => list(common),
        Some(Action::Get) => get(common),
        Some(Action::Set { name, params, device }) => set(name, params, device, common),
    }
}

/// Policies, with lines on those in force that are not the configuration's.
fn ask(common: &Common) -> Result<(Vec<PolicyInfo>, Vec<String>)> {
    let parts = client::ask(common.socket.as_deref(), Request::PolicyList)?;
    let set = notes(&parts).map(str::to_owned).collect();
    let policies = parts.into_iter().filter_map(|part| match part {
        DaemonMsg::Policy(info) => Some(info),
        _ => None,
    });
    Ok((policies.collect(), set))
}

/// Notes of the daemon in an answer.
fn notes(parts: &[DaemonMsg]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| if let DaemonMsg::Note { text } = part { Some(text.as_str()) } else { None })
}

#[derive(Serialize)]
struct Answer<'a> {
    version: u32,
    current: Option<&'a str>,
    policies: &'a [PolicyInfo],
}

/// List of policies from the daemon; without one, that of this version.
fn list(common: &Common) -> Result {
    let (policies, set, missing) = match ask(common) {
        Ok((policies, set)) => (policies, set, None),
        Err(why) => (built_in(), Vec::new(), Some(why)),
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
    for line in set {
        let _ = writeln!(out, "{}", escaped(&line));
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
    let (policies, _) = ask(common)?;
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
    // A mistake is reported whether or not a daemon answers.
    let now = Choice::with(&name, params.iter().map(|(name, value)| (name.as_str(), value.as_str())))?.to_string();
    let (before, _) = ask(common)?;
    let set = Request::PolicySet { name: name.clone(), params, device: device.clone() };
    let answer = client::ask(common.socket.as_deref(), set)?;
    notes(&answer).for_each(say);
    if common.json {
        return print_json(&serde_json::json!({"version": 1, "current": name, "was": was(&before, device.as_deref())}));
    }
    print(&changed(&before, &now, device.as_deref()))
}

/// Name of the policy, with its parameters that are not at their defaults.
fn text(policy: &PolicyInfo) -> String {
    let params = policy.params.iter().map(|param| (param.name.as_str(), param.value.as_str()));
    // The policy of a newer daemon is not known here.
    Choice::with(&policy.name, params).map_or_else(|_| policy.name.clone(), |choice| choice.to_string())
}

/// Policy that was in force on a device, or on devices that had none of their own.
fn was(before: &[PolicyInfo], device: Option<&str>) -> Option<String> {
    let own = before.iter().find(|p| p.devices.iter().any(|d| Some(d.as_str()) == device));
    own.or_else(|| before.iter().find(|p| p.current)).map(text)
}

/// Line about the change, such as `policy: hpf → up`, and one for each device that had a policy of its own.
fn changed(before: &[PolicyInfo], now: &str, device: Option<&str>) -> String {
    let line = |of: &str, was: Option<String>| match was {
        Some(was) if was == now => format!("policy{of}: {now} as before\n"),
        Some(was) => format!("policy{of}: {was} → {now}\n"),
        None => format!("policy{of}: {now}\n"),
    };
    let on = |device: &str| format!(" on {}", escaped(device));
    if let Some(device) = device {
        return line(&on(device), was(before, Some(device)));
    }
    let own = before.iter().flat_map(|policy| policy.devices.iter().map(move |device| (device, policy)));
    let others: String = own.map(|(device, policy)| line(&on(device), Some(text(policy)))).collect();
    line("", was(before, None)) + &others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_what_was_in_force_on_each_device() {
        let mut policies = built_in();
        let [hpf, kedf] = ["hpf", "kedf"].map(|name| policies.iter().position(|p| p.name == name).unwrap());
        policies[hpf].current = true;
        assert_eq!(changed(&policies, "up", None), "policy: hpf → up\n");
        assert_eq!(changed(&policies, "hpf", None), "policy: hpf as before\n");
        policies[kedf].devices = vec!["sim:0".into()];
        policies[kedf].params[0].value = "2".into();
        assert_eq!(changed(&policies, "up", None), "policy: hpf → up\npolicy on sim:0: kedf k=2 → up\n");
        assert_eq!(changed(&policies, "kedf k=2", Some("sim:0")), "policy on sim:0: kedf k=2 as before\n");
        assert_eq!(changed(&policies, "up", Some("sim:1")), "policy on sim:1: hpf → up\n");
        assert_eq!(was(&policies, Some("sim:0")).as_deref(), Some("kedf k=2"));
    }
}
