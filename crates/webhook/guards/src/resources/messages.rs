//! Texts for users. A violation has the words that `durward check` prints for it.

use admission::{Cause, Code, Denial, DenialCause, Request, Ruling, Verdict};
use cluster::cause;
use manifests::words;
use policy::facts::{Limit, Lookup};
use policy::set::{Decisions, Missing, PolicySet};
use policy::value::ReadError;
use policy::vap::decision::Objection;

use crate::message::{MAX_SUMMARY, Message};

/// The prefix of the API server's key for failed validations in the audit log. The API server adds the name of the webhook.
const AUDIT_PREFIX: &str = "validation.policy.admission.k8s.io/";

/// Length limit of the name of an audit annotation.
const MAX_AUDIT_KEY: usize = 63;

/// Returns the ruling on the decisions of policies. `unread` is the reason why the Namespace could not be read.
pub(super) fn ruling(
    set: &PolicySet,
    request: &Request<'_>,
    decisions: &Decisions,
    unread: Option<&Cause>,
) -> Ruling {
    let causes: Vec<Cause> = decisions.missing.iter().map(|missing| unknown(missing, unread)).collect();
    let mut ruling = Ruling::new(match denial(set, request, &decisions.denials) {
        Some(denial) => Verdict::Deny(denial),
        None if causes.is_empty() => Verdict::Allow,
        None => Verdict::Unknown(causes),
    });
    if let Verdict::Unknown(causes) = &ruling.verdict {
        ruling.refusal = Some(refusal(request, &decisions.missing, causes));
    }
    if !decisions.denials.is_empty() {
        let mut policies: Vec<&str> = decisions.denials.iter().map(|denial| denial.policy.as_str()).collect();
        policies.dedup();
        ruling.audit.set("denied", policies.join(", "));
    }
    for warning in &decisions.warnings {
        let binding = warning.binding.as_deref().unwrap_or_default();
        ruling.warnings.push(words::warning(&warning.policy, binding, &warning.message));
    }
    for (key, value) in &decisions.audit_annotations {
        ruling.audit.set(&audit_key(key), value);
    }
    ruling
}

/// Returns the denial, with all violations. Code and reason are those of the first one, which the API server would return. kubectl
/// prints the causes and not the message if the code is 422, so both have the same words.
fn denial(set: &PolicySet, request: &Request<'_>, denials: &[Objection]) -> Option<Denial> {
    let first = denials.first()?;
    let lines: Vec<String> = denials.iter().map(line).collect();
    let summary = summary(request, denials, first, &lines);
    let mut message = if denials.len() == 1 && summary.chars().count() <= MAX_SUMMARY {
        Message::new(&summary)
    } else {
        lines.iter().fold(Message::new(&summary), |message, line| message.detail(line))
    };
    if denials.iter().any(|denial| denial.error) {
        message = message.admin("correct the policy, or set guards.resources.mode to audit meanwhile");
    }
    let field = |denial: &Objection| {
        let (_, field) = set.validation(&denial.policy, denial.validation?)?;
        field.map(ToString::to_string)
    };
    let causes = denials.iter().zip(&lines).map(|(denial, line)| DenialCause {
        reason: denial.reason.clone(),
        message: line.clone(),
        field: field(denial).unwrap_or_else(|| "object".to_owned()),
    });
    Some(Denial { code: code(first), message: message.to_string(), causes: causes.collect() })
}

/// Returns the denial of an object that can't be read.
pub(super) fn unreadable(request: &Request<'_>, error: &ReadError) -> Denial {
    let message = Message::new(&format!("policies can't read {}", object_name(request)));
    let message = message.detail(&error.to_string()).next("remove levels from the object");
    Denial::forbidden(message.to_string())
}

fn line(denial: &Objection) -> String {
    let binding = denial.binding.as_deref().unwrap_or_default();
    words::denial(&denial.policy, binding, denial.error, &denial.message)
}

