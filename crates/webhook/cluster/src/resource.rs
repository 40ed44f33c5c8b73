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

    /// Returns the file name of its List in a snapshot, without `.json`: `core_v1_namespaces`.
    pub fn stem(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        format!("{group}_{}_{}", self.version, self.plural)
    }

    /// Parses a [`stem`](Self::stem). Its parts contain no underscore: groups are DNS names, versions and plurals are DNS
    /// labels.
    pub fn from_stem(stem: &str) -> Option<Self> {
        let mut parts = stem.split('_');
        let (group, version, plural) = (parts.next()?, parts.next()?, parts.next()?);
        let parts_are_names = is_dns_subdomain(group) && is_dns_label(version) && is_dns_label(plural);
        if parts.next().is_some() || !parts_are_names {
            return None;
        }
        let group = if group == "core" { "" } else { group };
        let owned = |part: &str| Cow::Owned(part.to_owned());
        Some(Self { group: owned(group), version: owned(version), plural: owned(plural) })
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
            ("core_v1_namespaces", "namespace \"a\""),
            ("core_v1_endpoints", "endpoints \"a\""),
            ("networking.k8s.io_v1_ingresses", "ingress.networking.k8s.io \"a\""),
            ("networking.k8s.io_v1_networkpolicies", "networkpolicy.networking.k8s.io \"a\""),
            ("coordination.k8s.io_v1_leases", "lease.coordination.k8s.io \"a\""),
            ("example.org_v1_mice", "mice.example.org \"a\""),
        ] {
            let resource = Resource::from_stem(stem).unwrap();
            assert_eq!(Address { resource: &resource, namespace: "", name: "a" }.to_string(), shown);
        }
    }

    #[test]
    fn a_stem_is_read_back_as_it_was_written() {
        let deployments =
            Resource { group: "apps".into(), version: "v1".into(), plural: "deployments".into() };
        for (resource, stem, shown) in [
            (Resource::NAMESPACES, "core_v1_namespaces", "namespaces"),
            (deployments, "apps_v1_deployments", "deployments.apps"),
        ] {
            assert_eq!(resource.stem(), stem);
            assert_eq!(Resource::from_stem(stem), Some(resource.clone()));
            assert_eq!(resource.to_string(), shown);
        }
    }

    #[test]
    fn a_kind_is_compared_with_its_plural_if_plurals_are_regular() {
        for (stem, kind, expected) in [
            ("core_v1_namespaces", "Namespace", true),
            ("core_v1_pods", "Service", false),
            ("core_v1_endpoints", "Endpoints", true),
            ("apps_v1_deployments", "Deployment", true),
            ("batch_v1_jobs", "CronJob", false),
            ("example.org_v1_mice", "Mouse", true),
        ] {
            assert_eq!(Resource::from_stem(stem).unwrap().matches_kind(kind), expected, "{stem} {kind}");
        }
    }

    #[test]
    fn invalid_stems_are_rejected() {
        for stem in [
            "",
            "core",
            "core_v1",
            "core_v1_",
            "_v1_pods",
            "core_v1_pods_x",
            "Core_v1_pods",
            "../x_v1_y",
            "a/b_v1_c",
        ] {
            assert_eq!(Resource::from_stem(stem), None, "{stem}");
        }
    }
}
