//! The `server` section: addresses, certificate, webhook configuration, limits, shutdown.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ca::Lifetimes;
use cluster::live::Access;
use config::{Section, names};
use guards::NAMESPACE;
use server::{AllowedNames, ClientAuth, Limits, ShutdownTimes, TlsVersion};

use super::within::{Purpose, Within};

/// `server`
#[derive(Debug, Clone)]
pub(crate) struct ServerSection {
    /// `bindAddress`
    pub(crate) bind_address: SocketAddr,
    /// `metricsBindAddress`
    pub(crate) metrics_bind_address: SocketAddr,
    /// `tls`
    pub(crate) tls: TlsSection,
    /// `webhookConfiguration`
    pub(crate) webhook_address: WebhookAddress,
    /// `webhookConfiguration.manage`
    pub(crate) manage_webhooks: Manage,
    /// `limits`
    pub(crate) limits: Limits,
    /// `shutdown`
    pub(crate) shutdown: ShutdownTimes,
}

/// `server.tls`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsSection {
    /// `minVersion`
    pub(crate) min_version: TlsVersion,
    /// `clientAuth`
    pub(crate) client_auth: ClientAuth,
    /// `files.cert`
    pub(crate) cert: Option<PathBuf>,
    /// `files.key`
    pub(crate) key: Option<PathBuf>,
    /// `files.ca`
    pub(crate) ca: Option<PathBuf>,
    /// `selfManaged`
    pub(crate) self_managed: Option<SelfManagedTls>,
}

/// `server.tls.selfManaged`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelfManagedTls {
    /// `kubeconfig` and `context`: the cluster of the Secret, if it is not the one where Durward runs.
    pub(crate) access: Option<Access>,
    /// `caLifetime` and `certificateLifetime`
    pub(crate) lifetimes: Lifetimes,
}

/// The part of the webhook configurations that Durward writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manage {
    /// Nothing.
    None,
    /// The caBundle of existing entries.
    CaBundle,
    /// The entries of the guards that are on.
    All,
}

/// The address of Durward in a webhook configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WebhookAddress {
    /// A Service.
    Service {
        /// The name of the Service.
        name: String,
        /// The namespace of the Service.
        namespace: String,
        /// The port of the Service.
        port: u16,
    },
    /// A URL without a trailing slash.
    Url(String),
}

impl WebhookAddress {
    /// Returns the name by which the API server calls, and which the certificate must have.
    pub(crate) fn called(&self) -> String {
        match self {
            Self::Service { name, namespace, .. } => format!("{name}.{namespace}.svc"),
            Self::Url(url) => {
                let host = url.trim_start_matches("https://").split('/').next().unwrap_or_default();
                let host = match host.rsplit_once(':') {
                    Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
                    _ => host,
                };
                host.trim_start_matches('[').trim_end_matches(']').to_owned()
            }
        }
    }
}

/// Longest time of a shutdown.
const MAX_SHUTDOWN: Duration = Duration::from_secs(600);

pub(super) fn read_server(section: &mut Section<'_>, within: &Within<'_>, namespace: &str) -> ServerSection {
    let bind_address = address(
        section,
        "bindAddress",
        "Address for the API server (TLS). Port 0 selects a free port.",
        8443,
    );
    let metrics_bind_address = address(
        section,
        "metricsBindAddress",
        "Address of /livez, /readyz and /metrics (plain HTTP, read-only).",
        8080,
    );
    section.removed("debugBindAddress", "use log, a key of the whole file, which is reloaded");
    if bind_address.port() != 0 && bind_address.port() == metrics_bind_address.port() {
        section.problem("metricsBindAddress", "has the same port as bindAddress", None);
    }
    let tls = section.section("tls", "Serving certificate and client certificates.", |s| read_tls(s, within));
    let (manage_webhooks, webhook_address) = section.section(
        "webhookConfiguration",
        "Webhook configurations: the part that Durward writes, and its address.",
        |s| {
            let manage = read_manage(s, &tls, namespace);
            s.removed(
                "newGuardDelay",
                "remove it: a replica without a guard allows its requests with a warning",
            );
            (manage, read_webhook_address(s, namespace))
        },
    );
    ServerSection {
        bind_address,
        metrics_bind_address,
        tls,
        webhook_address,
        manage_webhooks,
        limits: section.section(
            "limits",
            "Limits. Above them the answer is 503, and the API server retries.",
            read_limits,
        ),
        shutdown: section.section("shutdown", "Shutdown after SIGTERM.", |s| ShutdownTimes {
            delay: s.duration(
                "delay",
                "Time during which Durward still accepts connections but is not ready, so that endpoints are updated.",
                "10s",
                MAX_SHUTDOWN,
            ),
            timeout: s.duration(
                "timeout",
                "Longest wait for requests in progress after the delay.",
                "30s",
                MAX_SHUTDOWN,
            ),
        }),
    }
}

