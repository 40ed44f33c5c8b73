//! `durward doctor install` in a pod, for states of a Karmada control plane and of the cluster of the pods.
//!
//! The case runs the command that the doctor prints, and expects that the doctor then finds nothing and the guard denies.

use e2e::prelude::*;

use super::Site;
use crate::cases::attempt::retry_until;
use crate::cases::pages::Shell;

/// A state that the doctor reports.
struct Broken {
    /// The command that causes it.
    cause: &'static str,
    /// The code of the finding, and a part of its text.
    code: &'static str,
    what: &'static str,
}

const STATES: [Broken; 5] = [
    Broken {
        cause: "kubectl --kubeconfig karmada-admin.config delete validatingwebhookconfiguration durward --ignore-not-found",
        code: "not-registered",
        what: "ValidatingWebhookConfiguration durward on the Karmada API server doesn't exist",
    },
    // Durward restores it within seconds, and the doctor can be slower. So the command is repeated until the doctor sees it.
    Broken {
        cause: "kubectl --kubeconfig karmada-admin.config patch validatingwebhookconfiguration durward --type=json \
            -p '[{\"op\":\"add\",\"path\":\"/webhooks/0/clientConfig/caBundle\",\"value\":\"\"}]'",
        code: "ca-bundle",
        what: "the caBundle of deletion.durward.dev in ValidatingWebhookConfiguration durward on the Karmada API server",
    },
    Broken {
        cause: "kubectl --kubeconfig karmada-admin.config label validatingwebhookconfiguration durward durward.dev/webhooks-",
        code: "not-labeled",
        what: "lacks the label durward.dev/webhooks=managed",
    },
    Broken {
        cause: "kubectl --kubeconfig karmada-admin.config delete clusterrolebinding durward --ignore-not-found",
        code: "permission",
        what: "get clusters/proxy.cluster.karmada.io",
    },
    Broken {
        cause: "kubectl -n durward-system delete rolebinding durward --ignore-not-found",
        code: "permission",
        what: "update secrets durward-ca in durward-system",
    },
];

impl Site {
    /// Breaks the installation in several ways. `used` is the path of a namespace in use.
    pub(super) fn doctor_names_the_fix(&self, shell: &Shell<'_>, used: &str) -> Result<()> {
        self.is_healthy(shell, used)?;
        for Broken { cause, code, what } in &STATES {
            let fix = eventually(format_args!("the finding {code} with {what:?}"), WAIT_LIMIT, || {
                shell.run(cause)?.succeeded()?;
                let findings = findings(shell)?;
                let found = findings.iter().find(|finding| {
                    finding["code"] == *code
                        && finding["what"].as_str().is_some_and(|text| text.contains(what))
                });
                let fix = found.and_then(|finding| finding["fix"].as_str()).map(str::to_owned);
                Ok(fix.map_or_else(|| Poll::Pending(format!("{findings:?}")), Poll::Ready))
            })?;
            let command = fix.find("kubectl").and_then(|start| fix.get(start..));
            shell.run(command.with_context(|| format!("no command: {fix}"))?)?.succeeded()?;
            self.is_healthy(shell, used).with_context(|| format!("after {cause} and {fix}"))?;
        }
        Ok(())
    }

    /// Waits until the doctor finds nothing and the guard denies.
    pub(super) fn is_healthy(&self, shell: &Shell<'_>, used: &str) -> Result<()> {
        until("the doctor to find nothing", || {
            let findings = findings(shell)?;
            Ok((findings.is_empty(), format!("{findings:?}")))
        })?;
        let delete = || self.delete(&format!("{used}?dryRun=All"));
        retry_until("the guard to deny", delete, |attempt| {
            attempt.is_denied() && attempt.contains("m2: 1 pod")
        })
    }
}

/// Returns the findings of the doctor in a pod.
fn findings(shell: &Shell<'_>) -> Result<Vec<Value>> {
    let command = "kubectl -n durward-system exec deploy/durward -- \
        durward doctor install -o json";
    let output = shell.run(command)?;
    let report: Value = serde_json::from_str(&output.stdout)
        .with_context(|| format!("the doctor's JSON: {} {}", output.stdout, output.stderr))?;
    let findings = report["findings"].as_array().context("no findings")?.clone();
    output.exited_with(i32::from(!findings.is_empty()))?;
    Ok(findings)
}
