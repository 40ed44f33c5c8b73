//! The `exempt` section: users and namespaces that a guard ignores.

use admission::{Glob, Request, Ruling};

use crate::cel;
use ::config::{Section, names};

/// The `exempt` section, the same for every guard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exempt {
    users: Vec<Glob>,
    groups: Vec<Glob>,
    service_accounts: Vec<Glob>,
    namespaces: Vec<Glob>,
}

const SERVICE_ACCOUNT_NAMES: &str = "namespace/name, as ci/runner; * matches any characters";

/// Checks that a pattern can match the namespace/name of a service account.
fn service_accounts(text: &str) -> Result<(), names::NameFault> {
    let (namespace, name) = match text.split_once('/') {
        Some(parts) => parts,
        // One star can match both parts and the slash.
        None if text.contains('*') => return Ok(()),
        None => return Err("names no namespace"),
    };
    let is_name = !name.is_empty() && !name.contains(|c: char| c == '/' || c.is_whitespace());
    match names::namespaces(namespace) {
        Ok(()) if is_name => Ok(()),
        _ => Err("matches no service account"),
    }
}

const USERS: &str = "exempt.users";
const GROUPS: &str = "exempt.groups";
const SERVICE_ACCOUNTS: &str = "exempt.serviceAccounts";
/// The key of exempt namespaces.
pub(crate) const NAMESPACES: &str = "exempt.namespaces";

/// Returns the ruling on a request that this key exempts. Keys for users leave the object guarded, so that ruling is always logged.
/// With any other key, the ruling is logged only at level debug.
pub(crate) fn ruling(key: &str) -> Ruling {
    let ruling = logged_ruling(key);
    if [USERS, GROUPS, SERVICE_ACCOUNTS].contains(&key) { ruling } else { ruling.unguarded() }
}

/// Returns the ruling on an exempt request for Durward's own namespace, which is always logged.
pub(crate) fn logged_ruling(key: &str) -> Ruling {
    Ruling::allow().audit("exempt", key)
}

impl Exempt {
    /// Reads the section. `namespaces` are exempt if the file does not say otherwise.
    pub fn read(section: &mut Section<'_>, namespaces: &[&str]) -> Self {
        section.section("exempt", "Requests that the guard ignores. * matches any characters.", |s| {
            s.removed(
                "namespaceSelector",
                "use exempt.namespaces with names and patterns, or webhook.namespaceSelector",
            );
            let mut globs =
                |key, what, doc| s.texts(key, what, doc, &[]).into_iter().map(Glob::new).collect();
            Self {
                users: globs("users", "user name", "Users by name."),
                groups: globs("groups", "group", "Members of these groups."),
                service_accounts: s
                    .names(
                        "serviceAccounts",
                        SERVICE_ACCOUNT_NAMES,
                        "Service accounts, as namespace/name.",
                        &[],
                        service_accounts,
                    )
                    .into_iter()
                    .map(Glob::new)
                    .collect(),
                namespaces: s
                    .names(
                        "namespaces",
                        names::NAMESPACES,
                        "Objects in namespaces of these names.",
                        namespaces,
                        names::namespaces,
                    )
                    .into_iter()
                    .map(Glob::new)
                    .collect(),
            }
        })
    }

    /// Returns the key that exempts a request.
    pub fn of(&self, request: &Request<'_>) -> Option<&'static str> {
        let any = |globs: &[Glob], text: &str| globs.iter().any(|glob| glob.matches(text));
        if any(&self.users, &request.user.name) {
            return Some(USERS);
        }
        if !self.groups.is_empty() && request.user.groups().iter().any(|group| any(&self.groups, group)) {
            return Some(GROUPS);
        }
        let account =
            request.user.name.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'));
        if let Some((namespace, name)) = account
            && !self.service_accounts.is_empty()
            && any(&self.service_accounts, &format!("{namespace}/{name}"))
        {
            return Some(SERVICE_ACCOUNTS);
        }
        let is_exempt = !request.namespace.is_empty() && any(&self.namespaces, &request.namespace);
        is_exempt.then_some(NAMESPACES)
    }

    /// Returns the key that exempts every request. API servers add the group to every user that they have authenticated.
    pub fn exempts_all(&self) -> Option<&'static str> {
        if self.users.iter().any(|glob| glob.matches("")) {
            return Some(USERS);
        }
        let is_all = |glob: &Glob| glob.matches("system:authenticated");
        self.groups.iter().any(is_all).then_some(GROUPS)
    }

