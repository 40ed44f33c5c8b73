//! `charts/durward/hardened-values.yaml`: its permissions are those of the page [Hardening](../../../../docs/src/security/hardening.md),
//! and its pods start in a namespace that enforces Pod Security `restricted`.

use std::collections::BTreeSet;

use e2e::prelude::*;

use super::configurations::{DB, HOME, bare_cluster, parse};
use super::environment::exclusive;
use crate::cases::environment::eventually_ok;
use crate::cases::objects::contains_all;
use crate::cases::pages::block;

const PAGE: &str = "security/hardening.md";

const ACCOUNT: &str = "--as=system:serviceaccount:durward-system:durward";

/// The image, and everything that depends on the cluster.
fn values() -> Result<Value> {
    let file = Helm::chart().join("hardened-values.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut values: Value = serde_saphyr::from_str(&text).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (name, tag) = Image::Durward.name().rsplit_once(':').context("an image without a tag")?;
    values["image"] = json!({"repository": name, "tag": tag, "pullPolicy": "Never"});
    values["config"]["guards"]["etcd"]["clusters"] = json!([{"namespace": DB, "selector": "app=etcd"}]);
    values["networkPolicy"]["apiServers"] = json!(["0.0.0.0/0"]);
    Ok(values)
}

/// Returns the rows of `kubectl auth can-i --list` that name resources, without those of every account: resource, names and verbs.
fn rows(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter(|line| {
        !line.starts_with(' ') && !line.starts_with("Resources ") && !line.starts_with("selfsubject")
    });
    // kubectl repeats a verb that two roles grant.
    let words =
        |list: &str| list.replace(']', "").split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let row = |row: &str| match row.split('[').collect::<Vec<_>>()[..] {
        [resource, _, names, verbs] => format!("{} {:?} {:?}", resource.trim(), words(names), words(verbs)),
        _ => row.to_owned(),
    };
    rows.filter(|line| !line.trim().is_empty()).map(row).collect()
}

/// Expects exactly the permissions of the page in a namespace.
fn has_the_permissions_of_the_page(
    kubectl: &e2e::kubectl::Kubectl,
    namespace: &str,
    heading: &str,
) -> Result<()> {
    let listed = kubectl.run(&["auth", "can-i", "--list", ACCOUNT, "-n", namespace])?.succeeded()?.stdout;
    let (listed, expected) = (rows(&listed), rows(&block(PAGE, "text", heading)?));
    let (surplus, missing): (Vec<_>, Vec<_>) =
        (listed.difference(&expected).collect(), expected.difference(&listed).collect());
    ensure!(
        surplus.is_empty() && missing.is_empty(),
        "{namespace}: the page lacks {surplus:#?}, and the account lacks {missing:#?}"
    );
    Ok(())
}

#[e2e::case]
fn hardened_permissions_are_those_of_the_page(context: &'static TestContext) -> Result<()> {
    let cluster = bare_cluster(context)?;
    let rendered = Helm::new(context)?.template(HOME, &values()?)?.succeeded()?.stdout;
    let objects = parse(&rendered)?;
    let is_rbac =
        |object: &&Value| object["apiVersion"].as_str().is_some_and(|version| version.starts_with("rbac."));
    let rbac: Vec<&Value> = objects.iter().filter(is_rbac).collect();
    let rbac = json!({"apiVersion": "v1", "kind": "List", "items": rbac}).to_string();
    let kubectl = cluster.kubectl();
    kubectl.apply(&rbac)?.succeeded()?;
    let removed = Undo::new("the permissions are not removed", || {
        kubectl.run_with(&["delete", "-f", "-"], &rbac)?.succeeded().map(drop)
    });
    eventually_ok("the permissions of the page", || {
        has_the_permissions_of_the_page(kubectl, HOME, "In Durward's namespace")?;
        has_the_permissions_of_the_page(kubectl, DB, "In the namespace of an etcd cluster")
    })?;
    for object in ["validating", "mutating"] {
        let object = format!("{object}webhookconfigurations.admissionregistration.k8s.io/durward");
        for verb in ["get", "patch", "update", "delete"] {
            let answer = kubectl.run(&["auth", "can-i", verb, &object, ACCOUNT])?;
            ensure!(answer.stdout.trim() == "no", "{verb} {object}: {}", answer.stdout);
        }
    }
    removed.undo()
}

#[e2e::case]
fn hardened_values_run_with_pod_security_restricted(context: &'static TestContext) -> Result<()> {
    let environment = exclusive(context)?;
    environment.helm.uninstall(HOME, &["--ignore-not-found"])?.succeeded()?;
    environment.make_home()?;
    let db = environment.node.namespace("db")?;
    let directory = context.directory("hardened")?;
    let tls = directory.join("tls").display().to_string();
    let service = format!("durward.{HOME}");
    Durward::command(context, &["certs", "new", "--service", &service, "--out", &tls])?.succeeded()?;
    let kubectl = environment.node.cluster().kubectl();
    let (cert, key) = (format!("--cert={tls}/tls.crt"), format!("--key={tls}/tls.key"));
    kubectl.run(&["-n", HOME, "create", "secret", "tls", "hardened-tls", &cert, &key])?.succeeded()?;
    let ca = format!("--from-file=callers-ca.crt={tls}/ca.crt");
    kubectl.run(&["-n", HOME, "create", "configmap", "durward-client-ca", &ca])?.succeeded()?;

    // Certificates in files instead of cert-manager.
    let mut values = values()?;
    values["config"]["guards"]["etcd"]["clusters"][0]["namespace"] = db.name().into();
    values["certManager"]["enabled"] = false.into();
    values["config"]["server"]["tls"]["files"] = json!({"cert": "files/tls.crt", "key": "files/tls.key"});
    let volume = json!({"name": "files", "secret": {"secretName": "hardened-tls", "defaultMode": 0o440}});
    let mount = json!({"name": "files", "mountPath": "/etc/durward/files", "readOnly": true});
    for (list, item) in [("extraVolumes", volume), ("extraVolumeMounts", mount)] {
        values[list].as_array_mut().with_context(|| format!("no {list}"))?.push(item);
    }
    let output = environment.release(&values)?;
    ensure!(!output.stderr.contains("PodSecurity"), "Pod Security warns: {}", output.stderr);
    ensure!(environment.replicas()?.len() == 2, "{:?}", environment.replicas()?);
    let policy =
        environment.api().get(&super::environment::home_path("networking.k8s.io/v1/networkpolicies"))?;
    contains_all(&policy.succeeded()?.body.to_string(), &["\"Egress\"", "0.0.0.0/0", "kube-dns"])?;

    // The API server of this node shows no client certificate, so Durward refuses its calls.
    let config =
        kubectl.run(&["-n", HOME, "get", "configmap", "durward", "-o", "jsonpath={.data.durward\\.yaml}"])?;
    let config = config
        .succeeded()?
        .stdout
        .replace("cert: files/tls.crt", &format!("ca: {tls}/ca.crt\n      cert: files/tls.crt"));
    let file = e2e::context::write(&directory, "durward.yaml", &config)?.display().to_string();
    let printed =
        Durward::command(context, &["manifests", "--config", &file, "--only", "webhooks"])?.succeeded()?;
    let empty = environment.empty_namespace()?;
    kubectl.apply(&printed.stdout)?.succeeded()?;
    let registered = Undo::new("the webhook configuration is still there", || {
        Durward::unregister(environment.node.cluster(), &printed.stdout)
    });
    eventually_ok("a call without a client certificate to be refused", || {
        let answer = environment.delete_as_dry_run(&empty)?;
        contains_all(answer.message(), &["failed calling webhook \"deletion.durward.dev\""])
    })?;
    registered.undo()?;
    environment.audit.has_no_forbidden_requests()?;
    environment.helm.uninstall(HOME, &[])?.succeeded()?;
    environment.audit.clear()
}
