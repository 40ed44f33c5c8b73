//! Values of the Kubernetes libraries.

use std::cmp::Ordering;
use std::net::IpAddr;

use super::quantity::Quantity;

/// A value of a Kubernetes library.
#[derive(Clone, Copy, Debug)]
pub enum Opaque<'a> {
    /// `url()`
    Url(Url<'a>),
    /// `ip()`
    Ip(IpAddr),
    /// `cidr()`
    Cidr(Cidr),
    /// `quantity()`
    Quantity(Quantity),
    /// `semver()`
    Semver(Semver<'a>),
    /// `format.named()`, by the name of the format.
    Format(&'static str),
    /// `authorizer`
    Authorizer(Authorizer<'a>),
    /// `authorizer.path()`
    PathCheck(PathCheck<'a>),
    /// `authorizer.group()`
    GroupCheck(GroupCheck<'a>),
    /// `authorizer.group().resource()`
    ResourceCheck(ResourceCheck<'a>),
    /// The result of an authorization check.
    Decision {
        /// Whether the check was allowed.
        allowed: bool,
        /// Reason that the authorizer gave.
        reason: &'a str,
        /// Error of the authorizer.
        error: Option<&'a str>,
    },
    /// An error in an optional value, which fails when the value is taken out.
    Failed(&'a str),
}

/// A parsed URL.
#[derive(Clone, Copy, Debug)]
pub struct Url<'a> {
    /// The URL as Go prints it.
    pub(crate) text: &'a str,
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
}

/// A version. Build metadata has no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semver<'a> {
    pub(crate) numbers: [u64; 3],
    /// Identifiers of the pre-release, separated by dots.
    pub(crate) pre: &'a str,
    /// The version with its build metadata.
    pub(crate) text: &'a str,
}

impl Semver<'_> {
    /// Order of versions.
    pub(crate) fn compare(&self, other: &Semver<'_>) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre, other.pre) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (left, right) => compare_pre(left, right),
        })
    }
}

fn compare_pre(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let ordering = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => left.cmp(right),
            },
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
}

/// An address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address; bits after the prefix can be set.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub bits: u8,
}

/// The caller whose permissions are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Authorizer<'a> {
    /// Namespace and name of a service account; the user of the request if absent.
    pub service_account: Option<(&'a str, &'a str)>,
}

/// A check of a URL path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathCheck<'a> {
    /// The caller.
    pub authorizer: Authorizer<'a>,
    /// The path.
    pub path: &'a str,
}

/// A check within an API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupCheck<'a> {
    /// The caller.
    pub authorizer: Authorizer<'a>,
    /// The API group.
    pub group: &'a str,
}

/// A check of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceCheck<'a> {
    /// Caller and group.
    pub group: GroupCheck<'a>,
    /// The resource.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The object's name, or empty.
    pub name: &'a str,
    /// The field selector, or empty.
    pub field_selector: &'a str,
    /// The label selector, or empty.
    pub label_selector: &'a str,
}

impl<'a> Opaque<'a> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Opaque::Url(_) => "kubernetes.URL",
            Opaque::Ip(_) => "net.IP",
            Opaque::Cidr(_) => "net.CIDR",
            Opaque::Quantity(_) => "kubernetes.Quantity",
            Opaque::Semver(_) => "kubernetes.Semver",
            Opaque::Format(_) => "kubernetes.NamedFormat",
            Opaque::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Opaque::PathCheck(_) => "kubernetes.authorization.PathCheck",
            Opaque::GroupCheck(_) => "kubernetes.authorization.GroupCheck",
            Opaque::ResourceCheck(_) => "kubernetes.authorization.ResourceCheck",
            Opaque::Decision { .. } => "kubernetes.authorization.Decision",
            Opaque::Failed(_) => "error",
        }
    }

    /// Size in bytes of addresses and prefixes; other values have no size.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Opaque::Ip(IpAddr::V4(_)) => Some(4),
            Opaque::Ip(IpAddr::V6(_)) => Some(16),
            Opaque::Cidr(cidr) => Some(usize::from(cidr.bits.div_ceil(8))),
            _ => None,
        }
    }

    pub(crate) fn equal(&self, other: &Opaque<'a>) -> bool {
        match (self, other) {
            (Opaque::Url(left), Opaque::Url(right)) => left.text == right.text,
            (Opaque::Ip(left), Opaque::Ip(right)) => left == right,
            (Opaque::Cidr(left), Opaque::Cidr(right)) => left == right,
            (Opaque::Quantity(left), Opaque::Quantity(right)) => left.compare(right).is_eq(),
            (Opaque::Semver(left), Opaque::Semver(right)) => left.compare(right).is_eq(),
            (Opaque::Format(left), Opaque::Format(right)) => left == right,
            _ => false,
        }
    }
}
