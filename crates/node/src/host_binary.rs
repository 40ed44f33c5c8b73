//! Runs a program of the host from a container, whose C library differs from the host's. The host's dynamic loader starts the
//! program, with the libraries of the host's root. A loader takes both as arguments.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use object::Endianness;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use tokio::process::Command;
use tokio::time::timeout;

use super::version::read_start;

/// A program prints its version at once; the rest is for a disk that has to spin up.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The directories in which distributions keep libraries.
const LIBRARY_PATHS: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// The root of the host, readable with the host's pids and `CAP_SYS_PTRACE`.
const HOST_ROOT: &str = "/proc/1/root";

/// The search path of the host.
const PROGRAM_PATHS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Exit status and output of a program.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    /// Standard output, then standard error.
    pub(crate) text: String,
}

/// Runs a program, and kills it after [`TIMEOUT`].
pub(crate) async fn run(program: &Path, arguments: &[OsString]) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(TIMEOUT, command.output()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Output { status: output.status, text: text(&output.stdout) + &text(&output.stderr) })
}

/// Finds a program on the host. Returns the host's root and the path of the program from here.
pub(crate) fn find_on_host(program: &Path) -> Option<(&'static Path, PathBuf)> {
    let root = Path::new(HOST_ROOT);
    let mut found =
        PROGRAM_PATHS.iter().filter_map(|directory| resolve(root, &Path::new(directory).join(program)));
    Some((root, found.find(|path| only_root_can_write(path))?))
}

/// Returns whether only root can change a file. Durward runs no other program, because it has the rights of root.
fn only_root_can_write(path: &Path) -> bool {
    /// Write permission of the group and of others.
    const OTHERS: u32 = 0o022;
    let is_safe = |file: fs::Metadata| file.is_file() && file.uid() == 0 && file.mode() & OTHERS == 0;
    fs::metadata(path).is_ok_and(is_safe)
}

/// A program of another root, with the loader and the libraries of that root.
#[derive(Debug)]
pub(crate) struct HostBinary {
    program: PathBuf,
    /// `None` for a static program.
    loader: Option<PathBuf>,
    library_path: OsString,
}

impl HostBinary {
    /// `program` is a path from here; its loader and libraries are looked up in `root`.
    pub(crate) fn new(root: &Path, program: &Path) -> io::Result<Self> {
        let loader = match interpreter(&read_start(program)?) {
            None => None,
            Some(path) => {
                let loader = resolve(root, Path::new(&path)).filter(|path| path.is_file());
                Some(loader.ok_or_else(|| io::Error::other(format!("its root has no {path}")))?)
            }
        };
        let directories = LIBRARY_PATHS.iter().filter_map(|path| resolve(root, Path::new(path)));
        let directories: Vec<_> =
            directories.filter(|path| path.is_dir()).map(PathBuf::into_os_string).collect();
        Ok(Self { program: program.to_owned(), loader, library_path: directories.join(OsStr::new(":")) })
    }

    /// Runs the program.
    pub(crate) async fn run(&self, arguments: &[OsString]) -> io::Result<Output> {
        let Some(loader) = &self.loader else { return run(&self.program, arguments).await };
        let own = ["--library-path".into(), self.library_path.clone(), self.program.clone().into()];
        run(loader, &[&own, arguments].concat()).await
    }
}

/// Returns the path of the dynamic loader that an ELF program names.
fn interpreter(program: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(program).ok()?;
    let endian = header.endian().ok()?;
    let headers = header.program_headers(endian, program).ok()?;
    let segment = headers.iter().find(|header| header.p_type(endian) == PT_INTERP)?;
    let bytes = segment.data(endian, program).ok()?;
    let name = bytes.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8(name.to_vec()).ok()?).filter(|name| name.starts_with('/'))
}

/// Returns the path from here of a path in another root, with every link followed inside that root. Through `/proc/PID/root` the
/// kernel would follow absolute links from this root instead.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    /// The kernel's limit.
    const MAX_LINKS: usize = 40;
    let mut rest: Vec<OsString> = reversed_components(path);
    let mut resolved = PathBuf::new();
    let mut links = 0;
    while let Some(component) = rest.pop() {
        if component == ".." {
            resolved.pop();
            continue;
        }
        match fs::read_link(root.join(&resolved).join(&component)) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                if target.is_absolute() {
                    resolved = PathBuf::new();
                }
                rest.extend(reversed_components(&target));
            }
            Err(_) => resolved.push(component),
        }
    }
    Some(root.join(resolved))
}

fn reversed_components(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::env;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    pub(crate) fn script(directory: &Path, text: &str) -> PathBuf {
        let path = directory.join("program");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn does_not_run_a_program_that_others_than_root_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = script(directory.path(), "true");
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        assert_eq!(only_root_can_write(&path), is_root);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
        assert!(!only_root_can_write(&path) && !only_root_can_write(directory.path()));
        assert!(!only_root_can_write(Path::new("/nowhere")) && only_root_can_write(Path::new("/bin/sh")));
    }

    #[tokio::test]
    async fn runs_a_program_of_another_root_by_the_loader_of_that_root() {
        let own = HostBinary::new(Path::new("/proc/self/root"), Path::new("/proc/self/exe")).unwrap();
        let loader = own.loader.clone().unwrap();
        assert!(loader.starts_with("/proc/self/root") && loader.is_file(), "{loader:?}");
        let program = env::current_exe().unwrap();
        let output = HostBinary { program, ..own }.run(&["--list".into()]).await.unwrap();
        assert!(output.status.success() && output.text.contains("of_another_root"), "{output:?}");
        let empty = tempfile::tempdir().unwrap();
        let error = HostBinary::new(empty.path(), Path::new("/proc/self/exe")).unwrap_err().to_string();
        assert!(error.contains("its root has no /"), "{error}");
        // A script names no loader.
        let script = HostBinary::new(empty.path(), &script(empty.path(), "echo $1")).unwrap();
        assert_eq!(script.run(&["x".into()]).await.unwrap().text, "x\n");
    }

    #[test]
    fn follows_links_inside_the_root() {
        let root = tempfile::tempdir().unwrap();
        let inner = |path: &str| root.path().join(path);
        fs::create_dir_all(inner("usr/lib/x")).unwrap();
        fs::write(inner("usr/lib/x/ld.so.2"), "").unwrap();
        symlink("usr/lib", inner("lib")).unwrap();
        symlink("/lib/x/ld.so.2", inner("usr/ld.so")).unwrap();
        symlink("../../../../etc/passwd", inner("out")).unwrap();
        symlink("round", inner("round")).unwrap();
        let resolved = |path: &str| resolve(root.path(), Path::new(path));
        assert_eq!(resolved("/usr/ld.so"), Some(inner("usr/lib/x/ld.so.2")));
        assert_eq!(resolved("/out"), Some(inner("etc/passwd")));
        assert_eq!(resolved("/round"), None);
    }

    #[test]
    fn reads_the_loader_that_a_program_names() {
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(interpreter(&own).unwrap().contains("ld"), "{:?}", interpreter(&own));
        assert_eq!(interpreter(b"#!/bin/sh"), None);
    }
}
