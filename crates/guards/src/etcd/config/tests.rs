use std::path::PathBuf;

use super::super::fixture::{config, configured};
use super::*;
use cluster::etcd::{ClientOptions, Login, Material};

const LEAST: &str = "ensembles: [{namespace: db, selector: app=etcd}]";

fn problems(yaml: &str) -> Vec<String> {
    configured(yaml).1
}

#[test]
fn a_namespace_and_a_selector_are_sufficient() {
    let config = config(LEAST);
    let [entry] = config.clusters.as_slice() else { panic!() };
    assert_eq!(entry.namespaces, NamespaceMatch::Named("db".into()));
    assert_eq!((entry.port, entry.leader), (2379, LeaderPolicy::Transfer));
    assert_eq!((entry.membership, entry.group_by), (Membership::Auto, GroupBy::StatefulSet));
    assert_eq!(*entry.client.client("db", None), ClientOptions::default());
    assert_eq!(
        (config.reservation, config.data_safety, config.lag),
        (ReservationStore::Lease, Severity::Warn, 5000)
    );
    assert_eq!(config.member_deadline, Duration::from_secs(1));
}

#[test]
fn an_entry_overrides_the_key_for_all_entries() {
    let yaml = "leader: refuse\nensembles: [{namespace: a, selector: x=y}, {namespace: b, selector: x=y, leader: allow}]";
    let leaders: Vec<LeaderPolicy> = config(yaml).clusters.iter().map(|entry| entry.leader).collect();
    assert_eq!(leaders, [LeaderPolicy::Refuse, LeaderPolicy::Allow]);
}

#[test]
fn secrets_are_in_the_members_namespace_and_files_relative_to_the_configuration() {
    let yaml = "ensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: a=b, client: {serverName: etcd.db.svc, tls: {secret: etcd-client}, auth: {secret: etcd-user}}}]";
    let of_secrets = config(yaml).clusters.remove(0).client;
    let client = of_secrets.client("tenant-7", None);
    let tls = client.tls.as_ref().unwrap();
    let material = Material::Secret { namespace: "tenant-7".into(), name: "etcd-client".into() };
    assert_eq!((tls.material.as_ref(), tls.server_name.as_deref()), (Some(&material), Some("etcd.db.svc")));
    assert_eq!(client.login, Some(Login::Secret { namespace: "tenant-7".into(), name: "etcd-user".into() }));
    assert_eq!(of_secrets.secrets(), ["etcd-client", "etcd-user"]);
    let yaml = "ensembles: [{namespace: db, selector: a=b, client: {tls: {files: {ca: ca.pem, cert: /c.pem, key: k.pem}}}}]";
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
fn a_server_name_can_contain_namespace_and_name() {
    let name = |template: &str, owner: Option<&str>| {
        let yaml = format!(
            "ensembles: [{{namespaceSelector: t=u, selector: a=b, client: {{serverName: '{template}', tls: {{secret: s}}}}}}]"
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
    let yaml = "ensembles: [{namespace: a, selector: x=y}, {namespace: b, selector: x=y, client: {tls: {files: {ca: ca, cert: c, key: k}}, auth: {files: {user: u, password: p}}}}]";
    let clusters = config(yaml).clusters;
    assert!(clusters[0].client.files().is_empty());
    let keys: Vec<&str> = clusters[1].client.files().into_iter().map(|(key, _)| key).collect();
    assert_eq!(
        keys,
        ["tls.files.ca", "tls.files.cert", "tls.files.key", "auth.files.user", "auth.files.password"]
    );
}

#[test]
fn selectors_have_two_forms() {
    let text = "ensembles: [{namespaceSelector: t=u, selector: 'app=etcd,tier in (a,b)'}]";
    let map = "ensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: {matchLabels: {app: etcd}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}}]";
    assert_eq!(config(text).clusters, config(map).clusters);
}

#[test]
fn reads_the_kind_of_the_owner() {
    let of = |owner: &str| {
        config(&format!("ensembles: [{{namespace: a, selector: x=y, owner: {owner}}}]"))
            .clusters
            .remove(0)
            .owner
    };
    let owner = of("{apiVersion: etcd.example.org/v1beta2, kind: EtcdCluster}").unwrap();
    assert_eq!(
        (owner.kind.as_str(), owner.resource.stem().as_str()),
        ("EtcdCluster", "etcd.example.org_v1beta2_etcdclusters")
    );
    let owner = of("{apiVersion: a.b/v1, kind: Etcd, plural: etcdes}").unwrap();
    assert_eq!(&*owner.resource.plural, "etcdes");
    for (owner, why) in [
        ("{kind: EtcdCluster}", "owner.apiVersion: is missing"),
        ("{apiVersion: v1, kind: EtcdCluster}", "is no group with a version"),
        ("{apiVersion: a.b/v1, kind: etcdcluster}", "is no kind"),
        ("{apiVersion: a.b/v1, kind: Etcd, plural: Etcds}", "is no plural"),
    ] {
        let errors = problems(&format!("ensembles: [{{namespace: a, selector: x=y, owner: {owner}}}]"));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(why), "{errors:?}");
    }
}

#[test]
fn reports_all_problems_at_once() {
    let errors = problems(
        "ensembles:\n- {selector: app=etcd}\n- {namespace: db}\n- {namespace: durward-system, selector: '!a'}\nmemberDeadline: 0s\nreservaton: lease\n",
    );
    let errors = errors.join("\n");
    for why in [
        "ensembles[0].namespace: not exactly one of namespace and namespaceSelector",
        "ensembles[1].selector: is missing",
        "ensembles[2].namespace: is Durward's own",
        "asks for no label",
        "memberDeadline: is no time",
        "did you mean reservation?",
    ] {
        assert!(errors.contains(why), "{why}:\n{errors}");
    }
}

#[test]
fn each_problem_has_a_next_step() {
    for (yaml, why, next) in [
        ("mode: audit", "names none, so nothing is guarded", "ensembles: [{namespace: db"),
        (
            "namespace: \"\"\nensembles: [{namespace: db, selector: a=b}]",
            "runs in no namespace",
            "reservation: local",
        ),
        (
            "ensembles: [{namespace: db, namespaceSelector: {matchLabels: {a: b}}, selector: a=b}]",
            "not exactly one",
            "namespace: NAME",
        ),
        (
            "ensembles: [{namespaceSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}, selector: a=b}]",
            "nobody labelled",
            "Exists",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: {}}}]",
            "whose certificates",
            "insecure: true",
        ),
        ("ensembles: [{namespace: db, selector: a=b, client: {tls: }}]", "nothing behind it", "plain HTTP"),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {serverName: x}}]",
            "says nothing without tls",
            "tls: {secret",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {auth: {secret: s}}}]",
            "members that nobody verified",
            "auth.insecure: true",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: {insecure: true}, auth: {secret: s}}}]",
            "members that nobody verified",
            "auth.insecure: true",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: {secret: s}, auth: {files: {user: u}}}}]",
            "user and password belong together",
            "password: FILE",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: {secret: s, files: {ca: f}}}}]",
            "stands beside files",
            "keep one",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: {files: {cert: c, key: k}, insecure: true}}}]",
            "tls.files.ca: is missing",
            "ca: FILE",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: {files: {cert: c, key: k}}}}]",
            "tls.files.ca: is missing",
            "ca: FILE",
        ),
    ] {
        is_told(yaml, why, next);
    }
    assert_eq!(problems("recognise: true\nensembles: [{namespace: db}]"), [""; 0]);
    assert_eq!(problems("ensembles: []"), [""; 0], "whoever writes an empty list means it");
}

