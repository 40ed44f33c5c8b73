//! Permissions of users and service accounts, for policies that ask `authorizer`. The file is complete: a check that it does
//! not grant is not allowed.

use std::path::Path;

use config::{Problem, Section};
use console::input;
use policy::Authorization;
use policy::expression::{AccessCheck, AccessTarget};

const API_VERSION: &str = "durward.dev/v1alpha1";
const KIND: &str = "Grants";

/// Permissions in the form of RBAC rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    grants: Vec<Grant>,
    /// The user of the request, if it is a service account: its namespace and name.
    user: Option<(String, String)>,
}

/// Permissions of one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Namespace and name of a service account; the user of the request if absent.
    pub(crate) service_account: Option<(String, String)>,
    /// Verbs, or `*`.
    pub(crate) verbs: Vec<String>,
    /// API groups, or `*`.
    pub(crate) api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*` or `*/subresource`.
    pub(crate) resources: Vec<String>,
    /// Names of objects; all if there are none.
    pub(crate) resource_names: Vec<String>,
    /// Namespaces; all, and cluster-scoped access, if there are none.
    pub(crate) namespaces: Vec<String>,
    /// URL paths, which can end with `*`.
    pub(crate) urls: Vec<String>,
}

impl Grants {
    /// Creates grants.
    pub(crate) fn new(grants: Vec<Grant>) -> Self {
        Self { grants, user: None }
    }

    /// Returns the grants for requests of a user.
    #[must_use]
    pub(crate) fn for_user(mut self, user: Option<&str>) -> Self {
        let account = user.and_then(service_account);
        self.user = account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        self
    }

    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        let text = input::text(path, input::SMALL).map_err(|problem| vec![problem])?;
        let file = path.display().to_string();
        let root = config::parse(&file, &text)?;
        let (grants, _, mut problems) = config::read(&file, root.as_ref(), |section| {
            section.choice("apiVersion", "The version of this format.", &[(API_VERSION, ())], ());
            section.choice("kind", "The kind of this file.", &[(KIND, ())], ());
            section.sections("grants", "Permissions.", grant)
        });
        if problems.is_empty() && grants.is_empty() {
            let next = format!("write: {{apiVersion: {API_VERSION}, kind: {KIND}, grants: […]}}");
            problems.push(Problem::new(format!("{file} has no grants")).next(next));
        }
        if problems.is_empty() { Ok(Self::new(grants)) } else { Err(problems) }
    }

    /// Answers an authorization check.
    pub(crate) fn decide(&self, check: &AccessCheck) -> Authorization {
        let allowed = self.grants.iter().any(|grant| grant.allows(check, self.user.as_ref()));
        let reason = if allowed { "granted by --grants" } else { "" };
        Authorization { allowed, reason: reason.to_owned(), error: None }
    }
}

/// Returns namespace and name of the service account that a user is.
pub(crate) fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

/// Reads one grant.
pub(crate) fn grant(section: &mut Section<'_>) -> Grant {
    let account: Option<ServiceAccount> = section.parsed(
        "serviceAccount",
        "NAMESPACE/NAME",
        "The service account; the user of the request if absent.",
        None,
    );
    let words = "text";
    let mut texts = |key, doc| section.texts(key, words, doc, &[]);
    Grant {
        verbs: texts("verbs", "Verbs such as get, or \"*\"."),
        api_groups: texts("apiGroups", "API groups; \"\" is the core group."),
        resources: texts("resources", "Resources such as pods or pods/exec, or \"*\"."),
        resource_names: texts("resourceNames", "Names of objects; all if empty."),
        namespaces: texts("namespaces", "Namespaces; all, and cluster-scoped access, if empty."),
        urls: texts("nonResourceURLs", "URL paths such as /healthz or /logs/*."),
        service_account: account.map(|account| account.0),
    }
}

struct ServiceAccount((String, String));

impl std::str::FromStr for ServiceAccount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self((namespace.to_owned(), name.to_owned())))
            }
            _ => Err("must be NAMESPACE/NAME"),
        }
    }
}

impl Grant {
    fn allows(&self, check: &AccessCheck, user: Option<&(String, String)>) -> bool {
        let (granted, asked) = (self.service_account.as_ref(), check.service_account.as_ref());
        if granted.or(user) != asked.or(user) || !lists(&self.verbs, &check.verb) {
            return false;
        }
        match &check.target {
            AccessTarget::Path(path) => self.urls.iter().any(|url| match url.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => path == url,
            }),
            AccessTarget::Resource { group, resource, subresource, namespace, name, .. } => {
                lists(&self.api_groups, group)
                    && self.resources.iter().any(|entry| names(entry, resource, subresource))
                    && (self.resource_names.is_empty() || self.resource_names.contains(name))
                    && (self.namespaces.is_empty() || self.namespaces.contains(namespace))
            }
        }
    }
}

fn lists(entries: &[String], wanted: &str) -> bool {
    entries.iter().any(|entry| entry == "*" || entry == wanted)
}

/// Whether an entry of a rule names a resource, as RBAC reads it: `*` includes subresources.
fn names(entry: &str, resource: &str, subresource: &str) -> bool {
    if entry == "*" {
        return true;
    }
    match entry.split_once('/') {
        None => entry == resource && subresource.is_empty(),
        Some(("*", wanted)) => wanted == subresource,
        Some((known, wanted)) => known == resource && wanted == subresource,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(resource: &str, subresource: &str, namespace: &str, name: &str) -> AccessTarget {
        AccessTarget::Resource {
            group: String::new(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            field_selector: String::new(),
            label_selector: String::new(),
        }
    }

    /// Whether these grants allow getting something.
    fn allows(grants: &str, service_account: Option<(&str, &str)>, target: AccessTarget) -> bool {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "apiVersion: durward.dev/v1alpha1\nkind: Grants\ngrants:\n- {{verbs: [get], {grants}}}\n"
        );
        std::fs::write(file.path(), text).unwrap();
        let service_account =
            service_account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let check = AccessCheck { service_account, verb: "get".to_owned(), target };
        Grants::load(file.path()).unwrap().decide(&check).allowed
    }

    #[test]
    fn grants_are_read_as_rules_of_rbac() {
        let core = |more: &str| format!("apiGroups: [''], {more}");
        let pods = core("resources: [pods]");
        assert!(allows(&pods, None, resource("pods", "", "shop", "a")));
        assert!(!allows(&pods, None, resource("pods", "log", "shop", "a")));
        assert!(!allows(&pods, Some(("ci", "bot")), resource("pods", "", "shop", "a")));
        assert!(allows(&core("resources: [pods/log]"), None, resource("pods", "log", "shop", "a")));
        assert!(allows(&core("resources: ['*/log']"), None, resource("pods", "log", "shop", "a")));
        assert!(allows(&core("resources: ['*']"), None, resource("pods", "log", "shop", "a")));
        assert!(!allows("apiGroups: [apps], resources: ['*']", None, resource("pods", "", "shop", "a")));
        let narrow = core("resources: [pods], namespaces: [shop], resourceNames: [a]");
        assert!(allows(&narrow, None, resource("pods", "", "shop", "a")));
        assert!(!allows(&narrow, None, resource("pods", "", "other", "a")));
        assert!(!allows(&narrow, None, resource("pods", "", "shop", "b")));
        let bot = core("resources: [pods], serviceAccount: ci/bot");
        assert!(allows(&bot, Some(("ci", "bot")), resource("pods", "", "shop", "a")));
        assert!(!allows(&bot, None, resource("pods", "", "shop", "a")));
        let path = |path: &str| AccessTarget::Path(path.to_owned());
        assert!(allows("nonResourceURLs: [/logs/*]", None, path("/logs/a")));
        assert!(!allows("nonResourceURLs: [/logs]", None, path("/logs/a")));
    }

    #[test]
    fn a_service_account_has_its_grants_as_the_user_of_the_request() {
        let bot = || Some(("ci".to_owned(), "bot".to_owned()));
        for (user, granted, asked, allowed) in [
            ("system:serviceaccount:ci:bot", bot(), None, true),
            ("system:serviceaccount:ci:bot", None, bot(), true),
            ("system:serviceaccount:ci:other", bot(), None, false),
            ("system:serviceaccount:ci:other", None, bot(), false),
            ("ann", bot(), None, false),
            ("ann", None, bot(), false),
        ] {
            let verbs = vec!["get".to_owned()];
            let grant = Grant { service_account: granted, urls: verbs.clone(), verbs, ..Grant::default() };
            let check = AccessCheck {
                service_account: asked,
                verb: "get".to_owned(),
                target: AccessTarget::Path("get".to_owned()),
            };
            let grants = Grants::new(vec![grant]).for_user(Some(user));
            assert_eq!(grants.decide(&check).allowed, allowed, "{user} {check:?}");
        }
    }

    #[test]
    fn reports_problems_of_a_file_with_their_places() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "kind: Grants\ngrants:\n- {verb: [get], serviceAccount: bot}\n").unwrap();
        let problems = Grants::load(file.path()).unwrap_err();
        let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 2, "{texts:#?}");
        assert!(texts.iter().all(|text| text.contains(":3:")), "{texts:#?}");
    }
}
