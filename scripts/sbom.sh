#!/usr/bin/env bash
# Prints a CycloneDX document (JSON) of the crates in the static binaries: scripts/sbom.sh TARGET VERSION COMMIT
#
# Crates come from `cargo tree`, checksums from Cargo.lock. The time is $SOURCE_DATE_EPOCH, the serial number a digest of the arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1 version=$2 commit=$3
time=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
serial=$(sha256sum <<<"$target $version $commit" |
  sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-8\3-8\4-\5/')
rust=$(rustc -V | cut -d ' ' -f 2)
# The static C library of Debian, with the version of its package.
libc=$(dpkg-query --show --showformat '${Version}' libc6-dev 2>/dev/null || ldd --version | sed -n '1s/.* //p')

cargo tree --locked --package durward --package durward-node --edges normal,no-proc-macro --target "$target" \
  --prefix depth --format '|{p}|{l}' |
  awk -v time="$time" -v serial="$serial" -v version="$version" -v rust="$rust" -v libc="$libc" '
    # Cargo.lock: the checksum of a crate.
    FILENAME == "Cargo.lock" {
      gsub(/"/, "")
      if ($1 == "name") name = $3
      if ($1 == "version") key = name "@" $3
      if ($1 == "checksum") checksum[key] = $3
      next
    }
    # cargo tree: depth|name vVERSION (PATH)|license, and (*) after a crate whose dependencies were printed before.
    NF {
      split($0, field, "|")
      split(field[2], word, " ")
      name = word[1]; sub(/^v/, "", word[2])
      reference = name "@" word[2]
      sub(/ \(\*\)$/, "", field[3])
      gsub(/ *\/ */, " OR ", field[3])
      at[field[1]] = reference
      parent = at[field[1] - 1]
      if (field[1] > 0 && !seen[parent, reference]++) edges[parent] = edges[parent] SUBSEP reference
      if (!(reference in license)) { order[++count] = reference; license[reference] = field[3] }
    }
    function component(name, version, license, more) {
      return sprintf("{\"type\":\"library\",\"bom-ref\":\"%s@%s\",\"name\":\"%s\",\"version\":\"%s\",\"licenses\":[{\"expression\":\"%s\"}]%s}",
        name, version, name, version, license, more)
    }
    END {
      printf "{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.6\",\"serialNumber\":\"urn:uuid:%s\",\"version\":1,\n", serial
      printf "\"metadata\":{\"timestamp\":\"%s\",\"component\":{\"type\":\"application\",\"bom-ref\":\"release\",\"name\":\"durward\",\"version\":\"%s\"}},\n", time, version
      printf "\"components\":[\n"
      for (i = 1; i <= count; i++) {
        split(order[i], word, "@")
        more = ""
        if (order[i] in checksum)
          more = sprintf(",\"purl\":\"pkg:cargo/%s\",\"hashes\":[{\"alg\":\"SHA-256\",\"content\":\"%s\"}]", order[i], checksum[order[i]])
        print component(word[1], word[2], license[order[i]], more) ","
      }
      print component("rust-std", rust, "MIT OR Apache-2.0", "") ","
      print component("glibc", libc, "LGPL-2.1-or-later", "")
      printf "],\n\"dependencies\":[\n"
      for (i = 1; i <= count; i++) {
        n = split(substr(edges[order[i]], 2), needed, SUBSEP)
        printf "{\"ref\":\"%s\",\"dependsOn\":[", order[i]
        for (j = 1; j <= n; j++) printf "%s\"%s\"", (j > 1 ? "," : ""), needed[j]
        print "]},"
      }
      printf "{\"ref\":\"release\",\"dependsOn\":[\"durward@%s\",\"durward-node@%s\",\"rust-std@%s\",\"glibc@%s\"]}\n]}\n", version, version, rust, libc
    }
  ' Cargo.lock -
