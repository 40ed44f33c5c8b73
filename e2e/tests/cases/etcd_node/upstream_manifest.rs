//! The etcd manifest of the Kubernetes end-to-end tests, which many documents copy. Its preStop hook removes
//! the member, and it has a PDB.

use std::os::unix::fs::PermissionsExt as _;

use e2e::binaries::Binary;
use e2e::context;
use e2e::prelude::*;

use super::environment::exclusive;
use crate::cases::etcd::environment::Profile;
use crate::cases::objects::contains_all;

/// An image like the one in the manifest: etcd with API version 2, which the hook uses.
const IMAGE: &str = "durward.test/etcd-of-the-document:1";

/// The image in the manifest. Its etcd accepts host names as listen addresses; later versions do not.
const NAMED: &str = "image: registry.k8s.io/etcd:3.2.24";

/// Wraps etcd: replaces host names in listen addresses by the pod's address.
const WRAPPER: &str = r#"#!/bin/sh
is_place=
for argument; do
  shift
  [ -z "$is_place" ] || argument=$(echo "$argument" | sed "s#//$(hostname)[^:]*:#//$(hostname -i):#g")
  case $argument in --listen-*) is_place=yes ;; *) is_place= ;; esac
  set -- "$@" "$argument"
done
exec /usr/local/lib/etcd "$@"
"#;

fn image(context: &TestContext, node: &Node) -> Result<()> {
    let supervisor = context.supervisor()?;
    let wrapper = context::write(&context.directory("etcd-of-the-document")?, "etcd", WRAPPER)?;
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))?;
    let (etcd, etcdctl) = (Binary::Etcd35.path(&supervisor)?, Binary::Etcdctl35.path(&supervisor)?);
    let recipe = Image::Busybox.recipe(context)?.changed(IMAGE, |root| {
        root.program_as("/usr/local/lib/etcd", &etcd)?
            .program_as("/usr/local/bin/etcdctl", &etcdctl)?
            .file_as("/usr/local/bin/etcd", &wrapper)
    })?;
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    // Otherwise a member cannot be removed until all have been connected for five seconds.
    let soon = "ETCD_STRICT_RECONFIG_CHECK=false";
    let recipe = recipe.starting(json!({"Env": [path, "ETCDCTL_API=2", "ETCD_ENABLE_V2=true", soon]}));
    node.import(&recipe.build(&supervisor)?)
}

#[e2e::case(Soak)]
fn the_upstream_manifest_keeps_its_leader(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let node = fixture.node;
    image(context, node)?;
    let ns = fixture.namespace("document", Some(Profile::Refuse))?;
    let directory = Binary::ApiServer
        .sources(&context.supervisor()?)?
        .join("test/e2e/testing-manifests/statefulset/etcd");
    let kubectl = node.cluster().kubectl();
    for name in ["service", "pdb", "statefulset"] {
        let path = directory.join(name).with_extension("yaml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The registry is a part of the image name.
        let text = text.replace(NAMED, &format!("image: {IMAGE}"));
        let text = text.replace("imagePullPolicy: Always", "imagePullPolicy: Never");
        ensure!(name != "statefulset" || text.contains(IMAGE), "upstream names another image: {text}");
        kubectl.run_with(&["-n", ns.name(), "apply", "-f", "-"], &text)?.succeeded()?;
    }
    let data = context.directory("etcd-data")?;
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{}-{name}", ns.name())},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": ns.name(), "name": format!("datadir-{name}")},
                "hostPath": {"path": data.join(name), "type": "DirectoryOrCreate"},
            },
        });
        node.cluster().api().create("/api/v1/persistentvolumes", &volume)?.succeeded()?;
    }
    node.await_workload(&ns, "statefulsets", "etcd")?;

    // Output format: `8e9e05c52164694d: name=etcd-0 peerURLs=… clientURLs=… isLeader=true`
    let members = || node.pod(&ns, "etcd-0").attempt("etcd", &["etcdctl", "member", "list"]);
    let list = eventually("three members and a leader", WAIT_LIMIT, || {
        let list = members()?.stdout;
        let is_whole = list.lines().count() == 3 && list.contains("isLeader=true");
        Ok(if is_whole { Poll::Ready(list) } else { Poll::Pending(list) })
    })?;
    let named = |leads: &str| -> Result<String> {
        let line = list.lines().find(|line| line.ends_with(leads)).context("no such member")?;
        let name = line.split("name=").nth(1).and_then(|rest| rest.split(' ').next());
        name.map(ToOwned::to_owned).with_context(|| format!("a member without a name: {line}"))
    };
    let (leader, follower) = (named("isLeader=true")?, named("isLeader=false")?);
    let delete = |name: &str| kubectl.run(&["-n", ns.name(), "delete", "pod", name, "--wait=false"]);
    let refused = delete(&leader)?;
    refused.exited_with(1)?;
    contains_all(&refused.stderr, &["it is the etcd leader", "onLeaderDelete: deny"])?;
    let allowed = delete(&follower)?;
    ensure!(allowed.is_success(), "deleting a follower was denied: {}", allowed.stderr);
    // The hook has removed the member. In the remaining cluster of two, none can be deleted.

    until("the member to be removed", || {
        let list = node.pod(&ns, &leader).attempt("etcd", &["etcdctl", "member", "list"])?.stdout;
        Ok((list.lines().count() == 2, list))
    })?;
    let denied = delete(&leader)?;
    ensure!(!denied.is_success(), "the leader of two was deleted: {}", denied.stdout);
    Ok(())
}
