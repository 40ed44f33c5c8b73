//! Validates names as the API server does, so that it accepts every name that is valid here.
//!
//! Facts: `apimachinery/pkg/util/validation` (`IsQualifiedName`, `IsValidLabelValue`, `IsDNS1123Label`, `IsDNS1035Label`,
//! `IsDNS1123Subdomain`). Each function returns the reason why a name is invalid. A constant describes valid names.

/// Describes [`label_key`].
pub const LABEL_KEY: &str = "label key: letters, digits, -, _ and . (63 at most, a letter or digit at both ends), optionally after a DNS name and /";

/// Describes [`label_value`].
pub const LABEL_VALUE: &str =
    "label value: letters, digits, -, _ and . (63 at most, a letter or digit at both ends), or \"\"";

/// Describes [`namespace`].
pub const NAMESPACE: &str =
    "namespace: lower-case letters, digits and - (63 at most, a letter or digit at both ends)";

/// Describes [`namespaces`].
pub const NAMESPACES: &str = "namespace: lower-case letters, digits and - (63 at most, a letter or digit at both ends); * matches any number of them";

/// Describes [`service`].
pub const SERVICE: &str = "name of a Service: lower-case letters, digits and - (63 at most, a letter first, a letter or digit last)";

/// Describes [`secret`].
pub const SECRET: &str =
    "name of a Secret: lower-case letters, digits, - and . (253 at most, a letter or digit at both ends)";

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

/// The reason why a name is invalid.
pub type NameFault = &'static str;

/// Validates the key of a label: `tier`, `example.org/tier`.
pub fn label_key(text: &str) -> Result<(), NameFault> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((_, name)) if name.contains('/') => return Err("is not a label key: it has more than one /"),
        Some((prefix, name)) => (Some(prefix), name),
    };
    if name.is_empty() {
        return Err("is not a label key: it has no name");
    }
    if !is_qualified(name) {
        return Err("is not a label key");
    }
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Err("is not a label key: the part before / is not a DNS name");
    }
    Ok(())
}

/// Validates the value of a label, which can be empty.
pub fn label_value(text: &str) -> Result<(), NameFault> {
    if text.is_empty() || is_qualified(text) { Ok(()) } else { Err("is not a label value") }
}

/// Validates the name of a namespace.
pub fn namespace(text: &str) -> Result<(), NameFault> {
    if is_dns_label(text) { Ok(()) } else { Err("is not the name of a namespace") }
}

/// Validates the name of a namespace, or a pattern that can match one.
pub fn namespaces(text: &str) -> Result<(), NameFault> {
    if !text.contains('*') {
        return namespace(text);
    }
    // A star can match nothing, so the rest must be short enough. It need not be a name.
    let rest = text.bytes().filter(|&byte| byte != b'*');
    let ends = text.starts_with('-') || text.ends_with('-');
    if ends || rest.clone().count() > MAX_LABEL || !rest.clone().all(is_lower) {
        return Err("matches no name of a namespace");
    }
    Ok(())
}

/// Validates the name of a Service. It is part of environment variables of pods, so it begins with a letter.
pub fn service(text: &str) -> Result<(), NameFault> {
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if is_dns_label(text) && begins { Ok(()) } else { Err("is not the name of a Service") }
}

/// The name of a Node.
pub fn node(text: &str) -> Result<(), NameFault> {
    if is_dns_subdomain(text) { Ok(()) } else { Err("is not the name of a node") }
}

/// Validates the name of a Secret.
pub fn secret(text: &str) -> Result<(), NameFault> {
    if text.contains('/') {
        return Err("contains a namespace: the Secret must be in the namespace of its object");
    }
    if is_dns_subdomain(text) { Ok(()) } else { Err("is not the name of a Secret") }
}

/// Validates a name in a certificate: a DNS name, or an address.
pub fn host(text: &str) -> Result<(), NameFault> {
    if text.contains("://") {
        return Err("is a URL; only its host name is needed");
    }
    if text.contains('*') {
        return Err("is a pattern; a name that it covers is needed");
    }
    let is_address = || text.parse::<std::net::IpAddr>().is_ok();
    if is_dns_subdomain(&text.to_ascii_lowercase()) || is_address() {
        return Ok(());
    }
    match text.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err("has a port; only the host name is needed")
        }
        _ => Err("is not a DNS name or an IP address"),
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// Returns whether the text is a DNS label (RFC 1123): lower-case letters, digits and inner hyphens.
pub fn is_dns_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_LABEL
        && text.bytes().all(is_lower)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns whether the text is a DNS subdomain: the name of most objects, including nodes and API groups. Unlike in DNS, a part can
/// have more than 63 characters.
pub fn is_dns_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(is_lower) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_part)
}

