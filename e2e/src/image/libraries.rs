//! The shared libraries of a program, as this host's loader finds them.
//!
//! The loader itself is asked (`ld.so --list`, which is what `ldd` does): where a library is looked for
//! depends on the program, on the host's configuration and on the C library, and only the loader knows all of
//! it. It maps the libraries and runs nothing of them. Which loader, and whether a program is dynamic at all,
//! stands in the program's ELF header.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// Enough for the ELF header, the program headers and the loader's name, which linkers put right behind them.
const HEAD: u64 = 64 * 1024;

/// The program headers that tell of the loader and of dynamic linking (`elf(5)`).
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;

/// The tests themselves, also after a build has replaced their file.
const OWN: &str = "/proc/self/exe";

/// The files that a program or a library needs beside itself, the loader among them. None if it is static.
pub(super) fn of(program: &Path) -> Result<Vec<PathBuf>> {
    let own = Linkage::of(program)?;
    if !own.is_dynamic {
        return Ok(Vec::new());
    }
    let loader = match own.loader {
        Some(loader) => loader,
        // A library has none of its own, and a static program that can be moved has none either.
        None => Linkage::of(Path::new(OWN))?
            .loader
            .with_context(|| format!("the libraries of {} are listed by the loader of a dynamic program, and the tests are a static one", program.display()))?,
    };
    // Cargo sets LD_LIBRARY_PATH for tests; an image has no such folders.
    let listing = Command::new(&loader).env_clear().arg("--list").arg(program).output();
    let listing = listing.with_context(|| format!("cannot run {}", loader.display()))?;
    let said = String::from_utf8_lossy(&listing.stdout);
    if !listing.status.success() {
        let error = String::from_utf8_lossy(&listing.stderr);
        bail!("{} cannot list the libraries of {}: {}", loader.display(), program.display(), error.trim());
    }
    parse(&said).with_context(|| format!("the libraries of {}", program.display()))
}

/// `name => path (address)`, `path (address)` for the loader, `name (address)` for what the kernel brings,
/// `statically linked` for a static program that can be moved.
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

/// What an ELF file says of how it is linked.
#[derive(Debug, PartialEq, Eq)]
struct Linkage {
    is_dynamic: bool,
    loader: Option<PathBuf>,
}

impl Linkage {
    fn of(program: &Path) -> Result<Self> {
        let mut head = Vec::new();
        let file = File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
        file.take(HEAD)
            .read_to_end(&mut head)
            .with_context(|| format!("cannot read {}", program.display()))?;
        Self::parse(&head).with_context(|| {
            format!(
                "{} is no 64-bit little-endian ELF program, so its libraries cannot be found",
                program.display()
            )
        })
    }

    /// None if these are not the first bytes of a 64-bit little-endian ELF file.
    fn parse(head: &[u8]) -> Option<Self> {
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (first, size, count) = (number(head, 0x20, 8)?, number(head, 0x36, 2)?, number(head, 0x38, 2)?);
        let mut linkage = Self { is_dynamic: false, loader: None };
        for index in 0..count {
            let at = usize::try_from(first.checked_add(index * size)?).ok()?;
            match number(head, at, 4)? {
                PT_DYNAMIC => linkage.is_dynamic = true,
                PT_INTERP => {
                    let begin = usize::try_from(number(head, at.checked_add(8)?, 8)?).ok()?;
                    let name = head.get(begin..)?.split(|byte| *byte == 0).next()?;
                    linkage.loader = Some(PathBuf::from(std::str::from_utf8(name).ok()?));
                }
                _ => {}
            }
        }
        Some(linkage)
    }
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\tlinux-vdso.so.1 (0x00007f3b21651000)
\tlibfuse3.so.3 => /lib/x86_64-linux-gnu/libfuse3.so.3 (0x00007f3b215f6000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3b213f4000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3b21653000)
";

    #[test]
    fn a_listing_gives_the_libraries_and_the_loader_but_not_the_kernel_s_own() {
        let found = parse(LISTING).unwrap();
        let expected = [
            "/lib/x86_64-linux-gnu/libfuse3.so.3",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(parse("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn a_library_that_is_nowhere_is_told_by_name() {
        let said = parse("\tlibodd.so.1 => not found\n").unwrap_err().to_string();
        assert_eq!(said, "libodd.so.1 is not on this host");
    }

    #[test]
    fn what_is_no_elf_program_is_told_and_cut_off_ones_are_too() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/prepare.sh");
        let said = of(&script).unwrap_err().to_string();
        assert!(said.contains("prepare.sh is no 64-bit little-endian ELF program"), "{said}");
        let own = std::fs::read(OWN).unwrap();
        assert!(Linkage::parse(&own).unwrap().loader.is_some());
        for length in [0, 4, 16, 63, 80] {
            assert_eq!(Linkage::parse(&own[..length]), None, "{length} bytes");
        }
    }
}
