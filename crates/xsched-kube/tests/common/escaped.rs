//! A gRPC client that names the path of a socket as its host, escaped, as the kubelet's plugin manager does. The
//! library that both ends use here cannot send such a name: it sends one with `-`, which is replaced on its way out by
//! bytes from another implementation of HPACK (PyPI's hpack 4.2).

use std::io::Result;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// Host that the library sends, and its Huffman coding.
const HOST: &str = "-2Fvar-2Flib-2Fkubelet-2Fplugins_registry-2Fgpu.xsched.dev-reg.sock";
const SAID: &str = "58587b8ec585868346b0b0f5b632d054ac2c35d16cc6a91158598c84d9e961619abb57f2824e591790bdd6b0b32e8393af";
/// `%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.xsched.dev-reg.sock`
const SENT: &str = "54587b8ec545868346a8b0f5b632d054aa2c35d16cc6a91158598c84d9e951619abb57f2824e591790bdd6b0b32e8393af";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

struct Escaping {
    socket: UnixStream,
    /// Set once the first request was sent with the path.
    is_sent: bool,
}

impl AsyncRead for Escaping {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(context, out);
        // Kind of the first frame: header fields.
        let is_answer = out.filled().get(3) == Some(&1);
        assert!(self.is_sent || !is_answer, "an answer to what was not escaped");
        read
    }
}

impl AsyncWrite for Escaping {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        let (said, mut data) = (bytes(SAID), data.to_vec());
        if let Some(at) = data.windows(said.len()).position(|part| part == said) {
            data[at..at + said.len()].copy_from_slice(&bytes(SENT));
            self.is_sent = true;
        }
        Pin::new(&mut self.socket).poll_write(context, &data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// Connects to a socket of a plugin.
pub async fn channel(socket: &Path) -> std::result::Result<Channel, String> {
    let path = socket.to_owned();
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move {
            Ok::<_, std::io::Error>(TokioIo::new(Escaping { socket: UnixStream::connect(path).await?, is_sent: false }))
        }
    });
    let endpoint = Endpoint::from_shared(format!("http://{HOST}")).map_err(|e| e.to_string())?;
    endpoint.connect_with_connector(connect).await.map_err(|e| format!("{}: {e:?}", socket.display()))
}
