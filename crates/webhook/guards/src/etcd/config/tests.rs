use std::path::PathBuf;

use super::super::fixture::{config, configured};
use super::*;
use cluster::etcd::{ClientOptions, Login, Material};

const LEAST: &str = "clusters: [{namespace: db, selector: app=etcd}]";

fn problems(yaml: &str) -> Vec<String> {
    configured(yaml).1
}

#[test]
fn a_namespace_and_a_selector_are_sufficient() {
    let config = config(LEAST);
    let [entry] = config.clusters.as_slice() else { panic!() };
    assert_eq!(entry.namespaces, NamespaceMatch::Named("db".into()));
    assert_eq!((entry.port, entry.on_leader_delete), (2379, LeaderPolicy::Transfer));
    assert_eq!((entry.member_on_pod_delete, entry.group_by), (OnPodDelete::Keep, GroupBy::StatefulSet));
    assert_eq!(*entry.client.client("db", None), ClientOptions::default());
    assert_eq!(config.member_timeout, Duration::from_secs(1));
}

#[test]
fn a_guard_that_is_off_needs_no_namespace_for_its_leases() {
    let (_, _, problems) = ::config::read("d.yaml", None, |s| read(s, super::super::DEFAULTS, ""));
    assert_eq!(problems, []);
}

#[test]
fn an_entry_overrides_the_key_for_all_entries() {
    let yaml = "onLeaderDelete: deny\nclusters: [{namespace: a, selector: x=y}, {namespace: b, selector: x=y, onLeaderDelete: allow}]";
    let leaders: Vec<LeaderPolicy> =
        config(yaml).clusters.iter().map(|entry| entry.on_leader_delete).collect();
    assert_eq!(leaders, [LeaderPolicy::Deny, LeaderPolicy::Allow]);
}

#[test]
fn secrets_are_in_the_members_namespace_and_files_relative_to_the_configuration() {
    let yaml = "clusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: a=b, client: {serverName: etcd.db.svc, tls: {secretName: etcd-client}, auth: {secretName: etcd-user}}}]";
    let of_secrets = config(yaml).clusters.remove(0).client;
    let client = of_secrets.client("tenant-7", None);
    let tls = client.tls.as_ref().unwrap();
    let material = Material::Secret { namespace: "tenant-7".into(), name: "etcd-client".into() };
    assert_eq!((tls.material.as_ref(), tls.server_name.as_deref()), (Some(&material), Some("etcd.db.svc")));
    assert_eq!(client.login, Some(Login { namespace: "tenant-7".into(), name: "etcd-user".into() }));
    assert_eq!(of_secrets.secrets(), ["etcd-client", "etcd-user"]);
    let yaml = "clusters: [{namespace: db, selector: a=b, client: {tls: {files: {ca: ca.pem, cert: /c.pem, key: k.pem}}}}]";
    let (namespace, yaml) = crate::common::split_namespace(yaml);
    let root = ::config::parse("/etc/durward/d.yaml", yaml).unwrap();
    let (config, _, problems) =
        ::config::read("/etc/durward/d.yaml", root.as_ref(), |s| read(s, super::super::DEFAULTS, namespace));
    assert_eq!(problems, []);
    let identity = Some((PathBuf::from("/c.pem"), PathBuf::from("/etc/durward/k.pem")));
    let files = Material::Files { authority: "/etc/durward/ca.pem".into(), identity };
    assert_eq!(config.clusters[0].client.client("db", None).tls.as_ref().unwrap().material, Some(files));
}

#[test]
fn sources_of_certificates_are_known_without_a_review_unless_the_namespace_of_a_secret_is_not() {
    let yaml = "clusters: [{namespace: db, selector: a=b, client: {tls: {secretName: s}}}, {namespaceSelector: t=u, selector: a=b, client: {tls: {secretName: s}}}, \
        {namespaceSelector: t=u, selector: a=c, client: {tls: {files: {ca: /ca.pem}}}}, {namespace: plain, selector: a=b}]";
    let configured: Box<dyn crate::Configured> = Box::new(std::sync::Arc::new(config(yaml)));
    let secret = Material::Secret { namespace: "db".into(), name: "s".into() };
    let files = Material::Files { authority: "/ca.pem".into(), identity: None };
    assert_eq!(configured.requirements().etcd_certificates, [secret, files]);
}

