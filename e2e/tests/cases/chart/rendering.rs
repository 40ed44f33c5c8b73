//! Renderings of the chart, and values that it refuses. No node is needed.

use std::path::Path;

use e2e::cert_manager::CertManager;
use e2e::prelude::*;

use super::configurations::{self, HOME, parse};
use crate::cases::objects::contains_all;

/// The API group of the Prometheus operator, and its kinds.
const MONITORING: &str = "monitoring.coreos.com";
const MONITORED: [(&str, &str); 2] =
    [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")];

#[e2e::case]
fn helm_lint_accepts_the_chart(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let chart = Helm::chart().display().to_string();
    for entry in std::fs::read_dir(Helm::chart().join("ci"))? {
        let file = entry?.path().display().to_string();
        let output =
            helm.run(&["lint", "--strict", &chart, "--namespace", HOME, "--values", &file])?.succeeded()?;
        contains_all(&output.stdout, &["1 chart(s) linted, 0 chart(s) failed"]).context(file)?;
    }
    Ok(())
}

/// The values are below `spec`, where Argo CD and Flux read them.
#[e2e::case]
fn the_examples_for_argo_cd_and_flux_render_and_are_valid(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let mut count = 0;
    for entry in std::fs::read_dir(Helm::chart().join("../../examples/gitops"))? {
        let path = entry?.path();
        let name = path.display().to_string();
        for object in parse(&std::fs::read_to_string(&path)?)? {
            let places = ["/spec/source", "/spec/template/spec/source", ""];
            let values = places.iter().find_map(|place| match *place {
                "" => object["spec"].get("values"),
                place => object.pointer(&format!("{place}/helm/valuesObject")),
            });
            let Some(values) = values else { continue };
            let objects = parse(&helm.template(HOME, values).and_then(Output::succeeded)?.stdout)?;
            let map = objects.iter().find(|object| object["kind"] == "ConfigMap").context("no ConfigMap")?;
            let text = map["data"]["durward.yaml"].as_str().context("no durward.yaml")?;
            let directory = context.directory("gitops")?;
            // `config check` reads the files that the configuration names.
            e2e::context::write(&directory.join("karmada"), "kubeconfig", "{}")?;
            let file = e2e::context::write(&directory, "durward.yaml", text)?.display().to_string();
            Durward::command(context, &["config", "check", &file])?.succeeded().context(name.clone())?;
            count += 1;
        }
    }
    ensure!(count == 4, "{count} of 4 files have values");
    Ok(())
}

#[e2e::case]
fn the_api_server_accepts_every_configuration(context: &'static TestContext) -> Result<()> {
    accepts_every_configuration(context, &*configurations::bare_cluster(context)?)
}

/// Expects that a cluster accepts every configuration. It gets the CRDs of cert-manager, and the kinds of the Prometheus operator
/// without a schema.
pub(in crate::cases) fn accepts_every_configuration(context: &TestContext, cluster: &Cluster) -> Result<()> {
    CertManager::define(&context.supervisor()?, cluster)?;
    for (kind, plural) in MONITORED {
        declare(cluster, MONITORING, kind, plural)?;
    }
    for rendered in configurations::all(context)? {
        let arguments = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let output = cluster.kubectl().run_with(&arguments, &rendered.yaml)?;
        let output = output.succeeded().with_context(|| rendered.name.clone())?;
        let warnings: Vec<_> = output.stderr.lines().filter(|line| line.starts_with("Warning:")).collect();
        ensure!(warnings.is_empty(), "{}: {warnings:?}", rendered.name);
        let lines = output.stdout.lines().count();
        ensure!(lines == rendered.objects.len(), "{}: {lines} of {}", rendered.name, rendered.objects.len());
    }
    Ok(())
}

fn declare(cluster: &Cluster, group: &str, kind: &str, plural: &str) -> Result<()> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.api().create(path, &crd)?.succeeded()?;
    until(format_args!("{kind} to be served"), || {
        let answer = cluster.api().get(&format!("/apis/{group}/v1/{plural}"))?;
        Ok((answer.is_success(), answer.message().to_owned()))
    })
}

