//! The `server` section: addresses, certificate, webhook registration, limits, shutdown.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use config::{Section, names};
use server::{ClientCertificates, Drain, Limits, TlsVersion};

use super::{Purpose, Within};

/// `server`
#[derive(Debug, Clone)]
pub(crate) struct ServerSection {
    /// The address for the API server.
    pub(crate) listen: SocketAddr,
    /// The address for probes and metrics.
    pub(crate) admin: SocketAddr,
    /// The address for changing the log level, or `None`.
    pub(crate) local: Option<SocketAddr>,
    /// `tls`
    pub(crate) tls: Tls,
    /// `registration`
    pub(crate) registration: Registration,
    /// `limits`
    pub(crate) limits: Limits,
    /// `drain`
    pub(crate) drain: Drain,
}

/// `server.tls`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// `minVersion`
    pub(crate) min_version: TlsVersion,
    /// `clientCertificates`
    pub(crate) client: ClientCertificates,
    /// `files.cert`
    pub(crate) cert: Option<PathBuf>,
    /// `files.key`
    pub(crate) key: Option<PathBuf>,
    /// `files.ca`
    pub(crate) ca: Option<PathBuf>,
}

/// `server.registration`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The address in the webhook configuration.
    pub(crate) reach: Reach,
}

/// The address in a webhook configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
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

pub(super) fn read_server(section: &mut Section<'_>, within: &Within<'_>, namespace: &str) -> ServerSection {
    let listen =
        address(section, "listen", "Where the API server calls, over TLS; port 0 takes any free one.", 8443);
    let admin = address(section, "admin", "Where /livez, /readyz and /metrics are; read-only.", 8080);
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 8081));
    let local = section.parsed(
        "local",
        "loopback address with port, or none",
        "Where the log level is changed, reached by kubectl port-forward; loopback only, or none.",
        Some(("127.0.0.1:8081", Local(Some(at)))),
    );
    let local = local.unwrap_or(Local(None)).0;
    if listen.port() != 0
        && (listen.port() == admin.port() || local.is_some_and(|l| l.port() == listen.port()))
    {
        section.problem("listen", format!("port {} stands at another key too", listen.port()), None);
    }
    if admin.port() != 0 && local.is_some_and(|local| local.port() == admin.port()) {
        section.problem("admin", format!("port {} stands at local too", admin.port()), None);
    }
    ServerSection {
        listen,
        admin,
        local,
        tls: section
            .section("tls", "The certificate, and what is asked of callers.", |s| read_tls(s, within)),
        registration: section.section("registration", "How the API server learns of Durward.", |s| {
            read_registration(s, namespace)
        }),
        limits: section.section(
            "limits",
            "How much is taken on at once; past it 503, which the API server tries again.",
            read_limits,
        ),
        drain: section.section("drain", "How the server leaves after SIGTERM.", |s| Drain {
            lame_duck: s.duration(
                "lameDuck",
                "For how long it still accepts, while others learn that it leaves.",
                "10s",
                Duration::from_secs(600),
            ),
            finish: s.duration(
                "finish",
                "The longest wait for reviews in flight after that.",
                "30s",
                Duration::from_secs(600),
            ),
        }),
    }
}

fn address(section: &mut Section<'_>, key: &'static str, doc: &'static str, port: u16) -> SocketAddr {
    let default = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let yaml = default.to_string();
    section
        .parsed(key, "address with port, as 0.0.0.0:8443 or [::]:8443", doc, Some((&yaml, default)))
        .unwrap_or(default)
}

fn read_tls(section: &mut Section<'_>, within: &Within<'_>) -> Tls {
    let versions = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
    let min_version = section.choice(
        "minVersion",
        "The oldest version of TLS that is spoken.",
        &versions,
        TlsVersion::V1_2,
    );
    let serving = matches!(within.purpose, Purpose::Serving { .. });
    let client = section.section(
        "clientCertificates",
        "Whether callers must show a certificate; an API server has none unless it was given one.",
        |s| {
            let modes = [("off", Asked::Off), ("count", Asked::Count), ("require", Asked::Require)];
            let mode =
                s.choice("mode", "off; count: ask, count, refuse nobody; require.", &modes, Asked::Off);
            let ca = within.path(s, "ca", "The authorities that callers are checked against, PEM.", serving);
            match (mode, ca) {
                (Asked::Count, Some(ca)) => ClientCertificates::Count { ca },
                (Asked::Require, Some(ca)) => ClientCertificates::Require { ca },
                (Asked::Off, Some(_)) => {
                    s.problem(
                        "ca",
                        "stands there while mode is off",
                        Some("write mode: count or mode: require, or take ca out".to_owned()),
                    );
                    ClientCertificates::Off
                }
                (Asked::Off, None) => ClientCertificates::Off,
                (_, None) => {
                    if !s.has("ca") {
                        s.problem("ca", "is required", Some("add: ca: <path>".to_owned()));
                    }
                    ClientCertificates::Off
                }
            }
        },
    );
    let (cert_given, key_given) = match within.purpose {
        Purpose::Serving { cert_given, key_given } => (cert_given, key_given),
        _ => (true, true),
    };
    let (cert, key, ca) =
        section.section("files", "Certificate and key as files; read again when they change.", |s| {
            let cert = within.certificate(
                s,
                "cert",
                "The serving certificate and what issued it, PEM.",
                serving && !cert_given,
            );
            let key = within.certificate(s, "key", "Its key, PEM, not encrypted.", serving && !key_given);
            let ca = within.certificate(
                s,
                "ca",
                "The authority, PEM: what `manifests` prints as caBundle.",
                within.purpose == Purpose::Registration,
            );
            for (name, given, found) in [("cert", cert_given, &cert), ("key", key_given, &key)] {
                if !given && found.is_none() && !s.has(name) {
                    let next =
                        format!("add {name}: <path>, or give --tls-{name}; make one with: durward certs new");
                    s.problem(name, "is required", Some(next));
                }
            }
            (cert, key, ca)
        });
    Tls { min_version, client, cert, key, ca }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Off,
    Count,
    Require,
}

