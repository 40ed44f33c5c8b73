//! Random objects and in-use rules over a fleet: the guard against a plain computation, which shares no code with it.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const GRAPHS: u64 = 300;
const SPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];

/// A small generator of random numbers (`xorshift`).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// A kind that uses others. Each object names what it uses in a field of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Pod,
    Claim,
    Machine,
}

impl By {
    fn argument(self) -> &'static str {
        match self {
            Self::Pod => "pods.v1",
            Self::Claim => "persistentvolumeclaims.v1",
            Self::Machine => "machines.v1.example.org",
        }
    }

    fn yaml(self) -> &'static str {
        match self {
            Self::Pod => "resource: pods, version: v1",
            Self::Claim => "resource: persistentvolumeclaims, version: v1",
            Self::Machine => "group: example.org, resource: machines, version: v1",
        }
    }

    fn is_built_in(self) -> bool {
        self != Self::Machine
    }
}

/// How a rule finds that an object is used.
#[derive(Clone, Copy)]
enum How {
    Where,
    Label,
    All,
}

struct Use {
    by: By,
    how: How,
    any_namespace: bool,
    local: bool,
}

struct TestRule {
    selected: Option<&'static str>,
    only_in: Option<&'static str>,
    uses: Vec<Use>,
}

#[derive(Clone)]
struct ByObject {
    cluster: String,
    by: By,
    namespace: &'static str,
    name: String,
    uses: &'static str,
    ended: bool,
    deleting: bool,
}

struct Graph {
    members: Vec<String>,
    unreachable: BTreeSet<String>,
    rules: Vec<TestRule>,
    objects: Vec<ByObject>,
    /// Namespace, name and label of the deleted object.
    deleted: (&'static str, &'static str, &'static str),
}

impl Graph {
    fn random(seed: u64) -> Self {
        let random = &mut Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let members: Vec<String> = (0..random.below(5)).map(|at| format!("m{at}")).collect();
        let unreachable = members.iter().filter(|_| random.chance(8)).cloned().collect();
        let rules = (0..=random.below(2)).map(|_| TestRule {
            selected: random.chance(3).then(|| random.of(&["front", "back"])),
            only_in: random.chance(4).then(|| random.of(&SPACES)),
            uses: (0..=random.below(2))
                .map(|_| Use {
                    by: random.of(&[By::Pod, By::Claim, By::Machine]),
                    how: random.of(&[How::Where, How::Where, How::Label, How::All]),
                    any_namespace: random.chance(3),
                    local: random.chance(5),
                })
                .collect(),
        });
        let rules = rules.collect();
        let mut clusters = members.clone();
        clusters.push(LOCAL.to_owned());
        let mut objects = Vec::new();
        for cluster in &clusters {
            for at in 0..random.below(9) {
                objects.push(ByObject {
                    cluster: cluster.clone(),
                    by: random.of(&[By::Pod, By::Claim, By::Machine]),
                    namespace: random.of(&SPACES),
                    name: format!("o{at}"),
                    uses: random.of(&NAMES),
                    ended: random.chance(6),
                    deleting: random.chance(6),
                });
            }
        }
        let deleted = (random.of(&SPACES), random.of(&NAMES), random.of(&["front", "back"]));
        Self { members, unreachable, rules, objects, deleted }
    }

    fn yaml(&self) -> String {
        let rules: Vec<String> = self
            .rules
            .iter()
            .enumerate()
            .map(|(at, rule)| {
                let selector = rule.selected.map(|app| format!(", selector: app={app}")).unwrap_or_default();
                let spaces = rule.only_in.map(|space| format!(", namespaces: [{space}]")).unwrap_or_default();
                let uses: Vec<String> = rule
                    .uses
                    .iter()
                    .map(|used| {
                        let how = match used.how {
                            How::Where => ", where: by.spec.uses == object.metadata.name",
                            How::Label => ", labelSelector: \"'uses=' + object.metadata.name\"",
                            How::All => "",
                        };
                        let namespace = if used.any_namespace { "any" } else { "same" };
                        let clusters = if used.local { "local" } else { "fleet" };
                        format!("{{{}, namespace: {namespace}, clusters: {clusters}{how}}}", used.by.yaml())
                    })
                    .collect();
                format!(
                    "{{name: r{at}, protects: {{resource: configmaps{selector}{spaces}}}, usedBy: [{}]}}",
                    uses.join(", ")
                )
            })
            .collect();
        format!("fleet: karmada\ninUse: {{rules: [{}]}}\n", rules.join(", "))
    }

    fn world(&self) -> FakeWorld {
        fleet(|content| {
            content.page_size = 2;
            for member in &self.members {
                content.add_member_cluster(member, &[]);
            }
            for cluster in &self.unreachable {
                let cause = Cause::new(cause::UNREACHABLE, format!("{cluster}: no connection"));
                content.fault(&format!("{cluster}: "), RequestFault::Fails(cause));
            }
            for object in &self.objects {
                let deleting = object.deleting.then_some("2026-11-21T09:00:00Z");
                let phase = if object.ended { "Failed" } else { "Running" };
                content.insert_in(&object.cluster, object.by.argument(), json!({
                    "metadata": {"namespace": object.namespace, "name": format!("{}-{}", object.name, object.namespace),
                        "labels": {"uses": object.uses}, "deletionTimestamp": deleting},
                    "spec": {"uses": object.uses}, "status": {"phase": phase},
                }));
            }
            let (namespace, name, app) = self.deleted;
            content.insert("configmaps.v1", json!({"metadata": {"namespace": namespace, "name": name, "uid": "7", "labels": {"app": app}}}));
        })
    }

