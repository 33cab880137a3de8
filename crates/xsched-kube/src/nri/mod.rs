//! `xsched kube nri`: a plugin of the container runtime, by the Node Resource Interface.
//!
//! [`trunk`] carries two connections over one socket; [`ttrpc`] is what is said on each; [`injector`] decides.

pub mod injector;
pub mod trunk;
pub mod ttrpc;

use std::io::Result;
use std::path::Path;
use std::time::Duration;

use prost::Message;
use tokio::net::UnixStream;
use xsched_proto::Error;

use crate::api::nri::{
    CREATE_CONTAINER, ConfigureRequest, ConfigureResponse, CreateContainerRequest, CreateContainerResponse, Empty,
    PLUGIN, RUNTIME, RegisterPluginRequest, SynchronizeRequest, SynchronizeResponse,
};
use crate::log;
use injector::Injector;
use trunk::{Connection, Trunk};
use ttrpc::{Frame, Kind, Request, Response, UNIMPLEMENTED};

/// How long after a runtime has gone the next one is looked for.
const RETRY: Duration = Duration::from_secs(1);
/// The name under which the plugin registers.
const NAME: &str = "xsched";

/// Serves the runtime at `socket` until the program is told to end. A runtime that goes is waited for.
///
/// # Errors
/// If signals cannot be waited for.
pub async fn run(injector: &Injector, socket: &Path, index: &str) -> std::result::Result<(), Error> {
    let serving = async {
        let mut told = String::new();
        loop {
            let why = match serve(injector, socket, index).await {
                Ok(()) => "has closed the connection".to_owned(),
                Err(e) => format!("cannot be talked to: {e}"),
            };
            // Once for each reason, not once a second.
            if why != told {
                log(format!("the runtime at {} {why}; trying again", socket.display()));
            }
            told = why;
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        ended = crate::told_to_end() => ended.map_err(|e| Error::environment(format!("cannot wait for signals: {e}"))),
        never = serving => never,
    }
}

/// One connection, until the runtime closes it.
async fn serve(injector: &Injector, socket: &Path, index: &str) -> Result<()> {
    let mut trunk = Trunk::new(UnixStream::connect(socket).await?);
    let register = RegisterPluginRequest { plugin_name: NAME.to_owned(), plugin_idx: index.to_owned() };
    let request = Request::new(RUNTIME, "RegisterPlugin", &register);
    trunk.send(Connection::Runtime, &Frame::request(1, &request)).await?;
    let mut session = Session::new(injector);
    while let Some((connection, frame)) = trunk.receive().await? {
        match (connection, frame.kind) {
            (Connection::Plugin, Kind::Request) => {
                let request = Request::decode(frame.data.as_slice())?;
                let answer = session.answer(&request);
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

/// What is known of the runtime of a connection.
struct Session<'a> {
    injector: &'a Injector,
    knows_cdi: bool,
    /// Of a state that comes in several requests.
    state: SynchronizeRequest,
}

impl<'a> Session<'a> {
    fn new(injector: &'a Injector) -> Session<'a> {
        Session { injector, knows_cdi: false, state: SynchronizeRequest::default() }
    }

    fn answer(&mut self, request: &Request) -> Response {
        let answered = match (request.service.as_str(), request.method.as_str()) {
            (PLUGIN, "Configure") => request.read().map(|asked| self.configure(&asked).encode_to_vec()),
            (PLUGIN, "Synchronize") => request.read().map(|state| self.synchronize(state).encode_to_vec()),
            (PLUGIN, "CreateContainer") => request.read().map(|asked| self.create(&asked).encode_to_vec()),
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
        self.injector.tell_delivery(self.knows_cdi);
        ConfigureResponse { events: 1 << (CREATE_CONTAINER - 1) }
    }

    fn synchronize(&mut self, state: SynchronizeRequest) -> SynchronizeResponse {
        let more = state.more;
        self.state.pods.extend(state.pods);
        self.state.containers.extend(state.containers);
        if !more {
            let state = std::mem::take(&mut self.state);
            for line in self.injector.missed(&state) {
                log(line);
            }
        }
        SynchronizeResponse { more }
    }

    fn create(&mut self, asked: &CreateContainerRequest) -> CreateContainerResponse {
        let (Some(pod), Some(container)) = (&asked.pod, &asked.container) else {
            return CreateContainerResponse::default();
        };
        let decided = self.injector.decide(pod, container, self.knows_cdi);
        for line in decided.lines {
            log(line);
        }
        CreateContainerResponse { adjust: decided.adjust }
    }
}
