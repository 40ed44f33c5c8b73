//! `certs new` and `certs csr`.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{TestDir, durward_in};

#[test]
fn writes_private_keys_for_the_owner_only_and_replaces_nothing() {
    let dir = TestDir::new();
    let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tls.key"), mode("ca.key"), mode("tls.crt")), (0o600, 0o600, 0o644));
    let before = std::fs::read(dir.path().join("tls.key")).unwrap();
    let again = dir.run(&["certs", "new", "--out", ".", "--name", "x.example"]);
    assert_eq!((again.code, again.out.as_str()), (2, ""));
    assert_eq!(again.err.matches(" exists").count(), 4, "{}", again.err);
    assert_eq!(std::fs::read(dir.path().join("tls.key")).unwrap(), before);
    assert_eq!(dir.run(&["certs", "new", "--out", ".", "--name", "x.example", "--force"]).code, 0);
    assert_ne!(std::fs::read(dir.path().join("tls.key")).unwrap(), before);
    assert_eq!(mode("tls.key"), 0o600);
}

#[test]
fn creates_matching_certificates_for_a_service() {
    let dir = TestDir::new();
    let checked = dir.run(&["config", "check", "durward.yaml"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
}

#[test]
fn signs_another_certificate_with_an_existing_ca() {
    let dir = TestDir::new();
    let renewed =
        dir.run(&["certs", "new", "--out", "renewed", "--ca", ".", "--service", "durward.durward-system"]);
    assert_eq!(renewed.code, 0, "{}", renewed.err);
    assert!(!dir.path().join("renewed/ca.key").exists(), "the CA key is not copied");
    for name in ["tls.crt", "tls.key"] {
        std::fs::copy(dir.path().join("renewed").join(name), dir.path().join(name)).unwrap();
    }
    let checked = dir.run(&["config", "check", "durward.yaml"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
}

#[test]
fn exits_with_two_and_the_next_step_on_bad_input() {
    let dir = TestDir::new();
    for (arguments, expected) in [
        (&["certs", "new", "--out", "x"][..], "is required"),
        (&["certs", "new", "--out", "x", "--service", "durward"], "is not NAME.NAMESPACE"),
        (&["certs", "new", "--out", "x", "--name", "10.0.0.1"], "use --address for IP addresses"),
        (&["certs", "new", "--out", "x", "--name", "a b"], "is not a DNS name"),
        (&["certs", "new", "--out", "x", "--address", "host"], "--address"),
        (&["certs", "new", "--out", "x", "--name", "a.b", "--days", "0"], "--days"),
        (
            &["certs", "new", "--out", "x", "--name", "a.b", "--ca", "snapshot"],
            "--ca: snapshot/ca.crt cannot be read",
        ),
        (&["certs", "new", "--out", "durward.yaml", "--name", "a.b"], "durward.yaml cannot be written"),
    ] {
        let run = dir.run(arguments);
        assert_eq!(run.code, 2, "{arguments:?} {}", run.err);
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
    assert!(!dir.path().join("x").exists(), "nothing is written when something is wrong");
}

#[test]
fn warns_of_a_certificate_for_more_than_ten_years() {
    let dir = tempfile::tempdir().unwrap();
    for (days, is_warned) in [("3650", false), ("3651", true)] {
        let line = ["certs", "new", "--out", days, "--name", "a.b", "--days", days];
        let run = durward_in(dir.path(), &line, "");
        assert_eq!(run.code, 0, "{}", run.err);
        let warning = "warning: a certificate that is valid for more than 3650 days can expire unnoticed";
        assert_eq!(run.err.starts_with(warning), is_warned, "{}", run.err);
    }
}

#[test]
fn prints_a_signing_request_and_keeps_the_key() {
    let dir = TestDir::new();
    let arguments = [
        "certs",
        "csr",
        "--signer",
        "example.com/serving",
        "--service",
        "durward.durward-system",
        "--address",
        "10.0.0.7",
        "--days",
        "30",
        "--out",
        "tls",
    ];
    let run = dir.run(&arguments);
    assert_eq!(run.code, 0, "{}", run.err);
    for line in [
        "apiVersion: certificates.k8s.io/v1",
        "kind: CertificateSigningRequest",
        "signerName: example.com/serving",
        "expirationSeconds: 2592000",
        "- server auth",
    ] {
        assert!(run.out.contains(line), "{line} is not in {}", run.out);
    }
    assert!(
        !run.out.contains("PRIVATE") && run.err.contains("kubectl certificate approve durward"),
        "{}",
        run.err
    );
    let key = dir.path().join("tls/tls.key");
    let mode = key.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = dir.run(&arguments);
    assert!(
        again.code == 2 && again.out.is_empty() && again.err.contains("tls/tls.key exists"),
        "{}",
        again.err
    );
    for (signer, expected) in [
        ("kubernetes.io/kubelet-serving", "signs only for kubelets"),
        ("kubernetes.io/kube-apiserver-client", "issues no serving certificates"),
        ("serving", "is not DOMAIN/NAME"),
    ] {
        let run = dir.run(&["certs", "csr", "--signer", signer, "--name", "a.example", "--out", "other"]);
        assert!(run.code == 2 && run.err.contains(expected), "{}", run.err);
    }
}

#[test]
fn prints_a_signing_request_for_a_user() {
    let dir = TestDir::new();
    let run = dir.run(&["certs", "csr", "--user", "durward", "--out", "user"]);
    assert_eq!(run.code, 0, "{}", run.err);
    for line in ["signerName: kubernetes.io/kube-apiserver-client", "- client auth"] {
        assert!(run.out.contains(line), "{line} is not in {}", run.out);
    }
    let run = dir.run(&["certs", "csr", "--signer", "example.com/serving", "--out", "other"]);
    assert!(run.code == 2 && run.err.contains("--address is required"), "{}", run.err);
    let run = dir.run(&["certs", "csr", "--user", "durward", "--name", "a.example", "--out", "other"]);
    assert!(run.code == 2 && run.err.contains("cannot be used with"), "{}", run.err);
}
