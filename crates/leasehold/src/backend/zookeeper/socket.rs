//! Sockets, encrypted or not.

use std::io;

use tokio::net::TcpStream;

use crate::backend::zookeeper::link::Stream;
use crate::error::{Error, Result};
use crate::url::{Host, Url};

/// How a connection is encrypted.
#[derive(Clone)]
pub(super) struct Tls {
    #[cfg(feature = "tls")]
    config: std::sync::Arc<rustls::ClientConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// A new connection to that server.
pub(super) async fn connect(host: &Host, tls: Option<&Tls>) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((&*host.name, host.port)).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => Ok(Box::new(stream)),
        #[cfg(feature = "tls")]
        Some(tls) => {
            let name = rustls::pki_types::ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
            let connecting = tokio_rustls::TlsConnector::from(tls.config.clone()).connect(name, stream);
            Ok(Box::new(connecting.await?))
        }
        #[cfg(not(feature = "tls"))]
        Some(Tls {}) => unreachable!("an encrypted address is refused without the feature"),
    }
}

/// What the URL says about encryption, with the files that it names.
#[cfg(feature = "tls")]
pub(super) fn encryption(url: &mut Url, encrypted: bool) -> Result<Option<Tls>> {
    let mut file = |name: &str| match url.take(name)? {
        None => Ok(None),
        Some(_) if !encrypted => Err(Error::option(name, "is for an encrypted connection: write zookeepers://")),
        Some(path) => match std::fs::read(&path) {
            Ok(pem) => Ok(Some(pem)),
            Err(cause) => {
                Err(Error::option(name, format!("names the file {path:?}, which cannot be read")).caused_by(cause))
            }
        },
    };
    let (ca, cert, key) = (file("ca")?, file("cert")?, file("key")?);
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => return Err(Error::option("cert", "is given without its key")),
        (None, Some(_)) => return Err(Error::option("key", "is given without its cert")),
    };
    if !encrypted {
        return Ok(None);
    }
    // Whoever has chosen a provider for this process already has chosen for us too.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = config(ca.as_deref(), identity)
        .map_err(|cause| Error::option("url", "names a certificate or a key that cannot be used").caused_by(cause))?;
    Ok(Some(Tls { config: std::sync::Arc::new(config) }))
}

#[cfg(feature = "tls")]
fn config(ca: Option<&[u8]>, identity: Option<(Vec<u8>, Vec<u8>)>) -> io::Result<rustls::ClientConfig> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let certificates = |pem: &[u8]| {
        CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<Vec<_>, _>>().map_err(io::Error::other)
    };
    let mut roots = rustls::RootCertStore::empty();
    match ca {
        Some(pem) => {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        // Some of a system's may be unreadable; what is missing is found out when a server is verified.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let config = rustls::ClientConfig::builder().with_root_certificates(roots);
    match identity {
        None => Ok(config.with_no_client_auth()),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(io::Error::other)?;
            config.with_client_auth_cert(certificates(&chain)?, key).map_err(io::Error::other)
        }
    }
}

#[cfg(not(feature = "tls"))]
pub(super) fn encryption(_url: &mut Url, encrypted: bool) -> Result<Option<Tls>> {
    match encrypted {
        false => Ok(None),
        true => {
            Err(Error::new(crate::error::ErrorKind::Unsupported, "this program was built without the feature \"tls\""))
        }
    }
}
