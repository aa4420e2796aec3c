//! Sockets, encrypted or not.

use std::io;

use tokio::net::TcpStream;

use crate::backend::redis::pipe::Stream;
use crate::backend::redis::topology::Tls;
use crate::url::Host;

/// A new connection to that server.
pub(super) async fn connect(host: &Host, tls: Option<&Tls>) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((&*host.name, host.port)).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => Ok(Box::new(stream)),
        #[cfg(feature = "tls")]
        Some(tls) => encrypted(stream, host, tls).await,
        #[cfg(not(feature = "tls"))]
        Some(Tls {}) => unreachable!("an encrypted address is refused without the feature"),
    }
}

#[cfg(feature = "tls")]
async fn encrypted(stream: TcpStream, host: &Host, tls: &Tls) -> io::Result<Box<dyn Stream>> {
    use rustls::pki_types::ServerName;
    let config = std::sync::Arc::new(config(tls)?);
    let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
    let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
    Ok(Box::new(stream))
}

#[cfg(feature = "tls")]
fn config(tls: &Tls) -> io::Result<rustls::ClientConfig> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore};
    let certificates = |pem: &[u8]| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(pem) => {
            for certificate in certificates(pem).map_err(io::Error::other)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        // Some of a system's may be unreadable; what is missing is found out when a server is verified.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    match &tls.identity {
        None => Ok(config.with_no_client_auth()),
        Some((chain, key)) => {
            let chain = certificates(chain).map_err(io::Error::other)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
            config.with_client_auth_cert(chain, key).map_err(io::Error::other)
        }
    }
}
