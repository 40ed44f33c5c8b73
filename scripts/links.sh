#!/bin/sh
# Whether every relative link of every page leads to something. Links to other sites are not followed: checks need no internet.
set -eu
cd "$(dirname "$0")/.."
dead=0
for page in $(find . -name target -prune -o -name .git -prune -o -name '*.md' -print); do
    for link in $(grep -o '](\([^) ]*\))' "$page" | sed 's/^](//; s/)$//; s/#.*//' | sort -u); do
        case $link in
            *://* | mailto:*) ;;
            *) [ -e "$(dirname "$page")/$link" ] || { echo "$page: the link to $link leads nowhere" >&2; dead=1; } ;;
        esac
    done
done
exit $dead
