//! Programs that are asked for their version, each within a time.
//!
//! LXCFS often runs in a container of its own, and runc on the node itself, and their C library is not ours. Such a program is run
//! all the same, by the loader and with the libraries of its own root: a loader takes both as arguments.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
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

/// The root of the node, to who is in its process namespace and may trace its first process.
const NODE: &str = "/proc/1/root";

/// Where nodes have their runc.
const PROGRAMS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

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

/// The runc of that name: as it can be called here, or else as the node has it, where the node's first process can be looked into.
pub(crate) async fn runc(program: &Path) -> Option<Runtime> {
    let version: [OsString; 1] = ["--version".into()];
    if let Some(runtime) = said(program, &version, &[]).await.ok().and_then(|said| told(&said)) {
        return Some(runtime);
    }
    let root = Path::new(NODE);
    let found = PROGRAMS.iter().filter_map(|folder| within(root, &Path::new(folder).join(program)));
    let foreign = Foreign::of(root, &found.into_iter().find(|path| path.is_file())?).ok()?;
    told(&foreign.run(&version).await.ok()?)
}

/// What a runc says of itself.
fn told(said: &Said) -> Option<Runtime> {
    let version = said.text.lines().find_map(|line| line.strip_prefix("runc version "))?.trim().to_owned();
    let refuses = refuses(&version).into_iter().map(|file| file.name().to_owned()).collect();
    said.status.success().then_some(Runtime { runc: version, refuses })
}

/// The version of the program that a process runs.
pub(crate) async fn lxcfs_version(process: &Process) -> Option<String> {
    let said =
        Foreign::of(&process.root(), &process.program()).ok()?.run(&["--version".into()]).await.ok()?;
    // 5.0.3 puts it between quotation marks.
    let version = said.text.trim().trim_matches('"');
    let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && version.len() < 64;
    (said.status.success() && is_version).then(|| version.to_owned())
}

/// A program of another root, with the loader and the libraries that belong to it there.
#[derive(Debug)]
pub(super) struct Foreign {
    program: PathBuf,
    /// None where the program needs none.
    loader: Option<PathBuf>,
    folders: OsString,
}

impl Foreign {
    /// `program` is a path that leads to the file from here; what it asks for is looked for in `root`.
    pub(super) fn of(root: &Path, program: &Path) -> io::Result<Self> {
        let loader = match interpreter(&head(program)?) {
            None => None,
            Some(asked) => {
                let loader = within(root, Path::new(&asked)).filter(|path| path.is_file());
                Some(loader.ok_or_else(|| io::Error::other(format!("its root has no {asked}")))?)
            }
        };
        let there = FOLDERS.iter().filter_map(|folder| within(root, Path::new(folder)));
        let there: Vec<_> = there.filter(|folder| folder.is_dir()).map(PathBuf::into_os_string).collect();
        Ok(Self { program: program.to_owned(), loader, folders: there.join(OsStr::new(":")) })
    }

    /// Runs the program.
    pub(super) async fn run(&self, arguments: &[OsString]) -> io::Result<Said> {
        match &self.loader {
            None => said(&self.program, arguments, &[]).await,
            Some(loader) => {
                let own = ["--library-path".into(), self.folders.clone(), self.program.clone().into()];
                said(loader, &[&own, arguments].concat(), &[]).await
            }
        }
    }

    /// Has the loader look at a library, all of its functions included, and run nothing of it.
    pub(super) async fn list(&self, library: &Path) -> io::Result<Said> {
        let loader =
            self.loader.as_ref().ok_or_else(|| io::Error::other("the program asks for no loader"))?;
        let arguments =
            ["--library-path".into(), self.folders.clone(), "--list".into(), library.to_owned().into()];
        said(loader, &arguments, &[("LD_BIND_NOW", "1"), ("LD_WARN", "1")]).await
    }
}

/// As much of a program as names its loader; a runc has 10 MB.
fn head(program: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(program)?.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(bytes)
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
    use std::env;
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

    #[tokio::test]
    async fn a_program_of_another_root_is_run_by_the_loader_of_that_root() {
        let own = Foreign::of(Path::new("/proc/self/root"), Path::new("/proc/self/exe")).unwrap();
        let loader = own.loader.clone().unwrap();
        assert!(loader.starts_with("/proc/self/root") && loader.is_file(), "{loader:?}");
        let program = env::current_exe().unwrap();
        let said = Foreign { program, ..own }.run(&["--list".into()]).await.unwrap();
        assert!(said.status.success() && said.text.contains("of_another_root"), "{said:?}");
        let bare = tempfile::tempdir().unwrap();
        let error = Foreign::of(bare.path(), Path::new("/proc/self/exe")).unwrap_err().to_string();
        assert!(error.contains("its root has no /"), "{error}");
        // A script asks for no loader, and is run as it is.
        let script = Foreign::of(bare.path(), &script(bare.path(), "echo $1")).unwrap();
        assert_eq!(script.run(&["x".into()]).await.unwrap().text, "x\n");
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
