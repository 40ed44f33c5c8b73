//! The alert rules in `charts/durward/alerts`, checked by Debian's promtool.

use std::path::Path;

use e2e::binaries::cache;
use e2e::prelude::*;
use e2e::supervisor::Tool;

const WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn promtool_accepts_the_alert_rules_and_their_tests_pass(context: &'static TestContext) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/durward/alerts");
    let unpacked = cache()?.join("debian/prometheus/usr/bin/promtool");
    let program = if unpacked.exists() { unpacked } else { "promtool".into() };
    for (arguments, expected) in [
        (["check", "rules", "durward.yaml"], "SUCCESS: 16 rules found"),
        (["test", "rules", "durward-test.yaml"], "SUCCESS"),
    ] {
        let tool = Tool::new("promtool", &program).directory(&directory).arguments(arguments);
        let output = context.supervisor()?.run(tool, WITHIN)?.succeeded()?;
        ensure!(output.stdout.contains(expected), "{}{}", output.stdout, output.stderr);
    }
    Ok(())
}