#[test]
fn a_server_name_can_contain_namespace_and_name() {
    let name = |template: &str, owner: Option<&str>| {
        let yaml = format!(
            "clusters: [{{namespaceSelector: t=u, selector: a=b, client: {{serverName: '{template}', tls: {{secretName: s}}}}}}]"
        );
        config(&yaml).clusters[0].client.client("tenant-7", owner).tls.as_ref().unwrap().server_name.clone()
    };
    assert_eq!(name("{name}.{namespace}.svc", Some("etcd")).as_deref(), Some("etcd.tenant-7.svc"));
    assert_eq!(name("etcd.svc", None).as_deref(), Some("etcd.svc"));
    // No certificate has such a name, and the error contains it.
    assert_eq!(name("{name}.{namespace}.svc", None).as_deref(), Some("{name}.tenant-7.svc"));
}

#[test]
fn lists_files_with_their_keys() {
    let yaml = "clusters: [{namespace: a, selector: x=y}, {namespace: b, selector: x=y, client: {tls: {files: {ca: ca, cert: c, key: k}}}}]";
    let clusters = config(yaml).clusters;
    assert!(clusters[0].client.files().is_empty());
    let keys: Vec<&str> = clusters[1].client.files().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["tls.files.ca", "tls.files.cert", "tls.files.key"]);
}

#[test]
fn selectors_have_two_forms() {
    let text = "clusters: [{namespaceSelector: t=u, selector: 'app=etcd,tier in (a,b)'}]";
    let map = "clusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: {matchLabels: {app: etcd}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}}]";
    assert_eq!(config(text).clusters, config(map).clusters);
}

#[test]
fn reads_the_kind_of_the_owner() {
    let of = |owner: &str| {
        config(&format!("clusters: [{{namespace: a, selector: x=y, owner: {owner}}}]"))
            .clusters
            .remove(0)
            .owner
    };
    let owner = of("{apiVersion: etcd.example.org/v1beta2, kind: EtcdCluster}").unwrap();
    assert_eq!(
        (owner.kind.as_str(), owner.resource.argument().as_str()),
        ("EtcdCluster", "etcdclusters.v1beta2.etcd.example.org")
    );
    let owner = of("{apiVersion: a.b/v1, kind: Etcd, resource: etcdes}").unwrap();
    assert_eq!(&*owner.resource.plural, "etcdes");
    for (owner, why) in [
        ("{kind: EtcdCluster}", "owner.apiVersion: is required"),
        ("{apiVersion: v1, kind: EtcdCluster}", "is not a group and version"),
        ("{apiVersion: a.b/v1, kind: etcdcluster}", "is not a kind"),
        ("{apiVersion: a.b/v1, kind: Etcd, resource: Etcds}", "is not a plural name"),
    ] {
        let errors = problems(&format!("clusters: [{{namespace: a, selector: x=y, owner: {owner}}}]"));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(why), "{errors:?}");
    }
}

#[test]
fn reports_all_problems_at_once() {
    let errors = problems(
        "clusters:\n- {selector: app=etcd}\n- {namespace: db}\n- {namespace: durward-system, selector: '!a'}\nonLeaderDelte: deny\n",
    );
    let errors = errors.join("\n");
    for why in [
        "clusters[0].namespace: needs exactly one of namespace and namespaceSelector",
        "clusters[1].selector: is required",
        "clusters[2].namespace: is the namespace of Durward",
        "requires no label",
        "did you mean onLeaderDelete?",
    ] {
        assert!(errors.contains(why), "{why}:\n{errors}");
    }
}

