//! The same Durward guards Karmada's own etcd in the cluster of the pods. Names, labels and certificates are those of `karmadactl init`.

use e2e::certificates::Ca;
use e2e::context::write;
use e2e::prelude::*;

use super::{INSTALLATION, Site, WITHIN, mount_again};
use crate::cases::pages::{self, Shell};

/// The namespace of Karmada, in its host cluster.
const NAMESPACE: &str = "karmada-system";

/// The heading of the page.
const HEADING: &str = "Also guard Karmada's etcd";

/// The recipe has the same entry as the page.
const RECIPE: &str = include_str!("../../../../../examples/etcd/recipes/karmada.yaml");

impl Site {
    /// Adds the values of the page to the release. The doctor then reads all members, and a deletion that would break quorum gets a
    /// warning.
    pub(super) fn guards_karmadas_etcd(
        &self,
        context: &'static TestContext,
        shell: &Shell<'_>,
    ) -> Result<()> {
        self.start_etcd(context)?;
        let values = pages::block(INSTALLATION, "yaml", HEADING)?;
        let parsed = |text: &str| -> Result<Value> {
            serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}: {text}"))
        };
        let (page, recipe) = (parsed(&values)?, parsed(RECIPE)?);
        ensure!(page["config"]["guards"]["etcd"] == recipe["guards"]["etcd"], "page {page}, recipe {recipe}");
        write(&self.directory, "etcd.yaml", &values)?;
        let upgrade = "helm upgrade durward charts/durward --namespace durward-system --reuse-values --values etcd.yaml --wait";
        shell.run(upgrade)?.succeeded()?;
        mount_again(shell)?;
        eventually("the doctor to read all members", WITHIN, || {
            let doctor = "kubectl -n durward-system exec deploy/durward -- durward doctor etcd";
            let output = shell.run(doctor)?;
            let is_read = output.stdout.contains("karmada-system/etcd  3 of 3 healthy, quorum is 2");
            Ok(if is_read { Poll::Ready(()) } else { Poll::Pending(format!("{output:?}")) })
        })?;
        let away = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}},"template":{"spec":{"nodeSelector":{"nowhere":"true"}}}}}"#;
        shell.run(&format!("kubectl -n {NAMESPACE} patch statefulset etcd -p '{away}'"))?.succeeded()?;
        eventually("a warning for the deletion of etcd-1", WITHIN, || {
            let output = shell.run(&format!("kubectl -n {NAMESPACE} delete pod etcd-1 --dry-run=server"))?;
            let is_warned =
                output.stderr.contains("audit: would be denied") && output.stderr.contains("quorum");
            Ok(if is_warned { Poll::Ready(()) } else { Poll::Pending(output.stderr) })
        })
    }

    /// Starts three members with TLS.
    fn start_etcd(&self, context: &'static TestContext) -> Result<()> {
        self.node.image(context, Image::Etcd)?;
        let cluster = self.node.cluster();
        let namespace = cluster.exact_namespace(NAMESPACE, &[])?;
        let ca = Ca::new("karmada")?;
        let host = |at: usize| format!("etcd-{at}.etcd.{NAMESPACE}.svc.cluster.local");
        let names: Vec<String> = (0..3).map(host).chain(["localhost".to_owned()]).collect();
        for (name, leaf) in
            [("etcd-cert", ca.member(&names)?), ("etcd-client", ca.client("karmada-etcd-client", None)?)]
        {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
                "stringData": {"ca.crt": ca.pem(), "tls.crt": leaf.certificate, "tls.key": leaf.key},
            });
            cluster.api().create(&namespace.path("secrets"), &secret)?.succeeded()?;
        }
        let peers: Vec<String> = (0..3).map(|at| format!("etcd-{at}=http://{}:2380", host(at))).collect();
        let entrypoint = format!(
            "exec etcd --name=$HOSTNAME --data-dir=/var/lib/karmada-etcd/$HOSTNAME \
             --listen-client-urls=https://0.0.0.0:2379 --advertise-client-urls=https://$HOSTNAME.etcd.{NAMESPACE}.svc.cluster.local:2379 \
             --listen-peer-urls=http://0.0.0.0:2380 --initial-advertise-peer-urls=http://$HOSTNAME.etcd.{NAMESPACE}.svc.cluster.local:2380 \
             --initial-cluster={} --client-cert-auth=true --trusted-ca-file=/etc/cert/ca.crt \
             --cert-file=/etc/cert/tls.crt --key-file=/etc/cert/tls.key",
            peers.join(",")
        );
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "etcd"},
                "ports": [{"name": "client", "port": 2379}, {"name": "server", "port": 2380}]},
        });
        let data = context.directory("karmada-etcd")?.display().to_string();
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"},
            "spec": {
                "replicas": 3, "serviceName": "etcd", "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "etcd"}},
                "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": {
                    "containers": [{
                        "name": "etcd", "image": Image::Etcd.name(), "imagePullPolicy": "Never",
                        "command": ["/bin/sh", "-c", entrypoint],
                        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/karmada-etcd"}, {"name": "cert", "mountPath": "/etc/cert"}],
                    }],
                    "volumes": [
                        {"name": "data", "hostPath": {"path": data, "type": "DirectoryOrCreate"}},
                        {"name": "cert", "secret": {"secretName": "etcd-cert"}},
                    ],
                }},
            },
        });
        for (resource, object) in [("services", service), ("apps/v1/statefulsets", set)] {
            cluster.api().create(&namespace.path(resource), &object)?.succeeded()?;
        }
        self.node.await_workload(&namespace, "statefulsets", "etcd")
    }
}
