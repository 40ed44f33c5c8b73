//! The generated policies: the rules of public policy collections, with values that the seed selects.
//!
//! The rules avoid two differences between the programs. Kyverno's CLI evaluates the object of the file and reads its numbers
//! as doubles; Durward evaluates the form in which the API server encodes the object again. Without a cluster, Kyverno ignores
//! the match constraints of a policy that has a binding, so each binding repeats them.

use fastrand::Rng;
use serde_json::{Value as Json, json};

/// API group, version, and resources.
type Resources = &'static [(&'static str, &'static str, &'static [&'static str])];

const PODS: Resources = &[
    ("", "v1", &["pods"]),
    ("apps", "v1", &["deployments", "statefulsets", "daemonsets"]),
    ("batch", "v1", &["jobs", "cronjobs"]),
];
const WORKLOADS: Resources = &[("apps", "v1", &["deployments", "statefulsets", "daemonsets"])];
const REPLICATED: Resources = &[("apps", "v1", &["deployments", "statefulsets"])];
const DEPLOYMENTS: Resources = &[("apps", "v1", &["deployments"])];
const STATEFUL_SETS: Resources = &[("apps", "v1", &["statefulsets"])];
const CRON_JOBS: Resources = &[("batch", "v1", &["cronjobs"])];
const JOBS: Resources = &[("batch", "v1", &["jobs"])];
const SERVICES: Resources = &[("", "v1", &["services"])];
const CONFIG_MAPS: Resources = &[("", "v1", &["configmaps"])];
const CLAIMS: Resources = &[("", "v1", &["persistentvolumeclaims"])];
const INGRESSES: Resources = &[("networking.k8s.io", "v1", &["ingresses"])];
const ROLES: Resources = &[("rbac.authorization.k8s.io", "v1", &["roles"])];
const AUTOSCALERS: Resources = &[("autoscaling", "v2", &["horizontalpodautoscalers"])];
const ALL: Resources = &[("*", "*", &["*"])];

/// The pod of a Pod, a Job, a `CronJob`, or a workload of `apps`.
const POD: &str = "object.kind == 'Pod' ? object.spec : object.kind == 'CronJob' \
    ? object.spec.jobTemplate.spec.template.spec : object.spec.template.spec";
const CONTAINERS: &str = "variables.pod.containers + variables.pod.?initContainers.orValue([])";
const CONTEXTS: &str = "variables.containers.map(c, c.?securityContext.orValue({}))";

/// A rule. `$` stands for a value.
struct Rule {
    name: &'static str,
    resources: Resources,
    values: &'static [&'static str],
    expression: &'static str,
    /// A text, or an expression that starts with `=`. An empty text leaves the message to the API server.
    message: &'static str,
}

const fn rule(
    name: &'static str,
    resources: Resources,
    values: &'static [&'static str],
    expression: &'static str,
    message: &'static str,
) -> Rule {
    Rule { name, resources, values, expression, message }
}

