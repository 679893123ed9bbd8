#!/bin/sh
# Installs ROCmForge for x86-64 and 64-bit ARM Linux with glibc 2.28 or newer:
#
#   sh install.sh [--prefix DIR] [--from URL-OR-FOLDER] [--public-key FILE]
#
# The files go to ~/.local, or to DIR. They come from the release, or from a folder with a tarball
# and SHA256SUMS. Nothing is installed if the checksum is wrong. With a public key, minisign verifies
# the signature of the checksums, too.
set -eu

version="@VERSION@"
from="@REPOSITORY@/releases/download/v$version"
prefix="${HOME:-}/.local"
public_key=""

fail() {
    echo "error: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix="${2:?--prefix needs a folder}"; shift 2 ;;
        --from) from="${2:?--from needs a URL or a folder}"; shift 2 ;;
        --public-key) public_key="${2:?--public-key needs a file}"; shift 2 ;;
        *) fail "unknown argument '$1': --prefix DIR, --from URL-OR-FOLDER and --public-key FILE are known" ;;
    esac
done

machine="$(uname -m)"
case "$(uname -s)-$machine" in
    Linux-x86_64 | Linux-aarch64) ;;
    *) fail "this is $(uname -s) on $machine: build ROCmForge from source there" ;;
esac

name="rocmforge-$version-$machine-linux"
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
if [ -n "$public_key" ]; then
    command -v minisign >/dev/null || fail "minisign, which verifies signatures, is not installed"
    fetch SHA256SUMS.minisig
    minisign -V -q -p "$public_key" -m "$work/SHA256SUMS" >/dev/null 2>&1 ||
        fail "wrong signature of SHA256SUMS: nothing is installed"
fi
# The smaller file where it can be unpacked.
if command -v xz >/dev/null; then file="$name.tar.xz"; else file="$name.tar.gz"; fi
fetch "$file"
grep "  $file\$" "$work/SHA256SUMS" >"$work/sum" || fail "SHA256SUMS does not name $file"
(cd "$work" && sha256sum -c sum >/dev/null 2>&1) || fail "wrong checksum of $file: nothing is installed"

mkdir -p "$prefix"
tar -xf "$work/$file" -C "$prefix" --strip-components=1 --no-same-owner
"$prefix/bin/rf-cli" -V
echo "installed $prefix/bin/rf-cli, also called rocmforge"
case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "add $prefix/bin to PATH" ;;
esac
