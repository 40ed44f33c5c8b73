//! `scripts/prepare.sh` leaves the host as it should, also if it is killed: `prepare.sh` next to this file checks it. The
//! test installs nothing and does not change the host.

use std::path::Path;
use std::process::Command;

#[test]
fn prepare_forbids_services_only_while_it_installs() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("unshare")
        .args(["--mount", "--propagation=private", "bash"])
        .arg(directory.join("tests/prepare.sh"))
        .arg(directory.join("../scripts/prepare.sh"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
