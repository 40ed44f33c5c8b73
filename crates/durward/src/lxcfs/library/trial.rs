//! Whether LXCFS would survive a library. Nothing of the library is run.
//!
//! What kills LXCFS 5.0, or leaves it with files that nobody can read (measured): a file that was cut off (SIGBUS), one that the
//! loader refuses where there is no other, one without `lxcfs_fuse_init` (it exits), one without the functions behind its files
//! (each read fails with EPERM). So: the file is whole; it defines every function that the program names; and the loader of
//! LXCFS's own root, with that root's libraries, finds nothing missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use object::Endianness;
use object::elf::{ET_DYN, FileHeader64, PT_LOAD, SHN_UNDEF};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};

use super::super::process::Process;
use super::super::tools::Foreign;

/// LXCFS 5.0's has 160 kB.
const LARGEST: u64 = 64 << 20;

/// What the program calls first of all; without it, it exits.
const FIRST: &str = "lxcfs_fuse_init";

/// The trees that LXCFS serves, and what FUSE asks of them: the program looks up `proc_read` and its like by name.
const TREES: [&str; 3] = ["cg_", "proc_", "sys_"];
const DEEDS: [&str; 14] = [
    "access",
    "chmod",
    "chown",
    "getattr",
    "mkdir",
    "open",
    "opendir",
    "read",
    "readdir",
    "readlink",
    "release",
    "releasedir",
    "rmdir",
    "write",
];

/// Nothing, if the process may be told to load the file; otherwise what is wrong with it.
pub(super) async fn pass(process: &Process, file: &Path) -> Result<(), String> {
    let size = fs::metadata(file).map_err(|error| format!("it cannot be read: {error}"))?.len();
    if size > LARGEST {
        return Err(format!("it is larger than {} MiB", LARGEST >> 20));
    }
    let library = fs::read(file).map_err(|error| format!("it cannot be read: {error}"))?;
    let defined = functions(&library)?;
    let program = fs::read(process.program())
        .map_err(|error| format!("the program of LXCFS cannot be read: {error}"))?;
    let missing: Vec<_> =
        named(&program).into_iter().filter(|name| !defined.contains(name.as_str())).collect();
    if !missing.is_empty() {
        return Err(format!("it lacks what LXCFS calls: {}", missing.join(", ")));
    }
    let tried = |error: std::io::Error| format!("it cannot be tried with the loader of LXCFS: {error}");
    let foreign = Foreign::of(&process.root(), &process.program()).map_err(tried)?;
    let said = foreign.list(file).await.map_err(tried)?;
    // A C library that is too old is told, and is no failure to the loader.
    let complaint =
        said.text.lines().find(|line| line.contains("not found") || line.contains("undefined symbol"));
    match complaint {
        Some(line) => Err(format!("the loader of LXCFS finds something missing: {}", line.trim())),
        None if said.status.success() => Ok(()),
        None => Err(format!("the loader of LXCFS refuses it ({}): {}", said.status, said.text.trim())),
    }
}

/// The functions that a library defines, if it is one and all of it is there.
fn functions(library: &[u8]) -> Result<BTreeSet<String>, String> {
    let no_library = |why: &dyn std::fmt::Display| format!("it is no library: {why}");
    let header = FileHeader64::<Endianness>::parse(library).map_err(|error| no_library(&error))?;
    let endian = header.endian().map_err(|error| no_library(&error))?;
    if header.e_type(endian) != ET_DYN {
        return Err(no_library(&"it is an ELF file of another kind"));
    }
    let segments = header.program_headers(endian, library).map_err(|error| no_library(&error))?;
    let ends = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let ends = ends.map(|segment| segment.p_offset(endian).saturating_add(segment.p_filesz(endian))).max();
    let whole = ends.ok_or_else(|| no_library(&"nothing of it would be loaded"))?;
    if whole > library.len() as u64 {
        return Err(format!("it is cut off: {} bytes of at least {whole}", library.len()));
    }
    let sections = header.sections(endian, library).map_err(|error| no_library(&error))?;
    let symbols =
        sections.symbols(endian, library, object::elf::SHT_DYNSYM).map_err(|error| no_library(&error))?;
    let defined = symbols.iter().filter(|symbol| symbol.st_shndx(endian) != SHN_UNDEF && !symbol.is_local());
    let names = defined.filter_map(|symbol| symbols.symbol_name(endian, symbol).ok());
    Ok(names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
}

/// The functions of the library that a program looks up by name: they stand in it as texts.
fn named(program: &[u8]) -> BTreeSet<String> {
    let texts = program.split(|&byte| byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let is_looked_up = |text: &&str| {
        let deed = TREES.iter().find_map(|tree| text.strip_prefix(tree));
        deed.is_some_and(|deed| DEEDS.contains(&deed))
    };
    texts.filter(is_looked_up).chain([FIRST]).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that is certainly there: the C library of this very process.
    fn library() -> Vec<u8> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| {
            let path = line.split_whitespace().nth(5)?;
            path.contains("/libc.so").then(|| path.to_owned())
        });
        fs::read(path.unwrap()).unwrap()
    }

    #[test]
    fn a_library_tells_its_functions() {
        let functions = functions(&library()).unwrap();
        assert!(functions.contains("dlopen") && functions.contains("printf"));
        assert!(!functions.contains(FIRST));
    }

    #[test]
    fn what_was_cut_off_is_told_before_the_loader_falls_over_it() {
        let library = library();
        for length in [0, 3, 63, 64, library.len() / 2, library.len() - (64 << 10)] {
            let why = functions(&library[..length]).unwrap_err();
            assert!(why.contains("is no library") || why.contains("is cut off"), "{length}: {why}");
        }
        assert!(functions(b"#!/bin/sh\nexit 0\n").unwrap_err().contains("is no library"));
    }

    #[test]
    fn what_a_program_looks_up_by_name_is_found_in_it() {
        let program = b"\x7fELF\0proc_read\0sys_readlink\0proc_pid\0do_proc_read\0cgroup\0cg_write\0\xff\0";
        let names: Vec<_> = named(program).into_iter().collect();
        assert_eq!(names, ["cg_write", "lxcfs_fuse_init", "proc_read", "sys_readlink"]);
    }
}
