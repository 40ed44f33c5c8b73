//! That `scripts/prepare.sh` leaves a host as it should, whatever happens to it while it installs: `prepare.sh`
//! beside this file tells what is looked at. Nothing is installed, and this host is not touched.

use std::path::Path;
use std::process::Command;

#[test]
fn prepare_forbids_services_only_while_it_installs_also_when_it_is_killed_or_run_twice() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let said = Command::new("unshare")
        .args(["--mount", "--propagation=private", "bash"])
        .arg(folder.join("tests/prepare.sh"))
        .arg(folder.join("../scripts/prepare.sh"))
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