fn address(section: &mut Section<'_>, key: &'static str, doc: &'static str, port: u16) -> SocketAddr {
    let default = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let yaml = default.to_string();
    section
        .parsed(key, "address with port, like 0.0.0.0:8443 or [::]:8443", doc, Some((&yaml, default)))
        .unwrap_or(default)
}

fn read_tls(section: &mut Section<'_>, within: &Within<'_>) -> TlsSection {
    let versions = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
    let min_version =
        section.choice("minVersion", "Oldest accepted version of TLS.", &versions, TlsVersion::V1_2);
    let serving = matches!(within.purpose, Purpose::Serving { .. });
    let client_auth = section.section(
        "clientAuth",
        "Client certificates. An API server sends one only if its AdmissionConfiguration has a kubeconfig for the webhook.",
        |s| read_client_auth(s, within, serving),
    );
    let is_self_managed = section.has("selfManaged") || section.is_blank("selfManaged");
    let (cert_given, key_given) = match within.purpose {
        Purpose::Serving { cert_given, key_given } if !is_self_managed => (cert_given, key_given),
        _ => (true, true),
    };
    let doc = "Files in PEM. Durward loads them again when they change.";
    let (cert, key, ca) = section.section("files", doc, |s| {
        let needed = serving && !cert_given;
        let cert = within.certificate(s, "cert", "Serving certificate, followed by its issuers.", needed);
        let key = within.certificate(s, "key", "Private key, not encrypted.", serving && !key_given);
        let doc = "CA of the certificate, which `durward manifests` prints as caBundle.";
        let ca = within.certificate(s, "ca", doc, within.purpose == Purpose::Registration);
        for (name, given, found) in [("cert", cert_given, &cert), ("key", key_given, &key)] {
            if !given && found.is_none() && !s.has(name) {
                let next = format!(
                    "add {name}: <path>, or start serve with --tls-{name}; create one with: durward certs new --service NAME.NAMESPACE --out tls"
                );
                s.problem(name, "is required", Some(next));
            }
        }
        (cert, key, ca)
    });
    if section.is_blank("selfManaged") {
        let next = "write selfManaged: {} to turn it on with its defaults, or remove the line".to_owned();
        section.problem("selfManaged", "is empty", Some(next));
    }
    if is_self_managed && section.has("files") {
        let next = "keep one: selfManaged if Durward creates its certificate, files if another tool does";
        section.problem("selfManaged", "cannot be combined with files", Some(next.to_owned()));
    }
    let doc = "Durward makes its certificate: a CA in a Secret, and a serving certificate that each replica keeps in memory. Both renew themselves.";
    let self_managed = section.section("selfManaged", doc, |s| read_self_managed(s, within));
    TlsSection {
        min_version,
        client_auth,
        cert,
        key,
        ca,
        self_managed: is_self_managed.then_some(self_managed),
    }
}

/// Longest lifetime of a CA: ten years.
const MAX_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Shortest lifetime of a certificate: a pass over the Secret takes a second, and several are needed to renew one.
const MIN_LIFETIME: Duration = Duration::from_secs(6);

