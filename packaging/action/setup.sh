#!/usr/bin/env bash
# The step of the GitHub Action. It reads the inputs from INPUT_VERSION, INPUT_TOOLS, INPUT_ENV and INPUT_WHEELS, and writes
# to the files that the runner names: GITHUB_PATH, GITHUB_ENV and GITHUB_OUTPUT.
set -euo pipefail

fail() {
    printf '::error title=Remora::%s\n' "$*"
    exit 1
}

[ "$(uname -s)" = Linux ] || fail "Remora runs on Linux; use a runner such as ubuntu-latest"
command -v python3 >/dev/null || fail "python3 is missing on this runner: install it in a step before"
python3 -c 'import ensurepip' 2>/dev/null || fail "python3 cannot make an environment: install python3-venv in a step before"
read -ra tools <<<"${INPUT_TOOLS:-}"
if [ ${#tools[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || fail "tools (${tools[*]}) cannot be installed: this runner has no apt-get"
    as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "tools (${tools[*]}) cannot be installed: this user is not root, and there is no sudo"
        as_root=(sudo --non-interactive)
    fi
    { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${tools[@]}"; } >/dev/null 2>&1 ||
        fail "tools (${tools[*]}) cannot be installed: apt-get has failed"
fi
home=${RUNNER_TOOL_CACHE:-${RUNNER_TEMP:-$HOME}}/remora
source=()
[ -z "${INPUT_WHEELS:-}" ] || source=(--no-index --find-links "$INPUT_WHEELS")
python3 -m venv "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check "${source[@]}" "remora-rdma${INPUT_VERSION:+==$INPUT_VERSION}" ||
    fail "remora-rdma ${INPUT_VERSION:-} cannot be installed"
libraries=$("$home/bin/python" -c 'import remora_rdma; print(remora_rdma.library_path())')
command=$("$home/bin/python" -c 'import remora_rdma; print(remora_rdma.command())')
# A device that cannot be had fails here, and not in a test.
"$command" doctor || fail "this runner cannot have the device: the lines above say why"
gid=$("$command" run -- cat /sys/class/infiniband/remora0/ports/1/gids/0)
dirname "$command" >>"$GITHUB_PATH"
if [ "${INPUT_ENV:-true}" = true ]; then
    {
        echo "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        echo "REMORA_COMMAND=$command"
    } >>"$GITHUB_ENV"
fi
{
    echo "device=remora0"
    echo "gid=$gid"
    echo "library-path=$libraries"
} >>"$GITHUB_OUTPUT"
