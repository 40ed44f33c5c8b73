//! Names as the API server takes them, so that what is called right here is not refused there.
//!
//! Facts: `apimachinery/pkg/util/validation` (`IsQualifiedName`, `IsValidLabelValue`, `IsDNS1123Label`, `IsDNS1035Label`,
//! `IsDNS1123Subdomain`). Each function gives the reason why a text is not such a name; what is allowed is the constant beside it.

/// What [`label_key`] takes.
pub const LABEL_KEY: &str = "label key: letters, digits, -, _ and . (63 at most, a letter or digit at both ends), perhaps behind a DNS name and /";

/// What [`label_value`] takes.
pub const LABEL_VALUE: &str =
    "label value: letters, digits, -, _ and . (63 at most, a letter or digit at both ends), or \"\"";

/// What [`namespace`] takes.
pub const NAMESPACE: &str =
    "namespace: lower-case letters, digits and - (63 at most, a letter or digit at both ends)";

/// What [`namespaces`] takes.
pub const NAMESPACES: &str = "namespace: lower-case letters, digits and - (63 at most, a letter or digit at both ends); * is any run of them";

/// What [`service`] takes.
pub const SERVICE: &str = "name of a Service: lower-case letters, digits and - (63 at most, a letter first, a letter or digit last)";

/// What [`secret`] takes.
pub const SECRET: &str =
    "name of a Secret: lower-case letters, digits, - and . (253 at most, a letter or digit at both ends)";

const LONGEST_LABEL: usize = 63;
const LONGEST_SUBDOMAIN: usize = 253;

/// Why a text cannot stand where it does.
pub type Fault = &'static str;

/// The key of a label: `tier`, `example.org/tier`.
pub fn label_key(text: &str) -> Result<(), Fault> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((_, name)) if name.contains('/') => return Err("is no label key: it has more than one /"),
        Some((prefix, name)) => (Some(prefix), name),
    };
    if name.is_empty() {
        return Err("is no label key: it has no name");
    }
    if !is_qualified(name) {
        return Err("is no label key");
    }
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        return Err("is no label key: what stands before / is no DNS name");
    }
    Ok(())
}

/// The value of a label; may be empty.
pub fn label_value(text: &str) -> Result<(), Fault> {
    if text.is_empty() || is_qualified(text) { Ok(()) } else { Err("is no label value") }
}

/// The name of a namespace.
pub fn namespace(text: &str) -> Result<(), Fault> {
    if is_label(text) { Ok(()) } else { Err("is no name of a namespace") }
}

/// The name of a namespace, or a pattern that some namespace's name could match.
pub fn namespaces(text: &str) -> Result<(), Fault> {
    if !text.contains('*') {
        return namespace(text);
    }
    // What the stars stand for may be nothing, so the rest must be short enough; it need not be a name by itself.
    let rest = text.bytes().filter(|&byte| byte != b'*');
    let ends = text.starts_with('-') || text.ends_with('-');
    if ends || rest.clone().count() > LONGEST_LABEL || !rest.clone().all(is_lower) {
        return Err("matches no name of a namespace");
    }
    Ok(())
}

/// The name of a Service: it stands in the environment of pods, so it begins with a letter.
pub fn service(text: &str) -> Result<(), Fault> {
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if is_label(text) && begins { Ok(()) } else { Err("is no name of a Service") }
}

/// The name of a Node.
pub fn node(text: &str) -> Result<(), Fault> {
    if is_subdomain(text) { Ok(()) } else { Err("is no name of a node") }
}

/// The name of a Secret.
pub fn secret(text: &str) -> Result<(), Fault> {
    if text.contains('/') {
        return Err("names a namespace too: the Secret is in the namespace of what it is for");
    }
    if is_subdomain(text) { Ok(()) } else { Err("is no name of a Secret") }
}

