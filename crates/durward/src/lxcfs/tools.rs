//! Programs that are asked for their version, each within a time.
//!
//! LXCFS often runs in a container of its own, whose C library is not ours. Its program is run all the same, by the loader and
//! with the libraries of its own root: a loader takes both as arguments.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use object::Endianness;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use tokio::process::Command;
use tokio::time::timeout;

use super::process::Process;
use super::report::Runtime;
use super::runtime::refuses;

/// A program that says its version does so at once; this is for a disk that sleeps.
const WITHIN: Duration = Duration::from_secs(10);

/// Where distributions keep libraries, below a root. What a loader does not find there it looks for nowhere else.
const FOLDERS: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// What a program said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) status: ExitStatus,
    /// Both of its outputs: LXCFS says its version on standard error.
    pub(super) text: String,
}

/// Runs a program to its end, and ends it if that takes too long.
pub(super) async fn said(program: &Path, arguments: &[OsString], set: &[(&str, &str)]) -> io::Result<Said> {
    let mut command = Command::new(program);
    command.args(arguments).envs(set.iter().copied()).env("LC_ALL", "C");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(WITHIN, command.output()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { status: output.status, text: text(&output.stdout) + &text(&output.stderr) })
}

/// The runc of that name, if it can be had here.
pub(crate) async fn runc(program: &Path) -> Option<Runtime> {
    let said = said(program, &["--version".into()], &[]).await.ok().filter(|said| said.status.success())?;
    let version = said.text.lines().find_map(|line| line.strip_prefix("runc version "))?.trim().to_owned();
    let refuses = refuses(&version).into_iter().map(|file| file.name().to_owned()).collect();
    Some(Runtime { runc: version, refuses })
}

/// The version of the program that a process runs.
pub(crate) async fn lxcfs_version(process: &Process) -> Option<String> {
    let loader = Loader::of(process).ok()?;
    let (seen, file) = process.program().ok()?;
    let program = within(&process.root(), &seen).filter(|path| path.is_file()).unwrap_or(file);
    let said = loader.run(&[program.into(), "--version".into()], &[]).await.ok()?;
    // 5.0.3 puts it between quotation marks.
    let version = said.text.trim().trim_matches('"');
    let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && version.len() < 64;
    (said.status.success() && is_version).then(|| version.to_owned())
}

/// The loader of a process, and the libraries that belong to it.
#[derive(Debug)]
pub(super) struct Loader {
    program: PathBuf,
    folders: OsString,
}

impl Loader {
    /// The one that the process's own program asks for, out of the process's own root.
    pub(super) fn of(process: &Process) -> io::Result<Self> {
        let (_, file) = process.program()?;
        let asked = interpreter(&fs::read(file)?)
            .ok_or_else(|| io::Error::other("the program of LXCFS asks for no loader"))?;
        let root = process.root();
        let program = within(&root, Path::new(&asked))
            .filter(|path| path.is_file())
            .ok_or_else(|| io::Error::other(format!("the root of LXCFS has no {asked}")))?;
        let there = FOLDERS.iter().filter_map(|folder| within(&root, Path::new(folder)));
        let mut folders = OsString::new();
        for folder in there.filter(|folder| folder.is_dir()) {
            if !folders.is_empty() {
                folders.push(":");
            }
            folders.push(folder);
        }
        Ok(Self { program, folders })
    }

    /// Runs the loader.
    pub(super) async fn run(&self, arguments: &[OsString], set: &[(&str, &str)]) -> io::Result<Said> {
        let own = ["--library-path".into(), self.folders.clone()];
        said(&self.program, &[&own, arguments].concat(), set).await
    }
}

/// The loader that a program names.
fn interpreter(program: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(program).ok()?;
    let endian = header.endian().ok()?;
    let headers = header.program_headers(endian, program).ok()?;
    let named = headers.iter().find(|header| header.p_type(endian) == PT_INTERP)?;
    let bytes = named.data(endian, program).ok()?;
    let name = bytes.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8(name.to_vec()).ok()?).filter(|name| name.starts_with('/'))
}

/// Where `path` is to whoever has `root` as `/`: links in it lead from that root and never out of it. (Through
/// `/proc/PID/root` the kernel would follow an absolute one, as `/lib64/ld-linux-x86-64.so.2` of Debian is, from ours.)
fn within(root: &Path, path: &Path) -> Option<PathBuf> {
    /// As many as the kernel follows.
    const LINKS: usize = 40;
    let mut left: Vec<OsString> = parts(path);
    let mut inner = PathBuf::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part == ".." {
            inner.pop();
            continue;
        }
        let here = root.join(&inner).join(&part);
        match fs::read_link(&here) {
            Ok(target) => {
                links += 1;
                if links > LINKS {
                    return None;
                }
                if target.is_absolute() {
                    inner = PathBuf::new();
                }
                left.extend(parts(&target));
            }
            Err(_) => inner.push(part),
        }
    }
    Some(root.join(inner))
}

/// The parts of a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("program");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn a_runc_tells_its_version_and_with_it_what_it_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let old = script(folder.path(), "echo runc version 1.0.0-rc92; echo spec: 1.0.2");
        let runtime = runc(&old).await.unwrap();
        assert_eq!((runtime.runc.as_str(), runtime.refuses), ("1.0.0-rc92", vec!["slabinfo".to_owned()]));
        assert_eq!(runc(Path::new("/nowhere/runc")).await, None);
        assert_eq!(runc(&script(folder.path(), "echo runc version 1.1.5; exit 1")).await, None);
    }

    #[test]
    fn links_lead_from_the_root_and_never_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        let inner = |path: &str| root.path().join(path);
        fs::create_dir_all(inner("usr/lib/x")).unwrap();
        fs::write(inner("usr/lib/x/ld.so.2"), "").unwrap();
        symlink("usr/lib", inner("lib")).unwrap();
        symlink("/lib/x/ld.so.2", inner("usr/ld.so")).unwrap();
        symlink("../../../../etc/passwd", inner("out")).unwrap();
        symlink("round", inner("round")).unwrap();
        let found = |path: &str| within(root.path(), Path::new(path));
        assert_eq!(found("/usr/ld.so"), Some(inner("usr/lib/x/ld.so.2")));
        assert_eq!(found("/out"), Some(inner("etc/passwd")));
        assert_eq!(found("/round"), None);
    }

    #[test]
    fn a_program_names_its_loader() {
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(interpreter(&own).unwrap().contains("ld"), "{:?}", interpreter(&own));
        assert_eq!(interpreter(b"#!/bin/sh"), None);
    }
}
