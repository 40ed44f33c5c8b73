//! The native policies of the guard: what no user needs to change, and what takes an etcd cluster out of the guard or deletes it
//! without a request for a pod.
//!
//! Only leaving is denied: a pod or a namespace enters a guard freely. A pod keeps the labels by which Durward selects it, its owner,
//! its images and its deadline. A namespace keeps the labels by which it is selected. With `protectStatefulSets`, a `StatefulSet` with
//! replicas is not deleted except by orphaning, has no fewer replicas, and its PVCs are not deleted. Neither gets an owner with which
//! the garbage collector would delete it.
//!
//! A Scale has no labels, but its `status.selector` has those of the set. PVCs have the set's `matchLabels` only.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{Validation, Variable};

use super::NAME;
use super::config::{Config, EtcdClusterConfig, NamespaceMatch};
use crate::cel;
use crate::common::{self, NAMESPACE_NAME};
use crate::install_namespace;
use crate::native_policy::{NativePolicy, NativeRules, OBJECT, PolicySettings, rule, validation, variable};
use ::config::{Expression, Selector};

/// Returns the policies.
pub(super) fn policies(config: &Config) -> Vec<NativePolicy> {
    if config.clusters.is_empty() {
        return Vec::new();
    }
    let settings = settings(config);
    let namespaces = (!namespace_keys(config).is_empty()).then(|| etcd_namespaces(config));
    let sets = config.protect_stateful_sets.then(|| etcd_sets(config));
    let of_etcd = std::iter::once(etcd_pods(config)).chain(namespaces).chain(sets);
    of_etcd.map(|rules| settings.policy(rules)).chain(install_namespace::policy(settings)).collect()
}

pub(super) fn settings(config: &Config) -> PolicySettings<'_> {
    PolicySettings { guard: NAME, common: &config.common_config, overrides: config.overrides, has_home: true }
}

/// Returns the keys of the labels by which namespaces are selected. The API server keeps the label with the name.
fn namespace_keys(config: &Config) -> BTreeSet<String> {
    let labeled = config.clusters.iter().filter_map(|entry| match &entry.namespaces {
        NamespaceMatch::Labeled(selector) => Some(selector),
        NamespaceMatch::Named(_) => None,
    });
    let selectors = labeled.chain([&config.common_config.namespace_selector]);
    selectors.flat_map(common::label_keys).filter(|key| key != NAMESPACE_NAME).collect()
}

/// Returns a selector for the namespaces of all entries. One selector can contain several names, but not several selectors. With labels,
/// the expressions decide.
fn namespaces(config: &Config) -> Selector {
    let names = config.clusters.iter().map(|entry| match &entry.namespaces {
        NamespaceMatch::Named(name) => Some(name.clone()),
        NamespaceMatch::Labeled(_) => None,
    });
    let names: Option<BTreeSet<String>> = names.collect();
    let named = names.map(|names| Expression::In(NAMESPACE_NAME.to_owned(), names));
    named.into_iter().chain(config.common_config.namespace_selector.clone()).collect()
}

/// Returns a condition that is true if the namespace of a request belongs to an entry.
fn in_namespace(entry: &EtcdClusterConfig) -> String {
    match &entry.namespaces {
        NamespaceMatch::Named(name) => format!("request.namespace == {}", cel::string(name)),
        NamespaceMatch::Labeled(selector) => cel::matches(selector, "namespaceObject.metadata.?labels"),
    }
}

/// Returns a condition that is true if one entry selects an object. `selects` is the condition for its labels.
fn is_guarded(config: &Config, selects: impl Fn(&Selector) -> String) -> String {
    cel::any(config.clusters.iter().map(|entry| cel::all([in_namespace(entry), selects(&entry.selector)])))
}

/// Returns the keys of the labels that select pods, in words.
fn keys_in_words(config: &Config) -> String {
    let keys: BTreeSet<String> =
        config.clusters.iter().flat_map(|entry| common::label_keys(&entry.selector)).collect();
    let keys: Vec<String> = keys.into_iter().collect();
    if keys.len() == 1 { format!("label {}", keys.concat()) } else { format!("labels {}", keys.join(", ")) }
}

/// Whether two owner references name one object. Operators update `apiVersion` and `blockOwnerDeletion`.
const SAME_OWNER: &str = "x.uid == o.uid && x.kind == o.kind && x.name == o.name";

