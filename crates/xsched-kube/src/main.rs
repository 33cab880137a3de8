//! The program `xsched-kube`, which `xsched kube` executes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{Parser, Subcommand};
use xsched_kube::api_server::credentials::{self, Credentials};
use xsched_kube::cdi::{Cdi, FOLDERS};
use xsched_kube::config::{Config, Delivery};
use xsched_kube::delivery::Outside;
use xsched_kube::device_plugin::allocation::Offer;
use xsched_kube::device_plugin::deliveries::{Deliveries, records_beside};
use xsched_kube::device_plugin::pod_resources::Asked;
use xsched_kube::device_plugin::service::Shared;
use xsched_kube::nri::injector::{Injector, NAMESPACE_VARIABLE};
use xsched_kube::startup_taint::parts::Parts;
use xsched_kube::status::Status;
use xsched_kube::{api_server, device_plugin, dra, gpus, log, nri, startup_taint};
use xsched_proto::Error;
use xsched_proto::paths::SYSTEM_SOCKET;

/// Variable with the node's name, which the manifests set from the pod's `spec.nodeName`.
const NODE_VARIABLE: &str = "NODE_NAME";
const POD_RESOURCES: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// Programs that a node of Kubernetes needs beside the daemon
#[derive(Parser)]
#[command(name = "xsched-kube", bin_name = "xsched kube", version, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offer the kubelet the GPUs of this node as resources, one for each class
    DevicePlugin {
        /// The node's configuration; without this option /etc/xsched/kubernetes.toml, if it is there
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,

        /// The daemon's socket; containers get its folder
        #[arg(long, value_name = "PATH", default_value = SYSTEM_SOCKET)]
        socket: PathBuf,

        /// The preload library, as the node's runtime finds it
        #[arg(long, value_name = "PATH", default_value = "/usr/lib/xsched/libxsched.so")]
        library: PathBuf,

        /// The folder of the kubelet's socket for device plugins
        #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/device-plugins")]
        kubelet: PathBuf,

        /// The kubelet's socket for pod resources
        #[arg(long, value_name = "PATH", default_value = POD_RESOURCES)]
        pod_resources: PathBuf,

        /// Offer so many simulated GPUs, instead of those that NVIDIA's driver tells of
        #[arg(long, value_name = "N")]
        simulated: Option<u32>,

        /// Answer probes and monitors over HTTP: /ready, /metrics
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
    },
    /// Prepare the GPUs of claims, by the kubelet's interface for dynamic resource allocation
    Dra {
        /// The daemon's socket
        #[arg(long, value_name = "PATH", default_value = SYSTEM_SOCKET)]
        socket: PathBuf,

        /// Address at which the API server answers over HTTP, as of `kubectl proxy`
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8001", value_parser = http)]
        api: String,

        /// The kubelet's folder for plugins
        #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins")]
        plugins: PathBuf,

        /// The folder in which the kubelet looks for new plugins
        #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins_registry")]
        registry: PathBuf,

        /// Prepare so many simulated GPUs, instead of those that NVIDIA's driver tells of
        #[arg(long, value_name = "N")]
        simulated: Option<u32>,
    },
    /// Bring the class of a pod's annotation into its containers
    Nri {
        /// The node's configuration; without this option /etc/xsched/kubernetes.toml, if it is there
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,

        /// A folder of CDI specifications, where the runtime does not resolve CDI devices of plugins; may be given again
        #[arg(long, value_name = "DIR", default_values = FOLDERS)]
        cdi: Vec<PathBuf>,

        /// The runtime's socket for plugins
        #[arg(long, value_name = "PATH", default_value = "/var/run/nri/nri.sock")]
        runtime: PathBuf,

        /// When it is asked, among the runtime's plugins: two digits
        #[arg(long, value_name = "NN", default_value = "50", value_parser = index)]
        index: String,

        /// The kubelet's socket for pod resources, which tells of classes that the runtime has left out
        #[arg(long, value_name = "PATH", default_value = POD_RESOURCES)]
        pod_resources: PathBuf,

        /// End containers that started while the injector was away and ask for a class, for the kubelet to start them anew
        #[arg(long)]
        restart_missed: bool,

        /// Answer probes and monitors over HTTP: /ready, /metrics
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
    },
    /// Keep new pods off the node, by a taint, while daemon, device plugin and injector are not all ready
    StartupTaint {
        /// The node's configuration; without this option /etc/xsched/kubernetes.toml, if it is there
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,

        /// The node's name at the API server; without this option the variable NODE_NAME has it
        #[arg(long, value_name = "NAME", value_parser = node_name)]
        node: Option<String>,

        /// The daemon's socket
        #[arg(long, value_name = "PATH", default_value = SYSTEM_SOCKET)]
        socket: PathBuf,

        /// Address at which the device plugin answers probes
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9496")]
        device_plugin: SocketAddr,

        /// Address at which the injector answers probes
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9497")]
        injector: SocketAddr,

        /// Address of the API server over HTTPS; without this option as the variables of a pod have it
        #[arg(long, value_name = "URL")]
        api: Option<String>,

        /// The folder with the token and the authority's certificates of the pod's service account
        #[arg(long, value_name = "DIR", default_value = credentials::USUAL)]
        credentials: PathBuf,

        /// Answer probes and monitors over HTTP: /ready, /metrics
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
    },
}

