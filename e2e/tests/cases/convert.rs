//! `durward convert crd`: the API server admits converted CRDs, keeps their objects, and judges them as the original schema does.

use std::collections::BTreeSet;

use e2e::context;
use e2e::prelude::*;

#[path = "../../../crates/evaluator/policy/tests/old_crds/mod.rs"]
mod old_crds;

const DATA: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/evaluator/policy/tests/data/kubernetesclusters");
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Makes a create return the object that would be stored, or name unknown fields.
const DRY_RUN: &str = "?dryRun=All&fieldValidation=Strict";
/// The time until the API server serves a CRD.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// Random CRDs, and objects of each.
const RANDOM: (usize, usize) = (30, 7);

#[e2e::case]
fn a_converted_crd_keeps_and_refuses_objects_as_the_original(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&Options::named("convert"))?;
    let api = cluster.api();
    let crd = convert(context, &format!("{DATA}/crd-v1beta1.yaml"))?.context("the CRD is refused")?;
    api.create(CRDS, &crd)?.succeeded()?;
    let path = "/apis/ecs.yun.com/v1/namespaces/default/kubernetesclusters";
    eventually("the CRD to be served", SERVED_WITHIN, || Ok(Poll::from(api.get(path)?.succeeded())))?;
    for name in ["sample.yaml", "with-key.yaml"] {
        let sample = yaml(name)?;
        let stored = api.create(&format!("{path}{DRY_RUN}"), &sample)?.succeeded()?.body;
        ensure!(stored["spec"] == sample["spec"], "{name} came back as {stored}");
    }
    let refused = api.create(&format!("{path}{DRY_RUN}"), &yaml("bad.yaml")?)?;
    let causes = refused.body["details"]["causes"].as_array().into_iter().flatten();
    let found: BTreeSet<String> =
        causes.map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect();
    let recorded = std::fs::read_to_string(format!("{DATA}/bad.errors.txt"))?;
    let wanted: BTreeSet<String> =
        recorded.lines().filter_map(|line| line.strip_prefix("* ")).map(str::to_owned).collect();
    ensure!(found == wanted, "{found:?}");
    Ok(())
}

#[e2e::case]
fn random_crds_are_admitted_and_keep_their_objects(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&Options::named("convert"))?;
    let api = cluster.api();
    let directory = context.directory("convert-random")?;
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut old_crds, mut objects, mut refused) = (Vec::new(), Vec::new(), 0);
    for index in 0..RANDOM.0 {
        let crd = old_crds::crd(&mut rng, &format!("Random{index}"));
        let file = context::write(&directory, &format!("crd-{index}.json"), &crd.to_string())?;
        let Some(converted) = convert(context, &file.display().to_string())? else {
            refused += 1;
            continue;
        };
        let answer = api.create(CRDS, &converted)?;
        ensure!(answer.is_success(), "the API server refuses {converted}: {}", answer.message());
        let scope = text(&crd["spec"], "scope");
        for number in 0..RANDOM.1 {
            let mut object = old_crds::thing(&mut rng, &crd, &format!("thing-{index}-{number}"));
            if scope != "Cluster" {
                object["metadata"]["namespace"] = "default".into();
            }
            objects
                .push((object, format!("{}s", text(&crd["spec"]["names"], "plural").trim_end_matches('s'))));
        }
        old_crds.push(crd);
    }
    ensure!(refused <= RANDOM.0 / 4, "{refused} of {} CRDs are refused", RANDOM.0);
    let list = |name: &str, items: Vec<&Value>| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        Ok::<_, anyhow::Error>(context::write(&directory, name, &list)?.display().to_string())
    };
    let crds = list("crds.json", old_crds.iter().collect())?;
    let all = list("objects.json", objects.iter().map(|(object, _)| object).collect())?;
    let arguments = ["check", &all, "--with", &crds, "-o", "json", "--field-validation", "warn"];
    let output = Durward::command(context, &arguments)?;
    let report: Value = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    let documents = report["documents"].as_array().context("no documents")?;
    ensure!(documents.len() == objects.len(), "{} of {}", documents.len(), objects.len());
    let (mut valid, mut wrong) = (0, Vec::new());
    for ((object, plural), document) in objects.iter().zip(documents) {
        let namespace = object["metadata"]["namespace"].as_str();
        let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        let path = format!("/apis/example.org/v1{namespace}/{plural}");
        eventually("the CRD to be served", SERVED_WITHIN, || Ok(Poll::from(api.get(&path)?.succeeded())))?;
        let answer = api.create(&format!("{path}{DRY_RUN}"), object)?;
        let findings = document["findings"].as_array().into_iter().flatten();
        let is_valid =
            findings.clone().all(|finding| !matches!(text(finding, "verdict"), "deny" | "error" | "unknown"));
        valid += usize::from(is_valid);
        let is_kept = ["spec", "more"].into_iter().all(|field| answer.body[field] == object[field]);
        if answer.is_success() != is_valid || (is_valid && !is_kept) {
            wrong.push(format!(
                "{object}\n  original {document}\n  API server {} {}",
                answer.status,
                answer.message()
            ));
        }
    }
    ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), objects.len(), wrong.join("\n"));
    ensure!(valid > objects.len() / 10 && valid < objects.len(), "{valid} of {} are valid", objects.len());
    Ok(())
}

/// Converts a CRD. A CRD that is refused is none.
fn convert(context: &TestContext, file: &str) -> Result<Option<Value>> {
    let output = Durward::command(context, &["convert", "crd", file])?;
    match output.code() {
        Some(0) => {
            Ok(Some(serde_saphyr::from_str(&output.stdout).map_err(|error| anyhow::anyhow!("{error}"))?))
        }
        Some(1) => Ok(None),
        _ => anyhow::bail!("{}", output.stderr),
    }
}

fn yaml(name: &str) -> Result<Value> {
    let text = std::fs::read_to_string(format!("{DATA}/{name}"))?;
    serde_saphyr::from_str(&text).map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}