    /// The names of the objects that use the deleted one, by cluster: the plain computation.
    fn expected(&self) -> BTreeMap<String, BTreeSet<String>> {
        let (namespace, name, app) = self.deleted;
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for rule in &self.rules {
            if rule.selected.is_some_and(|wanted| wanted != app)
                || rule.only_in.is_some_and(|space| space != namespace)
            {
                continue;
            }
            for (used, object) in
                rule.uses.iter().flat_map(|used| self.objects.iter().map(move |object| (used, object)))
            {
                let is_there = !used.local || object.cluster == LOCAL;
                let is_near = used.any_namespace || object.namespace == namespace;
                let is_alive =
                    !(object.by == By::Pod && object.ended || object.by.is_built_in() && object.deleting);
                let names_it = matches!(used.how, How::All) || object.uses == name;
                if object.by == used.by
                    && is_there
                    && is_near
                    && is_alive
                    && names_it
                    && !self.unreachable.contains(&object.cluster)
                {
                    let full = format!("{}-{}", object.name, object.namespace);
                    let full = if used.any_namespace { format!("{}/{full}", object.namespace) } else { full };
                    found.entry(object.cluster.clone()).or_default().insert(full);
                }
            }
        }
        found
    }

    /// Whether a rule protects the deleted object and reads a member that does not answer.
    fn is_unknown(&self) -> bool {
        let (namespace, _, app) = self.deleted;
        let protects = |rule: &&TestRule| {
            rule.selected.is_none_or(|wanted| wanted == app)
                && rule.only_in.is_none_or(|space| space == namespace)
        };
        let reads = self.rules.iter().filter(protects).flat_map(|rule| &rule.uses).any(|used| !used.local);
        reads && !self.unreachable.is_empty()
    }
}

/// Returns the first difference between the guard and the plain computation.
async fn difference(graph: &Graph, world: &FakeWorld) -> Option<String> {
    let (namespace, name, app) = graph.deleted;
    let body = review("configmaps", name, |request| {
        request["namespace"] = namespace.into();
        request["oldObject"]["metadata"] =
            json!({"name": name, "namespace": namespace, "uid": "7", "labels": {"app": app}});
    });
    let ruling = answered(&graph.yaml(), world, &body).await;
    let expected = graph.expected();
    let verdict = match &ruling.verdict {
        Verdict::Allow => "allow",
        Verdict::Deny(_) => "deny",
        _ => "unknown",
    };
    let wanted = match (expected.is_empty(), graph.is_unknown()) {
        (false, _) => "deny",
        (true, true) => "unknown",
        (true, false) => "allow",
    };
    if verdict != wanted {
        return Some(format!("{verdict}, and not {wanted}: {ruling:?}"));
    }
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    if let Verdict::Deny(denial) = &ruling.verdict {
        for cause in denial.causes.iter().filter(|cause| cause.reason == "InUse") {
            let names = found.entry(cause.field.clone()).or_default();
            for list in cause.message.split('(').skip(1) {
                let list = list.split(')').next().unwrap_or_default();
                names.extend(list.split(", ").filter(|name| *name != "…").map(str::to_owned));
            }
            let all = &expected.get(&cause.field).cloned().unwrap_or_default();
            let is_complete = !cause.message.contains(['…', '+', ';']);
            if !names.is_subset(all) || (is_complete && names != all) {
                return Some(format!("{}: {:?}, and not {all:?}: {}", cause.field, names, cause.message));
            }
        }
    }
    let clusters = |of: &BTreeMap<String, BTreeSet<String>>| of.keys().cloned().collect::<Vec<_>>();
    (clusters(&found) != clusters(&expected)).then(|| format!("{found:?}, and not {expected:?}"))
}

#[tokio::test(start_paused = true)]
async fn the_guard_finds_what_a_plain_computation_finds() {
    let mut verdicts = [0; 2];
    for seed in 1..=GRAPHS {
        let graph = Graph::random(seed);
        verdicts[usize::from(graph.expected().is_empty())] += 1;
        if let Some(difference) = difference(&graph, &graph.world()).await {
            panic!("graph {seed}: {difference}\n{}", graph.yaml());
        }
    }
    assert!(verdicts.iter().all(|&number| number > GRAPHS / 4), "{verdicts:?}");
}

/// Counts the graphs with a difference if the guard sees another world, as it would with a bug.
async fn differences(change: impl Fn(&mut Graph)) -> usize {
    let mut found = 0;
    for seed in 1..=GRAPHS {
        let graph = Graph::random(seed);
        let mut seen = Graph::random(seed);
        change(&mut seen);
        found += usize::from(difference(&graph, &seen.world()).await.is_some());
    }
    found
}

#[tokio::test(start_paused = true)]
async fn planted_bugs_are_found() {
    let wrong_namespace = differences(|graph| {
        for object in &mut graph.objects {
            object.namespace = if object.namespace == "a" { "b" } else { "a" };
        }
    });
    let missing_page = differences(|graph| {
        let mut seen: BTreeMap<(String, By, &str), usize> = BTreeMap::new();
        graph.objects.retain(|object| {
            let number = seen.entry((object.cluster.clone(), object.by, object.namespace)).or_default();
            *number += 1;
            *number <= 1
        });
    });
    let member_left_out = differences(|graph| drop(graph.members.pop()));
    let found = [wrong_namespace.await, missing_page.await, member_left_out.await];
    assert!(found.iter().all(|&number| number > 10), "{found:?}");
}