#[rustfmt::skip]
const RULES: &[Rule] = &[
    rule("image-registry", PODS, &["registry.example.test/", "registry.example"],
        "variables.containers.all(c, c.image.startsWith('$'))",
        "='images must be from $, not ' + variables.containers.filter(c, !c.image.startsWith('$')).map(c, c.image).join(', ')"),
    rule("image-tag", PODS, &["latest", "dev", "main"],
        "variables.containers.all(c, c.image.contains(':') && !c.image.endsWith(':$'))", "images must have a tag other than $"),
    rule("image-version", PODS, &["[0-9]+", "[0-9]{1,3}"],
        "variables.containers.all(c, c.image.matches(':$[.][0-9]+[.][0-9]+(-[a-z0-9]+)?\\\\z'))", ""),
    rule("memory-limit", PODS, &["limits", "requests"],
        "variables.containers.all(c, has(c.resources) && has(c.resources.$) && has(c.resources.$.memory))",
        "each container must set resources.$.memory"),
    rule("cpu-request", PODS, &["requests"],
        "variables.containers.all(c, has(c.resources) && has(c.resources.$) && has(c.resources.$.cpu))", ""),
    rule("memory-maximum", PODS, &["1Gi", "2Gi", "4Gi", "1536Mi"],
        "variables.containers.all(c, quantity(c.?resources.?limits.?memory.orValue('0')).compareTo(quantity('$')) <= 0)",
        "a container can have at most $ of memory"),
    rule("cpu-maximum", PODS, &["1", "2", "1500m"],
        "variables.containers.all(c, !quantity(c.?resources.?limits.?cpu.orValue('0')).isGreaterThan(quantity('$')))",
        "a container can have at most $ CPUs"),
    rule("host-namespaces", PODS, &["hostNetwork", "hostPID", "hostIPC"],
        "!has(variables.pod.$) || variables.pod.$ == false", "$ is not allowed"),
    rule("host-path", PODS, &["hostPath"],
        "!has(variables.pod.volumes) || variables.pod.volumes.all(v, !has(v.$))", "$ volumes are not allowed"),
    rule("host-ports", PODS, &["0"],
        "variables.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == $))", ""),
    rule("privileged", PODS, &["privileged"],
        "variables.contexts.all(c, !has(c.$) || !c.$)", "$ containers are not allowed"),
    rule("privilege-escalation", PODS, &["allowPrivilegeEscalation"],
        "variables.contexts.all(c, has(c.$) && c.$ == false)", "$ must be false"),
    rule("run-as-non-root", PODS, &["runAsNonRoot"],
        "variables.pod.?securityContext.?$.orValue(false) || variables.contexts.all(c, c.?$.orValue(false))",
        "$ must be true for the pod, or for each container"),
    rule("run-as-user", PODS, &["999", "100"],
        "variables.contexts.all(c, !has(c.runAsUser) || c.runAsUser > $)", "user ids must be greater than $"),
    rule("drop-capabilities", PODS, &["ALL", "NET_RAW"],
        "variables.contexts.all(c, has(c.capabilities) && has(c.capabilities.drop) \
            && c.capabilities.drop.exists(d, d == 'ALL' || d == '$'))", "each container must drop $"),
    rule("added-capabilities", PODS, &["'NET_BIND_SERVICE'", "'NET_BIND_SERVICE', 'CHOWN'"],
        "variables.contexts.all(c, c.?capabilities.?add.orValue([]).all(a, a in [$]))",
        "='capabilities can be added only from a list: ' + variables.contexts.map(c, c.?capabilities.?add.orValue([])\
            .filter(a, !(a in [$])).join(' ')).join(' ')"),
    rule("read-only-root", PODS, &["readOnlyRootFilesystem"],
        "variables.contexts.all(c, has(c.$) && c.$)", "$ must be true"),
    rule("seccomp", PODS, &["'RuntimeDefault'", "'RuntimeDefault', 'Localhost'"],
        "variables.pod.?securityContext.?seccompProfile.?type.orValue('') in [$]", "the seccomp profile must be one of $"),
    rule("service-account-token", PODS, &["automountServiceAccountToken"],
        "has(variables.pod.$) && !variables.pod.$", ""),
    rule("service-account", PODS, &["default", "admin"],
        "variables.pod.?serviceAccountName.orValue('default') != '$'", "the service account $ is not allowed"),
    rule("secrets-in-env", PODS, &["PASSWORD", "TOKEN", "PASSWORD|TOKEN|SECRET"],
        "variables.containers.all(c, !has(c.env) || c.env.all(e, !e.name.matches('($)') || has(e.valueFrom)))",
        "take secrets from a Secret"),
    rule("priority-class", PODS, &["'standard', 'high'", "'standard', 'high', 'low'"],
        "!has(variables.pod.priorityClassName) || variables.pod.priorityClassName in [$]", "the priority class must be one of $"),
    rule("tolerations", PODS, &["node-role.kubernetes.io/control-plane"],
        "!has(variables.pod.tolerations) || variables.pod.tolerations.all(t, !has(t.key) || t.key != '$')", "$ is not tolerated"),
    rule("grace-period", PODS, &["60", "120", "90"],
        "!has(variables.pod.terminationGracePeriodSeconds) || variables.pod.terminationGracePeriodSeconds <= $", ""),
    rule("liveness-probe", WORKLOADS, &["livenessProbe", "readinessProbe"],
        "object.spec.template.spec.containers.all(c, has(c.$))", "each container must have a $"),
    rule("selector-labels", WORKLOADS, &["app.kubernetes.io/name"],
        "'$' in object.spec.selector.matchLabels && '$' in object.spec.template.metadata.labels \
            && object.spec.selector.matchLabels['$'] == object.spec.template.metadata.labels['$']", ""),
    rule("replicas-minimum", REPLICATED, &["2", "1"],
        "!has(object.spec.replicas) || object.spec.replicas >= $", "at least $ replicas are required"),
    // Without a check for presence, as many public rules are: an absent field is an error.
    rule("replicas-maximum", REPLICATED, &["5", "8"], "object.spec.replicas <= $", "at most $ replicas are allowed"),
    rule("topology-spread", REPLICATED, &["topology.kubernetes.io/zone", "kubernetes.io/hostname"],
        "object.spec.?replicas.orValue(1) < 3 || object.spec.template.spec.?topologySpreadConstraints.orValue([])\
            .exists(t, t.topologyKey == '$')", "three replicas or more must be spread over $"),
    rule("rolling-update", DEPLOYMENTS, &["Recreate"],
        "object.spec.?strategy.?type.orValue('RollingUpdate') != '$'", "the strategy $ is not allowed"),
    rule("revision-history", DEPLOYMENTS, &["10", "5"],
        "!has(object.spec.revisionHistoryLimit) || object.spec.revisionHistoryLimit <= $", ""),
    rule("claim-templates", STATEFUL_SETS, &["50Gi", "20Gi"],
        "object.spec.?volumeClaimTemplates.orValue([]).all(v, \
            quantity(v.spec.resources.requests.storage).compareTo(quantity('$')) <= 0)", "a volume can have at most $"),
    rule("cron-schedule", CRON_JOBS, &["[*]", "[*](/[1-4])?"],
        "!object.spec.schedule.matches('^$ ')", "='the schedule ' + object.spec.schedule + ' is too frequent'"),
    rule("cron-concurrency", CRON_JOBS, &["Forbid", "Replace"],
        "object.spec.?concurrencyPolicy.orValue('Allow') in ['Forbid', '$']", "jobs of a CronJob must not overlap"),
    rule("job-cleanup", JOBS, &["86400", "3600"],
        "has(object.spec.ttlSecondsAfterFinished) && object.spec.ttlSecondsAfterFinished <= $", "finished jobs are kept at most $ s"),
    rule("service-type", SERVICES, &["'NodePort'", "'NodePort', 'LoadBalancer'"],
        "!(object.spec.?type.orValue('ClusterIP') in [$])", "Services of the types $ are not allowed"),
    rule("external-ips", SERVICES, &["externalIPs"],
        "!has(object.spec.$) || size(object.spec.$) == 0", "$ are not allowed"),
    rule("port-names", SERVICES, &["^(http|grpc|tcp)(-[a-z]+)?$", "^[a-z]+(-[a-z]+)?$"],
        "object.spec.ports.all(p, has(p.name) && p.name.matches('$'))", ""),
    rule("config-secrets", CONFIG_MAPS, &["password", "token"],
        "!has(object.data) || object.data.all(k, !k.lowerAscii().contains('$'))", "put a $ into a Secret"),
    rule("config-size", CONFIG_MAPS, &["4096", "2048"],
        "!has(object.data) || object.data.all(k, size(object.data[k]) <= $)", "a value can have at most $ characters"),
    rule("storage-class", CLAIMS, &["'fast', 'standard'", "'standard'"],
        "object.spec.?storageClassName.orValue('standard') in [$]", "the storage class must be one of $"),
    rule("storage-size", CLAIMS, &["100Gi", "50Gi"],
        "!quantity(object.spec.resources.requests.storage).isGreaterThan(quantity('$'))", "a claim can have at most $"),
    rule("ingress-hosts", INGRESSES, &[".example.test", ".apps.example.test"],
        "object.spec.rules.all(r, has(r.host) && r.host.endsWith('$') && !r.host.startsWith('*'))", "hosts must end with $"),
    rule("ingress-tls", INGRESSES, &["tls"],
        "has(object.spec.$) && object.spec.rules.all(r, object.spec.$.exists(t, t.hosts.exists(h, h == r.host)))", ""),
    rule("role-wildcards", ROLES, &["verbs", "resources"],
        "object.rules.all(r, !has(r.$) || !('*' in r.$))", "wildcards in $ are not allowed"),
    rule("autoscaler", AUTOSCALERS, &["10", "20"],
        "object.spec.maxReplicas <= $ && object.spec.?minReplicas.orValue(1) >= 1", "at most $ replicas are allowed"),
    rule("labels", ALL, &["app.kubernetes.io/name", "app.kubernetes.io/part-of", "team", "tier"],
        "has(object.metadata.labels) && '$' in object.metadata.labels && object.metadata.labels['$'] != ''",
        "the label $ is required"),
    rule("label-values", ALL, &["team", "tier"],
        "object.metadata.?labels[?'$'].orValue('none').matches('^[a-z][a-z-]*[a-z]\\\\z')", ""),
    rule("owner", ALL, &["example.test/owner", "example.test/contact"],
        "object.metadata.?annotations[?'$'].orValue('').endsWith('@example.test')", "the annotation $ must be an address"),
    rule("names", ALL, &["40", "30"], "size(object.metadata.name) <= $ && !object.metadata.name.contains('--')", ""),
];

