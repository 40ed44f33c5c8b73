#!/usr/bin/env bash
# Counts the lines of production code under crates/, by area, and all Rust lines under e2e/. Files that git ignores do not count.
#
# A line of production code is neither blank nor a comment, and is not compiled for tests only. Not counted are therefore, besides
# generated.rs:
# files under tests/ or benches/, tests.rs, tests_*.rs, items behind `#[cfg(test)]`, and the files of a `#[cfg(test)] mod NAME;`.
# The end of an item is found by its indentation, so the sources must be formatted (`make fmt`).
set -euo pipefail
cd "$(dirname "$0")/.."

sources_of() { git ls-files --cached --others --exclude-standard "$1/*.rs" | while read -r file; do [ ! -f "$file" ] || echo "$file"; done; }
mapfile -t sources < <(sources_of crates | grep -vE '(^|/)(tests|benches)/|/(generated|tests(_[a-z0-9_]*)?)\.rs$')

# Reads all files twice: first to find the modules that only tests include, then to count.
awk '
    function module_dir(file) {
        if (file ~ /\/(mod|lib|main)\.rs$/) sub(/\/[a-z]+\.rs$/, "", file); else sub(/\.rs$/, "", file)
        return file
    }
    function test_only(file, prefix) {
        for (prefix in modules) if (file == prefix ".rs" || index(file, prefix "/") == 1) return 1
        return 0
    }
    # Splits a path without the group: crates/webhook/guards/src/etcd.rs is crates, guards, src, etcd.rs.
    function parts_of(file, part) {
        sub(/^crates\/(common|webhook|evaluator)\//, "crates/", file)
        return split(file, part, "/")
    }
    # src/etcd.rs and src/etcd/decide.rs of the crate guards belong to guards/etcd, src/lib.rs to guards.
    function area(file, part) {
        parts_of(file, part)
        sub(/\.rs$/, "", part[4])
        return (part[2] "/" part[4]) in areas ? part[2] "/" part[4] : part[2]
    }

    FNR == 1 { comment = 0; test = 0; skip = 0; counted = (pass == 2 && !test_only(FILENAME)) }
    FNR == 1 && pass == 1 { n = parts_of(FILENAME, part); if (n > 4) areas[part[2] "/" part[4]] }
    FNR == 1 && counted { files++; where = area(FILENAME) }

    { line = $0; sub(/^[ \t]+/, "", line); indent = length($0) - length(line) }

    # An item for tests ends with its closing bracket, unless that one only ends a list of arguments.
    skip { if (indent == skipped_indent && line ~ /^[})\]]/ && line !~ /[{(\[]$/) skip = 0; next }
    comment { if (line ~ /\*\//) comment = 0; next }
    line == "" || line ~ /^\/\// { next }
    line ~ /^\/\*/ { if (line !~ /\*\//) comment = 1; next }

    line ~ /^#\[cfg\((test\)\]|(all|any)\(test,)/ { test = 1; sub(/^#\[cfg\([^\]]*\)\] */, "", line); if (line == "") next }
    test && line ~ /^#/ { next }
    test {
        test = 0
        if (pass == 1 && match(line, /mod [a-z0-9_]+;/)) modules[module_dir(FILENAME) "/" substr(line, RSTART + 4, RLENGTH - 5)]
        if (line !~ /[;,}]$/) { skip = 1; skipped_indent = indent }
        next
    }
    counted { code[where]++; split(where, part, "/"); crate[part[1]]++; total++ }

    END {
        for (name in crate) {
            printf "%s\t%d\n", name, crate[name]
            for (where in code) if (index(where, name "/") == 1) printf "%s\t%d\n", where, code[where]
        }
        printf "~\t%d\t%d\n", total, files
    }
' pass=1 "${sources[@]}" pass=2 "${sources[@]}" |
    LC_ALL=C sort | awk -F '\t' '
        $1 == "~" { printf "%-24s %7d   (%d files)\n", "production, all crates", $2, $3; next }
        $1 ~ /\// { printf "  %-22s %7d\n", $1, $2; next }
        { printf "%-24s %7d\n", $1, $2 }'
printf '%-24s %7d\n' 'e2e, every line' "$(sources_of e2e | xargs cat | wc -l)"
