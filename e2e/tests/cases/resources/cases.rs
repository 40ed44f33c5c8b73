//! The cases of the example, by the rules of a CRD, by native policies, and by the guard: three times the same verdicts.

use e2e::prelude::*;

use super::{example, exclusive, guards};
use crate::cases::objects::contains_all;
use crate::cases::policies::{collection, name};

/// A case of `cases.yaml` with its objects.
struct Case {
    name: String,
    object: Value,
    old: Value,
    is_denied: bool,
    /// A part of the message of a denial.
    message: String,
}

#[e2e::case]
fn crd_rules_native_policies_and_the_guard_give_the_verdicts_of_the_cases(
    context: &'static TestContext,
) -> Result<()> {
    let cluster = exclusive(context)?;
    let kubectl = cluster.kubectl();
    let (crd, rules, policy) = (example("crd.yaml"), example("crd-with-rules.yaml"), example("policy.yaml"));
    let cases = read()?;
    let apply = |file: &str| kubectl.run(&["apply", "-f", file])?.succeeded().map(drop);

    // Without rules the API server stores objects that break them.
    apply(&crd)?;
    await_broken(&cluster, false)?;
    let stored = Stored::new(&cluster, &cases)?;
    apply(&rules)?;
    await_broken(&cluster, true)?;
    stored.judge("the rules of the CRD")?;
    stored.keeps_what_was_broken_before()?;

    apply(&crd)?;
    await_broken(&cluster, false)?;
    let stored = Stored::new(&cluster, &cases)?;
    apply(&policy)?;
    await_broken(&cluster, true)?;
    stored.judge("native policies")?;
    kubectl.run(&["delete", "-f", &policy])?.succeeded()?;
    await_broken(&cluster, false)?;

    let stored = Stored::new(&cluster, &cases)?;
    let (_installation, _durward) =
        Installation::start(context, &cluster, &guards(&[policy], ""), "durward-cases")?;
    await_broken(&cluster, true)?;
    stored.judge("the guard")
}

/// Waits until the API server denies `broken.yaml` or accepts it.
fn await_broken(cluster: &Cluster, is_denied: bool) -> Result<()> {
    until(format_args!("broken.yaml to be denied: {is_denied}"), || {
        let output = cluster.kubectl().run(&["create", "--dry-run=server", "-f", &example("broken.yaml")])?;
        let denied = output.stderr.contains("spec.masterList must begin with");
        Ok((denied == is_denied && (denied || output.is_success()), output.stderr))
    })
}

/// Reads the cases.
fn read() -> Result<Vec<Case>> {
    let document = parse("cases.yaml")?.pop().context("no document")?;
    let cases = document["cases"].as_array().context("no cases")?;
    cases.iter().map(Case::read).collect()
}

fn parse(file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(example(file)).with_context(|| file.to_owned())?;
    serde_saphyr::from_multiple(&text).map_err(|error| anyhow::anyhow!("{file}: {error}"))
}

impl Case {
    fn read(case: &Value) -> Result<Self> {
        let object = |field: &str| match &case[field] {
            // The name of a file, with the number of the document.
            Value::String(place) => {
                let (file, number) = place.split_once('#').unwrap_or((place, "1"));
                let index = number.parse::<usize>()?.saturating_sub(1);
                parse(file)?.into_iter().nth(index).with_context(|| place.clone())
            }
            object => Ok(object.clone()),
        };
        let expected = &case["expect"];
        let text = |field: &str| expected[field].as_str().unwrap_or_default();
        Ok(Self {
            name: case["name"].as_str().context("a case without a name")?.to_owned(),
            object: object("object")?,
            old: object("oldObject")?,
            is_denied: expected["verdict"] == "deny",
            message: format!("{}{}", text("message"), text("messageMatches").trim_start_matches('^')),
        })
    }
}

/// The old objects of the cases, each in a namespace of its own.
struct Stored<'a> {
    cluster: &'a Cluster,
    /// A case, and its namespace.
    cases: Vec<(&'a Case, Namespace<'a>)>,
}

impl<'a> Stored<'a> {
    fn new(cluster: &'a Cluster, cases: &'a [Case]) -> Result<Self> {
        let store = |case: &'a Case| {
            let namespace = cluster.namespace("case")?;
            if !case.old.is_null() {
                let object = within(&case.old, &namespace);
                cluster.api().create(&collection(&object)?, &object)?.succeeded()?;
                if object["metadata"]["finalizers"].is_array() {
                    cluster.api().delete(&path(&object)?)?.succeeded()?;
                }
            }
            Ok((case, namespace))
        };
        Ok(Self { cluster, cases: cases.iter().map(store).collect::<Result<_>>()? })
    }

    /// Sends the request of each case, and compares the verdict and the message.
    fn judge(&self, by: &str) -> Result<()> {
        for (case, namespace) in &self.cases {
            self.judge_case(case, namespace).with_context(|| format!("{by}: {}", case.name))?;
        }
        ensure!(self.cases.len() > 9, "only {} cases", self.cases.len());
        Ok(())
    }

    fn judge_case(&self, case: &Case, namespace: &Namespace<'_>) -> Result<()> {
        let api = self.cluster.api();
        let (object, old) = (within(&case.object, namespace), within(&case.old, namespace));
        let answer = match (object.is_null(), old.is_null()) {
            (false, true) => api.create(&collection(&object)?, &object)?,
            (true, _) => api.delete(&path(&old)?)?,
            (false, false) => {
                let mut object = object;
                let stored = api.get(&path(&old)?)?.succeeded()?.body;
                object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
                api.replace(&path(&object)?, &object)?
            }
        };
        ensure!(answer.is_success() != case.is_denied, "{}: {}", answer.status, answer.body);
        if case.is_denied {
            ensure!(answer.status == 422, "{}: {}", answer.status, answer.body);
            contains_all(answer.message(), &[&case.message])?;
        }
        Ok(())
    }

    /// Rules that an object broke before they existed deny no update that leaves the broken values unchanged. The policy denies it.
    fn keeps_what_was_broken_before(&self) -> Result<()> {
        let namespace = self.cluster.namespace("broken-before")?;
        let object = within(&parse("broken.yaml")?.pop().context("no object")?, &namespace);
        let kubectl = self.cluster.kubectl();
        let replace = |file: &str| kubectl.run(&["apply", "-f", &example(file)])?.succeeded().map(drop);
        replace("crd.yaml")?;
        await_broken(self.cluster, false)?;
        self.cluster.api().create(&collection(&object)?, &object)?.succeeded()?;
        replace("crd-with-rules.yaml")?;
        await_broken(self.cluster, true)?;
        let labeled = self
            .cluster
            .api()
            .merge(&path(&object)?, &json!({"metadata": {"labels": {"a": "b"}}}))?
            .succeeded()?;
        ensure!(
            labeled.warnings.iter().any(|warning| warning.contains("both empty")),
            "{:?}",
            labeled.warnings
        );
        let changed = self.cluster.api().merge(&path(&object)?, &json!({"spec": {"scaleUp": 3}}))?;
        contains_all(changed.message(), &["spec.privateSSHKey and spec.rootPassword are both empty"])
    }
}

/// Returns an object in this namespace, without the time of its deletion, which the API server sets.
fn within(object: &Value, namespace: &Namespace<'_>) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("namespace".to_owned(), namespace.name().into());
        metadata.remove("deletionTimestamp");
    }
    object
}

fn path(object: &Value) -> Result<String> {
    Ok(format!("{}/{}", collection(object)?, name(object)))
}
