//! Finds the shared libraries of a program with `ldd`, which asks the host's loader.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// Returns the libraries that a program or a library needs, and the loader. Returns none for a static program and for a
/// script.
pub(super) fn of(program: &Path) -> Result<Vec<PathBuf>> {
    // Cargo sets LD_LIBRARY_PATH for tests; an image has no such directories.
    let output = Command::new("ldd").env_remove("LD_LIBRARY_PATH").env("LC_ALL", "C").arg(program).output();
    let output = output.context("cannot run `ldd` (Debian's package libc-bin)")?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if output.status.success() {
        return parse(&stdout).with_context(|| format!("the libraries of {}", program.display()));
    }
    if stderr.contains("not a dynamic executable") || stdout.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    bail!("ldd cannot list the libraries of {}: {}", program.display(), stderr.trim())
}

/// Reads lines of `name => path (address)`, `path (address)` for the loader, `name (address)` for the kernel's own, and
/// `statically linked`.
fn parse(listing: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in listing.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        ensure!(place != "not found", "{name} is not on this host");
        let path = place.split_once(" (").map_or(place, |(path, _)| path);
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_libraries_and_the_loader_but_not_the_kernels_own() {
        let listing = "\tlinux-vdso.so.1 (0x00007f3b21651000)
\tlibfuse3.so.3 => /lib/x86_64-linux-gnu/libfuse3.so.3 (0x00007f3b215f6000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3b21653000)
";
        let expected = ["/lib/x86_64-linux-gnu/libfuse3.so.3", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(parse(listing).unwrap(), expected.map(PathBuf::from));
        assert!(parse("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn names_a_missing_library() {
        let error = parse("\tlibodd.so.1 => not found\n").unwrap_err().to_string();
        assert_eq!(error, "libodd.so.1 is not on this host");
    }

    #[test]
    fn a_script_needs_no_libraries() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/prepare.sh");
        assert!(of(&script).unwrap().is_empty());
    }
}