fn is_qualified(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && edge(bytes.first())
        && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition<'t>(
        of: fn(&str) -> Result<(), NameFault>,
        texts: &[&'t str],
    ) -> (Vec<&'t str>, Vec<&'t str>) {
        texts.iter().partition(|text| of(text).is_ok())
    }

    #[test]
    fn validates_label_keys_and_values_as_the_api_server_does() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        let far = format!("{}/a", "a".repeat(253));
        let farther = format!("{}/a", "a".repeat(254));
        let good = ["a", "A_b.c-1", "example.org/tier", "0/1", &long, &far];
        assert_eq!(partition(label_key, &good).1, [""; 0]);
        let bad = [
            "",
            "a/",
            "/a",
            "a/b/c",
            "bad key!",
            "-a",
            "a-",
            "Example.org/a",
            "a..b/c",
            "é",
            &longer,
            &farther,
        ];
        assert_eq!(partition(label_key, &bad).0, [""; 0]);

        assert_eq!(partition(label_value, &["", "a", "A_b.c-1", &long]).1, [""; 0]);
        assert_eq!(partition(label_value, &["x y", "-a", "a.", "a/b", "é", &longer]).0, [""; 0]);
    }

    #[test]
    fn validates_namespaces_and_services_as_dns_labels() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        assert_eq!(partition(namespace, &["a", "9dur", "a-b", &long]).1, [""; 0]);
        assert_eq!(
            partition(namespace, &["", "Bad Ns", "Foo_Bar", "-a", "a-", "a.b", "a*", &longer]).0,
            [""; 0]
        );
        assert_eq!(partition(service, &["durward", "a9", &long]).1, [""; 0]);
        assert_eq!(partition(service, &["9dur", "-a", "a-", "A", "", &longer]).0, [""; 0]);
    }

    #[test]
    fn nodes_have_dns_subdomains_as_names() {
        assert_eq!(partition(node, &["n1", "ip-10-0-0-1.ec2.internal"]).1, [""; 0]);
        assert_eq!(partition(node, &["", "../pods", "a/b", "N", "a-", "a..b", "a-.b"]).0, [""; 0]);
    }

    #[test]
    fn validates_secrets_and_hosts_as_plain_names() {
        assert_eq!(partition(secret, &["etcd-client", "a.b", "9"]).1, [""; 0]);
        assert_eq!(partition(secret, &["", "db/etcd-client", "A", "-a", "a_b"]).0, [""; 0]);
        assert_eq!(partition(host, &["etcd.db.svc", "ETCD.db.svc", "10.0.0.1", "fd00::1"]).1, [""; 0]);
        let bad = ["", "https://etcd.db.svc", "etcd.db.svc:2379", "*.db.svc", "a b", "a_b"];
        assert_eq!(partition(host, &bad).0, [""; 0]);
        assert!(host("etcd.db.svc:2379").unwrap_err().contains("a port"));
    }

    #[test]
    fn rejects_patterns_that_cannot_match_a_namespace() {
        let stars = format!("{}*", "a".repeat(63));
        assert_eq!(partition(namespaces, &["*", "kube-*", "*-dev", "a*b*", "team", &stars]).1, [""; 0]);
        let longer = format!("{}*", "a".repeat(64));
        assert_eq!(partition(namespaces, &["", "Kube-*", "-*", "*-", "a_*", "a.*", &longer]).0, [""; 0]);
    }

    #[test]
    fn dns_names_agree_with_the_api_server() {
        // From `TestIsDNS1123Label` and `TestIsDNS1123Subdomain` in apimachinery.
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        for name in ["a", "ab", "abc", "a1", "a-1", "a--1--2--b", "0", "01", "012", "1a", "1-a", &long] {
            assert!(is_dns_label(name) && is_dns_subdomain(name), "{name}");
        }
        for name in ["0.a", "a.b.c.d", "1.0.a", "a-1.b--2.c", "a1.b-2", &longer, &"a".repeat(253)] {
            assert!(is_dns_subdomain(name) && !is_dns_label(name), "{name}");
        }
        for name in [
            "",
            "A",
            "ABC",
            "aBc",
            "A1",
            "-",
            "a-",
            "-a",
            "1-",
            "-1",
            "_",
            "a_",
            "_a",
            "a_b",
            " ",
            "a ",
            " a",
            "a b",
            ".",
            "a.",
            ".a",
            "a..b",
            "a.-b",
            "a-.b",
            "a.B",
            "a@b",
            "a,b",
            "a/b",
            "a#b",
            "é",
            "a\n",
            &"a".repeat(254),
        ] {
            assert!(!is_dns_label(name) && !is_dns_subdomain(name), "{name:?}");
        }
    }
}