/// A name in a certificate: a DNS name, or an address.
pub fn host(text: &str) -> Result<(), Fault> {
    if text.contains("://") {
        return Err("is a URL, and only the name in it is asked for");
    }
    if text.contains('*') {
        return Err("is a pattern, and a name is asked for that a certificate with it covers");
    }
    let is_address = || text.parse::<std::net::IpAddr>().is_ok();
    if is_subdomain(&text.to_ascii_lowercase()) || is_address() {
        return Ok(());
    }
    match text.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err("has a port, and only the name before it is asked for")
        }
        _ => Err("is no DNS name and no address"),
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_LABEL
        && text.bytes().all(is_lower)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    // A part may be longer than a label's 63 here: only the whole is bounded.
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(is_lower) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= LONGEST_SUBDOMAIN && text.split('.').all(is_part)
}

fn is_qualified(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_LABEL
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && edge(bytes.first())
        && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted<'t>(of: fn(&str) -> Result<(), Fault>, texts: &[&'t str]) -> (Vec<&'t str>, Vec<&'t str>) {
        texts.iter().partition(|text| of(text).is_ok())
    }

    #[test]
    fn label_keys_and_values_are_taken_as_the_api_server_takes_them() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        let far = format!("{}/a", "a".repeat(253));
        let farther = format!("{}/a", "a".repeat(254));
        let good = ["a", "A_b.c-1", "example.org/tier", "0/1", &long, &far];
        assert_eq!(sorted(label_key, &good).1, [""; 0]);
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
        assert_eq!(sorted(label_key, &bad).0, [""; 0]);

        assert_eq!(sorted(label_value, &["", "a", "A_b.c-1", &long]).1, [""; 0]);
        assert_eq!(sorted(label_value, &["x y", "-a", "a.", "a/b", "é", &longer]).0, [""; 0]);
    }

    #[test]
    fn namespaces_and_services_are_dns_labels() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        assert_eq!(sorted(namespace, &["a", "9dur", "a-b", &long]).1, [""; 0]);
        assert_eq!(
            sorted(namespace, &["", "Bad Ns", "Foo_Bar", "-a", "a-", "a.b", "a*", &longer]).0,
            [""; 0]
        );
        assert_eq!(sorted(service, &["durward", "a9", &long]).1, [""; 0]);
        assert_eq!(sorted(service, &["9dur", "-a", "a-", "A", "", &longer]).0, [""; 0]);
    }

    #[test]
    fn nodes_have_dns_subdomains_as_names() {
        assert_eq!(sorted(node, &["n1", "ip-10-0-0-1.ec2.internal"]).1, [""; 0]);
        assert_eq!(sorted(node, &["", "../pods", "a/b", "N", "a-", "a..b", "a-.b"]).0, [""; 0]);
    }

    #[test]
    fn secrets_and_hosts_are_names_and_nothing_around_them() {
        assert_eq!(sorted(secret, &["etcd-client", "a.b", "9"]).1, [""; 0]);
        assert_eq!(sorted(secret, &["", "db/etcd-client", "A", "-a", "a_b"]).0, [""; 0]);
        assert_eq!(sorted(host, &["etcd.db.svc", "ETCD.db.svc", "10.0.0.1", "fd00::1"]).1, [""; 0]);
        let bad = ["", "https://etcd.db.svc", "etcd.db.svc:2379", "*.db.svc", "a b", "a_b"];
        assert_eq!(sorted(host, &bad).0, [""; 0]);
        assert!(host("etcd.db.svc:2379").unwrap_err().contains("a port"));
    }

    #[test]
    fn a_pattern_must_be_able_to_match_a_namespace() {
        let stars = format!("{}*", "a".repeat(63));
        assert_eq!(sorted(namespaces, &["*", "kube-*", "*-dev", "a*b*", "team", &stars]).1, [""; 0]);
        let longer = format!("{}*", "a".repeat(64));
        assert_eq!(sorted(namespaces, &["", "Kube-*", "-*", "*-", "a_*", "a.*", &longer]).0, [""; 0]);
    }
}