#[test]
fn each_problem_has_a_next_step() {
    for (yaml, why, next) in [
        ("mode: audit", "is missing, so the guard protects nothing", "clusters: [{namespace: db"),
        (
            "namespace: \"\"\nclusters: [{namespace: db, selector: a=b}]",
            "needs namespace",
            "the namespace of Durward",
        ),
        (
            "clusters: [{namespace: db, namespaceSelector: {matchLabels: {a: b}}, selector: a=b}]",
            "needs exactly one",
            "namespace: NAME",
        ),
        (
            "clusters: [{namespaceSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}, selector: a=b}]",
            "unlabeled objects",
            "Exists",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: {}}}]",
            "trusts no CA",
            "insecureSkipVerify: true",
        ),
        ("clusters: [{namespace: db, selector: a=b, client: {tls: }}]", "is empty", "plain HTTP"),
        (
            "clusters: [{namespace: db, selector: a=b, client: {serverName: x}}]",
            "needs tls",
            "tls: {secretName",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {auth: {secretName: s}}}]",
            "unverified members",
            "allowUnverified: true",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: {insecureSkipVerify: true}, auth: {secretName: s}}}]",
            "unverified members",
            "allowUnverified: true",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: {secretName: s}, auth: {allowUnverified: true}}}]",
            "is required",
            "add: secretName: NAME",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: {secretName: s, files: {ca: f}}}}]",
            "conflicts with files",
            "keep one",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: {files: {cert: c, key: k}, insecureSkipVerify: true}}}]",
            "tls.files.ca: is required",
            "ca: FILE",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: {files: {cert: c, key: k}}}}]",
            "tls.files.ca: is required",
            "ca: FILE",
        ),
    ] {
        has_problem(yaml, why, next);
    }
    assert_eq!(problems("clusters: []"), [""; 0], "an empty list is intended");
}

#[test]
fn contradictions_have_a_next_step() {
    for (yaml, why, next) in [
        ("clusters: {namespace: db}", "is not a list", "clusters: [{ … }]"),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: true}}]",
            "is not a map",
            "must be a map with: secretName, files, insecureSkipVerify",
        ),
        ("clusters: [{namespace: db, selector: '!a'}]", "requires no label", "add a label"),
        ("clusters: [{namespace: db, selector: 'a!=b'}]", "requires no label", "add a label"),
        ("clusters: [{namespaceSelector: {}, selector: a=b}]", "requires no label", "add a label"),
        (
            "clusters: [{namespace: db, selector: {matchExpressions: [{key: a, operator: DoesNotExist}]}}]",
            "requires no label",
            "add a label",
        ),
        (
            "clusters: [{namespace: db, selector: a=b}, {namespace: c, selector: a=b}, {namespace: db, selector: {matchLabels: {a: b}}}]",
            "clusters[2] selects the same pods as clusters[0]",
            "by another label",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {tls: {secretName: db/etcd-client}}}]",
            "contains a namespace",
            "name of a Secret",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {serverName: 'https://etcd.db.svc:2379', tls: {secretName: s}}}]",
            "is a URL",
            "DNS name",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {serverName: '*.db.svc', tls: {secretName: s}}}]",
            "is a pattern",
            "DNS name",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, client: {serverName: '{pod}.db.svc', tls: {secretName: s}}}]",
            "placeholder other than {namespace} and {name}",
            "DNS name",
        ),
        (
            "clusters: [{namespace: db, selector: a=b, groupBy: selector, client: {serverName: '{name}.svc', tls: {secretName: s}}}]",
            "which groupBy: selector does not define",
            "remove groupBy: selector",
        ),
    ] {
        has_problem(yaml, why, next);
    }
}

#[test]
fn removed_keys_name_their_successor() {
    for (key, next) in [
        ("warnings: {dataLoss: deny}", "denies only the deletion of the last copy"),
        ("maxRaftLag: 9", "5000 entries"),
        ("requestTimeout: 1s", "webhook.timeoutSeconds"),
        ("coordination: inMemory", "Leases in Durward's namespace"),
        ("autodetect: true", "write a selector"),
    ] {
        has_problem(&format!("{key}\n{LEAST}"), "was removed", next);
    }
    let files = "auth: {files: {usernameFile: u, passwordFile: p}}";
    let client =
        format!("clusters: [{{namespace: db, selector: a=b, client: {{tls: {{secretName: s}}, {files}}}}}]");
    has_problem(&client, "was removed", "secretName: NAME");
}

#[track_caller]
fn has_problem(yaml: &str, why: &str, next: &str) {
    let errors = problems(yaml);
    assert_eq!(errors.len(), 1, "{yaml}: {errors:?}");
    assert!(errors[0].contains(why) && errors[0].contains(next), "{errors:?}");
}
