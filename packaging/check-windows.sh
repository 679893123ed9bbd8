#!/bin/sh
# Runs the zip of a release under wine in an empty prefix, and compares it with the program for this
# machine:
#
#   sh packaging/check-windows.sh ZIP RF-CLI
#
# Needs wine, python3, curl, and for wine 8 of Debian 12 mingw-w64. RF-CLI is a program of the same
# revision for this machine.
set -eu

zip="${1:?give the zip}"
here="${2:?give the program for this machine}"
work="$(mktemp -d)"
server=""

clean() {
    test -z "$server" || kill "$server" 2>/dev/null || true
    WINEPREFIX="$work/prefix" wineserver -k 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

fail() {
    echo "error: $*" >&2
    exit 1
}

export WINEPREFIX="$work/prefix" WINEDEBUG=-all WINEARCH=win64
python3 -m zipfile -e "$zip" "$work"
program="$(echo "$work"/rocmforge-*-windows/rf-cli.exe)"
test -f "$program" || fail "the zip has no rf-cli.exe"
wineboot --init >/dev/null 2>&1

# Every Windows since version 8 has this library; wine has it since version 9.
if ! test -f "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll"; then
    cat >"$work/random.c" <<'END'
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T size) {
    return RtlGenRandom(bytes, (ULONG)size);
}
END
    x86_64-w64-mingw32-gcc -shared -o "$(dirname "$program")/bcryptprimitives.dll" "$work/random.c" \
        -ladvapi32
fi

# Runs both programs with the same arguments: same NAME CODE ARGUMENTS...
same() {
    name="$1"
    expected="$2"
    shift 2
    code=0
    wine "$program" "$@" >"$work/there.out" 2>"$work/there.err" </dev/null || code=$?
    "$here" "$@" >"$work/here.out" 2>"$work/here.err" </dev/null || true
    test "$code" -eq "$expected" || {
        cat "$work/there.err" >&2
        fail "$name: exit code $code, expected $expected"
    }
    cmp "$work/there.out" "$work/here.out" || fail "$name: another output"
    if test "$expected" -ne 0; then
        # Texts of the system's own errors differ.
        test "$(head -c 40 "$work/there.err")" = "$(head -c 40 "$work/here.err")" || {
            head -n 2 "$work/there.err" "$work/here.err" >&2
            fail "$name: another error"
        }
    fi
    echo "ok: $name"
}

prompt="Tell me a story about a fox and a lost key."
same "version" 0 --version
same "the demo model" 0 run --device cpu "$prompt"
same "the demo model, greedy" 0 run --device cpu --temp 0 -n 64 "$prompt"
same "a file that does not exist" 2 run -m no-such-file.gguf Hello
same "an option that does not exist" 2 run --no-such-option Hello
same "a number that is none" 2 run --temp warm Hello
printf 'no model' >"$work/bad.gguf"
(cd "$work" && same "a file that is no model" 2 run -m bad.gguf Hello)

code=0
wine "$program" doctor >"$work/doctor" 2>&1 </dev/null || code=$?
grep -q amdhip64 "$work/doctor" || fail "doctor does not name HIP's library: $(cat "$work/doctor")"
test "$code" -eq 1 || fail "doctor ends with $code without a card, expected 1"
echo "ok: doctor"

port=18181
wine "$program" serve --device cpu --port "$port" >"$work/server" 2>&1 </dev/null &
server=$!
url="http://127.0.0.1:$port"
curl --silent --fail --retry 60 --retry-delay 1 --retry-connrefused -o "$work/health" "$url/health" ||
    fail "the server did not start: $(cat "$work/server")"
body='{"model": "demo", "temperature": 0, "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]}'
curl --silent --fail -H 'Content-Type: application/json' -d "$body" -o "$work/chat" \
    "$url/v1/chat/completions" || fail "the server refuses a chat"
grep -q '"finish_reason"' "$work/chat" || fail "the answer of the server: $(cat "$work/chat")"
code="$(curl --silent -o "$work/refused" -w '%{http_code}' -d '{' "$url/v1/chat/completions")"
test "$code" = 400 || test "$code" = 415 || fail "the server answers bad input with $code"
curl --silent --fail "$url/" | grep -qi '<!doctype html>' || fail "the server has no chat page"
echo "ok: server with a client"
