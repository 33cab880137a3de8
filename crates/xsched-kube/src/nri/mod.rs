//! `xsched kube nri`: a plugin of the container runtime, which talks to it by the Node Resource Interface.
//!
//! [`trunk`] carries two connections over one socket; [`ttrpc`] is the protocol on each; [`injector`] decides;
//! [`missed`] handles containers that started before the injector.

pub mod injector;
pub mod missed;
pub mod trunk;
pub mod ttrpc;

use std::io::Result;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::net::UnixStream;
use xsched_proto::Error;

use crate::api::nri::{
    CREATE_CONTAINER, ConfigureRequest, ConfigureResponse, CreateContainerRequest, CreateContainerResponse, Empty,
    PLUGIN, RUNTIME, RegisterPluginRequest, SynchronizeRequest, SynchronizeResponse,
};
use crate::device_plugin::pod_resources::Asked;
use crate::log;
use crate::status::{Counter, Status};
use injector::Injector;
use trunk::{Connection, Trunk};
use ttrpc::{Frame, Kind, Request, Response, UNIMPLEMENTED};

/// Time between the end of a runtime and the next attempt to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Name under which the plugin registers.
const NAME: &str = "xsched";

/// The plugin of a node.
pub struct Plugin {
    /// The decisions.
    pub injector: Injector,
    /// Socket of the runtime for plugins.
    pub runtime: PathBuf,
    /// Index of the plugin among the runtime's plugins, two digits.
    pub index: String,
    /// The kubelet, which knows the resources of containers.
    pub kubelet: Asked,
    /// Set if missed containers are ended, so that the kubelet creates them again.
    pub restarts_missed: bool,
    /// State of the program, for probes.
    pub status: Arc<Status>,
}

/// Counters of this program's `/metrics`.
pub const COUNTERS: &[&Counter] =
    &[&injector::GIVEN, &injector::REPAIRED, &injector::FAILED, &injector::MISSED, &injector::REFUSED];

impl Plugin {
    /// Serves the runtime until the program is told to end. Connects again to a runtime that goes away.
    ///
    /// # Errors
    /// If signals cannot be waited for.
    pub async fn run(&self) -> std::result::Result<(), Error> {
        tokio::select! {
            ended = crate::told_to_end() => ended.map_err(|e| Error::environment(format!("cannot wait for signals: {e}"))),
            never = self.serve_each() => never,
        }
    }

