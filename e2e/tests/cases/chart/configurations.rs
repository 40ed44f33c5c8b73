//! The configurations in `charts/durward/ci`, rendered for the namespace of the documentation.

use std::sync::Arc;

use e2e::prelude::*;

/// The namespace of the documentation.
pub(super) const HOME: &str = "durward-system";

/// The namespace of etcd in the documentation.
pub(super) const DB: &str = "db";

/// The namespace of LXCFS and its agents.
const LXCFS: &str = "durward-lxcfs";

/// The suffix of the files.
const SUFFIX: &str = "-values.yaml";

/// A file of values and its rendering.
pub(super) struct Rendered {
    /// The first part of the file's name.
    pub(super) name: String,
    pub(super) yaml: String,
    pub(super) objects: Vec<Value>,
}

impl Rendered {
    /// Returns the object of this kind and name, if there is exactly one.
    pub(super) fn object(&self, kind: &str, name: &str) -> Option<&Value> {
        let mut found =
            self.objects.iter().filter(|one| one["kind"] == kind && one["metadata"]["name"] == name);
        found.next().filter(|_| found.next().is_none())
    }

    /// Returns `durward.yaml` in the `ConfigMap`.
    pub(super) fn configuration(&self) -> Result<&str> {
        // The agents on nodes have another one.
        let is_it = |one: &&Value| {
            one["kind"] == "ConfigMap"
                && one["metadata"]["name"] == "durward"
                && one["metadata"]["namespace"] == HOME
        };
        let map = self.objects.iter().find(is_it).context("no ConfigMap")?;
        map["data"]["durward.yaml"].as_str().context("the ConfigMap has no durward.yaml")
    }
}

/// Returns a cluster without a node, with the namespaces of Durward and of etcd. One case at a time uses it, and removes everything that
/// it installs.
pub(super) fn bare_cluster(context: &TestContext) -> Result<Arc<Cluster>> {
    static CLUSTER: Lazy<Arc<Cluster>> = Lazy::new();
    let start = || {
        let cluster = context.cluster(&Options::named("chart"))?;
        make_namespaces(&cluster)?;
        Ok(cluster)
    };
    CLUSTER.get(start).cloned()
}

/// Creates the namespaces that the configurations name.
pub(in crate::cases) fn make_namespaces(cluster: &Cluster) -> Result<()> {
    [HOME, DB].into_iter().try_for_each(|name| cluster.exact_namespace(name, &[]).map(drop))?;
    // kubectl warns if it applies an object that it did not create.
    let lxcfs = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LXCFS}});
    cluster.kubectl().apply(&lxcfs.to_string())?.succeeded().map(drop)
}

/// Returns all configurations, as `kubectl apply` gets them: without the hook. The first call renders them.
pub(super) fn all(context: &TestContext) -> Result<&'static [Rendered]> {
    static ALL: Lazy<Vec<Rendered>> = Lazy::new();
    ALL.get(|| render_all(&Helm::new(context)?)).map(Vec::as_slice)
}

fn render_all(helm: &Helm) -> Result<Vec<Rendered>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(Helm::chart().join("ci"))? {
        let path = entry?.path();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = file.strip_suffix(SUFFIX).with_context(|| format!("{file} does not end in {SUFFIX}"))?;
        let yaml = render(helm, &path.display().to_string()).with_context(|| format!("values of {name}"))?;
        let objects = parse(&yaml)?;
        all.push(Rendered { name: name.to_owned(), yaml, objects });
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(all.len() >= 9, "only {} configurations", all.len());
    Ok(all)
}

fn render(helm: &Helm, file: &str) -> Result<String> {
    let chart = Helm::chart().display().to_string();
    let arguments = ["template", Helm::RELEASE, &chart, "--namespace", HOME, "--no-hooks", "--values", file];
    Ok(helm.run(&arguments)?.succeeded()?.stdout)
}

/// Returns the objects of a YAML stream.
pub(super) fn parse(yaml: &str) -> Result<Vec<Value>> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}
