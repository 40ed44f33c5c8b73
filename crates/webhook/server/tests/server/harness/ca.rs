//! Certificates for tests.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData as _, SerialNumber,
    SigningKey as _,
};

/// A CA.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Issues a certificate for loopback with this serial number.
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
    /// Creates a self-signed X.509 v1 certificate, like `openssl x509 -req -signkey` without extensions.
    pub(crate) fn version_1() -> Self {
        let key = KeyPair::generate().unwrap();
        let ecdsa_with_sha256 = der(0x30, &[der(0x06, &[b"\x2a\x86\x48\xce\x3d\x04\x03\x02"])]);
        let common_name = der(0x30, &[der(0x06, &[b"\x55\x04\x03"]), der(0x0c, &[b"old"])]);
        let name = der(0x30, &[der(0x31, &[common_name])]);
        let validity = der(0x30, &[der(0x17, &[b"200101000000Z"]), der(0x17, &[b"491231000000Z"])]);
        // Without a field for the version, it is version 1.
        let unsigned = der(
            0x30,
            &[
                der(0x02, &[b"\x07"]),
                ecdsa_with_sha256.clone(),
                name.clone(),
                validity,
                name,
                key.subject_public_key_info(),
            ],
        );
        let signature = key.sign(&unsigned).unwrap();
        let certificate = der(0x30, &[unsigned, ecdsa_with_sha256, der(0x03, &[vec![0], signature])]);
        let text = BASE64_STANDARD.encode(certificate);
        let cert = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        Self { cert, key: key.serialize_pem() }
    }

    /// Writes the files like a mounted Secret: a directory, and the symlink `..data` to it.
    pub(crate) fn mount(&self, mount: &Path, version: &str) -> (PathBuf, PathBuf) {
        let directory = mount.join(version);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("tls.crt"), &self.cert).unwrap();
        std::fs::write(directory.join("tls.key"), &self.key).unwrap();
        let next = mount.join("..data_tmp");
        std::os::unix::fs::symlink(version, &next).unwrap();
        std::fs::rename(&next, mount.join("..data")).unwrap();
        for file in ["tls.crt", "tls.key"] {
            let _ = std::os::unix::fs::symlink(Path::new("..data").join(file), mount.join(file));
        }
        (mount.join("tls.crt"), mount.join("tls.key"))
    }
}

/// Encodes a DER value.
fn der(tag: u8, contents: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let contents: Vec<u8> = contents.iter().flat_map(|part| part.as_ref().to_vec()).collect();
    // DER has the shortest length.
    let length = match contents.len() {
        short @ ..0x80 => vec![u8::try_from(short).unwrap()],
        longer @ 0x80..0x100 => vec![0x81, u8::try_from(longer).unwrap()],
        long => [[0x82].as_slice(), &u16::try_from(long).unwrap().to_be_bytes()].concat(),
    };
    [vec![tag], length, contents].concat()
}
