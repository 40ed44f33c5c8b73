//! The words of the command line: objects, member clusters and durations.

use std::str::FromStr;
use std::time::Duration;

use cluster::Resource;
use config::Problem;
use config::names::is_dns_subdomain;
use kube::Client;
use kube::api::ApiResource;
use kube::discovery::{Scope, group};

/// A kind of objects whose deletion a guard can deny.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OverridableKind {
    /// Its names in kubectl. Messages use the first one.
    words: &'static [&'static str],
    group: &'static str,
    pub(super) kind: &'static str,
    plural: &'static str,
    pub(super) is_namespaced: bool,
}

/// The kinds of both guards that deny deletions.
pub(super) const OVERRIDABLE: [OverridableKind; 5] = [
    OverridableKind {
        words: &["ns", "namespace", "namespaces"],
        group: "",
        kind: "Namespace",
        plural: "namespaces",
        is_namespaced: false,
    },
    OverridableKind {
        words: &["crd", "crds", "customresourcedefinition", "customresourcedefinitions"],
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        is_namespaced: false,
    },
    OverridableKind {
        words: &["pod", "po", "pods"],
        group: "",
        kind: "Pod",
        plural: "pods",
        is_namespaced: true,
    },
    OverridableKind {
        words: &["statefulset", "sts", "statefulsets"],
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        is_namespaced: true,
    },
    OverridableKind {
        words: &["pvc", "persistentvolumeclaim", "persistentvolumeclaims"],
        group: "",
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        is_namespaced: true,
    },
];

impl OverridableKind {
    /// Returns its name in messages.
    pub(super) fn word(&self) -> &'static str {
        self.words.first().copied().unwrap_or_default()
    }

    /// Returns the resource to change an object.
    pub(super) fn resource(&self) -> ApiResource {
        resource(self.group, "v1", self.kind, self.plural)
    }

    /// Returns the resource to list objects.
    pub(super) fn listed(&self) -> Resource {
        Resource { group: self.group.into(), version: "v1".into(), plural: self.plural.into() }
    }
}

/// An object whose deletion a guard can deny.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overridable {
    /// The kind as in kubectl.
    pub(super) word: String,
    /// The kind, unless only an in-use rule can protect it.
    pub(super) kind: Option<&'static OverridableKind>,
    pub(super) name: String,
}

impl FromStr for Overridable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, name) = text.split_once('/').unwrap_or((text, ""));
        let kind = OVERRIDABLE.iter().find(|kind| kind.words.contains(&word));
        if kind.is_none() && (!text.contains('/') || !is_dns_subdomain(word)) {
            let words: Vec<_> = OVERRIDABLE.iter().map(|kind| format!("{}/NAME", kind.word())).collect();
            let meant = match text {
                _ if text.contains('/') || !is_dns_subdomain(text) => String::new(),
                _ if text.contains('.') => format!("; did you mean crd/{text}?"),
                _ => format!("; did you mean ns/{text} or pod/{text}?"),
            };
            return Err(format!("must be one of {}, RESOURCE.GROUP/NAME{meant}", words.join(", ")));
        }
        let word = kind.map_or(word, |kind| kind.word()).to_owned();
        if name.is_empty() {
            return Err(format!("the name is missing: {word}/NAME"));
        }
        Ok(Self { word, kind, name: checked(name)? })
    }
}

/// Returns the resource of this name that the API server serves, and whether its objects are in namespaces.
pub(super) async fn discovered(client: &Client, word: &str) -> Result<(ApiResource, bool), Problem> {
    let (name, of) = word.split_once('.').unwrap_or((word, ""));
    let not_served = || Problem::new(format!("the API server serves no resource {word}"));
    let resources = group(client, of).await.map_err(|error| not_served().why(error.to_string()))?;
    let is_it = |resource: &ApiResource| resource.plural == name || resource.kind.to_lowercase() == name;
    let found = resources.recommended_resources().into_iter().find(|(resource, _)| is_it(resource));
    let (resource, capabilities) = found.ok_or_else(|| {
        not_served().next("write it as the denial does, for example gateways.gateway.networking.k8s.io")
    })?;
    Ok((resource, capabilities.scope == Scope::Namespaced))
}

/// A member cluster: its name, with or without the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberArg(pub(super) String);

impl FromStr for MemberArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = ["cluster", "clusters"];
        if kinds.contains(&text) {
            return Err("is a kind: write only the names of clusters".to_owned());
        }
        let name =
            text.split_once('/').filter(|(kind, _)| kinds.contains(kind)).map_or(text, |(_, name)| name);
        checked(name).map(Self)
    }
}

fn checked(name: &str) -> Result<String, String> {
    if is_dns_subdomain(name) { Ok(name.to_owned()) } else { Err(format!("{name:?} is not a valid name")) }
}

/// A duration such as `30m`, `2h` or `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(pub(super) Duration);

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "must be a duration, for example 30m, 2h or 7d".to_owned();
        let seconds = match text.chars().last().ok_or_else(invalid)? {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return Err(invalid()),
        };
        let number: u32 = text.get(..text.len() - 1).unwrap_or_default().parse().map_err(|_| invalid())?;
        Ok(Self(Duration::from_secs(u64::from(number) * seconds)))
    }
}

/// The resource of Karmada's Clusters.
pub(super) fn clusters() -> ApiResource {
    resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters")
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_objects_and_durations() {
        for (text, word, name) in
            [("ns/shop", "ns", "shop"), ("pods/etcd-1", "pod", "etcd-1"), ("sts/etcd", "statefulset", "etcd")]
        {
            let object: Overridable = text.parse().unwrap();
            assert_eq!((object.word.as_str(), object.name.as_str()), (word, name));
            assert!(object.kind.is_some());
        }
        let gateway: Overridable = "gateways.gateway.networking.k8s.io/edge".parse().unwrap();
        assert_eq!((gateway.word.as_str(), gateway.kind), ("gateways.gateway.networking.k8s.io", None));
        for wrong in ["shop", "ns/", "ns/A b", "A b/x", "secrets/", "ns/a/b"] {
            assert!(wrong.parse::<Overridable>().is_err(), "{wrong}");
        }
        for text in ["m5", "cluster/m5", "clusters/m5"] {
            assert_eq!(text.parse(), Ok(MemberArg("m5".into())));
        }
        for wrong in ["cluster", "cluster/", "ns/m5", "M 5", ""] {
            assert!(wrong.parse::<MemberArg>().is_err(), "{wrong}");
        }
        assert_eq!("7d".parse(), Ok(Period(Duration::from_secs(7 * 24 * 3600))));
        assert_eq!("90s".parse(), Ok(Period(Duration::from_secs(90))));
        for wrong in ["", "2", "h", "-1h", "2 h", "2w", "2é"] {
            assert!(wrong.parse::<Period>().is_err(), "{wrong}");
        }
    }
}
