//! Command `inject`: prints pods and workloads as the mutating guards change them, without a cluster.
//!
//! If a fact is missing, the command fails. A namespace without given labels is not an unlabeled namespace.

mod workload;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::documents::Documents;
use admission::{Answer, Cause, decode};
use cluster::{Clients, Reader, cause};
use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::input::{self, shown};
use console::output::{self, Style};
use console::yaml;
use guards::WebhookType;
use serde_json::{Value, json};
use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::udiff::UnifiedHunkHeader;

use crate::clients::connect::{StaticLabels, labels, offline};
use crate::clients::runtime;
use crate::commands::review::{AskedGuard, Selection, TIMEOUT, rule, rules, selection};
use crate::file::{File, Purpose};
use workload::{FoundPod, find};

/// `inject`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with pods, workloads or Lists (JSON or YAML); - is standard input
    #[arg(value_name = "FILE|-", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Print a diff instead of the objects
    #[arg(long)]
    pub(crate) diff: bool,
    /// Namespace of objects without one
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Labels of the namespace: key=value,… or "" for none
    #[arg(long, value_name = "LABELS", conflicts_with = "snapshot")]
    pub(crate) namespace_labels: Option<String>,
    /// Snapshot to read the namespaces from
    #[arg(long, value_name = "DIR")]
    pub(crate) snapshot: Option<PathBuf>,
}

/// The user of the generated review.
const USER: &str = "durward-inject";

/// `inject`
pub(crate) fn run(args: &Args) -> Outcome {
    let file = File::load(&args.config, Purpose::Guards)?;
    let name = shown(&args.file);
    let documents = Documents::parse(&name, input::text_or_stdin(&args.file, input::LARGE)?)?;
    let values = values(&name, &documents)?;
    if values.iter().all(|(_, pods)| pods.is_empty()) {
        output::note(format!("note: {name} contains no pod and no workload, so nothing changes"));
    }
    let default = args.namespace.as_deref().unwrap_or("default");
    let clients = clients(args, default, values.iter().flat_map(|(_, pods)| pods))?;
    let guards = guards_of_pods(&file, &clients)?;
    let runtime = runtime()?;
    let (mut after, mut problems) = (Vec::new(), Vec::new());
    for (before, pods) in &values {
        let mut value = before.clone();
        for found in pods {
            let namespace = found.namespace.as_deref().unwrap_or(default);
            let Some(pod) = value.pointer_mut(&found.pointer) else { continue };
            match runtime.block_on(injected(&guards, clients.reader.as_ref(), pod, (found, namespace))) {
                Ok(new) => *pod = new,
                Err(problem) => problems.push(problem),
            }
        }
        after.push(Some(value).filter(|value| value != before));
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    if args.diff {
        output::print(&differences(&name, &values, &after)?)?;
    } else {
        let rewritten = documents.rewritten(&after)?;
        if rewritten.lost_comments {
            output::note("note: comments of changed objects are not kept");
        }
        output::data(&rewritten.text)?;
    }
    Ok(Exit::Done)
}

/// Parses each document and finds its pods.
fn values(name: &str, documents: &Documents) -> Result<Vec<(Value, Vec<FoundPod>)>, Vec<Problem>> {
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for (index, document) in documents.iter().enumerate() {
        let value = serde_json::from_str(document).map_err(|error| error.to_string());
        match value.and_then(|value| Ok((find(&value)?, value))) {
            Ok((found, value)) => all.push((value, found)),
            Err(why) => {
                problems.push(
                    Problem::new(format!("{name}#{} could not be read as Kubernetes objects", index + 1))
                        .why(why),
                );
            }
        }
    }
    if problems.is_empty() { Ok(all) } else { Err(problems) }
}

/// Returns a reader of namespaces: labels from a flag, or a snapshot.
fn clients<'f>(
    args: &Args,
    default: &str,
    found: impl Iterator<Item = &'f FoundPod>,
) -> Result<Clients, Stop> {
    let Some(text) = &args.namespace_labels else { return offline(args.snapshot.as_ref()) };
    let labels = labels("--namespace-labels", text)?;
    let names: BTreeSet<&str> = found.map(|pod| pod.namespace.as_deref().unwrap_or(default)).collect();
    if names.len() > 1 {
        let names: Vec<_> = names.into_iter().collect();
        let problem = Problem::new("--namespace-labels sets the labels of one namespace");
        let problem = problem.why(format!("the objects are in several: {}", names.join(", ")));
        return Err(problem.next("use a snapshot with all of them: --snapshot DIR").into());
    }
    Ok(Clients::reader_only(Arc::new(StaticLabels::new(labels))))
}