fn etcd_pods(config: &Config) -> NativeRules {
    let settings = settings(config);
    let way_out = settings.way_out("pod", "oldObject");
    let message = |why: &str| format!("variables.pod + {} + {way_out}", cel::string(why));
    let unless_guarded = |expression: &str| format!("!variables.guarded || {expression}");
    let stays = cel::all(config.clusters.iter().map(|entry| {
        let of = |object: &str| cel::matches(&entry.selector, &format!("{object}.metadata.?labels"));
        let leaves = cel::all([in_namespace(entry), of("oldObject"), format!("!({})", of("object"))]);
        format!("!({leaves})")
    }));
    let owners = |object: &str| format!("{object}.metadata.?ownerReferences.orValue([])");
    let (old, new) = (owners("oldObject"), owners("object"));
    let same = |list: &str| {
        format!(
            "{list}.exists(x, {SAME_OWNER} && x.?controller.orValue(false) == o.?controller.orValue(false))"
        )
    };
    let same_owners = format!(
        "{new}.all(o, {}) && {old}.filter(o, o.?controller.orValue(false)).all(o, {})",
        same("variables.owners"),
        same(&new)
    );
    let images = |list: &str| {
        let of = |object: &str| format!("{object}.spec.?{list}.orValue([]).map(c, c.?image.orValue(\"\"))");
        format!("{} == {}", of("object"), of("oldObject"))
    };
    let deadline = |object: &str| format!("{object}.spec.?activeDeadlineSeconds.orValue(0)");
    let labels = keys_in_words(config);
    let (update, deletion) = (
        ". Next: change the template of its owner, or delete the pod: Durward then checks quorum",
        ". Next: delete the pod: Durward then checks quorum",
    );
    let validations = vec![
        validation(
            stays,
            "a label that selects a pod of an etcd cluster can't be changed",
            message(&format!(
                ": {labels} can't be changed, because it selects the pods of an etcd cluster{deletion}"
            )),
        ),
        validation(
            unless_guarded(&format!("({same_owners})")),
            "an owner reference of a pod of an etcd cluster can't be changed",
            message(&format!(": the owner of a pod of an etcd cluster can't be changed{deletion}")),
        ),
        validation(
            unless_guarded(&format!("({} && {})", images("containers"), images("initContainers"))),
            "the image of a pod of an etcd cluster can't be changed in place",
            message(&format!(": an image of a pod of an etcd cluster can't be changed in place{update}")),
        ),
        validation(
            unless_guarded(&format!("{} == {}", deadline("object"), deadline("oldObject"))),
            "activeDeadlineSeconds of a pod of an etcd cluster can't be changed",
            message(&format!(
                ": activeDeadlineSeconds of a pod of an etcd cluster can't be changed{deletion}"
            )),
        ),
    ];
    NativeRules {
        purpose: "etcd-pods",
        rules: vec![rule(&["UPDATE"], "", &["pods", "pods/status"], "Namespaced")],
        namespaces: namespaces(config),
        subject: "oldObject",
        variables: vec![
            variable("guarded", is_guarded(config, |pods| cel::matches(pods, "oldObject.metadata.?labels"))),
            variable("owners", old),
            variable(
                "pod",
                "\"pod \" + oldObject.metadata.namespace + \"/\" + oldObject.metadata.name".to_owned(),
            ),
        ],
        validations,
    }
}

fn etcd_namespaces(config: &Config) -> NativeRules {
    let selected = |entry: &EtcdClusterConfig, object: &str| {
        let labels = format!("{object}.metadata.?labels");
        let by_entry = match &entry.namespaces {
            NamespaceMatch::Named(name) => format!("oldObject.metadata.name == {}", cel::string(name)),
            NamespaceMatch::Labeled(selector) => cel::matches(selector, &labels),
        };
        cel::all([by_entry, cel::matches(&config.common_config.namespace_selector, &labels)])
    };
    let stays = config.clusters.iter().map(|entry| {
        let leaves = cel::all([selected(entry, "oldObject"), format!("!({})", selected(entry, "object"))]);
        format!("!({leaves})")
    });
    let keys: Vec<String> = namespace_keys(config).into_iter().collect();
    let why = format!(
        ": label {} can't be changed, because it selects namespaces of etcd clusters",
        keys.join(", ")
    );
    let message = format!(
        "\"namespace \" + oldObject.metadata.name + {} + {}",
        cel::string(&why),
        settings(config).way_out("namespace", "oldObject")
    );
    let text = "a label that selects namespaces of etcd clusters can't be changed";
    NativeRules {
        purpose: "etcd-namespaces",
        rules: vec![rule(
            &["UPDATE"],
            "",
            &["namespaces", "namespaces/status", "namespaces/finalize"],
            "Cluster",
        )],
        namespaces: Selector::default(),
        subject: "oldObject",
        variables: Vec::new(),
        validations: vec![validation(cel::all(stays), text, message)],
    }
}

/// Returns a condition that is true if a selector can match the labels in `status.selector` of a Scale, which is a text.
fn matches_scale(selector: &Selector) -> String {
    let has_value =
        |key: &str, value: &str| format!("{} in variables.scale", cel::string(&format!("{key}={value}")));
    cel::all_expressions(
        selector,
        |key, values| cel::any(values.iter().map(|value| has_value(key, value))),
        |key| format!("variables.scale.exists(l, l.startsWith({}))", cel::string(&format!("{key}="))),
    )
}

