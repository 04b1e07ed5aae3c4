#!/usr/bin/env bash
# Gets what the site's tests need: Chromium, Node.js 18 or newer, what npm fetches, and the extra docs. As root, what is
# missing is installed with apt. Exits with 3 and a sentence where something stays missing.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

left_out() {
    echo "The site's tests in a browser are left out: $1."
    exit 3
}
chromium() { find /usr/bin -name chromium -o -name chromium-browser -o -name google-chrome | head -n 1; }
has_node() { command -v npm >/dev/null && node --eval 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)'; }

missing=()
[ -n "$(chromium)" ] || missing+=(chromium)
has_node || missing+=(nodejs npm)
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing ${missing[*]} with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    { timeout 120 apt-get update && timeout 300 apt-get install -y --no-install-recommends "${missing[@]}"; } >/dev/null 2>&1
fi
[ -n "$(chromium)" ] || left_out "there is no Chromium here (as root: apt-get install chromium)"
has_node || left_out "there is no npm of Node.js 18 or newer here (as root: apt-get install nodejs npm)"
timeout 60 "$(chromium)" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom about:blank >/dev/null 2>&1 ||
    left_out "$(chromium) does not start here"
timeout 300 make --no-print-directory site/node_modules/.has >/dev/null 2>&1 ||
    left_out "npm could not fetch what site/package-lock.json names"
timeout 600 make --no-print-directory "${VENV:-.venv}/.has-docs" >/dev/null 2>&1 ||
    left_out "pip could not install the extra docs"