/// Returns the guards that mutate new pods.
fn guards_of_pods(file: &File, clients: &Clients) -> Result<Vec<AskedGuard>, Problem> {
    let mut guards = crate::commands::review::guards(file, clients);
    let review = review(&json!({}), "", "default");
    let asked = decode(review.as_bytes(), &admission::Fields::none())
        .map_err(|error| Problem::new("could not create the review of a pod").why(error.to_string()))?;
    for guard in &mut guards {
        guard.entries.retain(|entry| {
            entry.webhook_type == WebhookType::Mutating && rules::fits(entry, &asked.request)
        });
    }
    guards.retain(|guard| !guard.entries.is_empty());
    if guards.is_empty() {
        let problem = Problem::new(format!("{} enables no guard that changes pods", file.path.display()));
        return Err(problem.next("add lxcfs: {} under guards"));
    }
    Ok(guards)
}

/// Returns the pod after all guards.
async fn injected(
    guards: &[AskedGuard],
    reader: &dyn Reader,
    pod: &Value,
    (found, namespace): (&FoundPod, &str),
) -> Result<Value, Problem> {
    let mut after = pod.clone();
    if let Some(fields) =
        after.as_object_mut().filter(|fields| fields.get("metadata").is_none_or(Value::is_null))
    {
        fields.insert("metadata".to_owned(), json!({}));
    }
    let before = after.clone();
    for asked in guards {
        let unreadable = |why: String| Problem::new(format!("{} could not be read", found.owner)).why(why);
        // The patch is applied to the original, so that a template does not gain owners.
        let mut created = after.clone();
        let metadata = created.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata.filter(|_| found.is_for_daemon_set) {
            // A controller sets the owner, as far as guards read it.
            let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "", "uid": "", "controller": true});
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        let body = review(&created, &found.name, namespace);
        let doubt = match selected(asked, reader, &body).await.map_err(unreadable)? {
            Selected::Yes => None,
            Selected::Unknown(cause) => Some(cause),
            Selected::No => {
                let guard = asked.guard.name();
                output::note(format!(
                    "note: {}: {guard} is not called: namespaceSelector does not select namespace {namespace}",
                    output::foreign(&found.owner)
                ));
                continue;
            }
        };
        let ruled = rule(asked.guard.as_ref(), body.as_bytes(), doubt).await;
        let (_, settled) = ruled.map_err(unreadable)?;
        if let Some(cause) = settled.causes.first() {
            let problem = Problem::new(format!("{}: the result is unknown", found.owner));
            // A pod needs no other fact. The guard's text is for the creator of a pod, so it is replaced.
            let why = if cause.code == cause::NO_CLUSTER {
                format!("the labels of namespace {namespace} are unknown")
            } else {
                cause.text.clone()
            };
            let next = format!(
                "pass the labels of namespace {namespace}: --namespace-labels key=value,… (\"\" for none), or --snapshot DIR"
            );
            return Err(problem.why(why).next(next));
        }
        for warning in settled.warnings.iter() {
            let warning = output::foreign(&format!("{}: {warning}", found.owner));
            output::note(format!("{} {warning}", Style::stderr().yellow("warning:")));
        }
        match settled.answer {
            Answer::Allow => {}
            Answer::Deny(denial) => {
                return Err(Problem::new(format!("{} is denied", found.owner)).why(denial.message));
            }
            Answer::Mutate(patch) => {
                let unfit = |why: &dyn std::error::Error| {
                    Problem::new(format!("{}: the patch does not apply", found.owner)).why(why.to_string())
                };
                let patch: json_patch::Patch =
                    serde_json::from_slice(patch.as_json()).map_err(|error| unfit(&error))?;
                json_patch::patch(&mut after, &patch).map_err(|error| unfit(&error))?;
            }
        }
    }
    Ok(if after == before { pod.clone() } else { after })
}