/// The conditions under which a request is about a `StatefulSet` or a Scale of one.
const IS_SET: &str = "request.resource.resource == \"statefulsets\"";
const IS_SCALE: &str = "request.?subResource.orValue(\"\") == \"scale\"";

fn etcd_sets(config: &Config) -> NativeRules {
    let settings = settings(config);
    let way_out = format!(
        "({IS_SCALE} ? {} : {IS_SET} ? {} : {})",
        // A Scale has no annotations.
        cel::string(
            ". Override: annotate the StatefulSet, patch its spec.replicas, then remove the annotation"
        ),
        settings.way_out("statefulset", OBJECT),
        settings.way_out("pvc", OBJECT)
    );
    let message = |why: &str| format!("variables.text + {} + {way_out}", cel::string(why));
    let labels = format!("{OBJECT}.metadata.?labels");
    let of_template = format!("{OBJECT}.spec.template.?metadata.?labels");
    let guarded = format!(
        "{IS_SCALE} ? ({}) : {IS_SET} ? ({}) : ({})",
        is_guarded(config, matches_scale),
        is_guarded(config, |pods| cel::matches(pods, &of_template)),
        is_guarded(config, |pods| cel::matches(pods, &labels)),
    );
    let replicas = |object: &str| format!("{object}.?spec.?replicas.orValue({IS_SCALE} ? 0 : 1)");
    let orphans = "request.?options.?propagationPolicy.orValue(\"\") == \"Orphan\" || \
                   request.?options.?orphanDependents.orValue(false)";
    let is_deletion = "request.operation == \"DELETE\"";
    let kept_set =
        format!("!({is_deletion} && {IS_SET}) || variables.orphans || {} == 0", replicas("oldObject"));
    let not_fewer = format!(
        "!(request.operation == \"UPDATE\" && {IS_SET}) || {} >= {}",
        replicas("object"),
        replicas("oldObject")
    );
    let kinds: BTreeSet<&str> = config.owner_kinds().collect();
    let known_owner = format!(
        "o.kind in {} || (oldObject != null && oldObject.metadata.?ownerReferences.orValue([]).exists(x, {SAME_OWNER}))",
        cel::strings(kinds)
    );
    let no_owner = format!(
        "{is_deletion} || {IS_SCALE} || object.metadata.?ownerReferences.orValue([]).all(o, {known_owner})"
    );
    let unless_guarded = |expression: String| format!("!variables.guarded || ({expression})");
    let validations: Vec<Validation> = vec![
        validation(
            unless_guarded(kept_set),
            "a StatefulSet of an etcd cluster can't be deleted while it has replicas",
            message(
                ": a StatefulSet of an etcd cluster can't be deleted while it has replicas. Next: keep its pods: kubectl delete --cascade=orphan",
            ),
        ),
        validation(
            unless_guarded(format!("!({is_deletion}) || {IS_SET}")),
            "a PVC of an etcd cluster can't be deleted",
            message(": a PVC of an etcd cluster can't be deleted, because it has the data of a member"),
        ),
        validation(
            unless_guarded(not_fewer),
            "a StatefulSet of an etcd cluster can't be scaled down",
            message(
                ": a StatefulSet of an etcd cluster can't be scaled down. Next: remove the members first: etcdctl member remove",
            ),
        ),
        validation(
            unless_guarded(no_owner),
            "a StatefulSet or PVC of an etcd cluster can't get an owner",
            message(
                ": an owner reference can't be added, because the garbage collector would delete it with its owner. Next: name the kind of the owner in guards.etcd.trustedOwners",
            ),
        ),
    ];
    let all = &["CREATE", "UPDATE", "DELETE"];
    let text = format!(
        "({IS_SET} ? \"StatefulSet \" : \"PVC \") + request.?namespace.orValue(\"\") + \"/\" + {OBJECT}.metadata.?name.orValue(\"\")"
    );
    let variables: Vec<Variable> = vec![
        // Only a Scale has a selector that is a text.
        variable(
            "scale",
            format!("{IS_SCALE} ? oldObject.?status.?selector.orValue(\"\").split(\",\") : []"),
        ),
        variable("guarded", guarded),
        variable("orphans", orphans.to_owned()),
        variable("text", text),
    ];
    NativeRules {
        purpose: "etcd-sets",
        rules: vec![
            rule(all, "apps", &["statefulsets"], "Namespaced"),
            rule(&["UPDATE"], "apps", &["statefulsets/scale", "statefulsets/status"], "Namespaced"),
            rule(all, "", &["persistentvolumeclaims"], "Namespaced"),
            rule(&["UPDATE"], "", &["persistentvolumeclaims/status"], "Namespaced"),
        ],
        namespaces: namespaces(config),
        subject: OBJECT,
        variables,
        validations,
    }
}

#[cfg(test)]
mod tests;