    async fn serve_each(&self) -> std::result::Result<(), Error> {
        if !self.injector.is_enabled() {
            log("switched off by `enabled = false`: annotations have no effect");
            self.status.set(None);
            return std::future::pending().await;
        }
        let (mut told, at) = (String::new(), self.runtime.display());
        loop {
            self.status.set(Some(format!("no runtime has taken it at {at}: is NRI switched on there?")));
            let why = match serve(self).await {
                Ok(()) => "has closed the connection".to_owned(),
                Err(e) => format!("cannot be talked to: {e}"),
            };
            // Logged once for each reason, not once a second.
            if why != told {
                log(format!("the runtime at {at} {why}; trying again"));
            }
            told = why;
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Serves one connection until the runtime closes it.
async fn serve(plugin: &Plugin) -> Result<()> {
    let mut trunk = Trunk::new(UnixStream::connect(&plugin.runtime).await?);
    let register = RegisterPluginRequest { plugin_name: NAME.to_owned(), plugin_idx: plugin.index.clone() };
    let request = Request::new(RUNTIME, "RegisterPlugin", &register);
    trunk.send(Connection::Runtime, &Frame::request(1, &request)).await?;
    let mut session = Session::new(plugin);
    while let Some((connection, frame)) = trunk.receive().await? {
        match (connection, frame.kind) {
            (Connection::Plugin, Kind::Request) => {
                let request = Request::decode(frame.data.as_slice())?;
                let answer = session.answer(&request).await;
                trunk.send(Connection::Plugin, &Frame::response(frame.stream, &answer)).await?;
            }
            (Connection::Runtime, Kind::Response) => {
                let response = Response::decode(frame.data.as_slice())?;
                if let Some(status) = response.status.filter(|status| status.code != 0) {
                    return Err(std::io::Error::other(format!("it does not take the plugin: {}", status.message)));
                }
            }
            _ => return Err(std::io::Error::other("it sent what is no answer and no question")),
        }
    }
    Ok(())
}

/// State of a connection to a runtime.
struct Session<'a> {
    plugin: &'a Plugin,
    knows_cdi: bool,
    /// The runtime's state so far, which may come in several requests.
    state: SynchronizeRequest,
}

impl<'a> Session<'a> {
    fn new(plugin: &'a Plugin) -> Session<'a> {
        Session { plugin, knows_cdi: false, state: SynchronizeRequest::default() }
    }

    async fn answer(&mut self, request: &Request) -> Response {
        let answered = match (request.service.as_str(), request.method.as_str()) {
            (PLUGIN, "Configure") => request.read().map(|asked| self.configure(&asked).encode_to_vec()),
            (PLUGIN, "Synchronize") => match request.read() {
                Ok(state) => Ok(self.synchronize(state).await.encode_to_vec()),
                Err(e) => Err(e),
            },
            (PLUGIN, "CreateContainer") => match request.read() {
                Ok(asked) => match self.create(&asked).await {
                    Ok(changes) => Ok(changes.encode_to_vec()),
                    Err(why) => return Response::failed(ttrpc::FAILED_PRECONDITION, why),
                },
                Err(e) => Err(e),
            },
            (PLUGIN, "Shutdown") => Ok(Empty {}.encode_to_vec()),
            (service, method) => {
                return Response::failed(UNIMPLEMENTED, format!("{service}/{method} is not known here"));
            }
        };
        match answered {
            Ok(payload) => Response { status: None, payload },
            Err(e) => Response::failed(ttrpc::INVALID_ARGUMENT, e.to_string()),
        }
    }

    fn configure(&mut self, asked: &ConfigureRequest) -> ConfigureResponse {
        self.knows_cdi = injector::knows_cdi(&asked.runtime_name, &asked.runtime_version);
        log(format!("registered with {} {}", asked.runtime_name, asked.runtime_version));
        self.plugin.injector.tell_delivery(self.knows_cdi);
        ConfigureResponse { events: 1 << (CREATE_CONTAINER - 1) }
    }

    async fn synchronize(&mut self, state: SynchronizeRequest) -> SynchronizeResponse {
        let more = state.more;
        self.state.pods.extend(state.pods);
        self.state.containers.extend(state.containers);
        if !more {
            let state = std::mem::take(&mut self.state);
            // Without a container there is nothing to ask the kubelet.
            let is_any = state.containers.iter().any(Injector::asks_the_kubelet);
            let given = if is_any { self.plugin.kubelet.list().await } else { None };
            let (missed, without_default) = self.plugin.injector.missed(&state, given.as_ref());
            if without_default > 0 {
                log(format!(
                    "{without_default} containers without an annotation started before the injector, and have no class: they get the default one when they are made anew"
                ));
            }
            for missed in missed {
                log(format!("{}: {}", missed.name, missed.why));
                if self.plugin.restarts_missed {
                    tokio::spawn(missed::restart(missed));
                }
            }
            self.plugin.status.set(None);
        }
        SynchronizeResponse { more }
    }

    /// Answers about a container that is to be made.
    ///
    /// # Errors
    /// Gives the reason for which it must not be made.
    async fn create(&mut self, asked: &CreateContainerRequest) -> std::result::Result<CreateContainerResponse, String> {
        let (Some(pod), Some(container)) = (&asked.pod, &asked.container) else {
            return Ok(CreateContainerResponse::default());
        };
        let given = match Injector::asks_the_kubelet(container) {
            true => self.plugin.kubelet.list().await,
            false => None,
        };
        let decided = self.plugin.injector.decide(pod, container, self.knows_cdi, given.as_ref());
        for line in decided.lines {
            log(line);
        }
        match decided.refusal {
            Some(why) => Err(why),
            None => Ok(CreateContainerResponse { adjust: decided.adjust }),
        }
    }
}