#[e2e::case]
fn the_config_block_becomes_the_configmap(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let guards = json!({
        "etcd": {"webhook": {"timeoutSeconds": 20}, "clusters": [{"namespace": "db", "selector": "app=etcd", "expectedMembers": 3}]},
        "deletion": {"unreachableClusters": [{"cluster": "m1", "until": "2026-12-01", "reason": "link: \"cut\", # 81"}],
                     "fleet": {"secrets": {}}},
    });
    let values = json!({"image": {"repository": "r"}, "config": {"server": {"tls": {"minVersion": "1.3"}}, "guards": guards}});
    let objects = parse(&helm.template(HOME, &values)?.succeeded()?.stdout)?;
    let map = objects.iter().find(|object| object["kind"] == "ConfigMap").context("no ConfigMap")?;
    let text = map["data"]["durward.yaml"].as_str().context("no durward.yaml")?;
    let written: Value = serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}: {text}"))?;
    let expected = json!({
        "apiVersion": "durward.dev/v1alpha1", "kind": "Configuration", "namespace": HOME, "events": true, "guards": guards,
        "server": {"tls": {"minVersion": "1.3", "selfManaged": {}}, "webhookConfiguration": {"manage": "all"}},
    });
    ensure!(written == expected, "{text}");
    Ok(())
}

/// The values that `config init --chart` writes, for each guard and for a Karmada fleet.
#[e2e::case]
fn the_chart_takes_the_values_of_config_init(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let healthy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/deletion/healthy");
    let healthy = healthy.display().to_string();
    for arguments in [
        &["--guard", "deletion"][..],
        &["--guard", "deletion", "--snapshot", &healthy],
        &["--guard", "etcd", "--namespace", "db", "--selector", "app=etcd"],
        &["--guard", "lxcfs", "--guard", "resources"],
    ] {
        let command = [&["config", "init", "--chart"], arguments].concat();
        let printed = Durward::command(context, &command)?.succeeded()?.stdout;
        let values: Value =
            serde_saphyr::from_str(&printed).map_err(|error| anyhow::anyhow!("{error}: {printed}"))?;
        let objects = parse(&helm.template(HOME, &values)?.succeeded()?.stdout)?;
        let map = objects
            .iter()
            .find(|object| object["metadata"]["name"] == "durward" && object["kind"] == "ConfigMap");
        let text = map.context("no ConfigMap")?["data"]["durward.yaml"].as_str().unwrap_or_default();
        ensure!(text.contains("mode: audit"), "{arguments:?}: {text}");
    }
    Ok(())
}

/// The policies of the guard `resources` come from the values or from a `ConfigMap`, in the same directory.
#[e2e::case]
fn policies_are_mounted_from_files_or_a_configmap(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let text = "kind: ValidatingAdmissionPolicy\n";
    for (policies, name, rendered) in [
        (json!({"files": {"rules.yaml": text}}), "durward-policies", Some(json!({"rules.yaml": text}))),
        (json!({"configMap": "company-rules"}), "company-rules", None),
    ] {
        let values = json!({"image": {"repository": "r"}, "config": {"guards": {"resources": {}}}, "policies": policies});
        let objects = parse(&helm.template(HOME, &values)?.succeeded()?.stdout)?;
        let map = |name: &str| {
            objects.iter().find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name)
        };
        ensure!(map(name).map(|map| map["data"].clone()) == rendered, "{name}: {:?}", map(name));
        let config = &map("durward").context("no ConfigMap durward")?["data"]["durward.yaml"];
        contains_all(config.as_str().unwrap_or_default(), &["- /etc/durward-policies"])?;
        for kind in ["Deployment", "Job"] {
            let object = objects.iter().find(|object| object["kind"] == kind).context("no workload")?;
            let pod = &object["spec"]["template"]["spec"];
            let has = |list: &Value, item: &Value| list.as_array().is_some_and(|all| all.contains(item));
            let volumes = pod["volumes"].as_array().context("no volumes")?;
            let volume = volumes.iter().find(|volume| volume["name"] == "policies");
            let mount = json!({"name": "policies", "mountPath": "/etc/durward-policies", "readOnly": true});
            ensure!(volume.is_some_and(|one| one["configMap"]["name"] == name), "{kind}: {volumes:?}");
            ensure!(has(&pod["containers"][0]["volumeMounts"], &mount), "{kind}: {}", pod["containers"]);
        }
    }
    Ok(())
}

