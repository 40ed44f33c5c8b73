//! Which version a program has: LXCFS's stands in the program, which is read and not run; runc is asked, within a time.
//!
//! runc often is on the node itself, and its C library is not ours. It is run all the same, by the loader and with the libraries
//! of its own root: a loader takes both as arguments. So is the loader of LXCFS, to try a library ([`Foreign::list`]).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use object::Endianness;
use object::elf::{FileHeader64, PF_W, PT_INTERP, PT_LOAD};
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
    let foreign = Foreign::of(root, &found.into_iter().find(|path| is_roots(path))?).ok()?;
    told(&foreign.run(&version).await.ok()?)
}

/// Whether it is a file that only root could have put there as it is; nothing else is run with our rights.
fn is_roots(path: &Path) -> bool {
    /// Others than the owner may write.
    const OTHERS: u32 = 0o022;
    let is_safe = |file: fs::Metadata| file.is_file() && file.uid() == 0 && file.mode() & OTHERS == 0;
    fs::metadata(path).is_ok_and(is_safe)
}

/// What a runc says of itself.
fn told(said: &Said) -> Option<Runtime> {
    let version = said.text.lines().find_map(|line| line.strip_prefix("runc version "))?.trim().to_owned();
    let refuses = refuses(&version).into_iter().map(|file| file.name().to_owned()).collect();
    said.status.success().then_some(Runtime { runc: version, refuses })
}

/// The version of the program that a process runs, where it can be told.
pub(crate) fn lxcfs_version(process: &Process) -> Option<String> {
    version_in(&head(&process.program()).ok()?)
}

/// The version that a program would tell with `--version`: it stands there as a text. 5.0 has it with quotation marks and all, by
/// a slip of its build; others have it plain, which is believed where no second text looks like one.
fn version_in(program: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(program).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, program).ok()?.iter();
    let constant = segments.filter(|one| one.p_type(endian) == PT_LOAD && one.p_flags(endian) & PF_W == 0);
    let (mut quoted, mut plain) = (BTreeSet::new(), BTreeSet::new());
    for text in constant.filter_map(|one| one.data(endian, program).ok()).flat_map(texts) {
        match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(inner) if is_version(inner) => drop(quoted.insert(inner)),
            None if is_version(text) => drop(plain.insert(text)),
            _ => {}
        }
    }
    let mut found = if quoted.is_empty() { plain } else { quoted }.into_iter();
    let first = found.next()?.to_owned();
    found.next().is_none().then_some(first)
}

/// What stands between two zeros and is text.
fn texts(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split(|&byte| byte == 0).filter_map(|text| str::from_utf8(text).ok())
}

/// Three numbers, and whatever of `~rc1` or `-devel` follows the last.
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

/// As much of a program as names its loader, and all of an LXCFS (120 kB); a runc has 10 MB.
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

    use super::super::process::find;
    use super::super::process::tests::{ARGUMENTS, add, sees};
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

    /// An ELF file with one segment that is loaded, of these flags.
    fn program(flags: u8, texts: &[&str]) -> Vec<u8> {
        let text = [texts.join("\0").as_bytes(), b"\0"].concat();
        let mut bytes = vec![0; 64 + 56];
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        // Where the program headers are, how large one is, and how many there are.
        (bytes[32], bytes[52], bytes[54], bytes[56]) = (64, 64, 56, 1);
        // Its kind, its flags, where it is, and how long.
        (bytes[64], bytes[68], bytes[72]) = (1, flags, 120);
        bytes[96..104].copy_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend(text);
        bytes
    }

    #[test]
    fn the_version_is_read_out_of_the_program() {
        const READ: u8 = 4;
        for (texts, expected) in [
            (&["x", "\"5.0.3\"", "%s\n", "2.9.0"][..], Some("5.0.3")),
            (&["x", "6.0.4", "GLIBC_2.2.5", "libc.so.6"], Some("6.0.4")),
            (&["7.0.0-devel"], Some("7.0.0-devel")),
            (&["5.0.3", "5.0.3"], Some("5.0.3")),
            (&["5.0.3", "2.9.0"], None),
            (&["\"5.0.3\"", "\"5.0.4\""], None),
            (&["5.0", "a.b.c", "1.2.x", "1.2.3 4", "", "\""], None),
        ] {
            assert_eq!(version_in(&program(READ, texts)).as_deref(), expected, "{texts:?}");
        }
        assert_eq!(version_in(&program(READ | 2, &["\"5.0.3\""])), None, "it may be overwritten");
        for length in [0, 4, 63, 64, 100, 121] {
            assert_eq!(version_in(&program(READ, &["\"5.0.3\""])[..length]), None, "{length}");
        }
    }

    #[test]
    fn the_program_of_a_process_is_not_run_for_its_version() {
        let proc = tempfile::tempdir().unwrap();
        sees(proc.path(), "0:55");
        add(proc.path(), 7, "lxcfs", &ARGUMENTS, &[]);
        let ran = proc.path().join("ran");
        let fake = script(proc.path(), &format!("touch {}; echo 5.0.3", ran.display()));
        fs::rename(fake, proc.path().join("7/exe")).unwrap();
        symlink("/", proc.path().join("7/root")).unwrap();
        let process = find(proc.path(), Path::new("/nowhere"), "/var/lib/lxcfs").unwrap();
        assert_eq!(lxcfs_version(&process), None);
        assert!(!ran.exists());
        fs::write(proc.path().join("7/exe"), program(4, &["5.0.3"])).unwrap();
        assert_eq!(lxcfs_version(&process).as_deref(), Some("5.0.3"));
    }

    #[test]
    fn what_others_than_root_can_write_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = script(folder.path(), "true");
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        assert_eq!(is_roots(&path), is_root);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
        assert!(!is_roots(&path) && !is_roots(folder.path()) && !is_roots(Path::new("/nowhere")));
        assert!(is_roots(Path::new("/bin/sh")));
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