/// Reads `selfManaged`. The Secret of the CA must exist in Durward's namespace with the label `durward.dev/ca: managed`.
fn read_self_managed(section: &mut Section<'_>, within: &Within<'_>) -> SelfManagedTls {
    for key in ["names", "addresses"] {
        section.removed(key, "remove it: the certificate has the name that the API server calls");
    }
    section.removed("secretName", "remove it: the Secret is durward-ca");
    let doc = "Kubeconfig of the cluster with the Secret. Default: the cluster where Durward runs.";
    let kubeconfig =
        within.path(section, "kubeconfig", doc, matches!(within.purpose, Purpose::Serving { .. }));
    let context =
        section.optional_text("context", "name", "Context of that kubeconfig, if it is not the current one.");
    if context.is_some() && kubeconfig.is_none() {
        section.problem(
            "context",
            "has no effect without kubeconfig",
            Some("add: kubeconfig: <path>".to_owned()),
        );
    }
    let ca = section.duration("caLifetime", "Lifetime of the CA. At two thirds of it, Durward adds the next CA to every caBundle, and then changes to it.", "8760h", MAX_LIFETIME);
    let certificate = section.duration("certificateLifetime", "Lifetime of a serving certificate, which is renewed at two thirds of it. With less than 72h, a wrong clock can do harm.", "168h", MAX_LIFETIME);
    if certificate < MIN_LIFETIME {
        section.problem(
            "certificateLifetime",
            "is too short",
            Some(format!("use at least {MIN_LIFETIME:?}")),
        );
    }
    if certificate > ca / 3 {
        let why =
            "is longer than a third of caLifetime, so a certificate would expire before its CA is replaced";
        section.problem("certificateLifetime", why, Some("use a longer caLifetime".to_owned()));
    }
    let access = kubeconfig.map(|kubeconfig| Access { kubeconfig: Some(kubeconfig), context });
    SelfManagedTls { access, lifetimes: Lifetimes { ca, certificate } }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientAuthMode {
    None,
    Require,
}

fn read_client_auth(section: &mut Section<'_>, within: &Within<'_>, serving: bool) -> ClientAuth {
    use ClientAuthMode as Mode;
    let mode = section.choice(
        "mode",
        "Use of client certificates. require: reject callers without a valid one.",
        &[("none", Mode::None), ("require", Mode::Require)],
        Mode::None,
    );
    let ca_file = within.path(section, "caFile", "CA of the client certificates, PEM.", serving);
    let allowed_names = read_allowed_names(section, mode);
    match (mode, ca_file) {
        (Mode::Require, Some(ca_file)) => ClientAuth::Require { ca_file, allowed_names },
        (Mode::Require, None) => {
            if !section.has("caFile") {
                section.problem("caFile", "is required", Some("add: caFile: <path>".to_owned()));
            }
            ClientAuth::None
        }
        (Mode::None, ca_file) => {
            let unused =
                [("caFile", ca_file.is_some()), ("allowedNames", !allowed_names.current().is_empty())];
            for (key, _) in unused.into_iter().filter(|(_, is_given)| *is_given) {
                section.problem(
                    key,
                    "has no effect with mode none",
                    Some(format!("set mode to require, or remove {key}")),
                );
            }
            ClientAuth::None
        }
    }
}

fn read_allowed_names(section: &mut Section<'_>, mode: ClientAuthMode) -> AllowedNames {
    let doc = "Accepted client certificates: the common name (CN) or a DNS name, compared exactly. Required with mode require: other certificates of the CA belong to kubelets and users.";
    let names = section.texts("allowedNames", "name", doc, &[]);
    if names.iter().any(String::is_empty) {
        section.problem("allowedNames", "contains an empty name", Some("remove it".to_owned()));
    }
    if mode == ClientAuthMode::Require && names.is_empty() {
        let next = "add the common name of the certificate that the API servers send: allowedNames: [apiserver-webhooks]";
        section.problem("allowedNames", "is required with mode require", Some(next.to_owned()));
    }
    AllowedNames::new(names)
}

fn read_manage(section: &mut Section<'_>, tls: &TlsSection, namespace: &str) -> Manage {
    let manage = section.choice(
        "manage",
        "none: you apply the webhook configurations that `durward manifests` prints. caBundle: Durward writes their caBundle. all: Durward writes all entries.",
        &[("none", Manage::None), ("caBundle", Manage::CaBundle), ("all", Manage::All)],
        Manage::None,
    );
    if manage == Manage::CaBundle && tls.ca.is_none() && tls.self_managed.is_none() {
        let next = "set server.tls.selfManaged or server.tls.files.ca, or use manage: none".to_owned();
        section.problem("manage", "no CA is configured, so there is no caBundle to write", Some(next));
    }
    if manage == Manage::All && namespace.is_empty() {
        let next = "set namespace to the namespace of Durward's pods".to_owned();
        section.problem("manage", "all needs a namespace, which owns the webhook configurations", Some(next));
    }
    manage
}

fn read_webhook_address(section: &mut Section<'_>, namespace: &str) -> WebhookAddress {
    let url = section.parsed(
        "url",
        "URL, like https://10.0.0.7:8443",
        "URL of Durward, if the API server cannot reach a Service.",
        None::<(&str, HttpsUrl)>,
    );
    if section.has("url") && section.has("service") {
        section.problem("url", "cannot be combined with service", Some("remove one of them".to_owned()));
    }
    let service = section.section("service", "Service of Durward, in its namespace.", |s| {
        let name = s.name("name", names::SERVICE, "Name of the Service.", "durward", names::service);
        let port = s.number("port", "Port of the Service.", 443, (1, 65535));
        let namespace = if namespace.is_empty() { NAMESPACE } else { namespace };
        WebhookAddress::Service {
            name,
            namespace: namespace.to_owned(),
            port: u16::try_from(port).unwrap_or(443),
        }
    });
    url.map_or(service, |url| WebhookAddress::Url(url.0))
}

fn read_limits(section: &mut Section<'_>) -> Limits {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let max_concurrent_requests =
        section.number("maxConcurrentRequests", "Requests in progress.", 256, (1, 65_536));
    let max_request_bytes = section.size("maxRequestBytes", "Size of one request body.", "10Mi");
    let max_total_bytes = section.size(
        "maxTotalBytes",
        "Size of all request bodies and responses together, with the values of bodies and 32Ki for the connection of each. A quarter is only for bodies up to 256Ki.",
        "64Mi",
    );
    let max_connections = section.number(
        "maxConnections",
        "Open connections. At the limit, a new connection closes one that waits for its peer, of the address with most of them.",
        512,
        (1, 1_000_000),
    );
    section.removed("requestTimeout", "remove it: a request has the timeoutSeconds of its webhook");
    if max_request_bytes == 0 {
        let next = "use 10Mi: the largest object that etcd stores, and its envelope".to_owned();
        section.problem("maxRequestBytes", "must be greater than zero", Some(next));
    }
    let is_small = max_request_bytes <= Limits::SMALL_BODY;
    let usable = if is_small { max_total_bytes } else { Limits::for_large_bodies(max_total_bytes) };
    if usable < max_request_bytes.saturating_add(Limits::BODY_COST) {
        section.problem(
            "maxTotalBytes",
            "must be larger, or the largest request is never accepted: three quarters of it must hold maxRequestBytes plus 32Ki",
            None,
        );
    }
    Limits {
        max_concurrent_requests: number(max_concurrent_requests),
        max_request_bytes,
        max_total_bytes,
        max_connections: number(max_connections),
        ..Limits::default()
    }
}

/// A webhook URL that the API server accepts (`apiserver/pkg/util/webhook/validation.go`): https, a host, no user, no query, no
/// fragment. The guard's name is appended to its path.
#[derive(Debug, Clone)]
struct HttpsUrl(String);

impl FromStr for HttpsUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").ok_or("does not start with https://")?;
        let (host, _) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.starts_with(':') {
            return Err("has no host");
        }
        if host.contains('@') {
            return Err("contains a user name");
        }
        if rest.contains(['?', '#']) {
            return Err("has a query or a fragment, which the API server rejects");
        }
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("contains white space");
        }
        let port = match host.rsplit_once(':') {
            // The last colon belongs to an IPv6 address without a port.
            Some((_, last)) if last.ends_with(']') => None,
            parts => parts.map(|(_, port)| port),
        };
        if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
            return Err("has an invalid port (1 to 65535)");
        }
        text.parse::<hyper::Uri>().map_err(|_| "is not a URL")?;
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_addresses_that_the_api_server_cannot_call() {
        for good in
            ["https://h", "https://h:1/x", "https://10.0.0.7:65535/", "https://[::1]", "https://[::1]:8443"]
        {
            assert!(good.parse::<HttpsUrl>().is_ok(), "{good}");
        }
        for (bad, expected) in [
            ("http://h", "https://"),
            ("https://", "no host"),
            ("https://:8443", "no host"),
            ("https://u@h", "a user name"),
            ("https://h?x", "a query"),
            ("https://h x", "white space"),
            ("https://h:99999", "an invalid port (1 to 65535)"),
            ("https://h:0", "an invalid port"),
            ("https://h:/x", "an invalid port"),
            ("https://h:https", "an invalid port"),
            ("https://[::1]:70000", "an invalid port"),
        ] {
            let why = bad.parse::<HttpsUrl>().unwrap_err();
            assert!(why.contains(expected), "{bad}: {why}");
        }
    }
    #[test]
    fn takes_the_server_name_from_the_url() {
        let service = WebhookAddress::Service { name: "d".into(), namespace: "s".into(), port: 443 };
        assert_eq!(service.called(), "d.s.svc");
        for (url, name) in [
            ("https://10.0.0.7:8443", "10.0.0.7"),
            ("https://durward.example.org/x", "durward.example.org"),
            ("https://[::1]:8443", "::1"),
            ("https://[::1]", "::1"),
        ] {
            assert_eq!(WebhookAddress::Url(url.into()).called(), name);
        }
    }
}
