#!/bin/sh
# Installs a release in an empty root of Debian, which has no Rust, no ROCm and no compiler, and
# compares the answer of the demo model with that of the same program on this machine:
#
#   sh packaging/check-linux.sh DIST [SUITE]
#
# Needs root and debootstrap. DIST is a folder with install.sh, the tarball and SHA256SUMS. SUITE is
# a release of Debian [default: bullseye, with glibc 2.31].
set -eu

dist="${1:?give the folder of the release}"
suite="${2:-bullseye}"
work="$(mktemp -d)"
root="$work/root"

clean() {
    umount "$root/proc" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

debootstrap --variant=minbase "$suite" "$root" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    exit 1
}
mount -t proc proc "$root/proc"
mkdir "$root/release" "$work/here"
cp "$dist/install.sh" "$dist/SHA256SUMS" "$dist"/*-"$(uname -m)"-linux.tar.[gx]z "$root/release/"
tar -xzf "$dist"/*-"$(uname -m)"-linux.tar.gz -C "$work/here" --strip-components=1

# Without variables of this machine, such as those that name libraries of a GPU.
inside() {
    chroot "$root" env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin "$@"
}

answer="run --device cpu --temp 0 -n 64"
prompt="Tell me a story about a fox and a lost key."
inside sh /release/install.sh --from /release --prefix /usr/local
inside sh -c 'ldd --version 2>&1 | head -n 1'
start="$(date +%s)"
# shellcheck disable=SC2086 # the options are several words
inside rocmforge $answer "$prompt" >"$work/answer"
echo "answered in $(($(date +%s) - start)) s"
# shellcheck disable=SC2086
"$work/here/bin/rf-cli" $answer "$prompt" >"$work/expected"
test -s "$work/answer"
cmp "$work/answer" "$work/expected"
echo "ok: $suite: the demo model answers as on this machine"
