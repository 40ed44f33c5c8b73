//! Tests of server and client certificates.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::server::{Authority, Issued};
use super::*;
use crate::cause;
use crate::etcd::{Material, Tls};

/// The files of a client.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new(authority: &Authority, identity: Option<&Issued>) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write("ca.crt", &authority.pem);
        if let Some(identity) = identity {
            files.write("tls.crt", &identity.cert);
            files.write("tls.key", &identity.key);
        }
        files
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        Path::new(self.0.path()).join(name)
    }

    pub(super) fn client(&self, change: impl FnOnce(&mut Tls)) -> ClientOptions {
        let identity = self.path("tls.crt").exists().then(|| (self.path("tls.crt"), self.path("tls.key")));
        let material = Material::Files { authority: self.path("ca.crt"), identity };
        let mut tls = Tls { material: Some(material), server_name: None, insecure: false };
        change(&mut tls);
        ClientOptions { tls: Some(tls), login: None, open: false }
    }
}

#[tokio::test]
async fn a_member_is_verified_by_its_ca_and_its_address_or_the_configured_name() {
    let (ours, other) = (Authority::new(), Authority::new());
    let (by_address, by_name) = (ours.issue(&["127.0.0.1"]), ours.issue(&["etcd.shop.svc"]));
    let (files, live) = (Files::new(&ours, None), live());
    let named = |tls: &mut Tls| tls.server_name = Some("etcd.shop.svc".to_owned());
    let member = FakeMember::tls(&by_address, None, answers("3.5.16")).await;
    assert!(ask(&live, &peer(&member, files.client(|_| {})), EtcdRequest::Status).await.is_ok());
    assert!(!member.calls().is_empty());
    let member = FakeMember::tls(&by_name, None, answers("3.5.16")).await;
    assert!(ask(&live, &peer(&member, files.client(named)), EtcdRequest::Status).await.is_ok());
    let cause = why(&live, &peer(&member, files.client(|_| {})), EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::TLS);
    assert!(cause.text.contains("client.serverName") && cause.text.contains("127.0.0.1"), "{}", cause.text);
    for (own, says) in [
        (other.issue(&["127.0.0.1"]), "is not signed by the configured CA"),
        (ours.issue_old(&["127.0.0.1"]), "has expired"),
    ] {
        let member = FakeMember::tls(&own, None, answers("3.5.16")).await;
        let cause = why(&live, &peer(&member, files.client(|_| {})), EtcdRequest::Status).await;
        assert_eq!(cause.code, cause::TLS);
        assert!(cause.text.contains(says), "{}", cause.text);
        let insecure = files.client(|tls| tls.insecure = true);
        assert_eq!(member.calls(), [""; 0], "it got no request");
        assert!(ask(&live, &peer(&member, insecure), EtcdRequest::Status).await.is_ok());
    }
}

#[tokio::test]
async fn a_rogue_member_gets_neither_password_nor_request() {
    let (ours, other) = (Authority::new(), Authority::new());
    let rogue = FakeMember::tls(&other.issue(&["127.0.0.1"]), None, |_| {
        refuse(Code::InvalidArgument, "etcdserver: user name is empty")
    })
    .await;
    let files = Files::new(&ours, None);
    let client = ClientOptions { login: login::client(false).login, ..files.client(|_| {}) };
    let (live, peer) = (login::live_with("hunter2"), peer(&rogue, client));
    for question in EtcdRequest::ALL {
        assert_eq!(why(&live, &peer, question).await.code, cause::TLS);
    }
    assert_eq!(rogue.calls(), [""; 0]);
}

#[tokio::test]
async fn a_member_that_requires_a_client_certificate_gets_the_configured_one() {
    let (ours, other) = (Authority::new(), Authority::new());
    let own = ours.issue(&["127.0.0.1"]);
    let member = FakeMember::tls(&own, Some(&ours), answers("3.6.15")).await;
    let live = live();
    let with = |identity: Option<&Issued>| Files::new(&ours, identity);
    let good = with(Some(&ours.issue(&["client"])));
    assert!(ask(&live, &peer(&member, good.client(|_| {})), EtcdRequest::Status).await.is_ok());
    let none = with(None);
    let cause = why(&live, &peer(&member, none.client(|_| {})), EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::TLS, "{}", cause.text);
    assert!(cause.text.contains("requires a client certificate"), "{}", cause.text);
    let foreign = with(Some(&other.issue(&["client"])));
    let cause = why(&live, &peer(&member, foreign.client(|_| {})), EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::TLS);
    assert!(cause.text.contains("rejects the client certificate"), "{}", cause.text);
}

#[tokio::test]
async fn missing_or_invalid_credentials_are_reported_without_their_values() {
    let ours = Authority::new();
    let member = FakeMember::tls(&ours.issue(&["127.0.0.1"]), None, answers("3.6.15")).await;
    let live = live();
    for (name, text, says) in [
        ("ca.crt", "SECRET", "ca.crt contains no PEM certificate"),
        ("tls.key", "SECRET", "tls.key is not a PEM private key"),
        ("tls.crt", "SECRET", "tls.crt contains no PEM certificate"),
        ("tls.key", &ours.issue(&["x"]).key, "tls.key does not match"),
    ] {
        let files = Files::new(&ours, Some(&ours.issue(&["client"])));
        files.write(name, text);
        let cause = why(&live, &peer(&member, files.client(|_| {})), EtcdRequest::Status).await;
        assert_eq!(cause.code, cause::CREDENTIALS);
        assert!(cause.text.contains(says) && !cause.text.contains("SECRET"), "{}", cause.text);
    }
    let files = Files::new(&ours, None);
    let client = files.client(|tls| {
        tls.material = Some(Material::Files { authority: "/nowhere/ca.crt".into(), identity: None });
    });
    let cause = why(&live, &peer(&member, client), EtcdRequest::Status).await;
    assert!(cause.code == cause::CREDENTIALS && cause.text.contains("/nowhere/ca.crt"), "{}", cause.text);
    let client = files.client(|tls| tls.material = None);
    assert_eq!(why(&live, &peer(&member, client), EtcdRequest::Status).await.code, cause::CREDENTIALS);
    assert_eq!(member.calls(), [""; 0]);
}