/// Whether the API server calls a guard with matching rules for a pod of this namespace.
enum Selected {
    Yes,
    No,
    Unknown(Cause),
}

async fn selected(asked: &AskedGuard, reader: &dyn Reader, body: &str) -> Result<Selected, String> {
    let review =
        decode(body.as_bytes(), &admission::Fields::none()).map_err(|malformed| malformed.to_string())?;
    let deadline = Instant::now() + TIMEOUT;
    Ok(match selection(&asked.entries, &review.request, reader, deadline).await {
        Selection::Asked(_) => Selected::Yes,
        Selection::Unknown(_, cause) => Selected::Unknown(cause),
        Selection::NoRule | Selection::NotSelected => Selected::No,
    })
}

/// Returns the review that an API server would send for this pod.
fn review(pod: &Value, name: &str, namespace: &str) -> String {
    let request = json!({
        "uid": "durward-inject",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": name,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": USER},
        "object": pod,
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

/// Returns the changes as a diff of YAML, in which an addition has its own line.
fn differences(
    name: &str,
    before: &[(Value, Vec<FoundPod>)],
    after: &[Option<Value>],
) -> Result<String, Problem> {
    let mut out = String::new();
    for (index, ((old, _), new)) in before.iter().zip(after).enumerate() {
        let Some(new) = new else { continue };
        let (old, new) = (yaml::stream(&[old])?, yaml::stream(&[new])?);
        let name = format!("{name}#{}", index + 1);
        out.push_str(&unified_diff(&name, &old, &new));
    }
    Ok(out)
}

/// Returns the changed lines with three lines around them. `similar::TextDiff` would do the same, but it makes the program half a
/// megabyte larger, because it contains all algorithms of its crate.
fn unified_diff(name: &str, old: &str, new: &str) -> String {
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    let (old, new) = (lines(old), lines(new));
    let mut diff = Compact::new(Replace::new(Capture::new()), &old, &new);
    let Ok(()) = myers::diff(&mut diff, &old, 0..old.len(), &new, 0..new.len());
    let hunks = diff.into_inner().into_inner().into_grouped_ops(3);
    let mut out = String::new();
    for hunk in hunks.iter().filter(|hunk| !hunk.is_empty()) {
        if out.is_empty() {
            out = format!("--- {name}\n+++ {name} (after the guards)\n");
        }
        // Writing to a `String` can't fail.
        let _ = writeln!(out, "{}", UnifiedHunkHeader::new(hunk));
        for change in hunk.iter().flat_map(|operation| operation.iter_changes(&old, &new)) {
            let _ = write!(out, "{}{}", change.tag(), change.value());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::unified_diff;

    #[test]
    fn a_diff_shows_three_lines_around_each_change() {
        let lines: Vec<String> = (1..=20).map(|number| format!("{number}\n")).collect();
        let mut changed = lines.clone();
        changed[15] = "sixteen\n".to_owned();
        changed.remove(1);
        let diff = unified_diff("a", &lines.concat(), &changed.concat());
        let expected = "--- a\n+++ a (after the guards)\n\
             @@ -1,5 +1,4 @@\n 1\n-2\n 3\n 4\n 5\n\
             @@ -13,7 +12,7 @@\n 13\n 14\n 15\n-16\n+sixteen\n 17\n 18\n 19\n";
        assert_eq!(diff, expected);
        assert_eq!(unified_diff("a", "1\n", "1\n"), "");
    }
}
