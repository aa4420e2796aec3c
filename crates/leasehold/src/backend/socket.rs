//! Sockets, encrypted or not.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::backend::tls::Tls;
use crate::url::Host;

/// Where bytes go to and come from.
pub(in crate::backend) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A new connection to that server.
pub(in crate::backend) async fn connect(host: &Host, tls: Option<&Tls>) -> io::Result<Box<dyn Stream>> {
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
