//! The certificates of an etcd cluster: a CA, a serving certificate for each member, and a client certificate.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use crate::certificates::{self, Ca, Leaf};

/// The subjects of the members' certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuedFor {
    /// Each member's address.
    Addresses,
    /// This DNS name, and no address.
    Name(String),
}

/// The TLS of an etcd cluster.
#[derive(Debug)]
pub struct ServerTls {
    ca: Ca,
    client: Leaf,
    to: IssuedFor,
    /// Whether clients need a certificate.
    asks: bool,
}

impl ServerTls {
    /// Makes the certificates. With `asks`, members require a client certificate of this CA.
    pub fn new(to: IssuedFor, asks: bool) -> Result<Self> {
        let ca = Ca::new("etcd")?;
        // A certificate with a common name would be a login.
        let client = ca.client("", None)?;
        Ok(Self { ca, client, to, asks })
    }

    /// Returns the CA.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// Returns a Secret for Durward: `ca.crt`, and a client certificate if members require one.
    pub fn secret(&self, name: &str) -> Value {
        let mut data = json!({"ca.crt": self.ca.pem()});
        if self.asks {
            data["tls.crt"] = self.client.certificate.clone().into();
            data["tls.key"] = self.client.key.clone().into();
        }
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
    }

    /// Returns a kubeconfig for a member, because the harness's client reads kubeconfigs.
    pub(super) fn kubeconfig(&self, address: Ipv4Addr, port: u16) -> Value {
        let user = certificates::by_certificate(&self.client);
        let mut way = certificates::kubeconfig(&format!("https://{address}:{port}"), &self.ca, &user);
        if let IssuedFor::Name(name) = &self.to {
            way["clusters"][0]["cluster"]["tls-server-name"] = name.clone().into();
        }
        way
    }

    /// Returns the flags of a member and writes the files that they name.
    pub(super) fn flags(&self, directory: &Path, address: Ipv4Addr) -> Result<Vec<String>> {
        let leaf = match &self.to {
            IssuedFor::Addresses => self.ca.server(&["etcd"], &[IpAddr::from(address)])?,
            IssuedFor::Name(name) => self.ca.server(&[name], &[])?,
        };
        let (certificate, key) = leaf.write(directory, "server")?;
        let shown = |path: PathBuf| path.display().to_string();
        let mut flags =
            vec![format!("--cert-file={}", shown(certificate)), format!("--key-file={}", shown(key))];
        if self.asks {
            let ca = certificates::write(directory, "clients.crt", &self.ca.pem())?;
            // The gateway is a client of its own member, and a serving certificate is not a client certificate.
            let (certificate, key) = self.client.write(directory, "gateway")?;
            flags.extend([
                "--client-cert-auth=true".to_owned(),
                format!("--trusted-ca-file={}", shown(ca)),
                format!("--client-cert-file={}", shown(certificate)),
                format!("--client-key-file={}", shown(key)),
            ]);
        }
        Ok(flags)
    }
}
