#!/bin/sh
# Installs ROCmForge for x86-64 Linux with glibc 2.28 or newer:
#
#   sh install.sh [--prefix DIR] [--from URL-OR-FOLDER]
#
# The files go to ~/.local, or to DIR. They come from the release, or from a folder with a tarball
# and SHA256SUMS. Nothing is installed if the checksum is wrong.
set -eu

version="@VERSION@"
from="@REPOSITORY@/releases/download/v$version"
prefix="${HOME:-}/.local"

fail() {
    echo "error: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix="${2:?--prefix needs a folder}"; shift 2 ;;
        --from) from="${2:?--from needs a URL or a folder}"; shift 2 ;;
        *) fail "unknown argument '$1': --prefix DIR and --from URL-OR-FOLDER are known" ;;
    esac
done

[ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] ||
    fail "this is $(uname -s) on $(uname -m): build ROCmForge from source there"

name="rocmforge-$version-x86_64-linux"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

fetch() {
    case "$from" in
        https://*)
            if command -v curl >/dev/null; then
                curl --proto '=https' --tlsv1.2 -fsSL -o "$work/$1" "$from/$1"
            elif command -v wget >/dev/null; then
                wget --quiet --https-only -O "$work/$1" "$from/$1"
            else
                fail "neither curl nor wget is installed"
            fi ;;
        *://*) fail "$from: only https and folders are supported" ;;
        *) cp "$from/$1" "$work/$1" ;;
    esac
}

fetch SHA256SUMS
fetch "$name.tar.gz"
grep "  $name.tar.gz\$" "$work/SHA256SUMS" >"$work/sum" || fail "SHA256SUMS does not name $name.tar.gz"
(cd "$work" && sha256sum -c sum >/dev/null 2>&1) || fail "wrong checksum of $name.tar.gz: nothing is installed"

mkdir -p "$prefix"
tar -xzf "$work/$name.tar.gz" -C "$prefix" --strip-components=1 --no-same-owner
"$prefix/bin/rf-cli" -V
echo "installed $prefix/bin/rf-cli, also called rocmforge"
case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "add $prefix/bin to PATH" ;;
esac
