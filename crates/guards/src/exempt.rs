//! Who and what a guard leaves alone by configuration. Empty by default: nobody is above the law by accident.

use std::collections::BTreeMap;

use admission::{Glob, LabelSelector, Request};

use crate::config::Section;

/// The `exempt` section, the same for every guard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exempt {
    users: Vec<Glob>,
    groups: Vec<Glob>,
    service_accounts: Vec<Glob>,
    namespaces: Vec<Glob>,
    namespace_selector: Option<LabelSelector>,
}

/// Whether a request is exempt, as far as the request alone tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exemption {
    /// It is, by this part of the configuration.
    By(&'static str),
    /// Only the namespace's labels can tell.
    DependsOnNamespace,
    /// It is not.
    No,
}

impl Exempt {
    /// Reads the section.
    pub fn read(section: &mut Section<'_>) -> Self {
        section.section(
            "exempt",
            "Who and what is left alone; empty by default. * stands for any run of characters.",
            |s| {
                let mut globs =
                    |key, what, doc| s.texts(key, what, doc, &[]).into_iter().map(Glob::new).collect();
                Self {
                    users: globs("users", "user name", "Users by name."),
                    groups: globs("groups", "group", "Members of these groups."),
                    service_accounts: globs(
                        "serviceAccounts",
                        "namespace/name",
                        "Service accounts, as namespace/name.",
                    ),
                    namespaces: globs("namespaces", "namespace", "Objects in namespaces of these names."),
                    namespace_selector: s
                        .selector("namespaceSelector", "Objects in namespaces with these labels."),
                }
            },
        )
    }

    /// What the request alone tells.
    pub fn of(&self, request: &Request<'_>) -> Exemption {
        let any = |globs: &[Glob], text: &str| globs.iter().any(|glob| glob.matches(text));
        if any(&self.users, &request.user.name) {
            return Exemption::By("exempt.users");
        }
        if !self.groups.is_empty() && request.user.groups().iter().any(|group| any(&self.groups, group)) {
            return Exemption::By("exempt.groups");
        }
        let account =
            request.user.name.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'));
        if let Some((namespace, name)) = account
            && !self.service_accounts.is_empty()
            && any(&self.service_accounts, &format!("{namespace}/{name}"))
        {
            return Exemption::By("exempt.serviceAccounts");
        }
        if !request.namespace.is_empty() && any(&self.namespaces, &request.namespace) {
            return Exemption::By("exempt.namespaces");
        }
        match &self.namespace_selector {
            Some(_) if !request.namespace.is_empty() => Exemption::DependsOnNamespace,
            _ => Exemption::No,
        }
    }

    /// Whether the labels of the request's namespace exempt it.
    pub fn selects(&self, namespace_labels: &BTreeMap<String, String>) -> bool {
        let label = |key: &str| namespace_labels.get(key).map(String::as_str);
        self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(label))
    }
}

#[cfg(test)]
mod tests {
    use admission::{Fields, decode};

    use super::*;
    use crate::config::{parse, read};

    fn exempt(yaml: &str) -> Exempt {
        let root = parse("-", yaml).unwrap();
        let (exempt, _, problems) = read("-", root.as_ref(), Exempt::read);
        assert_eq!(problems, []);
        exempt
    }

    fn of(exempt: &Exempt, user: &str, groups: &str) -> Exemption {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","namespace":"shop","userInfo":{{"username":"{user}","groups":[{groups}]}}}}}}"#
        );
        exempt.of(&decode(body.as_bytes(), &Fields::none()).unwrap().request)
    }

    #[test]
    fn nobody_is_exempt_by_default() {
        assert_eq!(of(&exempt("{}"), "system:admin", r#""system:masters""#), Exemption::No);
    }

    #[test]
    fn each_list_exempts_what_it_names() {
        for (yaml, user, groups, expected) in [
            ("exempt: {users: ['ann*']}", "anna", "", Exemption::By("exempt.users")),
            ("exempt: {groups: [ops]}", "bob", r#""dev","ops""#, Exemption::By("exempt.groups")),
            ("exempt: {groups: [ops]}", "bob", r#""dev""#, Exemption::No),
            (
                "exempt: {serviceAccounts: [ci/*]}",
                "system:serviceaccount:ci:runner",
                "",
                Exemption::By("exempt.serviceAccounts"),
            ),
            ("exempt: {serviceAccounts: [ci/*]}", "ci/runner", "", Exemption::No),
            ("exempt: {namespaces: [sh*]}", "bob", "", Exemption::By("exempt.namespaces")),
            ("exempt: {namespaceSelector: {matchLabels: {a: b}}}", "bob", "", Exemption::DependsOnNamespace),
        ] {
            assert_eq!(of(&exempt(yaml), user, groups), expected, "{yaml}");
        }
    }

    #[test]
    fn the_namespace_selector_reads_the_namespaces_labels() {
        let exempt = exempt("exempt: {namespaceSelector: {matchLabels: {a: b}}}");
        assert!(exempt.selects(&BTreeMap::from([("a".into(), "b".into())])));
        assert!(!exempt.selects(&BTreeMap::new()));
    }
}
