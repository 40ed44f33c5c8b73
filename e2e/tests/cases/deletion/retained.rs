//! Resources that Karmada preserves, or that it did not deploy: they count like all others.

use e2e::prelude::*;

use super::environment::shared;
use super::objects::{Crd, annotate, create, deployment, exists, path_of};
use crate::cases::objects::await_gone;

const BREAK_GLASS: &str = "durward.dev/break-glass";

#[e2e::case]
fn preserve_on_deletion_does_not_allow_the_deletion(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    let web = create(&shop, "apps/v1/deployments", &deployment("web", 0))?;
    propagate(&shop, "web")?;
    let m1 = fleet.member("m1")?;
    fleet.await_propagated(m1, &web)?;
    let words = ["the control plane: 1 Deployment (web)", "m1: 1 Deployment (web)"];
    fleet.delete(&path)?.denied()?.with_message(&words)?.with_cause("m1", "InUse")?;
    exists(m1, &web)?;
    // The denial was right: the Deployment is deleted.
    annotate(fleet.karmada(), &path, &json!({BREAK_GLASS: shop.name()}))?;
    fleet.delete(&path)?.allowed()?;
    await_gone(m1, &web)
}

#[e2e::case]
fn objects_that_karmada_did_not_deploy_deny_the_deletion(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let m1 = fleet.member("m1")?;
    let own = m1.namespace("older")?;
    m1.make_running_pod(&own, "web")?;
    let shop = fleet.karmada().exact_namespace(own.name(), &[])?;
    let path = path_of(&shop);
    fleet.dry_run(&path)?.denied()?.with_message(&["m1: 1 pod (web)"])?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_propagated(&fleet, true)?;
    widgets.create_object(&own, "v1", "one")?;
    fleet.dry_run(&widgets.path())?.denied()?.with_message(&["m1: 1 object ("]).map(drop)
}

/// Makes Karmada propagate a Deployment of a namespace to m1 and preserve it there.
fn propagate(namespace: &Namespace<'_>, deployment: &str) -> Result<()> {
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": deployment},
        "spec": {
            "preserveResourcesOnDeletion": true,
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}],
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
        },
    });
    create(namespace, "policy.karmada.io/v1alpha1/propagationpolicies", &policy).map(drop)
}
