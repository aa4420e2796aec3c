//! Encrypted connections, as the client library wants them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, ErrorKind, Result};
use crate::url::Url;

/// PEM texts for an encrypted connection. Certificates are always verified; without a CA, by the system's.
#[derive(Clone)]
pub(super) struct Encryption {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Encryption {
    /// The files that a URL names. `hint` is what turns encryption on.
    pub(super) fn from_files(url: &mut Url, encrypted: bool, hint: &str) -> Result<Option<Self>> {
        let mut file = |name: &str| match url.take(name)? {
            None => Ok(None),
            Some(_) if !encrypted => Err(Error::option(name, format!("is for an encrypted connection: write {hint}"))),
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
        Ok(encrypted.then_some(Self { ca, identity }))
    }

    pub(super) fn connector(&self) -> Result<Connector> {
        // Whoever has chosen a provider for this process already has chosen for us too.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = self.config().map_err(|cause| {
            Error::new(ErrorKind::InvalidOption, "the certificates that the URL names cannot be used").caused_by(cause)
        })?;
        Ok(Connector(TlsConnector::from(Arc::new(config))))
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let certificates = |pem: &[u8]| CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<Vec<_>, _>>();
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(pem) => {
                for certificate in certificates(pem).map_err(io::Error::other)? {
                    roots.add(certificate).map_err(io::Error::other)?;
                }
            }
            // Some of a system's may be unreadable; what is missing is found out when a server is verified.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        match &self.identity {
            None => Ok(config.with_no_client_auth()),
            Some((chain, key)) => {
                let chain = certificates(chain).map_err(io::Error::other)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
                config.with_client_auth_cert(chain, key).map_err(io::Error::other)
            }
        }
    }
}

/// Encrypts what the client library connects.
#[derive(Clone)]
pub(super) struct Connector(TlsConnector);

pub(super) struct Handshake {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        let server = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Handshake { connector: self.0.clone(), server })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Encrypted<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(
            async move { self.connector.connect(self.server, stream).await.map(|stream| Encrypted(Box::new(stream))) },
        )
    }
}

pub(super) struct Encrypted<S>(Box<TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
