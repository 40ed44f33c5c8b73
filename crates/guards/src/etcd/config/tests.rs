use std::path::PathBuf;

use super::super::fixture::{config, configured};
use super::*;
use crate::world::etcd::{Client, Login, Material};

const LEAST: &str = "ensembles: [{namespace: db, selector: app=etcd}]";

fn problems(yaml: &str) -> Vec<String> {
    configured(yaml).1
}

#[test]
fn a_namespace_and_a_selector_are_enough() {
    let config = config(LEAST);
    let [ensemble] = config.ensembles.as_slice() else { panic!() };
    assert_eq!(ensemble.within, Within::Named("db".into()));
    assert_eq!((ensemble.port, ensemble.leader), (2379, Leader::Transfer));
    assert_eq!((ensemble.membership, ensemble.group_by), (Membership::Auto, GroupBy::StatefulSet));
    assert_eq!(*ensemble.client.client("db", None), Client::default());
    assert_eq!((config.reservation, config.data_safety, config.lag), (Book::Lease, Weight::Warn, 5000));
    assert_eq!(config.member_deadline, Duration::from_secs(1));
}

#[test]
fn what_holds_for_all_ensembles_can_be_said_otherwise_for_one() {
    let yaml = "leader: refuse\nensembles: [{namespace: a, selector: x=y}, {namespace: b, selector: x=y, leader: allow}]";
    let leaders: Vec<Leader> = config(yaml).ensembles.iter().map(|ensemble| ensemble.leader).collect();
    assert_eq!(leaders, [Leader::Refuse, Leader::Allow]);
}

#[test]
fn secrets_are_those_of_the_members_namespace_and_files_are_relative_to_the_configuration() {
    let yaml = "ensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: a=b, client: {serverName: etcd.db.svc, tls: {secret: etcd-client}, auth: {secret: etcd-user}}}]";
    let of_secrets = config(yaml).ensembles.remove(0).client;
    let client = of_secrets.client("tenant-7", None);
    let tls = client.tls.as_ref().unwrap();
    let material = Material::Secret { namespace: "tenant-7".into(), name: "etcd-client".into() };
    assert_eq!((tls.material.as_ref(), tls.server_name.as_deref()), (Some(&material), Some("etcd.db.svc")));
    assert_eq!(client.login, Some(Login::Secret { namespace: "tenant-7".into(), name: "etcd-user".into() }));
    assert_eq!(of_secrets.secrets(), ["etcd-client", "etcd-user"]);
    let yaml = "ensembles: [{namespace: db, selector: a=b, client: {tls: {files: {ca: ca.pem, cert: /c.pem, key: k.pem}}}}]";
    let root = crate::config::parse("/etc/durward/d.yaml", yaml).unwrap();
    let (config, _, problems) =
        crate::config::read("/etc/durward/d.yaml", root.as_ref(), |s| read(s, super::super::DEFAULTS));
    assert_eq!(problems, []);
    let identity = Some((PathBuf::from("/c.pem"), PathBuf::from("/etc/durward/k.pem")));
    let files = Material::Files { authority: "/etc/durward/ca.pem".into(), identity };
    assert_eq!(config.ensembles[0].client.client("db", None).tls.as_ref().unwrap().material, Some(files));
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let told = problems(
        "ensembles:\n- {selector: app=etcd}\n- {namespace: db}\n- {namespace: durward-system, selector: '!a'}\nmemberDeadline: 0s\nreservaton: lease\n",
    );
    let told = told.join("\n");
    for why in [
        "ensembles[0].namespace: not exactly one of namespace and namespaceSelector",
        "ensembles[1].selector: is missing",
        "ensembles[2].namespace: is Durward's own",
        "asks for no label",
        "memberDeadline: is no time",
        "did you mean reservation?",
    ] {
        assert!(told.contains(why), "{why}:\n{told}");
    }
}

#[test]
fn each_mistake_is_told_with_what_to_do() {
    for (yaml, why, next) in [
        ("mode: audit", "names none, so nothing is guarded", "ensembles: [{namespace: db"),
        (
            "installNamespace: \"\"\nensembles: [{namespace: db, selector: a=b}]",
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
    ] {
        let told = problems(yaml);
        assert_eq!(told.len(), 1, "{yaml}: {told:?}");
        assert!(told[0].contains(why) && told[0].contains(next), "{told:?}");
    }
    assert_eq!(problems("recognise: true\nensembles: [{namespace: db}]"), [""; 0]);
    assert_eq!(problems("ensembles: []"), [""; 0], "whoever writes an empty list means it");
}
