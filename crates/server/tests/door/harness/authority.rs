//! Certificates made on the spot.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SerialNumber};

/// One that signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for loopback with this serial number.
    pub(crate) fn issue(&self, serial: u64) -> Issued {
        self.issue_with(serial, |_| {})
    }

    pub(crate) fn issue_with(&self, serial: u64, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.distinguished_name.push(DnType::CommonName, "durward");
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { cert, key: key.serialize_pem() }
    }
}

impl Issued {
    /// Writes it where a mounted Secret would put it: a folder, and the symlink `..data` that is swapped to it.
    pub(crate) fn mount(&self, mount: &Path, version: &str) -> (PathBuf, PathBuf) {
        let folder = mount.join(version);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("tls.crt"), &self.cert).unwrap();
        std::fs::write(folder.join("tls.key"), &self.key).unwrap();
        let next = mount.join("..data_tmp");
        std::os::unix::fs::symlink(version, &next).unwrap();
        std::fs::rename(&next, mount.join("..data")).unwrap();
        for file in ["tls.crt", "tls.key"] {
            let _ = std::os::unix::fs::symlink(Path::new("..data").join(file), mount.join(file));
        }
        (mount.join("tls.crt"), mount.join("tls.key"))
    }
}