/// A policy and its binding.
pub(crate) struct Policy {
    pub(crate) policy: Json,
    pub(crate) binding: Json,
}

/// Returns policies. Each rule is in the first of them, and the others repeat rules with other values.
pub(crate) fn policies(rng: &mut Rng, count: usize) -> Vec<Policy> {
    let repeated: Vec<usize> = (0..count).map(|_| rng.usize(..RULES.len())).collect();
    let numbers = (0..RULES.len()).chain(repeated).take(count);
    numbers.enumerate().filter_map(|(number, rule)| Some(policy(rng, number, RULES.get(rule)?))).collect()
}

fn policy(rng: &mut Rng, number: usize, rule: &Rule) -> Policy {
    let value = rule.values.get(rng.usize(..rule.values.len())).copied().unwrap_or_default();
    let name = format!("{}-{number}", rule.name);
    let mut validation = json!({ "expression": rule.expression.replace('$', value) });
    let message = rule.message.replace('$', value);
    if let Some(expression) = message.strip_prefix('=') {
        validation["messageExpression"] = expression.into();
    } else if !message.is_empty() {
        validation["message"] = message.into();
    }
    let rules: Vec<Json> = rule.resources.iter().map(resource_rule).collect();
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": rules },
        "validations": [validation],
    });
    if rule.resources == PODS {
        spec["variables"] = json!([
            { "name": "pod", "expression": POD },
            { "name": "containers", "expression": CONTAINERS },
            { "name": "contexts", "expression": CONTEXTS },
        ]);
    }
    if rng.u8(..4) == 0 {
        spec["matchConditions"] = json!([
            { "name": "namespace", "expression": "request.namespace != 'monitoring'" },
            { "name": "exempt", "expression": format!("!('{name}' in object.metadata.?annotations.orValue({{}}))") },
        ]);
    }
    Policy {
        policy: json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name },
            "spec": spec,
        }),
        binding: json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": format!("{name}-everywhere") },
            "spec": { "policyName": name, "validationActions": ["Deny"], "matchResources": { "resourceRules": rules } },
        }),
    }
}

fn resource_rule((group, version, resources): &(&str, &str, &[&str])) -> Json {
    json!({ "apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": resources })
}

/// Returns policies for resources that no manifest has: half of them name a resource, half of them all resources of a group.
pub(crate) fn elsewhere(rng: &mut Rng, count: usize) -> Vec<Policy> {
    let mut policies = policies(rng, count);
    for (number, Policy { policy, binding }) in policies.iter_mut().enumerate() {
        let name = format!("elsewhere-{number}");
        policy["metadata"]["name"] = name.as_str().into();
        binding["metadata"]["name"] = name.as_str().into();
        binding["spec"]["policyName"] = name.into();
        let resource = if number % 2 == 0 { format!("widgets{number}") } else { "*".to_owned() };
        let group = format!("vendor{number}.example.test");
        let rules = json!([resource_rule(&(&group, "v1", &[&resource]))]);
        policy["spec"]["matchConstraints"]["resourceRules"] = rules.clone();
        binding["spec"]["matchResources"]["resourceRules"] = rules;
    }
    policies
}
