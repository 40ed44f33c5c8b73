//! Resources and addresses of objects.

use std::borrow::Cow;
use std::fmt;

use config::names::{is_dns_label, is_dns_subdomain};

/// A resource of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    /// The version of the request.
    pub version: Cow<'static, str>,
    /// The plural name, as in a path.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// Namespaces, which most guards read.
    pub const NAMESPACES: Self =
        Self { group: Cow::Borrowed(""), version: Cow::Borrowed("v1"), plural: Cow::Borrowed("namespaces") };

    /// Karmada's list of its members.
    pub(super) const CLUSTERS: Self = Self {
        group: Cow::Borrowed("cluster.karmada.io"),
        version: Cow::Borrowed("v1alpha1"),
        plural: Cow::Borrowed("clusters"),
    };

    /// Secrets, which can contain kubeconfigs.
    pub(super) const SECRETS: Self =
        Self { group: Cow::Borrowed(""), version: Cow::Borrowed("v1"), plural: Cow::Borrowed("secrets") };

    /// Returns its name with the version, like an argument of `kubectl get`: `deployments.v1.apps`; `namespaces.v1`.
    pub fn argument(&self) -> String {
        let Self { group, version, plural } = self;
        if group.is_empty() { format!("{plural}.{version}") } else { format!("{plural}.{version}.{group}") }
    }

    /// Whether it is this resource, in any version.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Parses an [`argument`](Self::argument).
    pub fn from_argument(text: &str) -> Option<Self> {
        let (plural, rest) = text.split_once('.')?;
        let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
        let are_names = is_dns_label(plural)
            && is_dns_label(version)
            && (is_dns_subdomain(group) || (group.is_empty() && !rest.ends_with('.')));
        let owned = |part: &str| Cow::Owned(part.to_owned());
        are_names.then(|| Self { group: owned(group), version: owned(version), plural: owned(plural) })
    }

    /// Returns whether a kind fits the plural. Plurals are regular in the groups of Kubernetes that are named here. In other
    /// groups a CRD defines the plural, so every kind fits.
    pub(super) fn matches_kind(&self, kind: &str) -> bool {
        if !matches!(&*self.group, "" | "apps" | "batch") {
            return true;
        }
        let kind = kind.to_lowercase();
        let plural = match kind.strip_suffix('y') {
            _ if kind == "endpoints" => kind,
            Some(stem) => format!("{stem}ies"),
            None if kind.ends_with('s') => format!("{kind}es"),
            None => format!("{kind}s"),
        };
        plural == self.plural
    }

    /// Returns the singular of its name for messages: `configmap`. An irregular plural is returned unchanged or shortened.
    pub fn singular(&self) -> Cow<'_, str> {
        singular(&self.plural)
    }

    /// Returns the value of `apiVersion`: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for Resource {
    /// Formats it like kubectl and RBAC messages: `namespaces`, `deployments.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// One object's address.
#[derive(Debug, Clone, Copy)]
pub struct Address<'a> {
    /// The resource.
    pub resource: &'a Resource,
    /// Empty if the resource has none.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl fmt::Display for Address<'_> {
    /// `namespace "shop"`, `pod "web" in namespace "shop"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resource { group, plural, .. } = self.resource;
        f.write_str(&singular(plural))?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        write!(f, " {:?}", self.name)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in namespace {:?}", self.namespace) }
    }
}

/// Returns the singular of a plural for messages. An irregular plural is returned unchanged or shortened.
fn singular(plural: &str) -> Cow<'_, str> {
    match plural {
        "endpoints" => Cow::Borrowed(plural),
        _ => match (plural.strip_suffix("ies"), plural.strip_suffix('s')) {
            (Some(stem), _) => Cow::Owned(format!("{stem}y")),
            (None, Some(stem)) => Cow::Borrowed(
                stem.strip_suffix('e')
                    .filter(|stem| stem.ends_with("ss") || stem.ends_with('x'))
                    .unwrap_or(stem),
            ),
            (None, None) => Cow::Borrowed(plural),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_object() {
        for (stem, shown) in [
            ("namespaces.v1", "namespace \"a\""),
            ("endpoints.v1", "endpoints \"a\""),
            ("ingresses.v1.networking.k8s.io", "ingress.networking.k8s.io \"a\""),
            ("networkpolicies.v1.networking.k8s.io", "networkpolicy.networking.k8s.io \"a\""),
            ("leases.v1.coordination.k8s.io", "lease.coordination.k8s.io \"a\""),
            ("mice.v1.example.org", "mice.example.org \"a\""),
        ] {
            let resource = Resource::from_argument(stem).unwrap();
            assert_eq!(Address { resource: &resource, namespace: "", name: "a" }.to_string(), shown);
        }
    }

    #[test]
    fn an_argument_is_read_back_as_it_was_written() {
        let deployments =
            Resource { group: "apps".into(), version: "v1".into(), plural: "deployments".into() };
        for (resource, text, shown) in [
            (Resource::NAMESPACES, "namespaces.v1", "namespaces"),
            (deployments, "deployments.v1.apps", "deployments.apps"),
        ] {
            assert_eq!(resource.argument(), text);
            assert_eq!(Resource::from_argument(text), Some(resource.clone()));
            assert_eq!(resource.to_string(), shown);
        }
    }

    #[test]
    fn a_kind_is_compared_with_its_plural_if_plurals_are_regular() {
        for (stem, kind, expected) in [
            ("namespaces.v1", "Namespace", true),
            ("pods.v1", "Service", false),
            ("endpoints.v1", "Endpoints", true),
            ("deployments.v1.apps", "Deployment", true),
            ("jobs.v1.batch", "CronJob", false),
            ("mice.v1.example.org", "Mouse", true),
        ] {
            assert_eq!(Resource::from_argument(stem).unwrap().matches_kind(kind), expected, "{stem} {kind}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for text in [
            "",
            "pods",
            "pods.",
            "pods.v1.",
            "pods..apps",
            ".v1.apps",
            "Pods.v1",
            "../x.v1",
            "a/b.v1.c",
            "pods.v1.a_b",
        ] {
            assert_eq!(Resource::from_argument(text), None, "{text}");
        }
    }
}
