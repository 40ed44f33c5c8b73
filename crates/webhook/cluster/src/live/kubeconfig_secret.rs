//! Reads a kubeconfig from a Secret and rejects unsafe fields.
//!
//! Users who can write Secrets in that namespace control the kubeconfig. It must not make Durward run programs, read its own
//! files, or send tokens to a server that is not verified.

use kube::Config;
use kube::config::Kubeconfig;
use serde::Deserialize;

use super::access::config_of;
use super::failure::brief;

/// The key of the Secret.
const KEY: &str = "kubeconfig";

/// Returns the client configuration from a whole Secret. The error is the end of a sentence about the Secret.
pub(super) async fn config(secret: &[u8]) -> Result<Config, String> {
    let kubeconfig = vetted(&text(secret)?)?;
    config_of(kubeconfig, None, "its kubeconfig").await.map_err(|problem| brief(&problem.to_string()))
}

fn text(secret: &[u8]) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Secret {
        #[serde(default)]
        data: Option<Data>,
    }
    #[derive(Deserialize)]
    struct Data {
        kubeconfig: Option<k8s_openapi::ByteString>,
    }
    let secret: Secret = serde_json::from_slice(secret).map_err(|_| "it is no Secret".to_owned())?;
    let bytes = secret.data.and_then(|data| data.kubeconfig);
    let bytes = bytes.ok_or_else(|| format!("it has no key {KEY:?}"))?.0;
    String::from_utf8(bytes).map_err(|_| "its kubeconfig is not UTF-8".to_owned())
}

/// Parses a kubeconfig and checks that it contains only data. Errors do not repeat its text, which may be a token.
fn vetted(text: &str) -> Result<Kubeconfig, String> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| "its kubeconfig cannot be read".to_owned())?;
    let refused = kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref().and_then(refused_of_cluster))
        .chain(
            kubeconfig
                .auth_infos
                .iter()
                .filter_map(|named| named.auth_info.as_ref().and_then(refused_of_user)),
        )
        .next();
    match refused {
        None => Ok(kubeconfig),
        Some(what) => Err(format!("its kubeconfig has {what}, which is not accepted from a Secret")),
    }
}

fn refused_of_cluster(cluster: &kube::config::Cluster) -> Option<&'static str> {
    let is_https = cluster.server.as_deref().is_none_or(|server| server.starts_with("https://"));
    [
        (
            cluster.certificate_authority.is_some(),
            "certificate-authority (a path; give certificate-authority-data)",
        ),
        (cluster.insecure_skip_tls_verify == Some(true), "insecure-skip-tls-verify"),
        (cluster.proxy_url.is_some(), "proxy-url"),
        (!is_https, "a server that is not https://"),
    ]
    .into_iter()
    .find_map(|(is_set, what)| is_set.then_some(what))
}

fn refused_of_user(user: &kube::config::AuthInfo) -> Option<&'static str> {
    [
        (user.exec.is_some(), "exec"),
        (user.auth_provider.is_some(), "auth-provider"),
        (user.token_file.is_some(), "tokenFile (a path; give token)"),
        (user.client_certificate.is_some(), "client-certificate (a path; give client-certificate-data)"),
        (user.client_key.is_some(), "client-key (a path; give client-key-data)"),
    ]
    .into_iter()
    .find_map(|(is_set, what)| is_set.then_some(what))
}