    /// Returns a CEL condition that is true if a request is exempt, by the request alone.
    pub(crate) fn condition(&self) -> String {
        let name = "request.userInfo.username";
        let users = self.users.iter().map(|glob| cel::matches_glob(glob, name));
        let groups = self.groups.iter().map(|glob| {
            let matches = cel::matches_glob(glob, "g");
            format!("request.userInfo.?groups.orValue([]).exists(g, {matches})")
        });
        // The user name of a service account is system:serviceaccount:NAMESPACE:NAME.
        let accounts = self.service_accounts.iter().map(|glob| {
            let user = format!("system:serviceaccount:{}", glob.to_string().replace('/', ":"));
            cel::matches_glob(&Glob::new(user), name)
        });
        let namespaces = self.namespaces.iter().map(|glob| {
            let matches = cel::matches_glob(glob, "request.?namespace.orValue(\"\")");
            format!("request.?namespace.hasValue() && {matches}")
        });
        cel::any(users.chain(groups).chain(accounts).chain(namespaces))
    }

    /// Returns the names in `namespaces`, without the patterns.
    pub(crate) fn names_of_namespaces(&self) -> impl Iterator<Item = String> {
        self.namespaces.iter().map(ToString::to_string).filter(|name| !name.contains('*'))
    }
}

#[cfg(test)]
mod tests {
    use admission::{Fields, decode};

    use super::*;
    use ::config::{parse, read};

    fn exempt(yaml: &str) -> Exempt {
        let root = parse("-", yaml).unwrap();
        let (exempt, _, problems) = read("-", root.as_ref(), |s| Exempt::read(s, &[]));
        assert_eq!(problems, []);
        exempt
    }

    fn of(exempt: &Exempt, user: &str, groups: &str) -> Option<&'static str> {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","resource":{{"resource":"pods"}},"operation":"CREATE","namespace":"shop","userInfo":{{"username":"{user}","groups":[{groups}]}}}}}}"#
        );
        exempt.of(&decode(body.as_bytes(), &Fields::none()).unwrap().request)
    }

    #[test]
    fn exempts_nothing_by_default() {
        assert_eq!(of(&exempt("{}"), "system:admin", r#""system:masters""#), None);
    }

    #[test]
    fn each_list_exempts_its_entries() {
        for (yaml, user, groups, expected) in [
            ("exempt: {users: ['ann*']}", "anna", "", Some("exempt.users")),
            ("exempt: {groups: [ops]}", "bob", r#""dev","ops""#, Some("exempt.groups")),
            ("exempt: {groups: [ops]}", "bob", r#""dev""#, None),
            (
                "exempt: {serviceAccounts: [ci/*]}",
                "system:serviceaccount:ci:runner",
                "",
                Some("exempt.serviceAccounts"),
            ),
            ("exempt: {serviceAccounts: [ci/*]}", "ci/runner", "", None),
            ("exempt: {namespaces: [sh*]}", "bob", "", Some("exempt.namespaces")),
        ] {
            assert_eq!(of(&exempt(yaml), user, groups), expected, "{yaml}");
        }
    }

    #[test]
    fn a_request_of_an_exempt_user_is_logged() {
        for (key, is_unguarded) in [
            (USERS, false),
            (GROUPS, false),
            (SERVICE_ACCOUNTS, false),
            (NAMESPACES, true),
            ("namespace", true),
        ] {
            assert_eq!(ruling(key).is_unguarded, is_unguarded, "{key}");
            assert!(!logged_ruling(key).is_unguarded, "{key}");
        }
    }

    #[test]
    fn rejects_patterns_that_match_nothing() {
        let problems = |yaml: &str| {
            let root = parse("-", yaml).unwrap();
            read("-", root.as_ref(), |s| Exempt::read(s, &[]))
                .2
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        for (yaml, text) in [
            (
                "exempt: {namespaces: [Foo_Bar]}",
                "-:1:23: exempt.namespaces: invalid value \"Foo_Bar\": is not the name of a namespace",
            ),
            ("exempt: {namespaces: ['Kube-*']}", "\"Kube-*\": matches no name of a namespace"),
            ("exempt: {serviceAccounts: [runner]}", "\"runner\": names no namespace"),
            ("exempt: {serviceAccounts: [C_I/runner]}", "\"C_I/runner\": matches no service account"),
            ("exempt: {serviceAccounts: [ci/]}", "\"ci/\": matches no service account"),
            ("exempt: {serviceAccounts: [ci/a/b]}", "\"ci/a/b\": matches no service account"),
        ] {
            let problems = problems(yaml);
            assert_eq!(problems.len(), 1, "{yaml}");
            assert!(
                problems[0].contains(text) && problems[0].contains("\n    must be a namespace"),
                "{problems:?}"
            );
        }
        assert_eq!(
            problems("exempt: {namespaces: ['*', kube-*, a], serviceAccounts: ['*', ci/*, '*/x', c*]}"),
            [""; 0]
        );
    }
}
