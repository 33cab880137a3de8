//! The service account of the pod: its token, and the authority that signed the API server's certificate. The kubelet
//! replaces the token's file long before the token expires, and the cluster may change the authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Folder in which pods find both.
pub const USUAL: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The file with the token.
const TOKEN: &str = "token";
/// The file with the authority's certificates.
const AUTHORITY: &str = "ca.crt";

/// The folder with both files, which are read for each request.
#[derive(Clone, Debug)]
pub struct Credentials {
    folder: PathBuf,
}

impl Credentials {
    /// Takes credentials from a folder.
    pub fn new(folder: PathBuf) -> Credentials {
        Credentials { folder }
    }

    /// The current token as the value of a header, which `Debug` does not show.
    ///
    /// # Errors
    /// One line that names the file, but not the token.
    pub fn token(&self) -> Result<HeaderValue, String> {
        let path = self.folder.join(TOKEN);
        let text = std::fs::read_to_string(&path).map_err(|e| cannot_read(&path, &e))?;
        let value = HeaderValue::try_from(format!("Bearer {}", text.trim_end()));
        let mut value = value.map_err(|_| format!("{} has no token", path.display()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// TLS configuration that accepts the authority's current certificates and no others.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let path = self.folder.join(AUTHORITY);
        let pem = std::fs::read(&path).map_err(|e| cannot_read(&path, &e))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|e| format!("{} is no PEM: {e}", path.display()))?;
            roots.add(certificate).map_err(|e| format!("{} has a certificate of no use: {e}", path.display()))?;
        }
        if roots.is_empty() {
            return Err(format!("{} has no certificate", path.display()));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(|e| format!("no TLS: {e}"))?;
        Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }
}

fn cannot_read(path: &Path, e: &std::io::Error) -> String {
    format!("cannot read {}: {e}", path.display())
}
