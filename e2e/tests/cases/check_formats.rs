//! The formats `sarif` and `junit` of `durward check` are valid against the published schemas.

use std::path::{Path, PathBuf};

use e2e::binaries::Binary;
use e2e::prelude::*;
use e2e::supervisor::Tool;

const WITHIN: Duration = Duration::from_secs(60);

/// Policies with one of each finding, and with texts that the formats must escape: name, action, validations.
const POLICIES: [(&str, &str, &str); 4] = [
    (
        "deny",
        "Deny",
        r#"[{expression: "object.data.size == 'a<b>&'", message: "100% <of> \"a\" & 'b', c: d ]]>"}, {expression: "size(object.data) > 9"}]"#,
    ),
    ("fail", "Deny", r#"[{expression: "object.nope == 1"}]"#),
    ("ask", "Deny", r#"[{expression: "authorizer.path('/x').check('get').allowed()"}]"#),
    ("other", "Warn, Audit", r#"[{expression: "false"}]"#),
];

const OBJECTS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shop\ndata:\n  size: large\n---\n\
                       apiVersion: v1\nkind: Secret\nmetadata:\n  name: quiet\n";

const UNKNOWN_KIND: &str = "apiVersion: example.org/v1\nkind: \"Un<known>\"\nmetadata:\n  name: a\n";

#[e2e::case]
fn findings_are_valid_in_each_format(context: &TestContext) -> Result<()> {
    let policies = POLICIES.map(policy).concat();
    let outputs = run(context, &[("a dir/policies.yaml", &policies), ("a dir/it's.yaml", OBJECTS)], 1)?;
    let levels: Vec<&str> = outputs.results()?.iter().filter_map(|result| result["level"].as_str()).collect();
    for level in ["error", "warning", "note"] {
        ensure!(levels.contains(&level), "no result has the level {level}: {levels:?}");
    }
    for element in
        ["<failure type=\"deny\"", "<failure type=\"error\"", "<error type=\"unknown\"", "<skipped"]
    {
        ensure!(outputs.junit.contains(element), "{element} is not in {}", outputs.junit);
    }
    Ok(())
}

#[e2e::case]
fn problems_are_valid_in_each_format(context: &TestContext) -> Result<()> {
    let outputs = run(context, &[("unknown.yaml", UNKNOWN_KIND), ("broken.yaml", "a: [\n")], 2)?;
    ensure!(outputs.results()?.len() == 2, "{}", outputs.sarif);
    ensure!(outputs.junit.contains("errors=\"2\""), "{}", outputs.junit);
    Ok(())
}

#[e2e::case]
fn the_schemas_refuse_wrong_reports(context: &TestContext) -> Result<()> {
    let directory = context.directory("check-wrong")?;
    let sarif = directory.join("wrong.sarif");
    std::fs::write(&sarif, r#"{"version": "2.1.0", "runs": [{"results": []}]}"#)?;
    ensure!(!is_valid_sarif(context, &sarif)?.is_success(), "a run without a tool is valid");
    let junit = directory.join("wrong.xml");
    std::fs::write(&junit, "<testsuites><testsuite name=\"a\"/></testsuites>")?;
    ensure!(!is_valid_junit(context, &junit)?.is_success(), "a suite without numbers is valid");
    Ok(())
}

/// Returns a policy on `ConfigMaps` with its binding.
fn policy((name, actions, validations): (&str, &str, &str)) -> String {
    let group = "admissionregistration.k8s.io/v1";
    format!(
        "apiVersion: {group}
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [configmaps]}}
  validations: {validations}
---
apiVersion: {group}
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [{actions}]}}
---
"
    )
}

/// The outputs of a run, which are valid.
struct Outputs {
    sarif: Value,
    junit: String,
}

impl Outputs {
    fn results(&self) -> Result<&Vec<Value>> {
        self.sarif["runs"][0]["results"].as_array().context("no results")
    }
}

fn run(context: &TestContext, files: &[(&str, &str)], exit_code: i32) -> Result<Outputs> {
    let directory = context.directory("check")?;
    let (sarif, junit) = (directory.join("out.sarif"), directory.join("out.xml"));
    let input = directory.join("input");
    for (name, text) in files {
        let path = input.join(name);
        std::fs::create_dir_all(path.parent().context("no directory")?)?;
        std::fs::write(&path, text)?;
    }
    let (to_sarif, to_junit) = (format!("sarif={}", sarif.display()), format!("junit={}", junit.display()));
    let input = input.display().to_string();
    let arguments = ["check", &input, "-o", "text", "-o", "github", "-o", &to_sarif, "-o", &to_junit];
    Durward::command(context, &arguments)?.exited_with(exit_code)?;
    is_valid_sarif(context, &sarif)?.succeeded().context("SARIF")?;
    is_valid_junit(context, &junit)?.succeeded().context("JUnit")?;
    let sarif = serde_json::from_slice(&std::fs::read(&sarif)?)?;
    Ok(Outputs { sarif, junit: std::fs::read_to_string(&junit)? })
}

fn schemas() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas")
}

fn is_valid_sarif(context: &TestContext, file: &Path) -> Result<Output> {
    let supervisor = context.supervisor()?;
    let tool = Tool::new("jv", Binary::Jv.path(&supervisor)?).directory(schemas());
    supervisor.run(tool.arguments(["sarif-2.1.0.json".to_owned(), file.display().to_string()]), WITHIN)
}

fn is_valid_junit(context: &TestContext, file: &Path) -> Result<Output> {
    let tool = Tool::new("xmllint", "xmllint").directory(schemas());
    let tool = tool
        .arguments(["--noout", "--nonet", "--schema", "junit-10.xsd"])
        .argument(file.display().to_string());
    context.supervisor()?.run(tool, WITHIN)
}