fn read_registration(section: &mut Section<'_>, namespace: &str) -> Registration {
    section.choice(
        "manage",
        "none: `durward manifests` prints the webhook configurations, and you apply them.",
        &[("none", ())],
        (),
    );
    let url = section.parsed(
        "url",
        "URL, as https://10.0.0.7:8443",
        "How the API server reaches Durward without a Service.",
        None::<(&str, HttpsUrl)>,
    );
    if section.has("url") && section.has("service") {
        section.problem("url", "stands beside service", Some("keep one of them".to_owned()));
    }
    let service = section.section("service", "The Service by which the API server reaches Durward.", |s| {
        let name = s.name("name", names::SERVICE, "Its name.", "durward", names::service);
        let port = s.number("port", "Its port.", 443, (1, 65535));
        Reach::Service { name, namespace: namespace.to_owned(), port: u16::try_from(port).unwrap_or(443) }
    });
    Registration { reach: url.map_or(service, |url| Reach::Url(url.0)) }
}

fn read_limits(section: &mut Section<'_>) -> Limits {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let in_flight = section.number("inFlight", "Reviews that are being decided.", 256, (1, 65_536));
    let body_bytes = section.size("bodyBytes", "One review's body.", "8Mi");
    let bytes_in_flight = section.size(
        "bytesInFlight",
        "All bodies and answers together, each with 32Ki for the connection that holds it.",
        "64Mi",
    );
    let deadline = section.duration(
        "deadline",
        "The longest that a review may take, whatever the caller would wait.",
        "10s",
        Duration::from_secs(30),
    );
    let connections = section.number(
        "connections",
        "Open connections; a review under way holds one, idle ones make room.",
        512,
        (1, 1_000_000),
    );
    if body_bytes == 0 {
        section.problem(
            "bodyBytes",
            "is nothing",
            Some("write 8Mi: two objects of 3 MiB and an envelope".to_owned()),
        );
    }
    if bytes_in_flight < body_bytes.saturating_add(Limits::BODY_COST) {
        section.problem(
            "bytesInFlight",
            "is less than bodyBytes and the 32Ki that each body costs beside it, so one large review would never fit",
            None,
        );
    }
    if deadline < Duration::from_secs(1) {
        section.problem(
            "deadline",
            "is under a second",
            Some("the API server waits for 1 s at least".to_owned()),
        );
    }
    Limits {
        in_flight: number(in_flight),
        body_bytes,
        bytes_in_flight,
        deadline,
        connections: number(connections),
    }
}

/// A loopback address, or `none`.
#[derive(Debug, Clone, Copy)]
struct Local(Option<SocketAddr>);

impl FromStr for Local {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self(None));
        }
        let address: SocketAddr = text.parse().map_err(|_| "is no address with a port")?;
        if is_loopback(address.ip()) { Ok(Self(Some(address))) } else { Err("is not a loopback address") }
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A webhook URL that the API server accepts (`apiserver/pkg/util/webhook/validation.go`): https, a host, no user, no query, no
/// fragment. The guard's name is appended to its path.
#[derive(Debug, Clone)]
struct HttpsUrl(String);

impl FromStr for HttpsUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").ok_or("does not begin with https://")?;
        let (host, _) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.starts_with(':') {
            return Err("names no host");
        }
        if host.contains('@') {
            return Err("names a user");
        }
        if rest.contains(['?', '#']) {
            return Err("has a query or a fragment, which the API server refuses");
        }
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("has white space in it");
        }
        let port = match host.rsplit_once(':') {
            // The last colon belongs to an IPv6 address without a port.
            Some((_, last)) if last.ends_with(']') => None,
            parts => parts.map(|(_, port)| port),
        };
        if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
            return Err("has a port that is not one of 1 to 65535");
        }
        text.parse::<hyper::Uri>().map_err(|_| "is no URL")?;
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
            ("https://u@h", "a user"),
            ("https://h?x", "a query"),
            ("https://h x", "white space"),
            ("https://h:99999", "a port that is not one of 1 to 65535"),
            ("https://h:0", "a port"),
            ("https://h:/x", "a port"),
            ("https://h:https", "a port"),
            ("https://[::1]:70000", "a port"),
        ] {
            let why = bad.parse::<HttpsUrl>().unwrap_err();
            assert!(why.contains(expected), "{bad}: {why}");
        }
    }
}
