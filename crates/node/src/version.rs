//! The version of LXCFS, read from its program file. The program is not run.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use super::process::Process;

/// The size of an LXCFS program is 120 kB.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the version of the program that a process runs, or none if it cannot be determined.
pub fn lxcfs_version(process: &Process) -> Option<String> {
    find_version(&read_start(&process.program()).ok()?)
}

fn read_start(program: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(program)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Finds the string that `--version` would print. LXCFS 5.0 contains it with quotation marks, by an error of its build. Without
/// quotation marks, it counts only if no other string looks like a version.
fn find_version(program: &[u8]) -> Option<String> {
    let (mut quoted, mut plain) = (BTreeSet::new(), BTreeSet::new());
    for text in strings(program) {
        match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(inner) if is_version(inner) => drop(quoted.insert(inner)),
            None if is_version(text) => drop(plain.insert(text)),
            _ => {}
        }
    }
    let mut versions = if quoted.is_empty() { plain } else { quoted }.into_iter();
    let first = versions.next()?.to_owned();
    versions.next().is_none().then_some(first)
}

/// Returns the zero-terminated UTF-8 strings in a program.
pub(crate) fn strings(program: &[u8]) -> impl Iterator<Item = &str> {
    program.split(|&byte| byte == 0).filter_map(|text| str::from_utf8(text).ok())
}

/// Returns whether a text is a version of three numbers, with an optional suffix as in `~rc1` or `-devel`.
fn is_version(text: &str) -> bool {
    let mut parts = text.splitn(3, '.');
    let mut next = || parts.next().unwrap_or_default();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_last = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'~' | b'-' | b'+' | b'.');
        text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(is_plain)
    };
    text.len() < 32 && is_number(next()) && is_number(next()) && is_last(next())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::process::find_process;
    use super::super::process::tests::{ARGUMENTS, add_process, mount_lxcfs};
    use super::*;

    #[test]
    fn finds_the_only_version_in_a_program() {
        for (texts, expected) in [
            (&["x", "\"5.0.3\"", "%s\n", "2.9.0"][..], Some("5.0.3")),
            (&["x", "6.0.4", "GLIBC_2.2.5", "libc.so.6"], Some("6.0.4")),
            (&["7.0.0-devel"], Some("7.0.0-devel")),
            (&["5.0.3", "5.0.3"], Some("5.0.3")),
            (&["5.0.3", "2.9.0"], None),
            (&["\"5.0.3\"", "\"5.0.4\""], None),
            (&["5.0", "a.b.c", "1.2.x", "1.2.3 4", "", "\""], None),
        ] {
            let program = format!("\x7fELF\0{}\0", texts.join("\0"));
            assert_eq!(find_version(program.as_bytes()).as_deref(), expected, "{texts:?}");
        }
    }

    #[test]
    fn does_not_run_the_program_of_a_process_for_its_version() {
        let proc = tempfile::tempdir().unwrap();
        mount_lxcfs(proc.path(), "0:55");
        add_process(proc.path(), 7, "lxcfs", &ARGUMENTS, &[]);
        let (program, ran) = (proc.path().join("7/exe"), proc.path().join("ran"));
        fs::write(&program, format!("#!/bin/sh\ntouch {}; echo 5.0.3\n", ran.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let process = find_process(proc.path(), Path::new("/nowhere"), "/var/lib/lxcfs").unwrap();
        assert_eq!(lxcfs_version(&process), None);
        assert!(!ran.exists());
        fs::write(&program, "\x7fELF\0\x005.0.3\0").unwrap();
        assert_eq!(lxcfs_version(&process).as_deref(), Some("5.0.3"));
    }
}
