//! Encryption: what a URL says about it, with the files that it names.

#[cfg(feature = "tls")]
use std::{io, sync::Arc};

#[cfg(feature = "tls")]
use rustls::pki_types::pem::PemObject as _;
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
#[cfg(feature = "tls")]
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};
use crate::url::Url;

/// What an encrypted connection is made with. Certificates are always verified.
#[derive(Clone)]
pub(in crate::backend) struct Tls {
    /// For client libraries that want texts.
    #[cfg(all(feature = "tls", feature = "mysql"))]
    pub(in crate::backend) pem: Arc<Pem>,
    #[cfg(all(
        feature = "tls",
        any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper")
    ))]
    pub(in crate::backend) config: Arc<ClientConfig>,
}

#[cfg(feature = "tls")]
pub(in crate::backend) struct Pem {
    /// Whom to trust; `None` for whom this machine trusts.
    pub(in crate::backend) ca: Option<Vec<u8>>,
    /// A certificate and its key, if the server asks for one.
    pub(in crate::backend) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// As `sslmode` asks for it. What lies between no encryption and a verified one is refused: it helps against nobody who
    /// can put himself between us and the server.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(in crate::backend) fn of_sslmode(url: &mut Url) -> Result<Option<Self>> {
        let encrypted = match url.take("sslmode")?.as_deref() {
            None | Some("disable") => false,
            Some("verify-full") => true,
            Some(_) => {
                let why =
                    "is neither \"verify-full\" nor \"disable\": encryption without verification fools only its user";
                return Err(Error::option("sslmode", why));
            }
        };
        Self::of(url, encrypted, "sslmode=verify-full")
    }

    /// With the files that a URL names as `ca`, `cert` and `key`. `hint` is what would turn encryption on.
    #[cfg(feature = "tls")]
    pub(in crate::backend) fn of(url: &mut Url, encrypted: bool, hint: &str) -> Result<Option<Self>> {
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
        if !encrypted {
            return Ok(None);
        }
        // Whoever has chosen a provider for this process already has chosen for us too.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let pem = Pem { ca, identity };
        let unfit = |cause| Error::option("ca, cert or key", "names a file that cannot be used").caused_by(cause);
        let _config = Arc::new(pem.config().map_err(unfit)?);
        Ok(Some(Self {
            #[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper"))]
            config: _config,
            #[cfg(feature = "mysql")]
            pem: Arc::new(pem),
        }))
    }

    /// The same, for a protocol that is agreed upon while the connection is made.
    #[cfg(all(feature = "tls", feature = "etcd"))]
    pub(in crate::backend) fn speaking(mut self, protocol: &[u8]) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![protocol.to_vec()];
        self
    }

    #[cfg(all(not(feature = "tls"), feature = "etcd"))]
    pub(in crate::backend) fn speaking(self, _protocol: &[u8]) -> Self {
        self
    }

    #[cfg(not(feature = "tls"))]
    pub(in crate::backend) fn of(_url: &mut Url, encrypted: bool, _hint: &str) -> Result<Option<Self>> {
        match encrypted {
            false => Ok(None),
            true => {
                let why = "this program was built without the feature \"tls\"";
                Err(Error::new(crate::error::ErrorKind::Unsupported, why))
            }
        }
    }
}

#[cfg(feature = "tls")]
impl Pem {
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

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}
