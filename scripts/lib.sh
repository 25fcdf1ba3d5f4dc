# Shared by the scripts beside it; sourced, never run.
# shellcheck shell=bash

say() { printf '\n==> %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        command -v sudo >/dev/null || die "containers need root: run this as root, or install sudo"
        sudo "$@"
    fi
}

# need_packages PACKAGE... installs the Debian packages that are missing.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "please install: ${missing[*]} (no apt-get here to do it for you)"
    say "Installing ${missing[*]}"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
    as_root "${install[@]}" "${missing[@]}" >/dev/null 2>&1 && return 0
    # The package lists of a fresh machine may be empty or old.
    as_root apt-get update -q >/dev/null && as_root "${install[@]}" "${missing[@]}" >/dev/null ||
        die "could not install: ${missing[*]}"
}

need_rust() {
    local wanted=1.95 found
    command -v cargo >/dev/null || PATH="$PATH:$HOME/.cargo/bin"
    command -v cargo >/dev/null || die "Podium needs Rust $wanted or newer: install it from https://rustup.rs"
    found=$(rustc --version | cut -d' ' -f2)
    at_least "$found" "$wanted" ||
        die "Podium needs Rust $wanted or newer, this is $found: run 'rustup update stable'"
    command -v cc >/dev/null || need_packages gcc libc6-dev
}

# at_least FOUND WANTED compares versions.
at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

# need_kubectl sets KUBECTL to a kubectl that is new enough: the given one, the
# installed one, or one fetched into target/tools (see scripts/fetch-kubectl).
need_kubectl() {
    local found
    for found in "${KUBECTL:-}" "$(command -v kubectl || true)" target/tools/kubectl; do
        if [ -n "$found" ] && [ -x "$found" ] && at_least "$(kubectl_version "$found")" 1.27; then
            KUBECTL=$(realpath --no-symlinks "$found")
            export KUBECTL
            return 0
        fi
    done
    say "Fetching kubectl"
    scripts/fetch-kubectl target/tools/kubectl
    KUBECTL=$(realpath target/tools/kubectl)
    export KUBECTL
}

# need_old_kubectl sets KUBECTL_OLD to one that streams over SPDY: the given
# one, one that is installed beside others, or one fetched into target/tools.
# Tests use KUBECTL alone where there is none.
need_old_kubectl() {
    local beside
    beside=$(dirname "$(realpath "$KUBECTL")")/kubectl.1.27
    for KUBECTL_OLD in "${KUBECTL_OLD:-}" "$beside" target/tools/kubectl-old; do
        if [ -n "$KUBECTL_OLD" ] && [ -x "$KUBECTL_OLD" ]; then
            KUBECTL_OLD=$(realpath "$KUBECTL_OLD")
            export KUBECTL_OLD
            return 0
        fi
    done
    say "Fetching an old kubectl"
    if (scripts/fetch-kubectl target/tools/kubectl-old old); then
        KUBECTL_OLD=$(realpath target/tools/kubectl-old)
        export KUBECTL_OLD
    else
        unset KUBECTL_OLD
    fi
}

# need_client_libraries puts the Python and JavaScript clients that tests/clients
# imports into target/tools and tells the tests where.
need_client_libraries() {
    local tools=target/tools here=tests/clients
    need_packages python3-venv
    command -v npm >/dev/null || need_packages nodejs npm
    if ! cmp -s "$here/requirements.txt" "$tools/python/requirements.txt"; then
        say "Fetching the Python client"
        rm -rf "$tools/python"
        python3 -m venv "$tools/python"
        "$tools/python/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
        cp "$here/requirements.txt" "$tools/python/"
    fi
    if ! cmp -s "$here/package-lock.json" "$tools/javascript/package-lock.json"; then
        say "Fetching the JavaScript client"
        rm -rf "$tools/javascript"
        mkdir -p "$tools/javascript"
        cp "$here/package.json" "$here/package-lock.json" "$tools/javascript/"
        (cd "$tools/javascript" && npm ci --silent --no-audit --no-fund) || { rm -rf "$tools/javascript"; return 1; }
    fi
    cp "$here"/*.mjs "$tools/javascript/"
    PYTHON_CLIENT=$(realpath --no-symlinks "$tools/python/bin/python")
    JAVASCRIPT_CLIENT=$(realpath "$tools/javascript")
    export PYTHON_CLIENT JAVASCRIPT_CLIENT
}

# Prints e.g. 1.35.2, or 0 when the file is no kubectl.
kubectl_version() {
    local version
    version=$("$1" version --client -o json 2>/dev/null | sed -n 's/.*"gitVersion": *"v\([0-9.]*\).*/\1/p')
    echo "${version:-0}"
}
