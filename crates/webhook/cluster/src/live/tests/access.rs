//! Valid and invalid kubeconfigs.

use std::path::PathBuf;

use base64::Engine as _;

use super::transport::kubeconfig;
use crate::live::{Access, Live};

const URL: &str = "https://127.0.0.1:1";

async fn problem(access: &Access) -> String {
    Live::connect(access).await.expect_err("the kubeconfig is invalid").to_string()
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named() {
    let access = Access { kubeconfig: Some(PathBuf::from("/nowhere/config")), context: None };
    let message = problem(&access).await;
    assert!(
        message.starts_with("kubeconfig /nowhere/config: ") && message.contains("No such file"),
        "{message}"
    );
    assert!(message.contains(" from \"/nowhere/config\": "), "the path is in one pair of quotes: {message}");
    assert!(message.contains("\n    use a readable file: --kubeconfig FILE"), "{message}");
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_yaml_is_reported() {
    let config = kubeconfig(URL, "", "", "token: x");
    std::fs::write(&config.path, "contexts: [").unwrap();
    let message = problem(&config.access()).await;
    assert!(message.contains("failed to parse kubeconfig YAML"), "{message}");
}

#[tokio::test]
async fn an_unknown_context_is_reported_with_the_known_ones() {
    let config = kubeconfig(URL, "", "", "token: x");
    let message = problem(&Access { context: Some("tets".to_owned()), ..config.access() }).await;
    assert!(
        message.ends_with("unknown context \"tets\"\n    it has: test; did you mean \"test\"?"),
        "{message}"
    );
}

#[tokio::test]
async fn a_kubeconfig_without_a_current_context_asks_for_one() {
    for text in ["apiVersion: v1\nkind: Config\n", "apiVersion: v1\nkind: Config\ncurrent-context: \"\"\n"] {
        let config = kubeconfig(URL, "", "", "token: x");
        std::fs::write(&config.path, text).unwrap();
        let message = problem(&config.access()).await;
        assert!(
            message.ends_with("there is no current context\n    use --context NAME; it has no contexts"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_proxy_is_refused_and_not_bypassed() {
    let message =
        problem(&kubeconfig(URL, "", ", proxy-url: 'http://proxy:3128'", "token: x").access()).await;
    assert!(message.contains("uses a proxy (http://proxy:3128), which is not supported"), "{message}");
}

#[tokio::test]
async fn missing_credentials_are_reported() {
    for (user, expected) in [
        (
            "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /nowhere/plugin}",
            "unable to run auth exec",
        ),
        (
            "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: 'false'}",
            "failed with status",
        ),
        ("tokenFile: /nowhere/token", "failed to read token file"),
        ("client-certificate-data: eA==, client-key-data: eA==", "identity PEM"),
    ] {
        let message = problem(&kubeconfig(URL, "", "", user).access()).await;
        assert!(
            message.starts_with(&format!("the credentials for {URL}")) && message.contains(expected),
            "{user}: {message}"
        );
    }
}

#[tokio::test]
async fn a_client_certificate_of_version_1_is_reported_with_the_remedy() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["durward".to_owned()]).unwrap();
    let mut der = cert.der().to_vec();
    // The version is the first field: [0] { INTEGER 2 }.
    let at = der.windows(5).position(|bytes| bytes == [0xa0, 3, 2, 1, 2]).unwrap();
    der[at + 4] = 0;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let data = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    let key = data(&signing_key.serialize_pem());
    let user = format!("client-certificate-data: {}, client-key-data: {key}", data(&pem));
    let message = problem(&kubeconfig(URL, "", "", &user).access()).await;
    assert!(message.contains("openssl x509 -req -extfile"), "{message}");
}

#[tokio::test]
async fn an_invalid_ca_is_reported() {
    let message = problem(&kubeconfig(URL, "not a certificate", "", "token: x").access()).await;
    assert!(message.contains("its certificate-authority contains no certificate"), "{message}");
}

#[tokio::test]
async fn an_invalid_server_url_is_reported() {
    let message = problem(&kubeconfig("not a url", "", "", "token: x").access()).await;
    assert!(message.contains("failed to parse cluster url"), "{message}");
}