/// Two pods can't listen on the same port of a node. The Job before a removal reaches the same API servers as the server.
#[e2e::case]
fn with_host_network_one_replica_stops_before_the_next_starts(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    for (replicas, strategy) in [(1, "Recreate"), (2, "RollingUpdate")] {
        let values = json!({
            "image": {"repository": "r"}, "replicas": replicas, "hostNetwork": true,
            "config": {"guards": {"lxcfs": {}}},
        });
        let objects = parse(&helm.template(HOME, &values)?.succeeded()?.stdout)?;
        let spec = |kind: &str| {
            let object = objects.iter().find(|object| object["kind"] == kind);
            Ok::<_, anyhow::Error>(&object.with_context(|| format!("no {kind}"))?["spec"])
        };
        let deployment = spec("Deployment")?;
        ensure!(deployment["strategy"]["type"] == strategy, "{replicas}: {}", deployment["strategy"]);
        for spec in [deployment, spec("Job")?] {
            ensure!(spec["template"]["spec"]["hostNetwork"] == true, "{replicas}: {spec}");
        }
    }
    Ok(())
}

#[e2e::case]
fn a_certificate_of_cert_manager_has_the_name_that_the_api_server_calls(
    context: &'static TestContext,
) -> Result<()> {
    let helm = Helm::new(context)?;
    for (address, field, name) in [
        (json!({}), "dnsNames", "durward.durward-system.svc"),
        (json!({"service": {"name": "guard"}}), "dnsNames", "guard.durward-system.svc"),
        (json!({"url": "https://durward.example.com:9443"}), "dnsNames", "durward.example.com"),
        (json!({"url": "https://10.0.0.7:9443"}), "ipAddresses", "10.0.0.7"),
        (json!({"url": "https://[fd00::7]"}), "ipAddresses", "fd00::7"),
    ] {
        let config = json!({"guards": {"lxcfs": {}}, "server": {"webhookConfiguration": address}});
        let values =
            json!({"image": {"repository": "r"}, "certManager": {"enabled": true}, "config": config});
        let objects = parse(&helm.template(HOME, &values)?.succeeded()?.stdout)?;
        let is_leaf = |object: &&Value| object["spec"]["secretName"] == "durward-tls";
        let spec = &objects.iter().find(is_leaf).context("no Certificate")?["spec"];
        let names = [&spec["dnsNames"], &spec["ipAddresses"]].map(|names| names.as_array().map(Vec::len));
        ensure!(spec[field] == json!([name]) && names.iter().flatten().count() == 1, "{address}: {spec}");
    }
    Ok(())
}

/// The configurations that are committed as plain YAML in `deploy/install`.
const PLAIN: [&str; 5] = ["deletion", "etcd", "karmada", "lxcfs", "resources"];

/// The files in `deploy/install` are what the chart renders. `DURWARD_BLESS=1` writes them.
#[e2e::case]
fn the_plain_yaml_is_what_the_chart_renders(context: &'static TestContext) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/install");
    let all = configurations::all(context)?;
    for name in PLAIN {
        let rendered =
            all.iter().find(|rendered| rendered.name == name).with_context(|| format!("no {name}"))?;
        let head = format!(
            "# Rendered from charts/durward with ci/{name}-values.yaml, for the namespace {HOME}. It has no hook: see docs/src/operate/uninstall.md.\n"
        );
        let text = format!("{head}{}", rendered.yaml);
        let path = directory.join(name).with_extension("yaml");
        if std::env::var_os("DURWARD_BLESS").is_some() {
            std::fs::create_dir_all(&directory)?;
            std::fs::write(&path, text)?;
            continue;
        }
        let current =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            current == text,
            "{} differs from the chart: DURWARD_BLESS=1 make e2e TEST=the_plain_yaml",
            path.display()
        );
    }
    Ok(())
}

/// The chart and `deploy/lxcfs` install the same objects.
#[e2e::case]
fn the_objects_for_nodes_are_those_of_deploy_lxcfs(context: &'static TestContext) -> Result<()> {
    let all = configurations::all(context)?;
    let rendered = all.iter().find(|rendered| rendered.name == "lxcfs").context("no configuration lxcfs")?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/lxcfs");
    let mut count = 0;
    for name in ["namespace", "daemonset", "node", "device", "rbac"] {
        let path = directory.join(name).with_extension("yaml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for mut expected in parse(&text)? {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (kind, name) = (text(&expected["kind"]), text(&expected["metadata"]["name"]));
            let mut has = rendered.object(&kind, &name).with_context(|| format!("no {kind} {name}"))?.clone();
            without_images(&mut has);
            without_images(&mut expected);
            ensure!(has == expected, "{kind} {name} is {has}, and in deploy/lxcfs {expected}");
            count += 1;
        }
    }
    ensure!(count == 9, "{count} objects");
    Ok(())
}

/// Removes the images, whose registry each installation chooses.
fn without_images(object: &mut Value) {
    for list in ["initContainers", "containers"] {
        let containers = object["spec"]["template"]["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.retain(|key, _| key != "image" && key != "imagePullPolicy");
        }
    }
}

