#!/usr/bin/env bash
# Set up (first run only) and run every check and test. Arguments go to pytest: scripts/test.sh tests/store -x
# PYTHON names the interpreter to start from (3.11 or newer); an installed torch of its own is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYRIGHT_PYTHON_IGNORE_WARNINGS=1
export TRITON_DEFAULT_FP_FUSION="${TRITON_DEFAULT_FP_FUSION:-1}"

say() { printf '\n== %s\n' "$*"; }

python="${PYTHON:-python3}"
venv=.venv/bin
wanted="$(cat pyproject.toml scripts/corpus.txt | cksum)"

if [[ ! -x $venv/python ]]; then
  say "making .venv"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON")'
  if "$python" -c 'import torch' 2>/dev/null; then
    "$python" -m venv --system-site-packages .venv
  else
    "$python" -m venv .venv
  fi
fi
if [[ "$(cat .venv/klineage-set-up 2>/dev/null || true)" != "$wanted" ]]; then
  say "installing torch, klineage and the tools"
  "$venv/python" -c 'import torch' 2>/dev/null || "$venv/pip" install -qq torch==2.13.0
  "$venv/pip" install -qq -e '.[test]'
  say "installing the corpus of expert kernels"
  rm -rf .corpus
  "$venv/pip" install -qq --no-deps --target .corpus -r scripts/corpus.txt
  printf '%s\n' "$wanted" > .venv/klineage-set-up
fi

say "ruff"
"$venv/ruff" check .
"$venv/ruff" format --check .
say "pyright"
"$venv/pyright" --pythonpath "$venv/python"
say "import-linter"
"$venv/lint-imports"
say "docs"
"$venv/python" scripts/docs.py --check
say "pytest"
exec "$venv/python" -m pytest -n 2 --dist loadfile "$@"
