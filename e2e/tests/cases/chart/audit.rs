//! `durward doctor audit` names the callers of an audit log, and has the numbers of the metrics of both pods.

use e2e::prelude::*;

use super::configurations::HOME;
use super::environment::{PROTECTED, WITH_ETCD, exclusive, home_path, values, without_node};
use crate::cases::environment::eventually_ok;
use crate::cases::objects::contains_all;

const CONTROLLER: &str = "system:serviceaccount:kube-system:cleaner";

#[e2e::case]
fn doctor_audit_names_the_callers_that_would_be_denied(context: &'static TestContext) -> Result<()> {
    let environment = exclusive(context)?;
    let mut values = values();
    for guard in ["deletion", "etcd"] {
        values["config"]["guards"][guard]["mode"] = "audit".into();
    }
    environment.release(&values)?;
    let cluster = environment.node.cluster();
    let user = |name| cluster.user(name, &["system:masters"]);
    let (ann, controller) = (user("ann")?, user(CONTROLLER)?);
    let used = |name| {
        let namespace = cluster.labelled_namespace(name, &[PROTECTED])?;
        namespace.pod("web").with(without_node).is_admitted()?;
        anyhow::Ok(format!("/api/v1/namespaces/{}", namespace.name()))
    };
    let (by_ann, by_controller, unlabeled) = (used("by-ann")?, used("by-cleaner")?, used("unlabeled")?);
    let unlabel = json!({"metadata": {"labels": {PROTECTED.0: null}}});
    let warns = |answer: Result<e2e::api::Answer>, text: &str| {
        contains_all(&answer?.succeeded()?.warnings.join("\n"), &[text])
    };
    eventually_ok("audit mode", || {
        warns(ann.api.delete(&format!("{by_ann}?dryRun=All")), "would be denied")?;
        warns(ann.api.merge(&format!("{unlabeled}?dryRun=All"), &unlabel), "durward-deletion-labels")
    })?;

    // Beside other cases, a call can take longer than the API server waits, so that the deletion fails.
    eventually_ok("a deletion by ann", || warns(ann.api.delete(&by_ann), "would be denied"))?;
    let by_cleaner = || warns(controller.api.delete(&by_controller), "would be denied");
    eventually_ok("a deletion by the controller", by_cleaner)?;
    warns(ann.api.merge(&unlabeled, &unlabel), "durward-deletion-labels")?;
    // A running pod whose etcd can't be asked.
    let db = cluster.labelled_namespace("db", &[WITH_ETCD])?;
    let idle = e2e::node::idle(json!({}));
    db.pod("etcd").labelled("app", "etcd").container_like("etcd", idle).is_admitted()?;
    environment.node.pod(&db, "etcd").is_ready()?;
    warns(ann.api.delete(&format!("{}/etcd", db.path("pods"))), "would be denied")?;

    let map = environment.api().get(&format!("{}/durward", home_path("configmaps")))?.succeeded()?.body;
    let text = map["data"]["durward.yaml"].as_str().context("no durward.yaml")?;
    let config = e2e::context::write(&context.directory("doctor-audit")?, "durward.yaml", text)?;
    let config = format!("--config={}", config.display());
    let doctor = |more: &[&str]| -> Result<(String, Value)> {
        let run = |format: &str| {
            let arguments = [&["doctor", "audit", &config, "-o", format], more].concat();
            let output = Durward::command(context, &arguments)?;
            output.exited_with(1)?;
            anyhow::Ok(output.stdout)
        };
        Ok((run("text")?, serde_json::from_str(&run("json")?)?))
    };
    let of = |rows: &Value, field: &str, value: &str| -> Vec<Value> {
        rows.as_array().into_iter().flatten().filter(|row| row[field] == value).cloned().collect()
    };

    let log = environment.audit.log().display().to_string();
    let (text, json) = doctor(&["--audit-log", &log])?;
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    contains_all(
        &text,
        &[
            // The log also has the requests of other cases.
            ", 1 of them because Durward could not check\n",
            "\ndeletion guard, users, would be denied\n",
            "      1  ann  delete namespaces\n",
            &format!(
                "\ndeletion guard, controllers, would be denied\n      1  {CONTROLLER}  delete namespaces\n"
            ),
            "\ndeletion guard, native policy durward-deletion-labels, users, would be denied\n      1  ann  patch namespaces\n",
            "\netcd guard, users, could not be checked\n      1  ann  delete pods in db",
            "guards.deletion.exempt:  serviceAccounts: [\"kube-system/cleaner\"]\n",
            "\"ann\"]\n",
        ],
    )?;
    ensure!(json["sources"][0]["requests"].as_u64() > Some(3), "{json}");
    let by_controller_row = of(&json["wouldDeny"], "caller", CONTROLLER);
    let [row] = by_controller_row.as_slice() else { bail!("{json}") };
    ensure!(row["object"] == name(&by_controller) && row["isController"] == true, "{row}");
    contains_all(row["message"].as_str().unwrap_or_default(), &["is still in use", "1 pod (web)"])?;
    ensure!(of(&json["unchecked"], "guard", "etcd")[0]["resource"] == "pods", "{json}");

    let kubeconfig = cluster.kubectl().kubeconfig().display().to_string();
    let (text, json) = doctor(&["--kubeconfig", &kubeconfig])?;
    contains_all(
        &text,
        &["API server (cluster): since 20", "deletion guard, native policy durward-deletion-labels"],
    )?;
    let count = |rows: &Value, field: &str, value: &str| {
        of(rows, field, value).iter().filter_map(|row| row["count"].as_u64()).sum::<u64>()
    };
    let pods = json["sources"].as_array().into_iter().flatten();
    let pods =
        pods.filter(|source| source["name"].as_str().is_some_and(|name| name.starts_with("pod durward-")));
    ensure!(pods.count() == 2, "{json}");
    // Dry runs count too.
    ensure!(count(&json["wouldDeny"], "policy", "durward-deletion-labels") >= 2, "{json}");
    ensure!(count(&json["wouldDeny"], "policy", "") >= 4, "{json}");
    ensure!(count(&json["unchecked"], "guard", "etcd") >= 1, "{json}");

    // Durward's own account isn't allowed to read either.
    let exec = ["-n", HOME, "exec", "deploy/durward", "--", "durward", "doctor", "audit"];
    let output = cluster.kubectl().run(&exec)?;
    contains_all(&output.stdout, &["(unreadable)", "use the kubeconfig of an administrator"])?;
    output.exited_with(3)
}
