# Sourced by the scripts beside it: what they need from the system and from PyPI.

# install_packages NAME... : installs Debian packages, or says plainly why it cannot.
install_packages() {
  local as_root=()
  if ! command -v apt-get >/dev/null; then
    echo "missing $*, and there is no apt-get here: install them by hand" >&2
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "missing $*, and neither root nor sudo to install them: run apt-get install $*" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "installing $*"
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@")
  # The lists of a fresh machine are empty, those of an old one stale; most need no update.
  "${install[@]}" >/dev/null 2>&1 && return
  "${as_root[@]}" apt-get update -qq
  "${install[@]}" >/dev/null
}

# make_venv FOLDER REQUIREMENTS [PIP-OPTION...] : a Python environment with exactly those versions.
make_venv() {
  local venv=$1 requirements=$2
  shift 2
  # A venv remembers its requirements, so that a warm run asks PyPI nothing.
  if cmp -s "$requirements" "$venv/requirements.txt"; then
    return
  fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3 python3-venv
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "python3 is $(python3 -V); these tools need 3.11 or later" >&2
    return 1
  }
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" -r "$requirements"
  cp "$requirements" "$venv/requirements.txt"
}