/// A change of the pods is needed only for settings that Durward does not load by itself.
#[e2e::case]
fn only_settings_that_need_a_restart_replace_pods(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let template = |config: Value| -> Result<Value> {
        let values = json!({"image": {"repository": "r"}, "config": config});
        let objects = parse(&helm.template(HOME, &values)?.succeeded()?.stdout)?;
        let deployment = objects.into_iter().find(|object| object["kind"] == "Deployment");
        Ok(deployment.context("no Deployment")?["spec"]["template"].clone())
    };
    let before = template(json!({"guards": {"lxcfs": {}}}))?;
    ensure!(
        before == template(json!({"guards": {"lxcfs": {"mode": "audit"}}}))?,
        "a guard's change replaces pods"
    );
    let limits = json!({"guards": {"lxcfs": {}}, "server": {"limits": {"maxConnections": 9}}});
    ensure!(before != template(limits)?, "a change of limits does not replace pods");
    Ok(())
}

#[e2e::case]
fn values_that_cannot_work_are_refused_with_the_fix(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let lxcfs = json!({"lxcfs": {}});
    let server = |server: Value| json!({"config": {"guards": lxcfs, "server": server}});
    for (values, expected) in [
        (json!({}), "config.guards is empty: turn a guard on"),
        (
            json!({"image": {"repository": ""}, "config": {"guards": lxcfs}}),
            "image.repository is not set: build the image",
        ),
        (json!({"config": {"guards": lxcfs, "namespace": "other"}}), "remove config.namespace"),
        (
            json!({"config": {"guards": lxcfs}, "policies": {"files": {"a.yaml": ""}}}),
            "add config.guards.resources: {}",
        ),
        (json!({"config": {"guards": {"resources": {}}}}), "set policies.files or policies.configMap"),
        (
            json!({"config": {"guards": {"resources": {}}}, "policies": {"files": {"a.yaml": ""}, "configMap": "a"}}),
            "policies has files and configMap: set one of them",
        ),
        (
            json!({"certManager": {"enabled": true}, "config": {"guards": lxcfs, "server": {"tls": {"files": {"cert": "a", "key": "b"}}}}}),
            "name two certificates: set one of them",
        ),
        (
            json!({"config": {"guards": {"resources": {}}}, "policies": {"files": {"a.txt": ""}}}),
            "additional properties 'a.txt' not allowed",
        ),
        (json!({"config": {"guards": {"lxcfs": {"fils": []}}}}), "additional properties 'fils' not allowed"),
        (json!({"replica": 3}), "additional properties 'replica' not allowed"),
        (
            json!({"config": {"guards": {"deletion": {"inUse": {"rules": ["rules.yaml"]}}}}}),
            "rules.yaml is a path, and the chart can't read the file: write the rule itself",
        ),
        (
            json!({"config": {"guards": {"deletion": {"fleet": "karmada"}}}}),
            "mount the file with extraVolumes",
        ),
        (
            server(json!({"bindAddress": "127.0.0.1:8443"})),
            "the API server and the kubelet can't reach it: use 0.0.0.0:8443",
        ),
        (
            server(json!({"metricsBindAddress": "0.0.0.0:80"})),
            "only root can bind ports below 1024: use 0.0.0.0:8080",
        ),
        (
            json!({"config": {"guards": lxcfs}, "networkPolicy": {"egress": {"enabled": true}}}),
            "networkPolicy.egress.enabled needs networkPolicy.apiServers",
        ),
        (server(json!({"bindAddress": "0.0.0.0:0"})), "a Service needs a fixed port"),
        (
            server(json!({"tls": {"files": {"cert": "a", "key": "b"}}})),
            "set config.server.tls.selfManaged to null",
        ),
        (server(json!({"tls": {"selfManaged": null}})), "names no certificate"),
        (server(json!({"shutdown": {"delay": "ten"}})), "\"ten\" is not a duration: write it like 10s"),
        (server(json!({"limits": {"maxTotalBytes": "64M"}})), "\"64M\" is not a size: write it like 64Mi"),
        (
            server(json!({"webhookConfiguration": {"url": "https://d.other.svc"}})),
            "install the release there",
        ),
    ] {
        let mut all = json!({"image": {"repository": "r"}});
        if let (Value::Object(all), Value::Object(values)) = (&mut all, values) {
            all.extend(values);
        }
        let output = helm.template(HOME, &all)?;
        output.exited_with(1)?;
        contains_all(&output.stderr, &[expected])?;
    }
    Ok(())
}
