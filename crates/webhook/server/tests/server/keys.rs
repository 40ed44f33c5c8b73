//! Formats and faults of certificates and keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use server::{Certificate, CertificatePem, CertificateSource};

use crate::harness::{Ca, Issued};

fn load(cert: &str, key: &str) -> Result<Certificate, String> {
    let pem = CertificatePem { cert: cert.as_bytes().to_vec(), key: key.as_bytes().to_vec() };
    Certificate::load(&CertificateSource::Pem(pem)).map_err(|error| error.to_string())
}

fn issued() -> Issued {
    Ca::new("a").issue(258)
}

/// Returns a key in the older format, which PKCS#8 wraps as the last of three elements.
fn unwrapped(key: &KeyPair, label: &str) -> String {
    let der = key.serialized_der();
    let (_, inside) = element(der);
    let (version, _) = element(inside);
    let (algorithm, _) = element(&inside[version..]);
    let (_, octets) = element(&inside[version + algorithm..]);
    let lines: Vec<String> = STANDARD
        .encode(octets)
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Returns the length of a DER element with its head, and its contents.
fn element(der: &[u8]) -> (usize, &[u8]) {
    let (head, length) = match der[1] {
        short @ ..=0x7f => (2, usize::from(short)),
        0x81 => (3, usize::from(der[2])),
        _ => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
    };
    (head + length, &der[head..head + length])
}

fn self_signed(key: &KeyPair) -> String {
    CertificateParams::new(vec!["durward.svc".to_owned()]).unwrap().self_signed(key).unwrap().pem()
}

#[test]
fn reads_every_format_of_a_key() {
    let ec = KeyPair::generate().unwrap();
    let cert = self_signed(&ec);
    load(&cert, &ec.serialize_pem()).unwrap();
    load(&cert, &unwrapped(&ec, "EC PRIVATE KEY")).unwrap();
    // `openssl ecparam -genkey` writes this.
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    load(&cert, &format!("{parameters}{}", unwrapped(&ec, "EC PRIVATE KEY"))).unwrap();
    let rsa = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    load(&self_signed(&rsa), &rsa.serialize_pem()).unwrap();
    load(&self_signed(&rsa), &unwrapped(&rsa, "RSA PRIVATE KEY")).unwrap();
    let ed = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    load(&self_signed(&ed), &ed.serialize_pem()).unwrap();
}

#[test]
fn reads_serial_names_and_expiry() {
    let issued = issued();
    let certificate = load(&issued.cert, &issued.key).unwrap();
    assert_eq!(certificate.serial(), "01:02");
    assert_eq!(certificate.names(), ["localhost", "127.0.0.1"]);
    assert_eq!(certificate.not_after_text(), "4096-01-01T00:00:00Z");
}

#[test]
fn reads_certificate_and_key_from_one_file() {
    let issued = issued();
    let both = format!("{}{}", issued.cert, issued.key);
    load(&both, &both).unwrap();
}

#[test]
fn accepts_only_chains_from_leaf_to_root() {
    let ca = Ca::new("root");
    let issued = ca.issue(1);
    load(&format!("{}{}", issued.cert, ca.pem), &issued.key).unwrap();
    let error = load(&format!("{}{}", issued.cert, Ca::new("other").pem), &issued.key).unwrap_err();
    assert!(
        error.contains("certificate 1 of the chain was issued by") && error.contains("order them"),
        "{error}"
    );
    let error = load(&format!("{}{}", ca.pem, issued.cert), &issued.key).unwrap_err();
    assert!(error.contains("order them from leaf to root"), "{error}");
}

#[test]
fn reports_each_fault() {
    let issued = issued();
    let (cert, key) = (issued.cert.as_str(), issued.key.as_str());
    let other = KeyPair::generate().unwrap().serialize_pem();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let old_encrypted = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIB\n-----END EC PRIVATE KEY-----\n";
    let torn = &cert[..cert.len() / 2];
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let garbage_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (cert, key, expected) in [
        ("", key, "the certificate in memory: contains no PEM block CERTIFICATE"),
        (key, cert, "contains no PEM block CERTIFICATE, but a private key; are certificate and key swapped?"),
        (cert, "", "the key in memory: contains no PEM block PRIVATE KEY"),
        (cert, cert, "contains no PEM block PRIVATE KEY, but a certificate"),
        (cert, encrypted, "contains an encrypted private key"),
        (cert, old_encrypted, "contains an encrypted private key"),
        (cert, &format!("{key}{other}"), "contains 2 private keys"),
        (cert, &other, "the private key does not belong to the first certificate"),
        (torn, key, "contains a damaged PEM block"),
        (garbage, key, "certificate 1 of the chain cannot be parsed"),
        (cert, garbage_key, "contains an unsupported private key"),
    ] {
        let error = load(cert, key).unwrap_err();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        assert!(!error.contains("MIIB"), "key material in {error:?}");
    }
}

#[test]
fn refuses_certificates_that_an_api_server_would_refuse() {
    let ca = Ca::new("a");
    let nameless = ca.issue_with(1, |params| params.subject_alt_names.clear());
    let error = load(&nameless.cert, &nameless.key).unwrap_err();
    assert!(error.contains("has no subject alternative name"), "{error}");
    let client = ca.issue_with(2, |params| {
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ClientAuth);
    });
    let error = load(&client.cert, &client.key).unwrap_err();
    assert!(error.contains("does not allow server authentication"), "{error}");
}

#[test]
fn reports_a_path_that_is_not_a_file_without_hanging() {
    let directory = tempfile::tempdir().unwrap();
    let files = |path: &std::path::Path| {
        let files = server::CertificateFiles { cert: path.to_owned(), key: path.to_owned() };
        Certificate::load(&CertificateSource::Files(files)).unwrap_err().to_string()
    };
    assert!(files(directory.path()).ends_with(": cannot be read: it is a directory, not a file"));
    assert_eq!(files("/dev/zero".as_ref()), "/dev/zero: cannot be read: it is a device, not a file");
    let large = directory.path().join("large");
    std::fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
    assert!(files(&large).ends_with("large: cannot be read: it is larger than 1 MiB"));
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(files(&pipe).ends_with("pipe: cannot be read: it is a pipe, not a file"));
}
