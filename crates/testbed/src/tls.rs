//! Certificates for servers on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

use crate::{Failure, Result, folder};

/// An authority of its own and a certificate that it gave to `localhost` and `127.0.0.1`, as files in a temporary folder.
/// The folder is removed with the last copy, and servers that use it have one.
#[derive(Clone, Debug)]
pub struct Tls {
    folder: Arc<TempDir>,
}

impl Tls {
    /// Makes them.
    pub fn new() -> Result<Self> {
        let tls = Self { folder: Arc::new(folder::make()?) };
        let written = tls.write();
        written.map_err(Failure::during("cannot make a certificate"))?;
        Ok(tls)
    }

    /// The authority, whom a client must trust.
    pub fn ca(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    /// The certificate. It is good for a client too, where a server asks for one.
    pub fn certificate(&self) -> PathBuf {
        self.folder().join("server.pem")
    }

    /// The private key of the certificate.
    pub fn key(&self) -> PathBuf {
        self.folder().join("server.key")
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let ca_key = KeyPair::generate()?;
        let mut ca = named("leasehold testbed authority", &[])?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        fs::write(self.ca(), ca.self_signed(&ca_key)?.pem())?;

        let key = KeyPair::generate()?;
        let mut certificate = named("leasehold testbed", &["localhost", "127.0.0.1"])?;
        certificate.use_authority_key_identifier_extension = true; // strict clients ask for it
        certificate.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        fs::write(self.certificate(), certificate.signed_by(&key, &Issuer::new(ca, ca_key))?.pem())?;
        fs::write(self.key(), key.serialize_pem())?;
        Ok(())
    }
}

/// Each name is another: a certificate with the name of its issuer passes for signed by itself.
fn named(name: &str, hosts: &[&str]) -> std::result::Result<CertificateParams, rcgen::Error> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
