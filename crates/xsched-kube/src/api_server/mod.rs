//! A client of the cluster's API server, over HTTPS, with the pod's service account. Callers name the path of an
//! object, and define the part of it that they read or change.
//!
//! Each request uses a connection of its own, since a program here makes only a few a minute. So each uses the token
//! and the authority's certificates that are in the folder at that time ([`credentials`]): the kubelet replaces both
//! while the program runs.

pub mod credentials;

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use credentials::Credentials;

/// Time limit of a request, from connecting to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Size limit of an answer, in bytes. An object of etcd's usual limit of 1.5 MiB is smaller as JSON.
const ANSWER_MAX_BYTES: usize = 4 << 20;
/// Longest part of a server's message that is logged, in characters.
const MESSAGE_MAX_CHARS: usize = 300;
/// Port of HTTPS, if an address names none.
const HTTPS_PORT: u16 = 443;
/// Variables in which the kubelet tells each container the address of the API server.
const VARIABLES: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/// A client of one API server.
#[derive(Clone, Debug)]
pub struct Client {
    /// Name of the server in its certificate: an address or a name.
    name: ServerName<'static>,
    /// Name and port, as in a request's `Host`.
    authority: String,
    port: u16,
    credentials: Credentials,
}

/// Reason why a request has no result.
#[derive(Debug)]
pub enum Error {
    /// The object has changed since the version that the request names (409), and has to be read again.
    Conflict,
    /// The server refused: its status and its message.
    Refused(StatusCode, String),
    /// There is no answer, or an unreadable one: the reason in one line.
    Failed(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Conflict => f.write_str("the object changes all the time"),
            Error::Refused(status, message) if message.is_empty() => write!(f, "it answers {status}"),
            Error::Refused(status, message) => write!(f, "it answers {status}: {message}"),
            Error::Failed(why) => f.write_str(why),
        }
    }
}

/// The part of an error's body, a `Status` of the API, that is meant for people.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
}

/// Address of the cluster's API server, from the environment of a container.
pub fn address_in_cluster() -> Option<String> {
    let [host, port] = VARIABLES.map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let (host, port) = (host?, port?);
    Some(if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") })
}

impl Client {
    /// Makes a client for an address like `https://10.96.0.1:443`. Does not connect yet.
    ///
    /// # Errors
    /// One line, if the address has another form.
    pub fn new(address: &str, credentials: Credentials) -> Result<Client, String> {
        let wrong = || format!("'{address}' is no address of an API server: use one as https://10.96.0.1:443");
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        let is_bare = matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("" | "/"));
        if uri.scheme_str() != Some("https") || !is_bare {
            return Err(wrong());
        }
        let host = uri.host().ok_or_else(wrong)?;
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| wrong())?;
        let port = uri.port_u16().unwrap_or(HTTPS_PORT);
        Ok(Client { name, authority: format!("{host}:{port}"), port, credentials })
    }

    /// Name and port of the server, for messages.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Reads the object at a path.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.request(Method::GET, path, None).await
    }

    /// Changes the object at a path by a JSON merge patch (RFC 7386). Returns the changed object. A patch that names
    /// the object's `metadata.resourceVersion` changes that version only, or fails with [`Error::Conflict`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn merge_patch<T: DeserializeOwned>(&self, path: &str, patch: &impl Serialize) -> Result<T, Error> {
        let body = serde_json::to_vec(patch).map_err(|e| Error::Failed(format!("the patch is no JSON: {e}")))?;
        self.request(Method::PATCH, path, Some(("application/merge-patch+json", body))).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<T, Error> {
        let asked = async {
            let response = self.send(method, path, body).await.map_err(Error::Failed)?;
            read(response).await
        };
        let late = || Error::Failed(format!("it took more than {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, asked).await.map_err(|_| late())?
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Response<Incoming>, String> {
        let token = self.credentials.token()?;
        let stream = self.connect().await?;
        let failed = |e: hyper::Error| format!("no answer over the connection: {e}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // Ends with the sender or the server.
        tokio::spawn(connection);
        let (kind, body) = body.unzip();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(AUTHORIZATION, token)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("xsched-kube/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close");
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())));
        let request = request.map_err(|e| format!("'{path}' is no path: {e}"))?;
        sender.send_request(request).await.map_err(failed)
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>, String> {
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        let config = self.credentials.tls()?;
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), self.port)).await;
        let stream = stream.map_err(|e| format!("no connection: {e}"))?;
        let connected = TlsConnector::from(config).connect(self.name.clone(), stream).await;
        connected.map_err(|e| format!("no connection by TLS: {e}"))
    }
}

async fn read<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Error> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
    let body = body.map_err(|e| Error::Failed(format!("its answer ends too soon or is too long: {e}")))?.to_bytes();
    match status {
        StatusCode::CONFLICT => Err(Error::Conflict),
        status if status.is_success() => {
            serde_json::from_slice(&body).map_err(|e| Error::Failed(format!("its answer cannot be read: {e}")))
        }
        status => {
            let Refusal { message } = serde_json::from_slice(&body).unwrap_or_default();
            Err(Error::Refused(status, message.chars().take(MESSAGE_MAX_CHARS).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_https_without_a_path() {
        let credentials = || Credentials::new("/nonexistent".into());
        for (address, authority) in [
            ("https://10.96.0.1:6443", "10.96.0.1:6443"),
            ("https://[fd00::1]:443", "[fd00::1]:443"),
            ("https://kubernetes.default.svc/", "kubernetes.default.svc:443"),
        ] {
            assert_eq!(Client::new(address, credentials()).unwrap().authority(), authority);
        }
        for address in ["", "10.96.0.1:443", "http://10.96.0.1", "https://10.96.0.1/api", "https://:443", "https://a b"]
        {
            let error = Client::new(address, credentials()).unwrap_err();
            assert!(error.contains("is no address of an API server") && !error.contains('\n'), "{error}");
        }
    }
}
