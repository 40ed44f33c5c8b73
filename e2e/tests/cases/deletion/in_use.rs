//! In-use rules on the fleet: a pod of any member, push or pull, uses a `ConfigMap` of the control plane.

use e2e::prelude::*;

use super::environment::{GROUPS, shared_with};
use super::objects::{create, delete, dry_run};
use crate::cases::attempt::{Attempt, retry_until};
use crate::cases::objects::await_gone;

const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward";

#[e2e::case(Reconfigures)]
fn a_config_map_that_a_pod_of_a_member_uses_is_not_deleted(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &["fleet: karmada", "inUse: {library: [configmaps]}", GROUPS])?;
    let karmada = fleet.karmada();
    let before = karmada.api().get(CONFIGURATION)?.succeeded()?.body["webhooks"].clone();
    fleet.installation().replace_webhooks()?;
    let restored = Undo::new("the webhooks of Karmada do not return", || {
        karmada.api().merge(CONFIGURATION, &json!({"webhooks": before}))?.succeeded().map(drop)
    });
    let shop = fleet.namespace("shop")?;
    let app = create(
        &shop,
        "configmaps",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}}),
    )?;
    for member in fleet.members() {
        let there = member.existing_namespace(shop.name());
        let volumes = json!([{"name": "v", "configMap": {"name": "app"}}]);
        let pod = there.pod("web").with(|pod| pod["spec"]["volumes"] = volumes);
        pod.is_admitted()?;
        let path = format!("{}/web", there.path("pods"));
        let used = format!("in member cluster {}: 1 pod (web)", member.name());
        let try_delete = || dry_run(karmada.api(), &app);
        retry_until("the ConfigMap to be in use", try_delete, |attempt| attempt.contains(&used))?;
        let denied = karmada.api().delete(&app)?;
        let message = denied.message().to_owned();
        ensure!(denied.status == 403 && message.contains(&used), "{}: {message}", denied.status);
        ensure!(
            message.contains(&format!("kubectl durward impact configmaps/app -n {}", shop.name())),
            "{message}"
        );
        let impact = fleet.installation().command(&["impact", "cm/app", "-n", shop.name()])?;
        ensure!(impact.stdout.contains("1 pod (web)"), "{impact:?}");
        impact.exited_with(1)?;
        member.api().delete(&format!("{path}?gracePeriodSeconds=0"))?.succeeded()?;
        await_gone(member, &path)?;
    }
    retry_until("the ConfigMap to be free", || dry_run(karmada.api(), &app), Attempt::is_allowed)?;
    delete(karmada.api(), &app)?.allowed()?;
    restored.undo()
}
