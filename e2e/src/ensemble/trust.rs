//! The certificates of an ensemble: one authority, a serving certificate for each member, a client's.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use crate::certificates::{self, Authority, Leaf};

/// For whom the members' certificates are made out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MadeOutTo {
    /// Each one's own address.
    Addresses,
    /// This DNS name, and no address.
    Name(String),
}

/// An ensemble's TLS to its clients.
#[derive(Debug)]
pub struct Trust {
    authority: Authority,
    client: Leaf,
    to: MadeOutTo,
    /// Whether clients must show a certificate.
    asks: bool,
}

impl Trust {
    /// Members serve TLS. With `asks`, they serve only who shows a certificate of their authority.
    pub fn new(to: MadeOutTo, asks: bool) -> Result<Self> {
        let authority = Authority::new("etcd")?;
        // Without a common name a certificate is nobody's login.
        let client = authority.client("", None)?;
        Ok(Self { authority, client, to, asks })
    }

    /// Their authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What Durward finds in a Secret: `ca.crt`, and a client certificate where members ask for one.
    pub fn secret(&self, name: &str) -> Value {
        let mut data = json!({"ca.crt": self.authority.pem()});
        if self.asks {
            data["tls.crt"] = self.client.certificate.clone().into();
            data["tls.key"] = self.client.key.clone().into();
        }
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
    }

    /// A client's way in, as a kubeconfig, which is the form that the harness's client reads.
    pub(super) fn way_to(&self, address: Ipv4Addr, port: u16) -> Value {
        let user = certificates::by_certificate(&self.client);
        let mut way = certificates::kubeconfig(&format!("https://{address}:{port}"), &self.authority, &user);
        if let MadeOutTo::Name(name) = &self.to {
            way["clusters"][0]["cluster"]["tls-server-name"] = name.clone().into();
        }
        way
    }

    /// The flags of a member. Writes the files that they name.
    pub(super) fn flags(&self, folder: &Path, address: Ipv4Addr) -> Result<Vec<String>> {
        let leaf = match &self.to {
            MadeOutTo::Addresses => self.authority.server(&["etcd"], &[IpAddr::from(address)])?,
            MadeOutTo::Name(name) => self.authority.server(&[name], &[])?,
        };
        let (certificate, key) = leaf.write(folder, "server")?;
        let shown = |path: PathBuf| path.display().to_string();
        let mut flags =
            vec![format!("--cert-file={}", shown(certificate)), format!("--key-file={}", shown(key))];
        if self.asks {
            let authority = certificates::write(folder, "clients.crt", &self.authority.pem())?;
            // The gateway is a client of its own member, and a serving certificate is none of a client.
            let (certificate, key) = self.client.write(folder, "gateway")?;
            flags.extend([
                "--client-cert-auth=true".to_owned(),
                format!("--trusted-ca-file={}", shown(authority)),
                format!("--client-cert-file={}", shown(certificate)),
                format!("--client-key-file={}", shown(key)),
            ]);
        }
        Ok(flags)
    }
}
