//! Resources and addresses of objects.

use std::borrow::Cow;
use std::fmt;

use config::names::{is_dns_label, is_dns_subdomain};

/// A resource of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    /// The version to ask at.
    pub version: Cow<'static, str>,
    /// The plural name, as in a path.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// Namespaces, which most guards ask about.
    pub const NAMESPACES: Self =
        Self { group: Cow::Borrowed(""), version: Cow::Borrowed("v1"), plural: Cow::Borrowed("namespaces") };

    /// Karmada's list of its members.
    pub(super) const CLUSTERS: Self = Self {
        group: Cow::Borrowed("cluster.karmada.io"),
        version: Cow::Borrowed("v1alpha1"),
        plural: Cow::Borrowed("clusters"),
    };

    /// Secrets, in which kubeconfigs may stand.
    pub(super) const SECRETS: Self =
        Self { group: Cow::Borrowed(""), version: Cow::Borrowed("v1"), plural: Cow::Borrowed("secrets") };

    /// The name under which its List is recorded in a folder, without `.json`: `core_v1_namespaces`.
    pub fn stem(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        format!("{group}_{}_{}", self.version, self.plural)
    }

    /// Reads [`stem`](Self::stem) back. The parts contain no underscore: groups are DNS names, versions and plurals DNS labels.
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

    /// Whether objects of this kind can be called by the plural. In the groups of Kubernetes' own that are named here plurals
    /// are regular; elsewhere they are whatever a definition says, and nothing is held against an object.
    pub(super) fn may_be(&self, kind: &str) -> bool {
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

    /// `v1`, `apps/v1`: as `apiVersion` has it.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for Resource {
    /// As kubectl and RBAC messages have it: `namespaces`, `deployments.apps`.
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
    /// Empty where the resource has none.
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
    fn a_kind_is_held_against_its_plural_where_plurals_are_regular() {
        for (stem, kind, expected) in [
            ("core_v1_namespaces", "Namespace", true),
            ("core_v1_pods", "Service", false),
            ("core_v1_endpoints", "Endpoints", true),
            ("apps_v1_deployments", "Deployment", true),
            ("batch_v1_jobs", "CronJob", false),
            ("example.org_v1_mice", "Mouse", true),
        ] {
            assert_eq!(Resource::from_stem(stem).unwrap().may_be(kind), expected, "{stem} {kind}");
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