/// Returns the first line of a denial. If it does not contain the only violation as a whole, the violations are listed below it.
fn summary(request: &Request<'_>, denials: &[Objection], first: &Objection, lines: &[String]) -> String {
    let object = object_name(request);
    if let [line] = lines {
        return format!("{object}: {line}");
    }
    let others = if denials.iter().all(|denial| denial.policy == first.policy) { "" } else { " and others" };
    let (denied, policy) = (words::denied(first.error), &first.policy);
    format!(
        "{object}: {denied} by policy \"{policy}\"{others} ({} violations): {}",
        denials.len(),
        first.message
    )
}

/// Returns kind, namespace and name of the object, as `durward check` names it.
fn object_name(request: &Request<'_>) -> String {
    let kind = &request.kind.kind;
    let name = if request.name.is_empty() { "(new)" } else { &request.name };
    let is_cluster_wide = request.namespace.is_empty() || request.is_for("", "namespaces");
    if is_cluster_wide { format!("{kind} {name}") } else { format!("{kind} {}/{name}", request.namespace) }
}

fn code(denial: &Objection) -> Code {
    match denial.code() {
        403 => Code::Forbidden,
        404 => Code::NotFound,
        413 => Code::RequestEntityTooLarge,
        _ => Code::Invalid,
    }
}

/// Returns the denial of an object that could not be checked. The first cause decides the next step.
fn refusal(request: &Request<'_>, missing: &[Missing], causes: &[Cause]) -> Denial {
    let object = object_name(request);
    let mut message = match causes {
        [cause] => Message::new(&format!("{object} could not be checked: {}", cause.text)),
        causes => {
            let summary =
                Message::new(&format!("{object} could not be checked by {} policies", causes.len()));
            causes.iter().fold(summary, |message, cause| message.detail(&cause.text))
        }
    };
    message = match missing.first().map(|missing| &missing.lookup) {
        Some(Lookup::Namespace(_)) => message.next("retry"),
        Some(Lookup::Conversion { .. }) => message.admin("name the version in apiVersions of the policy"),
        _ => message.admin("correct the policy, or set guards.resources.mode to audit meanwhile"),
    };
    Denial {
        causes: causes.iter().map(Cause::to_denial_cause).collect(),
        ..Denial::forbidden(message.to_string())
    }
}

/// Returns why a policy could not be decided.
fn unknown(missing: &Missing, unread: Option<&Cause>) -> Cause {
    let policy = if missing.policy.is_empty() {
        "a policy".to_owned()
    } else {
        format!("policy \"{}\"", missing.policy)
    };
    match &missing.lookup {
        Lookup::Namespace(name) => match unread {
            Some(unread) => Cause::new(unread.code, format!("{policy}: {}", unread.text)),
            None => Cause::new(cause::REFUSED, format!("{policy}: namespace {name:?} does not exist")),
        },
        Lookup::Conversion { rule, .. } => Cause::new(
            cause::OTHER_VERSION,
            format!("{policy} judges {rule}, and the API server sent another version"),
        ),
        Lookup::Limit(limit) => Cause::new(
            cause::POLICY_LIMIT,
            match limit {
                Limit::Memory => format!("{policy} needs too much memory"),
                Limit::Time => format!("{policy} needs too much time"),
                Limit::Regex => format!("{policy} has a regular expression that is too large"),
                Limit::Digits => format!("{policy} has a quantity of more than 38 digits"),
            },
        ),
        // The set was checked when it was loaded, so that no policy needs these.
        Lookup::ParamKind(_) | Lookup::Params(_) | Lookup::Check(_) | Lookup::User | Lookup::OldObject => {
            Cause::new(cause::POLICY_LIMIT, format!("{policy} needs data that Durward does not read"))
        }
    }
}

/// Returns the key of an audit annotation. The API server's key of a policy has a slash, which a webhook can't use.
fn audit_key(key: &str) -> String {
    let key = key.strip_prefix(AUDIT_PREFIX).unwrap_or(key).replace('/', ".");
    if key.len() <= MAX_AUDIT_KEY {
        return key;
    }
    // Long keys can differ in their ends only.
    let hash =
        key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let start = key.get(..MAX_AUDIT_KEY - 9).unwrap_or_default();
    format!("{start}-{hash:08x}")
}