fn index(text: &str) -> Result<String, String> {
    let fits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    if fits { Ok(text.to_owned()) } else { Err(format!("'{text}' is no index: use two digits, as 50")) }
}

/// Checks a node's name. It must be a DNS name, since it becomes a part of a path at the API server.
fn node_name(text: &str) -> Result<String, String> {
    let fits = text.len() <= 253 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    let fits = fits && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if fits { Ok(text.to_owned()) } else { Err(format!("'{text}' is no name of a node: use letters, digits, - and .")) }
}

/// Name of the node, from the option or the variable.
fn node_of(option: Option<String>) -> Result<String, Error> {
    if let Some(name) = option {
        return Ok(name);
    }
    match std::env::var(NODE_VARIABLE) {
        Ok(name) if !name.is_empty() => {
            node_name(&name).map_err(|e| Error::input(format!("variable {NODE_VARIABLE}: {e}")))
        }
        _ => Err(Error::input(format!("no name of the node: use --node NAME, or the variable {NODE_VARIABLE}"))),
    }
}

fn http(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')).filter(|rest| !rest.is_empty());
    rest.map(|rest| format!("http://{rest}"))
        .ok_or_else(|| format!("'{text}' is no address of HTTP without TLS: use one as http://127.0.0.1:8001"))
}

fn all_gpus(simulated: Option<u32>) -> Result<(Vec<gpus::Gpu>, Option<gpus::nvml::Faults>), Error> {
    match simulated {
        Some(count) => Ok((gpus::simulated(count), None)),
        None => gpus::nvml::list().map(|(gpus, events)| (gpus, Some(events))),
    }
}

fn run(command: Command) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::environment(format!("cannot wait for events: {e}")))?;
    match command {
        Command::DevicePlugin { config, socket, library, kubelet, pod_resources, simulated, listen } => {
            let config = Config::read(config.as_deref())?;
            let records = (config.delivery == Delivery::Cdi).then(|| records_beside(&socket));
            let patience = Duration::from_millis(config.device_plugin.delivered_within_ms);
            let (deliveries, status) = (Deliveries::new(records, patience), Status::new(device_plugin::COUNTERS));
            let outside = Outside { socket, library };
            let (gpus, events) = all_gpus(simulated)?;
            runtime.block_on(async {
                status.serve(listen).await?;
                let offer = Offer { config, outside, gpus };
                let shared = Arc::new(Shared { offer, pod_resources, deliveries });
                device_plugin::Plugin { shared, kubelet, status }.run(events).await
            })
        }
        Command::Dra { socket, api, plugins, registry, simulated } => {
            let (gpus, events) = all_gpus(simulated)?;
            let plugin = dra::Plugin { socket, api, plugins, registry, gpus, broken: Mutex::default() };
            runtime.block_on(plugin.run(events))
        }
        Command::Nri { config, cdi, runtime: socket, index, pod_resources, restart_missed, listen } => {
            let config = Config::read(config.as_deref())?;
            let own = std::env::var(NAMESPACE_VARIABLE).ok().filter(|name| !name.is_empty());
            let plugin = nri::Plugin {
                injector: Injector::new(config, Cdi { folders: cdi }, own),
                runtime: socket,
                index,
                kubelet: Asked::new(pod_resources),
                restarts_missed: restart_missed,
                status: Status::new(nri::COUNTERS),
            };
            runtime.block_on(async {
                plugin.status.serve(listen).await?;
                plugin.run().await
            })
        }
        Command::StartupTaint { config, node, socket, device_plugin, injector, api, credentials, listen } => {
            let config = Config::read(config.as_deref())?.startup_taint;
            let nowhere =
                || Error::environment("this is no pod of a cluster: name the API server by --api https://ADDRESS:PORT");
            let api = api.or_else(api_server::address_in_cluster).ok_or_else(nowhere)?;
            let keeper = startup_taint::Keeper {
                parts: Parts { daemon: socket, device_plugin, injector },
                client: api_server::Client::new(&api, Credentials::new(credentials)).map_err(Error::input)?,
                node: node_of(node)?,
                config,
                status: Status::new(startup_taint::COUNTERS),
            };
            runtime.block_on(async {
                keeper.status.serve(listen).await?;
                keeper.run().await
            })
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e)
            if e.exit_code() == 0 || e.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            e.exit()
        }
        Err(e) => {
            let text = e.to_string();
            let line = text.lines().next().unwrap_or_default();
            log(line.strip_prefix("error: ").unwrap_or(line));
            return ExitCode::from(2);
        }
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_reference_has_every_option() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/kubernetes.md"));
        let page = page.expect("the page");
        for command in Cli::command().get_subcommands() {
            let heading = format!("## xsched kube {}\n", command.get_name());
            let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("{heading}"));
            let section = section.split("\n## ").next().unwrap();
            let named: Vec<&str> =
                section.lines().filter_map(|line| line.strip_prefix("| `--")?.split([' ', '`']).next()).collect();
            let mut options: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
            options.retain(|option| *option != "help");
            assert_eq!(named, options, "{}", command.get_name());
        }
    }
}
