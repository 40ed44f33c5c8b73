//! Expiries of client certificates in kubeconfigs, Secrets and files.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use serde_json::json;

use super::transport::kubeconfig;
use super::*;
use crate::Reader as _;
use crate::etcd::Material;
use crate::fleet::Fleet;
use crate::live::{CredentialKind as Kind, Expiry};

const URL: &str = "https://127.0.0.1:1";

/// Returns a self-signed certificate that expires at the beginning of a year, and its key.
fn certificate(year: i32) -> (String, String) {
    let mut params = CertificateParams::new(vec!["durward".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(year, 1, 1));
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Returns the user of a kubeconfig with an inline certificate.
fn inline(year: i32) -> String {
    let (pem, key) = certificate(year);
    format!("client-certificate-data: {}, client-key-data: {}", STANDARD.encode(pem), STANDARD.encode(key))
}

/// Returns the kinds and the years, sorted.
fn years(expiries: &[Expiry]) -> Vec<(Kind, i64)> {
    // 2030-01-01 is 21,915 days after 1970.
    let year = |expiry: &Expiry| 2030 + (expiry.not_after - 21_915 * 86_400) / (365 * 86_400);
    let mut years: Vec<_> = expiries.iter().map(|expiry| (expiry.kind, year(expiry))).collect();
    years.sort_unstable();
    years
}

async fn connected(ca: &str, user: &str) -> Vec<Expiry> {
    let config = kubeconfig(URL, ca, "", user);
    Live::connect(&config.access()).await.unwrap().expiries(&[]).await
}

#[tokio::test]
async fn the_client_certificate_of_a_kubeconfig_is_inline_or_in_a_file() {
    let read = connected(&certificate(2040).0, &inline(2031)).await;
    assert_eq!(years(&read), [(Kind::ApiServerClient, 2031)]);
    assert!(read[0].source.starts_with("kubeconfig /"), "{}", read[0].source);
    let directory = tempfile::tempdir().unwrap();
    let ((pem, key), path) = (certificate(2032), |name: &str| directory.path().join(name));
    std::fs::write(path("crt"), pem + &certificate(2031).0).unwrap();
    std::fs::write(path("key"), key).unwrap();
    let user =
        format!("client-certificate: {}, client-key: {}", path("crt").display(), path("key").display());
    assert_eq!(years(&connected("", &user).await), [(Kind::ApiServerClient, 2031)], "the first that expires");
    assert_eq!(connected("", "token: opaque").await, []);
}

#[tokio::test]
async fn member_clusters_are_known_after_their_first_request() {
    let config = kubeconfig(URL, "", "", &inline(2031));
    let live = Live::connect(&config.access()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let members = live.members(&Fleet::Contexts(vec!["test".to_owned()]), deadline).await.unwrap();
    let of_member = async || {
        let mut read = live.expiries(&[]).await;
        read.retain(|expiry| expiry.kind == Kind::MemberClient);
        read
    };
    assert_eq!(of_member().await, []);
    let resource = Resource::NAMESPACES;
    let query = super::member_requests::query(&resource, "");
    assert!(live.list(&members[0].cluster, query, deadline).await.is_err(), "no cluster is at {URL}");
    let read = of_member().await;
    assert_eq!(years(&read), [(Kind::MemberClient, 2031)]);
    assert!(read[0].source.starts_with("context test of kubeconfig /"), "{}", read[0].source);
}

#[tokio::test]
async fn certificates_for_etcd_members_are_read_again_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (ca, (client, key)) = (certificate(2040).0, certificate(2031));
    for (name, text) in [("ca", &ca), ("crt", &client), ("key", &key)] {
        std::fs::write(path(name), text).unwrap();
    }
    let files = Material::Files { authority: path("ca"), identity: Some((path("crt"), path("key"))) };
    let (live, mut fake) = live();
    let read = live.expiries(std::slice::from_ref(&files)).await;
    assert_eq!(years(&read), [(Kind::EtcdClient, 2031)]);
    assert!(read[0].source.starts_with("file /"), "{read:?}");
    std::fs::write(path("crt"), certificate(2035).0).unwrap();
    let read = live.expiries(std::slice::from_ref(&files)).await;
    assert_eq!(years(&read), [(Kind::EtcdClient, 2035)]);
    std::fs::remove_file(path("ca")).unwrap();
    let read = live.expiries(std::slice::from_ref(&files)).await;
    assert_eq!(read, [], "the guard reports files that are gone");

    let secret = Material::Secret { namespace: "shop".to_owned(), name: "etcd-client".to_owned() };
    let data = json!({"ca.crt": STANDARD.encode(&ca), "tls.crt": STANDARD.encode(&client)});
    let whole = json!({"kind": "Secret", "apiVersion": "v1", "data": data,
        "metadata": {"name": "etcd-client", "namespace": "shop", "uid": "s", "resourceVersion": "1"}});
    let (read, ()) = tokio::join!(live.expiries(std::slice::from_ref(&secret)), async {
        fake.asked("/api/v1/namespaces/shop/secrets/etcd-client").await.json(200, &whole);
    });
    assert_eq!(years(&read), [(Kind::EtcdClient, 2031)]);
    assert_eq!(read[0].source, "Secret shop/etcd-client's tls.crt");
}