#[test]
fn contradictions_have_a_next_step() {
    for (yaml, why, next) in [
        ("ensembles: {namespace: db}", "is not a list", "ensembles: [{ … }]"),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: true}}]",
            "is not a map of keys",
            "allowed here: secret, files, insecure",
        ),
        ("ensembles: [{namespaceSelector: {}, selector: a=b}]", "asks for no label", "add matchLabels"),
        (
            "ensembles: [{namespace: db, selector: {matchExpressions: [{key: a, operator: DoesNotExist}]}}]",
            "asks for no label",
            "add matchLabels",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b}, {namespace: c, selector: a=b}, {namespace: db, selector: {matchLabels: {a: b}}}]",
            "ensembles[2] chooses the pods that ensembles[0] chooses",
            "by another label",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {tls: {secret: db/etcd-client}}}]",
            "names a namespace too",
            "name of a Secret",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {serverName: 'https://etcd.db.svc:2379', tls: {secret: s}}}]",
            "is a URL",
            "DNS name",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {serverName: '*.db.svc', tls: {secret: s}}}]",
            "is a pattern",
            "DNS name",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, client: {serverName: '{pod}.db.svc', tls: {secret: s}}}]",
            "other braces than {namespace} and {name}",
            "DNS name",
        ),
        (
            "ensembles: [{namespace: db, selector: a=b, groupBy: selector, client: {serverName: '{name}.svc', tls: {secret: s}}}]",
            "with groupBy: selector an ensemble has no StatefulSet",
            "take groupBy: selector out",
        ),
        (
            "memberDeadline: 20s\nensembles: [{namespace: db, selector: a=b}]",
            "members are asked twice within webhook.timeoutSeconds, 10",
            "less than 5s",
        ),
        (
            "webhook: {timeoutSeconds: 1}\nensembles: [{namespace: db, selector: a=b}]",
            "members are asked twice within webhook.timeoutSeconds, 1",
            "timeoutSeconds: 3",
        ),
    ] {
        is_told(yaml, why, next);
    }
}

#[test]
fn never_proposes_a_timeout_above_the_maximum() {
    let errors = |deadline: &str| {
        problems(&format!("memberDeadline: {deadline}\nensembles: [{{namespace: db, selector: a=b}}]"))
            .join("\n")
    };
    assert!(errors("14s").contains("timeoutSeconds: 29"), "{}", errors("14s"));
    assert!(!errors("15s").contains("timeoutSeconds: 31"), "{}", errors("15s"));
}

#[track_caller]
fn is_told(yaml: &str, why: &str, next: &str) {
    let errors = problems(yaml);
    assert_eq!(errors.len(), 1, "{yaml}: {errors:?}");
    assert!(errors[0].contains(why) && errors[0].contains(next), "{errors:?}");
}
