#!/bin/sh
# Installs Remora from its tarball, which must be in the folder of this script or at a URL:
#
#   ./install.sh [--prefix FOLDER] [--from FOLDER|URL]
#   ./install.sh [--prefix FOLDER] --uninstall
#   ./install.sh [--prefix FOLDER] --tree FOLDER          installs a tree that is unpacked already
#
# The prefix is /usr/local for root and ~/.local for others; DESTDIR puts a folder in front. The tarball must have the
# checksum that SHA256SUMS beside it names. Everything is checked before the first file is written. The files are listed
# in lib/remora/installed-files, and --uninstall removes them.
set -eu
umask 022

fail() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

absolute() {
    case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s/%s\n' "$PWD" "$1" ;;
    esac
}

if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:-}/.local; fi
from=$(cd "$(dirname "$0")" && pwd)
tree='' removes=''
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --from | --tree)
        [ $# -gt 1 ] || fail "$1 needs a folder"
        case $1 in --prefix) prefix=$(absolute "$2") ;; --from) from=$2 ;; --tree) tree=$2 ;; esac
        shift 2
        ;;
    --uninstall)
        removes=1
        shift
        ;;
    *) fail "unknown argument $1; usage: install.sh [--prefix FOLDER] [--from FOLDER|URL] [--uninstall]" ;;
    esac
done
root=$prefix
[ -z "${DESTDIR:-}" ] || root=$(absolute "$DESTDIR")$prefix
list=$root/lib/remora/installed-files

check_writable() {
    folder=$root
    while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
    [ -d "$folder" ] && [ -w "$folder" ] || fail "cannot install into $root: you may not write into $folder; choose another --prefix"
}

# Fails if the programs cannot run here.
check_platform() {
    [ "$(uname -s)" = Linux ] || fail "Remora runs on Linux, and this is $(uname -s)"
    machine=$(uname -m)
    case $machine in x86_64 | aarch64) ;; *) fail "there is no build of Remora for $machine; there are x86_64 and aarch64" ;; esac
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || fail "Remora needs glibc, which this system does not have"
    libc=${libc#glibc }
    minor=${libc#*.}
    [ "${libc%%.*}" -gt 2 ] || [ "${minor%%.*}" -ge 17 ] || fail "Remora needs glibc 2.17 or newer, and this system has $libc"
}

# Removes the listed files, and then the listed folders that are empty. Those end with a slash.
uninstall() {
    [ -f "$list" ] || return 0
    entries=$(cat "$list")
    printf '%s\n' "$entries" | while IFS= read -r entry; do
        case /$entry in *//* | */../* | */) ;; *) rm -f "$root/$entry" ;; esac
    done
    printf '%s\n' "$entries" | sort -r | while IFS= read -r entry; do
        case /$entry in *//* | */../*) ;; */) rmdir "$root/$entry" 2>/dev/null || true ;; esac
    done
}

# Lists the files of the tree, and those of its folders that are not there yet.
entries() {
    (cd "$tree" && tar -cf - .) | tar -tf - | sed 's,^\./,,' | while IFS= read -r entry; do
        case $entry in '' | . | ./) ;; */) [ -d "$root/$entry" ] || printf '%s\n' "$entry" ;; *) printf '%s\n' "$entry" ;; esac
    done
    echo lib/remora/installed-files
}

# Copies a file of the folder or URL that the tarball comes from.
obtain() {
    case $from in
    http://* | https://*) curl --fail --silent --show-error --location --output "$work/$1" "$from/$1" || fail "cannot get $from/$1" ;;
    *) [ -f "$from/$1" ] && cp "$from/$1" "$work/$1" || fail "$from has no $1; --from names the folder of the release" ;;
    esac
}

unpack() {
    obtain SHA256SUMS
    tarball=$(sed -n "s/^[0-9a-f]*  \(remora-[0-9][^ ]*-$machine\.tar\.xz\)\$/\1/p" "$work/SHA256SUMS")
    [ -n "$tarball" ] || fail "$from/SHA256SUMS names no tarball for $machine"
    obtain "$tarball"
    (cd "$work" && grep "  $tarball\$" SHA256SUMS | sha256sum --check --status -) ||
        fail "$tarball has not the checksum that SHA256SUMS names; nothing was installed"
    tar -xJf "$work/$tarball" -C "$work" || fail "cannot unpack $tarball (does this system have xz?); nothing was installed"
    tree=$work/${tarball%.tar.xz}
}

check_writable
if [ -n "$removes" ]; then
    uninstall
    exit
fi
if [ -z "$tree" ]; then
    check_platform
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    unpack
fi
uninstall
installed=$(entries)
mkdir -p "$root"
# Links stay links, and folders that exist keep their rights.
(cd "$tree" && tar -cf - .) | tar -xf - -C "$root" --no-overwrite-dir --no-same-owner
printf '%s\n' "$installed" >"$list"
printf 'installed into %s: try %s/bin/remora run -- ibv_devinfo\n' "$root" "$root"
