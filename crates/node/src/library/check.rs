//! Checks whether LXCFS would survive a library. No code of the library runs.
//!
//! Measured with LXCFS 5.0: it crashes with a truncated library (SIGBUS), and exits with one without `lxcfs_fuse_init`. With
//! one that lacks the functions for its files, each read fails with EPERM.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::path::Path;

use object::Endianness;
use object::elf::{ET_DYN, FileHeader64, PT_LOAD, SHN_UNDEF, SHT_DYNSYM};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};

use super::super::process::Process;
use super::super::version::strings;

/// The library of LXCFS 5.0 has 160 kB.
const MAX_BYTES: u64 = 64 << 20;

/// The first function that the program calls.
const INIT: &str = "lxcfs_fuse_init";

/// The program looks up a function for each tree that it serves and each FUSE operation, as `proc_read`.
const TREES: [&str; 3] = ["cg_", "proc_", "sys_"];
const OPERATIONS: [&str; 14] = [
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

/// Returns an error unless the file is a whole ELF library and defines every function that the program of the process names.
pub(super) fn check(process: &Process, path: &Path) -> Result<(), String> {
    let unreadable = |error: std::io::Error| format!("it could not be read: {error}");
    if fs::metadata(path).map_err(unreadable)?.len() > MAX_BYTES {
        return Err(format!("it is larger than {} MiB", MAX_BYTES >> 20));
    }
    let defined = defined_functions(&fs::read(path).map_err(unreadable)?)?;
    let program = fs::read(process.program())
        .map_err(|error| format!("the program of LXCFS could not be read: {error}"))?;
    let missing: Vec<_> =
        named_functions(&program).into_iter().filter(|name| !defined.contains(*name)).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("it lacks functions that LXCFS calls: {}", missing.join(", ")))
    }
}

/// Returns the functions that a library defines, or an error if it is not a library or not complete.
fn defined_functions(library: &[u8]) -> Result<BTreeSet<String>, String> {
    let no_library = |why: &dyn Display| format!("it is not a library: {why}");
    let header = FileHeader64::<Endianness>::parse(library).map_err(|error| no_library(&error))?;
    let endian = header.endian().map_err(|error| no_library(&error))?;
    if header.e_type(endian) != ET_DYN {
        return Err(no_library(&"it is another type of ELF file"));
    }
    let segments = header.program_headers(endian, library).map_err(|error| no_library(&error))?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let end = loaded.map(|segment| segment.p_offset(endian).saturating_add(segment.p_filesz(endian))).max();
    let end = end.ok_or_else(|| no_library(&"it has nothing to load"))?;
    if end > library.len() as u64 {
        return Err(format!("it is truncated: {} of at least {end} bytes", library.len()));
    }
    let sections = header.sections(endian, library).map_err(|error| no_library(&error))?;
    let symbols = sections.symbols(endian, library, SHT_DYNSYM).map_err(|error| no_library(&error))?;
    let defined = symbols.iter().filter(|symbol| symbol.st_shndx(endian) != SHN_UNDEF && !symbol.is_local());
    let names = defined.filter_map(|symbol| symbols.symbol_name(endian, symbol).ok());
    Ok(names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
}

/// Returns the functions that a program looks up in the library. Their names are strings of the program.
fn named_functions(program: &[u8]) -> BTreeSet<&str> {
    let is_function = |text: &&str| {
        let operation = TREES.iter().find_map(|tree| text.strip_prefix(tree));
        operation.is_some_and(|operation| OPERATIONS.contains(&operation))
    };
    strings(program).filter(is_function).chain([INIT]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the C library of this process.
    fn library() -> Vec<u8> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| {
            let path = line.split_whitespace().nth(5)?;
            path.contains("/libc.so").then(|| path.to_owned())
        });
        fs::read(path.unwrap()).unwrap()
    }

    #[test]
    fn lists_the_functions_of_a_library() {
        let functions = defined_functions(&library()).unwrap();
        assert!(functions.contains("dlopen") && functions.contains("printf"));
        assert!(!functions.contains(INIT));
    }

    #[test]
    fn rejects_a_truncated_library() {
        let library = library();
        for length in [0, 3, 63, 64, library.len() / 2, library.len() - (64 << 10)] {
            let error = defined_functions(&library[..length]).unwrap_err();
            assert!(
                error.contains("is not a library") || error.contains("is truncated"),
                "{length}: {error}"
            );
        }
        assert!(defined_functions(b"#!/bin/sh\nexit 0\n").unwrap_err().contains("is not a library"));
    }

    #[test]
    fn finds_the_functions_that_a_program_looks_up() {
        let program = b"\x7fELF\0proc_read\0sys_readlink\0proc_pid\0do_proc_read\0cgroup\0cg_write\0\xff\0";
        let names: Vec<_> = named_functions(program).into_iter().collect();
        assert_eq!(names, ["cg_write", "lxcfs_fuse_init", "proc_read", "sys_readlink"]);
    }
}
